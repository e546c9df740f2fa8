package kustomization

import (
	"context"
	"errors"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/share"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/artifact/content"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/desired"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// kube returns a client of an API server that has these objects.
func kube(t *testing.T, all ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(corev1.AddToScheme(scheme), kinds.All().AddToScheme(scheme)))
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme)).WithObjects(all...).Build()
}

// cluster is a client of a cluster whose kinds do not change.
type cluster struct{ client.Client }

func (c cluster) Discover() (apimeta.RESTMapper, error) { return c.RESTMapper(), nil }

// source returns an OCIRepository with an artifact.
func source() *v1alpha1.OCIRepository {
	o := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "app", UID: "source", Labels: map[string]string{"large": "label"}}}
	o.Status.Artifact = &v1alpha1.Artifact{
		URL: "http://lanyard/ocirepository/team-a/app/x.tgz", Digest: "sha256:00", Size: 7, Revision: "1.0.0@sha256:11",
		Metadata: map[string]string{"org.opencontainers.image.revision": "main@sha1:22"},
	}
	return o
}

// kustomization returns an object that Decide accepts.
func kustomization() *v1alpha1.Kustomization {
	o := &v1alpha1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "app", UID: "uid"}}
	o.Spec.SourceRef = v1alpha1.SourceReference{Kind: v1alpha1.OCIRepositoryKind, Name: "app"}
	o.Spec.ServiceAccountName, o.Spec.Prune, o.Spec.Interval.Duration = "deployer", true, 10*time.Minute
	return o
}

func newKind(t *testing.T, all ...client.Object) *kind {
	t.Helper()
	c := kube(t, all...)
	return &kind{Options{Live: c, Sources: &Sources{reader: c, kinds: sourceKinds(true)}, Records: NewRecords()}}
}

// TestDecide checks the plan of a spec.
func TestDecide(t *testing.T) {
	o := kustomization()
	o.Spec.Path, o.Spec.Force, o.Spec.TargetNamespace = "./app", true, "team-a"
	o.Spec.CommonMetadata = &v1alpha1.CommonMetadata{Labels: map[string]string{"a": "b"}}
	o.Spec.Patches = []v1alpha1.Patch{{Patch: "p", Target: &v1alpha1.Selector{Kind: "Deployment", Name: "web"}}, {Patch: "q"}}
	o.Spec.Images = []v1alpha1.Image{{Name: "i", NewTag: "2"}}
	o.Spec.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"/spec/replicas"}, Target: &v1alpha1.Selector{Kind: "Deployment"}}}
	p, err := newKind(t, source()).Decide(t.Context(), o)
	must.Succeed(t, err)
	size := int64(7)
	if want := (content.Reference{
		URL: source().Status.Artifact.URL, Digest: "sha256:00", Size: &size, Owners: []content.Owner{{Kind: "OCIRepository", Namespace: "team-a", Name: "app"}},
	}); !reflect.DeepEqual(p.reference, want) {
		t.Errorf("the artifact is %+v", p.reference)
	}
	if want := (kustomize.Spec{
		Path: "./app", TargetNamespace: "team-a", Images: []kustomize.Image{{Name: "i", NewTag: "2"}},
		Patches: []kustomize.Patch{{Patch: "p", Target: &kustomize.Target{Kind: "Deployment", Name: "web"}}, {Patch: "q"}},
	}); !reflect.DeepEqual(p.spec, want) {
		t.Errorf("the spec is %+v", p.spec)
	}
	if p.account.String() != "system:serviceaccount:team-a:deployer" || p.revision != "1.0.0@sha256:11" || p.originRevision != "main@sha1:22" || !p.force ||
		p.common.Labels["a"] != "b" || len(p.ignore) != 1 || p.ignore[0].Selector.Kind != "Deployment" {
		t.Errorf("the plan is %+v", p)
	}
}

