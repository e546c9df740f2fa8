package memory

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func source() *toolkitv1.OCIRepository {
	deleted := metav1.Unix(1, 0)
	return &toolkitv1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant-a", Name: "app", UID: "uid", ResourceVersion: "7", Generation: 3, DeletionTimestamp: &deleted,
			GenerateName: "app-", Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "x", "read": "y"},
			Finalizers:      []string{"example.com/other", meta.Finalizer},
			OwnerReferences: []metav1.OwnerReference{{Name: "x"}}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}},
		},
		Spec: toolkitv1.OCIRepositorySpec{URL: "oci://registry.example.com/app"},
		Status: toolkitv1.OCIRepositoryStatus{
			ArtifactStatus: toolkitv1.ArtifactStatus{Artifact: &toolkitv1.Artifact{Digest: "sha256:1"}},
		},
	}
}

// identified returns the metadata that every transform keeps, such as the name and the UID. The
// metadata is that of the object that the function source returns.
func identified() metav1.ObjectMeta {
	o := source()
	return metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation, DeletionTimestamp: o.DeletionTimestamp,
	}
}

// TestRemember checks which metadata each transform keeps of an object that is not too large.
func TestRemember(t *testing.T) {
	read := func(o metav1.Object) map[string]string { return map[string]string{"read": o.GetAnnotations()["read"]} }
	for name, c := range map[string]struct {
		remember func(any) (any, error)
		want     func(*metav1.ObjectMeta)
	}{
		"metadata":    {Metadata, func(*metav1.ObjectMeta) {}},
		"nothing":     {Kept{}.Remember, func(*metav1.ObjectMeta) {}},
		"labels":      {Kept{Labels: true}.Remember, func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"team": "a"} }},
		"annotations": {Kept{Annotations: read}.Remember, func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{"read": "y"} }},
		"finalizers":  {Kept{Finalizers: true}.Remember, func(m *metav1.ObjectMeta) { m.Finalizers = []string{"example.com/other", meta.Finalizer} }},
	} {
		want := source()
		want.ObjectMeta = identified()
		c.want(&want.ObjectMeta)
		got, err := c.remember(source())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
		if Refused(want) != nil {
			t.Errorf("%s: refused", name)
		}
		if got, err := c.remember("tombstone"); err != nil || got != "tombstone" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// names returns n names of ten characters.
func names(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("a.io/%05d", i))
	}
	return list
}

func labelled(names []string) map[string]string {
	labels := map[string]string{}
	for _, name := range names {
		labels[name] = ""
	}
	return labels
}

// TestRefused checks which objects are too large, and because of which field. Remember makes a stub
// of such an object: an object without spec. Refused then returns the field.
func TestRefused(t *testing.T) {
	const fit = MaxMetadata / (10 + EntryCost) // how many names of ten characters MaxMetadata allows
	long := strings.Repeat("x", MaxContent+1)
	for name, c := range map[string]struct {
		change func(*toolkitv1.OCIRepository)
		field  string
	}{
		"small":            {func(*toolkitv1.OCIRepository) {}, ""},
		"labels fit":       {func(o *toolkitv1.OCIRepository) { o.Labels = labelled(names(fit)) }, ""},
		"a label too many": {func(o *toolkitv1.OCIRepository) { o.Labels = labelled(names(fit + 1)) }, "metadata.labels"},
		"finalizers fit":   {func(o *toolkitv1.OCIRepository) { o.Finalizers = append(names(fit), meta.Finalizer) }, ""},
		"a finalizer more": {func(o *toolkitv1.OCIRepository) { o.Finalizers = append(names(fit+1), meta.Finalizer) }, "metadata.finalizers"},
		"ours, repeated":   {func(o *toolkitv1.OCIRepository) { o.Finalizers = slices.Repeat([]string{meta.Finalizer}, 60_000) }, "metadata.finalizers"},
		"annotations":      {func(o *toolkitv1.OCIRepository) { o.Annotations["note"] = long }, ""},
		"owners":           {func(o *toolkitv1.OCIRepository) { o.OwnerReferences[0].Name = long }, ""},
		"spec":             {func(o *toolkitv1.OCIRepository) { o.Spec.URL = long }, "spec.url"},
		"spec, inlined":    {func(o *toolkitv1.OCIRepository) { o.Spec.ServiceAccountName = long }, "spec.serviceAccountName"},
		"status":           {func(o *toolkitv1.OCIRepository) { o.Status.Artifact.Metadata = map[string]string{"x": long} }, "status.artifact.metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			o := source()
			o.Status.Conditions = []metav1.Condition{{Type: meta.ConditionReady}, {Type: "Other", Message: long[:MaxContent/4]}}
			c.change(o)
			ours, artifact := slices.Contains(o.Finalizers, meta.Finalizer), o.Status.Artifact
			got, err := Kept{Finalizers: true, Labels: true}.Remember(o)
			must.Succeed(t, err)
			excess := Refused(o)
			if got != any(o) || (excess == nil) != (c.field == "") || excess != nil && excess.Field != c.field {
				t.Fatalf("%+v, want %q", excess, c.field)
			}
			again, err := Kept{Finalizers: true, Labels: true}.Remember(o.DeepCopy())
			if err != nil || !reflect.DeepEqual(again, got) {
				t.Errorf("remembered again: %+v, %v, want %+v", again, err, got)
			}
			if excess == nil {
				return
			}
			want := identified()
			want.Annotations = map[string]string{tooLarge: excess.mark()}
			if ours {
				want.Finalizers = []string{meta.Finalizer}
			}
			if !reflect.DeepEqual(o.ObjectMeta, want) || !reflect.DeepEqual(o.Spec, toolkitv1.OCIRepositorySpec{}) {
				t.Errorf("the stub is %+v", o)
			}
			if excess.Bytes <= excess.Max || excess.Max != MaxMetadata && excess.Max != MaxContent || excess.Fix() == "" || excess.Error() == "" {
				t.Errorf("%+v", excess)
			}
			if c.field == "status.artifact.metadata" {
				artifact = nil
			}
			if o.Status.Artifact != artifact || o.Status.Conditions[0].Type != meta.ConditionReady {
				t.Errorf("the status of the stub is %+v", o.Status)
			}
		})
	}
}

