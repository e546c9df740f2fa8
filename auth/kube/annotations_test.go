package kube

import (
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

func TestAnnotations(t *testing.T) {
	all := map[string]string{
		roleARN: "a", "eks.amazonaws.com/role-arnx": "b", "azure.workload.identity/client-id": "c", "azure.workload.identity/note": "d",
		"iam.gke.io/gcp-service-account": "e", "gcp.lanyard.dev/workload-identity-provider": "f", "gcp.lanyard.dev/note": "g",
		"azure.workload.identity/tenant-id": "h", "kubectl.kubernetes.io/last-applied-configuration": "{}", "*": "i", "gcp.lanyard.dev/*": "j",
	}
	want := []string{
		"azure.workload.identity/client-id", "azure.workload.identity/tenant-id", roleARN,
		"gcp.lanyard.dev/workload-identity-provider", "iam.gke.io/gcp-service-account",
	}
	if got := slices.Sorted(maps.Keys(DefaultAnnotations().keep(all))); !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
	if got := (Annotations{"*", "x", "y/*"}).keep(map[string]string{"a/b": "", "y": "", "y/z": ""}); got != nil {
		t.Errorf("kept %q", got)
	}
	// A key that is listed twice counts once.
	if got := append(DefaultAnnotations(), roleARN, "z").keep(map[string]string{roleARN: "a", "x": "", "z": ""}); len(got) != 2 || got[roleARN] != "a" {
		t.Errorf("kept %q", got)
	}
	if len(all) != 11 {
		t.Error("the object's own annotations were changed")
	}
}

// TestAnnotationTooLong checks that an account with too long a value is refused, even after the
// informer's transform has cut the value. Lookup must then return no attributes at all.
func TestAnnotationTooLong(t *testing.T) {
	subject, err := auth.ServiceAccount("tenant-a", "puller")
	must.Succeed(t, err)
	for _, key := range DefaultAnnotations() {
		for length, refused := range map[int]bool{0: false, 1: false, MaxAnnotation: false, MaxAnnotation + 1: true, MaxAnnotation + 2: true, 256 << 10: true} {
			for name, prepare := range map[string]func(any) (any, error){
				"whole":       func(o any) (any, error) { return o, nil },
				"transformed": DefaultAnnotations().transform,
			} {
				o := object("uid-1", map[string]string{key: strings.Repeat("x", length), "note": "x"})
				prepared, err := prepare(o)
				must.Succeed(t, err)
				a := &Accounts{index: newIndex(DefaultAnnotations().source())}
				a.index.OnAdd(prepared, true)
				account, err := a.Lookup(t.Context(), subject)
				if !refused {
					if err != nil || len(account.Attributes) != 1 || len(account.Attributes[key]) != length {
						t.Errorf("%s of %d bytes, %s: %+v, %v", key, length, name, account, err)
					}
					continue
				}
				e, ok := errors.AsType[*auth.Error](err)
				if !ok || e.Stage != auth.StageIdentity || e.Code != auth.CodeIdentityInvalid || account.Attributes != nil ||
					e.Err.Error() != "annotation "+key+" of ServiceAccount tenant-a/puller: its value has more than 2048 bytes" ||
					e.Fix != "set annotation "+key+" of ServiceAccount tenant-a/puller to the name of one identity, or remove it" {
					t.Errorf("%s of %d bytes, %s: %+v, %v", key, length, name, account, err)
				}
			}
		}
	}
}

// TestMemoryIsBounded checks that the memory for an account is bounded, whatever annotations its
// author writes.
func TestMemoryIsBounded(t *testing.T) {
	const accounts, most = 200, 24 << 10 // most: bytes per account
	heap := func() uint64 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	a := &Accounts{index: newIndex(DefaultAnnotations().source())}
	var informer []any
	before := heap()
	for i := range accounts {
		annotations := map[string]string{}
		for _, key := range append(DefaultAnnotations(), "azure.workload.identity/note", "gcp.lanyard.dev/note", "note") {
			annotations[key] = strings.Repeat("x", 32<<10) // 256 KiB together, as Kubernetes allows
		}
		o := object(fmt.Sprint("uid-", i), annotations)
		o.Name = fmt.Sprint("puller-", i)
		kept, err := DefaultAnnotations().transform(o)
		must.Succeed(t, err)
		informer = append(informer, kept)
		a.index.OnAdd(kept, true)
	}
	if each := (int64(heap()) - int64(before)) / accounts; each > most {
		t.Errorf("%d bytes for each account, want at most %d", each, most)
	}
	goruntime.KeepAlive(informer)
	goruntime.KeepAlive(a)
}

func TestTransform(t *testing.T) {
	var transform toolscache.TransformFunc
	for of, by := range ByObject(DefaultAnnotations()) {
		if of.GetObjectKind().GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("ServiceAccount") {
			transform = by.Transform
		}
	}
	if transform == nil {
		t.Fatal("no transform of ServiceAccounts")
	}
	full := object("uid-1", map[string]string{roleARN: "a", "note": "x"})
	full.ResourceVersion = "7"
	full.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	want := full.DeepCopy()
	want.Annotations = map[string]string{roleARN: "a"}
	full.Labels = map[string]string{"app": "x"}
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	full.OwnerReferences = []metav1.OwnerReference{{Name: "x"}}
	got, err := transform(full)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("kept %v, %v, want %v", got, err, want)
	}

	// The transform leaves a corev1.ServiceAccount whole, for programs that cache this type.
	whole := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}}
	if got, err := transform(whole); err != nil || got.(*corev1.ServiceAccount).Labels["app"] != "x" || len(whole.ImagePullSecrets) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := transform("tombstone"); err != nil || got != "tombstone" {
		t.Errorf("%v, %v", got, err)
	}
}