// TestDecideRefuses checks which field each refusal names. Nobody else's identity is ever used.
func TestDecideRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.Kustomization)
		says   string
	}{
		"no account":      {func(o *v1alpha1.Kustomization) { o.Spec.ServiceAccountName = "" }, "spec.serviceAccountName"},
		"no account name": {func(o *v1alpha1.Kustomization) { o.Spec.ServiceAccountName = "team-b:admin" }, "spec.serviceAccountName"},
		"no source":       {func(o *v1alpha1.Kustomization) { o.Spec.SourceRef.Name = "missing" }, "OCIRepository missing does not exist"},
		"another kind":    {func(o *v1alpha1.Kustomization) { o.Spec.SourceRef.Kind = "Secret" }, "spec.sourceRef.kind"},
		"a long name":     {func(o *v1alpha1.Kustomization) { o.Name = strings.Repeat("x", 64) }, "metadata.name"},
		"no interval":     {func(o *v1alpha1.Kustomization) { o.Spec.Interval.Duration = 0 }, "spec.interval"},
		"a long timeout":  {func(o *v1alpha1.Kustomization) { o.Spec.Timeout = &metav1.Duration{Duration: time.Hour} }, "spec.timeout"},
		"no retry":        {func(o *v1alpha1.Kustomization) { o.Spec.RetryInterval = &metav1.Duration{} }, "spec.retryInterval"},
		"a negative index": {func(o *v1alpha1.Kustomization) {
			o.Spec.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"/spec/values/x/-1"}}}
		}, "spec.ignore[0].paths"},
		"a kind":     {func(o *v1alpha1.Kustomization) { o.Spec.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"/kind"}}} }, "spec.ignore[0].paths"},
		"no pointer": {func(o *v1alpha1.Kustomization) { o.Spec.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"spec"}}} }, "spec.ignore[0].paths"},
		"a wrong selector": {func(o *v1alpha1.Kustomization) {
			o.Spec.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"/a"}, Target: &v1alpha1.Selector{LabelSelector: "a=(b"}}}
		}, "spec.ignore"},
	} {
		o := kustomization()
		c.change(o)
		if _, err := newKind(t, source()).Decide(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", name, err, c.says)
		}
	}
	empty := source()
	empty.Status.Artifact = nil
	if _, err := newKind(t, empty).Decide(t.Context(), kustomization()); err == nil || !strings.Contains(err.Error(), "has no artifact yet") {
		t.Errorf("a source without artifact: %v", err)
	}
	k := newKind(t, source())
	k.DefaultServiceAccount = "standard"
	o := kustomization()
	o.Spec.ServiceAccountName = ""
	if p, err := k.Decide(t.Context(), o); err != nil || p.account.String() != "system:serviceaccount:team-a:standard" {
		t.Errorf("the default account: %v, %v", p.account, err)
	}
}

// TestDependencies checks when a Kustomization has to wait for another one.
func TestDependencies(t *testing.T) {
	base := func(change func(*v1alpha1.Kustomization)) *v1alpha1.Kustomization {
		o := kustomization()
		o.Name, o.Generation, o.Status.ObservedGeneration, o.Status.LastAppliedRevision = "base", 2, 2, "1.0.0@sha256:11"
		o.Status.Conditions = []metav1.Condition{{Type: meta.ConditionReady, Status: metav1.ConditionTrue}}
		change(o)
		return o
	}
	for name, c := range map[string]struct {
		base *v1alpha1.Kustomization
		says string
	}{
		"ready":             {base(func(*v1alpha1.Kustomization) {}), ""},
		"another source":    {base(func(o *v1alpha1.Kustomization) { o.Spec.SourceRef.Name, o.Status.LastAppliedRevision = "other", "7" }), ""},
		"not ready":         {base(func(o *v1alpha1.Kustomization) { o.Status.Conditions[0].Status = metav1.ConditionFalse }), "is not Ready"},
		"a new spec":        {base(func(o *v1alpha1.Kustomization) { o.Generation = 3 }), "is not Ready"},
		"another revision":  {base(func(o *v1alpha1.Kustomization) { o.Status.LastAppliedRevision = "0.9.0" }), "has not applied revision 1.0.0@sha256:11 yet"},
		"missing":           {base(func(o *v1alpha1.Kustomization) { o.Name = "other" }), "does not exist"},
		"another namespace": {base(func(o *v1alpha1.Kustomization) { o.Namespace = "team-b" }), "does not exist"},
	} {
		o := kustomization()
		o.Spec.DependsOn = []v1alpha1.KustomizationDependency{{LocalReference: meta.LocalReference{Name: "base"}}}
		err := newKind(t, c.base).checkDependencies(t.Context(), o, "1.0.0@sha256:11")
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), "spec.dependsOn[0]: Kustomization base "+c.says)) {
			t.Errorf("%s: %v", name, err)
		}
		if view := (&kind{}).View(o); !slices.Contains(view.DependsOn, object.Dependency{Kind: "Kustomization", Namespace: "team-a", Name: "base"}) {
			t.Errorf("%s: %+v", name, view.DependsOn)
		}
	}
	o := kustomization()
	o.Spec.DependsOn = []v1alpha1.KustomizationDependency{{LocalReference: meta.LocalReference{Name: o.Name}}}
	if err := newKind(t, o).checkDependencies(t.Context(), o, "1"); err == nil || !strings.Contains(err.Error(), "is the object itself") {
		t.Errorf("itself: %v", err)
	}
	ready, waiting := base(func(*v1alpha1.Kustomization) {}), base(func(o *v1alpha1.Kustomization) { o.Status.Conditions = nil })
	if stateOf(ready) == stateOf(waiting) {
		t.Error("becoming Ready wakes nobody")
	}
}