// TestStubHasAnnotations checks that a stub has the annotations that the program reads. A stub is
// what [Kept.Remember] leaves of an object that is too large. For example, a user requests a
// reconciliation by an annotation. The program must see this request.
func TestStubHasAnnotations(t *testing.T) {
	o := source()
	o.Labels = labelled(names(1000))
	_, err := Kept{Annotations: func(o metav1.Object) map[string]string { return map[string]string{"read": o.GetAnnotations()["read"]} }}.Remember(o)
	must.Succeed(t, err)
	if Refused(o) == nil || len(o.Annotations) != 2 || o.Annotations["read"] != "y" {
		t.Errorf("%+v, %v", Refused(o), o.Annotations)
	}
}

// TestNobodyMakesAStub checks that the API server would refuse the annotation that marks a stub.
func TestNobodyMakesAStub(t *testing.T) {
	if len(validation.IsQualifiedName(tooLarge)) == 0 {
		t.Errorf("the API server stores an annotation with the key %q", tooLarge)
	}
}

// TestContentWithoutSchema checks an identity whose providerConfig is too large. This field may
// contain any JSON. Refused must return the path of the field.
func TestContentWithoutSchema(t *testing.T) {
	o := &identityv1.WorkloadIdentity{}
	o.Spec.TargetSystem.ProviderConfig = &apiruntime.RawExtension{Raw: []byte(`{"x":"` + strings.Repeat("x", MaxContent) + `"}`)}
	_, err := Kept{}.Remember(o)
	must.Succeed(t, err)
	if excess := Refused(o); excess == nil || excess.Field != "spec.targetSystem.providerConfig" {
		t.Errorf("%+v", excess)
	}
}

// TestTypesWithoutSpec checks objects whose Go type has no spec. If such an object has too many
// labels, Remember must make a stub. The function Metadata must not change the data of a Secret.
func TestTypesWithoutSpec(t *testing.T) {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "tenant-a", Labels: labelled(names(1000))}}
	_, err := Kept{Labels: true}.Remember(o)
	must.Succeed(t, err)
	if excess := Refused(o); excess == nil || len(o.Labels) > 0 {
		t.Errorf("%+v, %+v", excess, o)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: labelled(names(9))}, Data: map[string][]byte{"key": []byte("value")}}
	if _, err := Metadata(secret); err != nil || len(secret.Labels) > 0 || len(secret.Data) != 1 {
		t.Errorf("%+v, %v", secret, err)
	}
}

// TestBoundIsMemory checks that EntryCost is large enough. An object gets as many short labels, or
// short finalizers, as MaxMetadata allows. Such an object must take at most 20 KiB of memory.
func TestBoundIsMemory(t *testing.T) {
	const fit = MaxMetadata / (3 + EntryCost)
	short := names(fit)
	for i := range short {
		short[i] = fmt.Sprintf("%03d", i)
	}
	for name, o := range map[string]metav1.ObjectMeta{"labels": {Labels: labelled(short)}, "finalizers": {Finalizers: short}} {
		data, err := json.Marshal(o)
		must.Succeed(t, err)
		const copies = 20
		kept := make([]*metav1.PartialObjectMetadata, copies)
		before := heap()
		for i := range kept {
			kept[i] = &metav1.PartialObjectMetadata{}
			must.Succeed(t, json.Unmarshal(data, &kept[i].ObjectMeta))
			_, err := Kept{Labels: true, Finalizers: true}.Remember(kept[i])
			must.Succeed(t, err)
			if Refused(kept[i]) != nil {
				t.Fatalf("%s: refused", name)
			}
		}
		taken := (heap() - before) / copies
		runtime.KeepAlive(kept)
		if taken > 20<<10 || taken < MaxMetadata/4 {
			t.Errorf("%s: %d bytes for an object", name, taken)
		}
		t.Logf("%d %s: %d bytes for an object", fit, name, taken)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
