package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// round is one release of many ConfigMaps: those with the numbers from first to last.
type round struct {
	first, last int
	kills       int // how often the program is killed while it applies the release
}

// file returns the manifests of the release, of which there are so many that they share a file.
func (r round) file(value string) string {
	var manifests strings.Builder
	for i := r.first; i <= r.last; i++ {
		fmt.Fprintf(&manifests, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c-%04d}\ndata: {key: %q}\n---\n", i, value)
	}
	return manifests.String()
}

// TestKustomizationKilled kills the program 20 times, while 2,000 objects are created, changed and
// deleted. In the end, the cluster has exactly the objects of the last artifact, and the inventory
// names them.
func TestKustomizationKilled(t *testing.T) {
	alone(t, "the chart grants more for the apply controller")
	rounds := []round{{0, 1999, 7}, {500, 2499, 7}, {2000, 2499, 6}}
	tn := newApplyTenant(t, "apply-many", map[string]string{"all.yaml": rounds[0].file("round 0")})
	program := startApplying(t, nil, tn)
	o := tn.kustomization("app")
	o.Spec.Interval.Duration = time.Hour
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	interrupted := 0
	for i, r := range rounds {
		value := fmt.Sprint("round ", i)
		if i == 0 {
			create(t, o)
		} else {
			tn.release(t, map[string]string{"all.yaml": r.file(value)})
		}
		for range r.kills {
			time.Sleep(time.Duration(500+random.IntN(9000)) * time.Millisecond)
			must(t, "kill the program", program.Kill())
			must(t, "read the Kustomization", objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
			if c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady); c == nil || c.Status != metav1.ConditionTrue || tn.behind(t, o) {
				interrupted++
			}
			// Another replica would wait until the lease has expired.
			must(t, "delete the lease", client.IgnoreNotFound(apiserver.CoordinationV1().Leases(local.Namespace).Delete(t.Context(), applyController, metav1.DeleteOptions{})))
			program.start(t)
		}
		await(t, o, "the release is applied", func(o *v1alpha1.Kustomization) error {
			if tn.behind(t, o) {
				return fmt.Errorf("applied %s", o.Status.LastAppliedRevision)
			}
			return applied(r.ids(tn.namespace)...)(o)
		})
		all := &corev1.ConfigMapList{}
		must(t, "list the objects", objects.List(t.Context(), all, client.InNamespace(tn.namespace), client.HasLabels{"kustomize.toolkit.lanyard.dev/name"}))
		var got []string
		for _, c := range all.Items {
			got = append(got, tn.namespace+"_"+c.Name+"__ConfigMap")
			if c.Data["key"] != value {
				t.Errorf("%s is %v", c.Name, c.Data)
			}
		}
		if slices.Sort(got); !slices.Equal(got, r.ids(tn.namespace)) {
			t.Errorf("the cluster has %d objects: %q", len(got), got)
		}
	}
	t.Logf("%d of 20 kills interrupted the work", interrupted)
	if interrupted < 10 {
		t.Error("too few kills interrupted the work")
	}
}

// ids returns the IDs of the release's objects in an inventory.
func (r round) ids(namespace string) []string {
	var ids []string
	for i := r.first; i <= r.last; i++ {
		ids = append(ids, fmt.Sprintf("%s_c-%04d__ConfigMap", namespace, i))
	}
	return ids
}

// behind reports whether a Kustomization has not applied the source's last artifact yet.
func (tn *applyTenant) behind(t *testing.T, o *v1alpha1.Kustomization) bool {
	t.Helper()
	source := &v1alpha1.OCIRepository{}
	must(t, "read the source", objects.Get(t.Context(), client.ObjectKeyFromObject(tn.source), source))
	return source.Status.Artifact == nil || source.Status.Artifact.Revision != o.Status.LastAppliedRevision
}