// TestView checks the times of an object.
func TestView(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		time.Second: 30 * time.Second, time.Minute: 30 * time.Second, 10 * time.Minute: 9*time.Minute + 30*time.Second, 24 * time.Hour: object.MaxTimeout,
	} {
		o := kustomization()
		o.Spec.Interval.Duration = interval
		view := (&kind{}).View(o)
		if view.Timeout.Duration != want || view.RetryWithin != 0 || !view.Finalizer {
			t.Errorf("with interval %s: %+v", interval, view)
		}
	}
	o := kustomization()
	o.Spec.Timeout, o.Spec.RetryInterval = &metav1.Duration{Duration: time.Minute}, &metav1.Duration{Duration: 3 * time.Minute}
	view := (&kind{}).View(o)
	if view.Timeout.Duration != time.Minute || view.RetryWithin != 3*time.Minute ||
		!slices.Equal(view.DependsOn, []object.Dependency{{Kind: "OCIRepository", Namespace: "team-a", Name: "app"}}) {
		t.Errorf("%+v", view)
	}
}

// TestInput checks that the hash of the input changes with all that the manifests and their history
// depend on. Another process has other hashes.
func TestInput(t *testing.T) {
	k := newKind(t, source())
	decide := func(change func(*v1alpha1.Kustomization)) plan {
		o := kustomization()
		change(o)
		p, err := k.Decide(t.Context(), o)
		must.Succeed(t, err)
		return p
	}
	sum := func(r *Records, p plan, values map[string]string) hash {
		h, err := r.hash(p, "", values)
		must.Succeed(t, err)
		return h
	}
	same := decide(func(*v1alpha1.Kustomization) {})
	first := sum(k.Records, same, map[string]string{"a": "1"})
	if first != sum(k.Records, decide(func(*v1alpha1.Kustomization) {}), map[string]string{"a": "1"}) {
		t.Error("the same input has two hashes")
	}
	if first == sum(NewRecords(), same, map[string]string{"a": "1"}) {
		t.Error("the hash has no key")
	}
	if first == sum(k.Records, same, map[string]string{"a": "2"}) {
		t.Error("the values are not in the hash")
	}
	revised := same
	revised.originRevision = "main@sha1:33"
	if first == sum(k.Records, revised, map[string]string{"a": "1"}) {
		t.Error("the revision of the source code is not in the hash")
	}
	if other, err := k.Records.hash(same, "another cluster", map[string]string{"a": "1"}); err != nil || first == other {
		t.Error("the cluster is not in the hash")
	}
	for name, change := range map[string]func(*v1alpha1.Kustomization){
		"account": func(o *v1alpha1.Kustomization) { o.Spec.ServiceAccountName = "other" },
		"path":    func(o *v1alpha1.Kustomization) { o.Spec.Path = "other" },
		"strategy": func(o *v1alpha1.Kustomization) {
			o.Spec.PostBuild = &v1alpha1.PostBuild{SubstituteStrategy: v1alpha1.SubstituteAlways}
		},
		"force": func(o *v1alpha1.Kustomization) { o.Spec.Force = true },
		"common": func(o *v1alpha1.Kustomization) {
			o.Spec.CommonMetadata = &v1alpha1.CommonMetadata{Labels: map[string]string{"a": "b"}}
		},
		"ignore": func(o *v1alpha1.Kustomization) { o.Spec.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"/a"}}} },
	} {
		if first == sum(k.Records, decide(change), map[string]string{"a": "1"}) {
			t.Errorf("%s is not in the hash", name)
		}
	}
}

