package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// round is one release of many ConfigMaps: those with the numbers from first to last.
type round struct{ first, last int }

// file returns the manifests of the release, of which there are so many that they share a file.
func (r round) file(value string) string {
	var manifests strings.Builder
	for i := r.first; i <= r.last; i++ {
		fmt.Fprintf(&manifests, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c-%04d}\ndata: {key: %q}\n---\n", i, value)
	}
	return manifests.String()
}

// TestKustomizationKilled kills the program 20 times, while 2,000 objects are created, changed and
// deleted. After each release, the cluster has exactly the objects of the artifact, and the
// inventory names them.
func TestKustomizationKilled(t *testing.T) {
	alone(t, "the chart grants more for the apply controller")
	const kills, killsPerRound, maxRounds = 20, 7, 12
	rounds := []round{{0, 1999}, {500, 2499}, {2000, 2499}}
	tn := newApplyTenant(t, "apply-many", map[string]string{"all.yaml": rounds[0].file("round 0")})
	program := startApplying(t, nil, tn)
	o := tn.kustomization("app")
	o.Spec.Interval.Duration = time.Hour
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	longest := 9 * time.Second // how long the program may work until it is killed
	killed := 0
	for i := range maxRounds {
		r, value := rounds[i%len(rounds)], fmt.Sprint("round ", i)
		if i == 0 {
			create(t, o)
		} else {
			tn.release(t, map[string]string{"all.yaml": r.file(value)})
		}
		for range killsPerRound {
			time.Sleep(time.Duration(random.Int64N(int64(longest))))
			must(t, "kill the program", program.Kill())
			interrupted := tn.isUnfinished(t, o, r)
			// Another replica would wait until the lease has expired.
			must(t, "delete the lease", client.IgnoreNotFound(apiserver.CoordinationV1().Leases(local.Namespace).Delete(t.Context(), applyController, metav1.DeleteOptions{})))
			program.start(t)
			if !interrupted { // this machine is fast
				longest = max(longest/2, time.Second)
				break
			}
			if killed++; killed == kills {
				break
			}
		}
		await(t, o, "the release is applied", applied(r.ids(tn.namespace)...))
		tn.hasExactly(t, r, value)
		if killed == kills {
			t.Logf("%d kills in %d releases", killed, i+1)
			return
		}
	}
	t.Errorf("only %d kills interrupted the work", killed)
}

// isUnfinished reports whether a release is not applied yet. The program must not run.
func (tn *applyTenant) isUnfinished(t *testing.T, o *v1alpha1.Kustomization, r round) bool {
	t.Helper()
	must(t, "read the Kustomization", objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	return applied(r.ids(tn.namespace)...)(o) != nil
}

// hasExactly asserts that the cluster has the objects of a release, and no others.
func (tn *applyTenant) hasExactly(t *testing.T, r round, value string) {
	t.Helper()
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

// ids returns the IDs of the release's objects in an inventory.
func (r round) ids(namespace string) []string {
	var ids []string
	for i := r.first; i <= r.last; i++ {
		ids = append(ids, fmt.Sprintf("%s_c-%04d__ConfigMap", namespace, i))
	}
	return ids
}