// TestInventory checks how an inventory is read from the status and written to it.
func TestInventory(t *testing.T) {
	stored := kustomization()
	stored.Status.Inventory = &v1alpha1.Inventory{Entries: []v1alpha1.InventoryEntry{{ID: "team-a_b__ConfigMap", Version: "v1"}, {ID: "team-a_a__ConfigMap", Version: "v1"}}}
	k := newKind(t, stored)
	o := kustomization()
	entries, err := k.readInventory(t.Context(), o)
	must.Succeed(t, err)
	r := &run{kind: k, o: o, inventory: entries, stored: entries}
	if r.setInventory([]apply.Entry{entries[1], entries[0]}); o.Status.Inventory != nil {
		t.Error("an inventory in another order is written")
	}
	r.setInventory(entries[:1])
	if got := o.Status.Inventory; got == nil || len(got.Entries) != 1 || got.Entries[0].ID != "team-a_a__ConfigMap" || len(r.inventory) != 1 {
		t.Errorf("the inventory is %+v", got)
	}
	anew := kustomization()
	anew.UID = "another"
	if _, err := k.readInventory(t.Context(), anew); err == nil {
		t.Error("takes the inventory of an earlier object of the same name")
	}
	stored.Status.Inventory.Entries[1].ID = "forged"
	if _, err := newKind(t, stored).readInventory(t.Context(), o); err == nil || !strings.Contains(err.Error(), "status.inventory.entries[1]") {
		t.Errorf("a forged entry: %v", err)
	}
}

// TestYields checks when another Kustomization leaves an object.
func TestYields(t *testing.T) {
	e, err := apply.ParseEntry("team-a_b__ConfigMap", "v1")
	must.Succeed(t, err)
	owner := func(name string, ids ...string) *v1alpha1.Kustomization {
		o := kustomization()
		o.Name = name
		if ids != nil {
			o.Status.Inventory = &v1alpha1.Inventory{}
			for _, id := range ids {
				o.Status.Inventory.Entries = append(o.Status.Inventory.Entries, v1alpha1.InventoryEntry{ID: id, Version: "v1"})
			}
		}
		return o
	}
	k := newKind(t, owner("owner", e.ID()), owner("former", "team-a_c__ConfigMap"), owner("new"), owner("damaged", "damaged"))
	r := &run{kind: k, owner: apply.Owner{Namespace: "team-a", Name: "app"}, applier: apply.New(cluster{k.Live.(client.Client)}, apply.User{Name: "user"}, apply.Owner{}, false)}
	for other, want := range map[apply.Owner]bool{
		{Namespace: "team-a", Name: "owner"}: false, {Namespace: "team-a", Name: "former"}: true, {Namespace: "team-a", Name: "new"}: true,
		{Namespace: "team-a", Name: "gone"}: true, {Namespace: "team-b", Name: "gone"}: false,
		{Namespace: "team-a", Name: "damaged"}: false,
	} {
		if got, err := r.yields(t.Context(), e, other); err != nil || got != want {
			t.Errorf("%+v: %v, %v", other, got, err)
		}
	}
}

// TestExplain checks the reason of each failure, and whether it is retried.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		err     error
		reason  string
		stalled bool
	}{
		{&sourceError{}, meta.ReasonSourceNotReady, false},
		{&desired.InventoryError{Err: errors.New("x")}, meta.ReasonApplyRefused, false},
		{&dependencyError{}, meta.ReasonDependencyNotReady, false},
		{&content.Error{Reason: content.ReasonRefused, Err: errors.New("x")}, meta.ReasonArtifactRefused, true},
		{&content.Error{Reason: content.ReasonTooLarge, Err: errors.New("x")}, meta.ReasonArtifactRefused, true},
		{&content.Error{Reason: content.ReasonGone, Err: errors.New("x")}, meta.ReasonArtifactUnavailable, false},
		{&content.Error{Reason: content.ReasonDamaged, Err: errors.New("x")}, meta.ReasonArtifactUnavailable, false},
		{&buildError{err: &kustomize.Error{}}, meta.ReasonBuildFailed, true},
		{&buildError{err: &kustomize.Error{}, variable: true}, meta.ReasonBuildFailed, false},
		{&buildError{err: &kustomize.Error{Reason: kustomize.ReasonTooLarge}}, meta.ReasonBuildFailed, false},
		{&sandbox.Error{Err: errors.New("x")}, meta.ReasonBuildUnavailable, false},
		{&share.NoPlaceError{}, meta.ReasonBuildUnavailable, false},
		{&kubeConfigError{err: errors.New("x")}, meta.ReasonKubeConfigRefused, false},
		{&desired.VariablesError{Err: errors.New("x")}, meta.ReasonSubstitutionFailed, false},
		{&apply.Error{Reason: apply.ReasonForbidden}, meta.ReasonApplyRefused, false},
		{&apply.Error{Reason: apply.ReasonUnavailable}, meta.ReasonApplyFailed, false},
		{&terminatingError{}, meta.ReasonTerminating, false},
		{object.OutOfTime(context.DeadlineExceeded), meta.ReasonApplyFailed, false},
	} {
		f, known := (&kind{}).Explain(c.err)
		if !known || f.Reason != c.reason || f.Stalled != c.stalled {
			t.Errorf("%T: %+v", c.err, f)
		}
	}
	if _, known := (&kind{}).Explain(errors.New("x")); known {
		t.Error("an unknown error is explained")
	}
}

// TestNews checks what an event says of the changes.
func TestNews(t *testing.T) {
	entry := func(name string) apply.Entry {
		e, err := apply.ParseEntry("team-a_"+name+"__ConfigMap", "v1")
		must.Succeed(t, err)
		return e
	}
	if news := newsOf("1", nil, nil); news != (object.News{}) {
		t.Errorf("nothing has changed: %+v", news)
	}
	changed := []apply.Change{{Entry: entry("a"), Action: "created"}, {Entry: entry("b"), Action: "configured"}, {Entry: entry("c"), Action: "created"}}
	news := newsOf("1.0.0", changed, []apply.Entry{entry("d")})
	if want := "applied revision 1.0.0; created ConfigMap/team-a/a, ConfigMap/team-a/c; configured ConfigMap/team-a/b; deleted ConfigMap/team-a/d"; news.Note != want || news.Reason != "Applied" {
		t.Errorf("%+v", news)
	}
	var many []apply.Entry
	for range 2000 {
		many = append(many, entry("x"))
	}
	if note := newsOf("1", nil, many).Note; len(note) > 400 || !strings.Contains(note, "1990 more") {
		t.Errorf("many changes: %s", note)
	}
}

// TestDeletionPolicy checks when the applied objects are deleted with their Kustomization.
func TestDeletionPolicy(t *testing.T) {
	for policy, want := range map[string][2]bool{
		"": {false, true}, v1alpha1.DeletionPolicyMirrorPrune: {false, true}, v1alpha1.DeletionPolicyDelete: {true, true},
		v1alpha1.DeletionPolicyWaitForTermination: {true, true}, v1alpha1.DeletionPolicyOrphan: {false, false},
	} {
		for i, prune := range []bool{false, true} {
			if got := deletes(v1alpha1.KustomizationSpec{DeletionPolicy: policy, Prune: prune}); got != want[i] {
				t.Errorf("policy %q with prune %v: %v", policy, prune, got)
			}
		}
	}
	if deletes(v1alpha1.KustomizationSpec{DeletionPolicy: v1alpha1.DeletionPolicyDelete, Prune: true, Suspend: true}) {
		t.Error("a suspended Kustomization deletes objects")
	}
}

// TestRecords checks that a record is only of one object, and is forgotten with the object.
func TestRecords(t *testing.T) {
	r, o := NewRecords(), kustomization()
	r.set(o, record{unsure: true})
	if known, ok := r.get(o); !ok || !known.unsure {
		t.Error("the object is not known")
	}
	anew := kustomization()
	anew.UID = "another"
	if _, ok := r.get(anew); ok {
		t.Error("a new object of the same name is known")
	}
	r.Forget(v1alpha1.KustomizationKind, o.Namespace, o.Name)
	if _, ok := r.get(o); ok || len(r.known) > 0 {
		t.Error("the object is not forgotten")
	}
}

// TestAnnounce checks that a failed write of the inventory leaves no trace, and that the next
// reconciliation reads the stored inventory.
func TestAnnounce(t *testing.T) {
	entry := func(name string) apply.Entry {
		e, err := apply.ParseEntry("team-a_"+name+"__ConfigMap", "v1")
		must.Succeed(t, err)
		return e
	}
	k, o := newKind(t), kustomization()
	first := &run{kind: k, o: o, applier: apply.New(cluster{k.Live.(client.Client)}, apply.User{Name: "user"}, apply.Owner{}, false)}
	first.save = func(context.Context) error { return errors.New("lost") }
	if err := first.announce(t.Context(), []apply.Entry{entry("new")}); err == nil {
		t.Error("the first write is lost")
	}
	if known, _ := k.Records.get(o); !known.unsure {
		t.Error("the first write may have been carried out")
	}
	old := []apply.Entry{entry("old")}
	r := &run{kind: k, o: o, inventory: old, stored: old, applier: apply.New(cluster{k.Live.(client.Client)}, apply.User{Name: "user"}, apply.Owner{}, false)}
	failed := errors.New("too large")
	r.save = func(context.Context) error { return failed }
	if err := r.announce(t.Context(), []apply.Entry{entry("new")}); !errors.Is(err, failed) {
		t.Error(err)
	}
	if known, _ := k.Records.get(o); o.Status.Inventory != nil || !slices.Equal(r.inventory, old) || !known.unsure {
		t.Errorf("%+v, %v, %+v", o.Status.Inventory, r.inventory, known)
	}
	r.stored, r.unsure = old, false
	r.save = func(context.Context) error { return nil }
	must.Succeed(t, r.announce(t.Context(), []apply.Entry{entry("new")}))
	if known, _ := k.Records.get(o); len(o.Status.Inventory.Entries) != 2 || len(r.inventory) != 2 || known.unsure {
		t.Errorf("%+v, %v, %+v", o.Status.Inventory, r.inventory, known)
	}
}

// TestSourceInMemory checks that only the artifact of a source is remembered, and which changes of
// a source wake Kustomizations.
func TestSourceInMemory(t *testing.T) {
	kept, err := rememberArtifact(kinds.OCIRepository())(source())
	must.Succeed(t, err)
	small := kept.(*v1alpha1.OCIRepository)
	if small.Status.Artifact.Digest != "sha256:00" || len(small.Labels) > 0 || small.Name != "app" || small.UID != "source" {
		t.Errorf("%+v", small)
	}
	missed := toolscache.DeletedFinalStateUnknown{Key: "team-a/app"}
	if got, err := rememberArtifact(kinds.OCIRepository())(missed); err != nil || got != missed {
		t.Errorf("a tombstone: %v, %v", got, err)
	}
	for _, kind := range sourceKinds(false) {
		if _, ok := kind.empty().(kinds.Keeper); !ok {
			t.Errorf("%s has no artifact", kind.name)
		}
	}
	changed := source()
	changed.Status.Artifact.URL += "2"
	same := source()
	if stateOf(source()) != stateOf(same) || stateOf(source()) == stateOf(changed) || stateOf(missed) != "" {
		t.Error("changes are not told apart")
	}
}

// external returns an ExternalArtifact that names a source, with an artifact.
func external(sourceNamespace string, artifact map[string]any) *unstructured.Unstructured {
	o := newExternal()
	o.SetNamespace("team-a")
	o.SetName("app")
	o.SetUID("external")
	o.SetLabels(map[string]string{"large": "label"})
	o.Object["spec"] = map[string]any{"sourceRef": map[string]any{"kind": "OCIRepository", "namespace": sourceNamespace, "name": "app"}}
	o.Object["status"] = map[string]any{"artifact": artifact}
	return o
}

// TestExternalArtifact checks which ExternalArtifacts are sources, and whose artifacts they may name.
func TestExternalArtifact(t *testing.T) {
	good := func() map[string]any {
		return map[string]any{
			"url": "http://host/x", "digest": "sha256:00", "revision": "1@sha256:11", "size": int64(7), "path": "x", "lastUpdateTime": "2026-11-30T12:00:00Z",
			"metadata": map[string]any{originRevision: "main@sha1:22", "large": "text"},
		}
	}
	own := []content.Owner{{Kind: "ExternalArtifact", Namespace: "team-a", Name: "app"}, {Kind: "OCIRepository", Namespace: "team-a", Name: "app"}}
	for name, c := range map[string]struct {
		namespace string
		change    func(map[string]any)
		owners    []content.Owner
	}{
		"its own namespace":       {"team-a", func(map[string]any) {}, own},
		"no namespace":            {"", func(map[string]any) {}, own},
		"another namespace":       {"team-b", func(map[string]any) {}, []content.Owner{own[0], {}}},
		"a long namespace":        {strings.Repeat("x", maxExternal+1), func(map[string]any) {}, own},
		"no size":                 {"", func(a map[string]any) { delete(a, "size") }, nil},
		"a negative size":         {"", func(a map[string]any) { a["size"] = int64(-1) }, nil},
		"no URL":                  {"", func(a map[string]any) { delete(a, "url") }, nil},
		"no text":                 {"", func(a map[string]any) { a["digest"] = int64(1) }, nil},
		"a text that is too long": {"", func(a map[string]any) { a["revision"] = strings.Repeat("x", maxExternal+1) }, nil},
	} {
		artifact := good()
		c.change(artifact)
		kept, err := rememberExternal(external(c.namespace, artifact))
		must.Succeed(t, err)
		o := kept.(*unstructured.Unstructured)
		if len(o.GetLabels()) > 0 || o.GetUID() != "external" {
			t.Errorf("%s: remembered %v", name, o.Object)
		}
		k := newKind(t, o)
		user := kustomization()
		user.Spec.SourceRef.Kind = v1alpha1.ExternalArtifactKind
		got, owners, err := k.Sources.artifact(t.Context(), user)
		if c.owners == nil {
			if _, ok := errors.AsType[*sourceError](err); !ok {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			continue
		}
		if err != nil || !slices.Equal(owners, c.owners) || got.URL != "http://host/x" || got.Size != 7 || len(got.Metadata) != 1 {
			t.Errorf("%s: %+v, %v, %v", name, got, owners, err)
		}
		moved := o.DeepCopy()
		must.Succeed(t, unstructured.SetNestedField(moved.Object, "other", "spec", "sourceRef", "name"))
		if c.owners[1].Name != "" && stateOf(o) == stateOf(moved) {
			t.Errorf("%s: another source wakes nobody", name)
		}
	}
	off := newKind(t)
	off.Sources.kinds = sourceKinds(false)
	user := kustomization()
	user.Spec.SourceRef.Kind = v1alpha1.ExternalArtifactKind
	if _, err := off.Decide(t.Context(), user); err == nil || !strings.Contains(err.Error(), "spec.sourceRef.kind: the controller does not read ExternalArtifacts") {
		t.Errorf("without the flag: %v", err)
	}
}

// TestSizeOfStranger asserts that no memory is reserved for an artifact that must not be downloaded.
func TestSizeOfStranger(t *testing.T) {
	for _, size := range []int64{math.MaxInt64, -1} {
		hosts, err := content.ParseHosts([]string{"lanyard"})
		must.Succeed(t, err)
		r := newRun(t, kustomization())
		r.Content = content.NewClient(http.DefaultTransport, hosts, 1<<20)
		r.plan.reference.Size = &size
		ctx, closed := reserve.New(100).Open(t.Context(), "team-a", func(cause error) { t.Errorf("size %d: %v", size, cause) })
		_, err = r.build(ctx)
		if _, ok := errors.AsType[*content.Error](err); !ok {
			t.Errorf("size %d: %v", size, err)
		}
		closed()
	}
}
