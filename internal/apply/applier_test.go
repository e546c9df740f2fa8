package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// server is an API server's part that package ssa needs. The end-to-end tests use a real one.
type server struct {
	client.Client // nil: other methods panic

	mu       sync.Mutex
	objects  map[object.ObjMetadata]*unstructured.Unstructured
	writes   int
	requests []string
	fail     func(verb, name string) error
	served   string // the version of Widgets that Get serves, if others is true
	others   bool   // Get serves only this version

	discoveries int
	hidden      int // how often RESTMapper does not have Gadgets yet
}

func newServer() *server {
	return &server{objects: map[object.ObjMetadata]*unstructured.Unstructured{}, fail: func(string, string) error { return nil }}
}

func (s *server) RESTMapper() apimeta.RESTMapper {
	mapper := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "example.com", Version: "v1beta1"}})
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, apimeta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, apimeta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, apimeta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, apimeta.RESTScopeRoot)
	for _, kind := range []string{"Role", "RoleBinding"} {
		mapper.Add(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: kind}, apimeta.RESTScopeNamespace)
	}
	for _, version := range []string{"v1", "v1beta1"} {
		mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Widget"}, apimeta.RESTScopeNamespace)
	}
	if s.hidden--; s.hidden < 0 {
		mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}, apimeta.RESTScopeNamespace)
	}
	return mapper
}

// TestEstablished waits until an API server lists a new kind, which happens after the definition is
// established.
func TestEstablished(t *testing.T) {
	s := newServer()
	definition := object1("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets.example.com")
	definition.Object["spec"] = map[string]any{
		"group": "example.com", "names": map[string]any{"kind": "Gadget"},
		"versions": []any{map[string]any{"name": "v1", "served": true}, map[string]any{"name": "v1alpha1", "served": false}},
	}
	stored := definition.DeepCopy()
	stored.Object["status"] = map[string]any{"conditions": []any{
		map[string]any{"type": "NamesAccepted", "status": "True"}, map[string]any{"type": "Established", "status": "True"},
	}}
	s.objects[keyOf(stored)] = stored
	s.hidden = 3
	a := New(s, user(), Owner{Namespace: "apps", Name: "app"}, false)
	must.Succeed(t, a.established(t.Context(), []*unstructured.Unstructured{definition}))
	if s.hidden >= 0 {
		t.Error("the kind is not served yet")
	}
}

// Discover returns what the API server serves. Other than the RESTMapper, it has only the served
// version.
func (s *server) Discover() (apimeta.RESTMapper, error) {
	s.discoveries++
	served := schema.GroupVersion{Group: "example.com", Version: s.served}
	mapper := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{served})
	if s.served != "" {
		mapper.Add(served.WithKind("Widget"), apimeta.RESTScopeNamespace)
	}
	return mapper, nil
}

func (s *server) begin(verb string, o client.Object) (object.ObjMetadata, error) {
	whole, ok := o.(*unstructured.Unstructured)
	if !ok {
		whole = object1("v1", o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName())
	}
	key := keyOf(whole)
	s.requests = append(s.requests, verb+" "+key.Name)
	return key, s.fail(verb, key.Name)
}

func (s *server) Get(ctx context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if short, ok := o.(*metav1.PartialObjectMetadata); ok {
		whole := &unstructured.Unstructured{}
		whole.SetGroupVersionKind(short.GroupVersionKind())
		if err := s.Get(ctx, name, whole); err != nil {
			return err
		}
		short.UID, short.Labels, short.Annotations, short.Name = whole.GetUID(), whole.GetLabels(), whole.GetAnnotations(), name.Name
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o.SetNamespace(name.Namespace)
	o.SetName(name.Name)
	if s.others && o.GetObjectKind().GroupVersionKind().Version != s.served {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Message: "the server could not find the requested resource"}}
	}
	key, err := s.begin("get", o)
	if err != nil {
		return err
	}
	found := s.objects[key]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name.Name)
	}
	found.DeepCopyInto(o.(*unstructured.Unstructured))
	return nil
}

func (s *server) Patch(_ context.Context, o client.Object, _ client.Patch, options ...client.PatchOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	verb := "apply"
	if isDryRun(options) {
		verb = "try"
	}
	key, err := s.begin(verb, o)
	if err != nil {
		return err
	}
	next := o.DeepCopyObject().(*unstructured.Unstructured)
	if last := s.objects[key]; last != nil {
		next.SetUID(last.GetUID())
		next.SetResourceVersion(last.GetResourceVersion())
	} else {
		next.SetUID(types.UID("uid-" + strconv.Itoa(s.writes)))
	}
	if verb == "apply" {
		s.writes++
		next.SetResourceVersion(strconv.Itoa(s.writes))
		s.objects[key] = next
	}
	next.DeepCopyInto(o.(*unstructured.Unstructured))
	return nil
}

func (s *server) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := s.begin("delete", o)
	if err == nil {
		delete(s.objects, key)
	}
	return err
}

func (s *server) count(verb string) (n int) {
	for _, r := range s.requests {
		if strings.HasPrefix(r, verb+" ") {
			n++
		}
	}
	return n
}

func configMaps(n int) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i := range n {
		o := object1("v1", "ConfigMap", "apps", fmt.Sprint("c-", i))
		o.Object["data"] = map[string]any{"k": "v"}
		all = append(all, o)
	}
	return all
}

// TestRequests counts the requests for new and for known objects.
func TestRequests(t *testing.T) {
	s := newServer()
	a := New(s, user(), Owner{Namespace: "apps", Name: "app"}, false)
	began := 0
	result, err := a.Apply(t.Context(), configMaps(50), Options{BeforeWrite: func(context.Context) error {
		began++
		if len(s.objects) > 0 {
			t.Error("an object is stored before the inventory")
		}
		return nil
	}})
	must.Succeed(t, err)
	if began != 1 || len(result.Changed()) != 50 || s.count("get") != 0 || s.count("try") != 50 || s.count("apply") != 50 {
		t.Errorf("began %d times, %d changes, requests %q", began, len(result.Changed()), s.requests)
	}
	s.requests = nil
	result, err = a.Apply(t.Context(), configMaps(50), Options{Inventory: result.Entries(), BeforeWrite: func(context.Context) error {
		return errors.New("nothing may be stored")
	}})
	must.Succeed(t, err)
	if len(result.Changed()) != 0 || s.count("get") != 50 || s.count("try") != 50 || s.count("apply") != 0 || result.Versions.Len() != 50 {
		t.Errorf("%d changes, requests %q", len(result.Changed()), s.requests)
	}
	s.requests = nil
	// An object that is not in the inventory, but exists: the dry run finds that out.
	_, err = a.Apply(t.Context(), configMaps(1), Options{})
	must.Succeed(t, err)
	if s.count("try") != 1 || s.count("get") != 1 || s.count("apply") != 0 {
		t.Errorf("requests %q", s.requests)
	}
}

// TestInventoryFirst asserts that nothing is stored if the inventory cannot be stored.
func TestInventoryFirst(t *testing.T) {
	s := newServer()
	want := errors.New("the status cannot be written")
	_, err := New(s, user(), Owner{}, false).Apply(t.Context(), configMaps(3), Options{BeforeWrite: func(context.Context) error { return want }})
	if !errors.Is(err, want) || len(s.objects) != 0 {
		t.Errorf("%v, %d objects", err, len(s.objects))
	}
}

// TestUnreadable asserts that an object that cannot be read is not written.
func TestUnreadable(t *testing.T) {
	s := newServer()
	a := New(s, user(), Owner{}, false)
	result, err := a.Apply(t.Context(), configMaps(2), Options{})
	must.Succeed(t, err)
	s.requests = nil
	s.fail = func(verb, name string) error {
		if verb == "get" && name == "c-1" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, name, errors.New("no right to get"))
		}
		return nil
	}
	_, err = a.Apply(t.Context(), configMaps(2), Options{Inventory: result.Entries()})
	failed, ok := errors.AsType[*Error](err)
	if !ok || failed.Reason != ReasonForbidden || failed.Verb != "get" || s.count("apply") != 0 {
		t.Errorf("%v, requests %q", err, s.requests)
	}
}

// TestForce asserts that an object is deleted only if an immutable field has changed.
func TestForce(t *testing.T) {
	for text, deletes := range map[string]int{"field is immutable": 1, "must be positive": 0} {
		s := newServer()
		a := New(s, user(), Owner{}, false)
		result, err := a.Apply(t.Context(), configMaps(1), Options{})
		must.Succeed(t, err)
		s.fail = func(verb, name string) error {
			if verb != "try" || s.count("delete") > 0 {
				return nil
			}
			return apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, name, field.ErrorList{field.Invalid(field.NewPath("data"), "x", text)})
		}
		_, err = a.Apply(t.Context(), configMaps(1), Options{Inventory: result.Entries(), Force: true})
		if failed := err != nil; failed == (deletes == 1) || s.count("delete") != deletes {
			t.Errorf("%s: %v, requests %q", text, err, s.requests)
		}
	}
}

// TestOtherOwner asserts that an object of another owner is written only if that owner yields.
func TestOtherOwner(t *testing.T) {
	s := newServer()
	_, err := New(s, user(), Owner{Namespace: "apps", Name: "first"}, false).Apply(t.Context(), configMaps(1), Options{})
	must.Succeed(t, err)
	stored := maps.Clone(s.objects)
	second := New(s, user(), Owner{Namespace: "apps", Name: "second"}, false)
	for name, yields := range map[string]func(context.Context, Entry, Owner) (bool, error){
		"nobody is asked": nil,
		"no":              func(context.Context, Entry, Owner) (bool, error) { return false, nil },
		"an error":        func(context.Context, Entry, Owner) (bool, error) { return true, errors.New("unknown") },
	} {
		_, err := second.Apply(t.Context(), configMaps(1), Options{Yields: yields})
		if err == nil || !maps.Equal(stored, s.objects) {
			t.Errorf("%s: %v", name, err)
		}
		if failed, ok := errors.AsType[*Error](err); ok != (name != "an error") || ok && failed.Reason != ReasonOwned {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = second.Apply(t.Context(), configMaps(1), Options{Yields: func(_ context.Context, _ Entry, other Owner) (bool, error) {
		return other == Owner{Namespace: "apps", Name: "first"}, nil
	}})
	must.Succeed(t, err)
}

// TestFluxOwner asserts which objects of Flux are taken over.
func TestFluxOwner(t *testing.T) {
	own, other := [2]string{"apps", "app"}, [2]string{"apps", "other"}
	for name, c := range map[string]struct {
		flux    [2]string // namespace and name of Flux's Kustomization
		applied bool      // the object has Lanyard's labels
		listed  bool      // the object is in the inventory
		merged  bool      // others may write the object
		asked   bool      // somebody says that Flux's Kustomization is gone
		refused bool
	}{
		"moved":                  {flux: own},
		"moved, then killed":     {flux: own, listed: true, asked: true},
		"Flux has overridden":    {flux: own, listed: true, refused: true},
		"moved back and forth":   {flux: own, applied: true},
		"both apply":             {flux: own, applied: true, listed: true, refused: true},
		"Flux's is gone":         {flux: own, applied: true, listed: true, asked: true},
		"another is gone":        {flux: other, asked: true, refused: true},
		"merged":                 {flux: own, applied: true, listed: true, merged: true},
		"another":                {flux: other, refused: true},
		"another applies, too":   {flux: other, applied: true, listed: true, refused: true},
		"another, and merged":    {flux: other, merged: true},
		"another namespace":      {flux: [2]string{"other", "app"}, refused: true},
		"one label":              {flux: [2]string{"", "other"}},
		"not of Flux":            {applied: true, listed: true},
		"not of Flux, and new":   {},
		"not of Flux, but known": {listed: true},
	} {
		s := newServer()
		a := New(s, user(), Owner{Namespace: "apps", Name: "app"}, false)
		existing := configMaps(1)[0]
		labels := map[string]string{}
		if c.flux[0] != "" {
			labels[fluxNamespaceLabel] = c.flux[0]
		}
		if c.flux[1] != "" {
			labels[fluxNameLabel] = c.flux[1]
		}
		if c.applied {
			maps.Copy(labels, a.labels())
		}
		existing.SetLabels(labels)
		if c.merged {
			existing.SetAnnotations(map[string]string{annotation(ssaName): "Merge"})
		}
		existing.SetUID("uid")
		existing.SetResourceVersion("1")
		s.objects[keyOf(existing)] = existing
		options := Options{TakeOver: c.asked}
		if c.listed {
			options.Inventory = []Entry{EntryOf(existing)}
		}
		manifest := configMaps(1)
		manifest[0].SetLabels(map[string]string{fluxNameLabel: "read-from-a-cluster"})
		_, err := a.Apply(t.Context(), manifest, options)
		failed, _ := errors.AsType[*Error](err)
		switch {
		case c.refused && (failed == nil || failed.Reason != ReasonOwned || !strings.Contains(failed.Error(), "Kustomization "+c.flux[0]+"/"+c.flux[1])):
			t.Errorf("%s: %v", name, err)
		case !c.refused && err != nil:
			t.Errorf("%s: %v", name, err)
		case !c.refused && s.objects[keyOf(existing)].GetLabels()[fluxNameLabel] == "read-from-a-cluster":
			t.Errorf("%s: a label of the manifest is applied", name)
		}
	}
}

// TestFluxObjectsStay asserts that an object that Flux applies, too, is not deleted.
func TestFluxObjectsStay(t *testing.T) {
	for merged, deleted := range map[bool]int{false: 0, true: 1} {
		s := newServer()
		a := New(s, user(), Owner{Namespace: "apps", Name: "app"}, false)
		result, err := a.Apply(t.Context(), configMaps(1), Options{})
		must.Succeed(t, err)
		for _, o := range s.objects {
			labels := o.GetLabels()
			labels[fluxNameLabel], labels[fluxNamespaceLabel] = "app", "apps"
			o.SetLabels(labels)
			if merged {
				o.SetAnnotations(map[string]string{annotation(ssaName): "Merge"})
			}
		}
		pruned, err := a.Prune(t.Context(), result.Entries(), nil)
		if err != nil || len(pruned.Deleted) != deleted || len(pruned.Left) != 1-deleted {
			t.Errorf("merged %v: %+v, %v", merged, pruned, err)
		}
	}
}

// TestPlace asserts that a cluster-scoped object loses its namespace.
func TestPlace(t *testing.T) {
	s := newServer()
	result, err := New(s, user(), Owner{}, false).Apply(t.Context(), []*unstructured.Unstructured{object1("v1", "Namespace", "injected", "made")}, Options{})
	must.Succeed(t, err)
	if entries := result.Entries(); len(entries) != 1 || entries[0].ID() != "_made__Namespace" {
		t.Errorf("the entries are %v", entries)
	}
}

// TestInjectedNamespace asserts that a cluster-scoped object is not pruned under the namespace that a
// build has added to its manifest.
func TestInjectedNamespace(t *testing.T) {
	s := newServer()
	owner := Owner{Namespace: "apps", Name: "app"}
	a := New(s, user(), owner, false)
	manifest := object1("v1", "Namespace", "injected", "made")
	announced := EntryOf(manifest)
	result, err := a.Apply(t.Context(), []*unstructured.Unstructured{manifest}, Options{})
	must.Succeed(t, err)
	if canonical := a.Canonical([]Entry{announced, result.Entries()[0]}); len(canonical) != 1 || canonical[0] != result.Entries()[0] {
		t.Errorf("the canonical entries are %v", canonical)
	}
	pruned, err := a.Prune(t.Context(), []Entry{announced}, result)
	must.Succeed(t, err)
	if len(pruned.Deleted) != 0 || len(s.objects) != 1 {
		t.Errorf("pruned %+v", pruned)
	}
	if pruned, err = a.Prune(t.Context(), []Entry{announced}, nil); err != nil || len(pruned.Deleted) != 1 || len(s.objects) != 0 {
		t.Errorf("pruned %+v, %v", pruned, err)
	}
	twice := []*unstructured.Unstructured{object1("v1", "Namespace", "a", "made"), object1("v1", "Namespace", "b", "made")}
	if _, err := a.Apply(t.Context(), twice, Options{}); err == nil || len(s.objects) != 0 {
		t.Errorf("one object under two namespaces: %v", err)
	}
}

// TestNoObjects asserts that manifests are refused whose kind has no objects, or cannot be part of a
// path, or which an inventory cannot name.
func TestNoObjects(t *testing.T) {
	for _, o := range []*unstructured.Unstructured{
		object1("v1", "Status", "apps", "a"), object1("v1", "DeleteOptions", "apps", "a"), object1("v1", "PodList", "apps", "a"),
		object1("../metrics", "Pod", "apps", "a"), object1("a/../b", "Pod", "apps", "a"), object1("v1", "Pod/exec", "apps", "a"),
		object1("rbac.authorization.k8s.io/v1", "Role", "apps", "a__b"),
	} {
		s := newServer()
		_, err := New(s, user(), Owner{}, false).Apply(t.Context(), []*unstructured.Unstructured{o}, Options{})
		if failed, ok := errors.AsType[*Error](err); !ok || failed.Reason != ReasonUnknownKind && failed.Reason != ReasonInvalid || len(s.requests) > 0 {
			t.Errorf("%s %s: %v after %q", o.GetAPIVersion(), o.GetKind(), err, s.requests)
		}
	}
	for _, version := range []string{"../v1", "v1/x", "", "V1"} {
		if e, err := ParseEntry("apps_a__ConfigMap", version); err == nil {
			t.Errorf("version %q is parsed as %+v", version, e)
		}
	}
}

// TestOtherVersion asserts that an object is found if the API server serves another version of its
// kind than the inventory and the client's RESTMapper have. The object is gone only if the API server
// does not serve the kind.
func TestOtherVersion(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} { // the RESTMapper has v1beta1, and never had v1alpha1
		for served, want := range map[string]int{"v1": 1, "": 0} {
			s := newServer()
			a := New(s, user(), Owner{Namespace: "apps", Name: "app"}, false)
			result, err := a.Apply(t.Context(), []*unstructured.Unstructured{object1("example.com/v1", "Widget", "apps", "a")}, Options{})
			must.Succeed(t, err)
			e := result.Entries()[0]
			e.Version, s.served, s.others = version, served, true
			if left, err := a.Remaining(t.Context(), []Entry{e}); err != nil || len(left) != want {
				t.Errorf("%s, with %q served: left %v, %v", version, served, left, err)
			}
		}
	}
}

// TestMissingKinds asserts that the kinds of the API server are read once, however many kinds are
// missing. Objects of kinds that exist are found afterwards, too.
func TestMissingKinds(t *testing.T) {
	s := newServer()
	s.served = "v1"
	a := New(s, user(), Owner{Namespace: "apps", Name: "app"}, false)
	_, err := a.Apply(t.Context(), []*unstructured.Unstructured{object1("example.com/v1", "Widget", "apps", "a")}, Options{})
	must.Succeed(t, err)
	for i := range 10 {
		e, err := NewEntry(schema.GroupVersionKind{Group: fmt.Sprint("group", i), Version: "v1", Kind: "Missing"}, "apps", "a")
		must.Succeed(t, err)
		if o, err := a.Read(t.Context(), e); o != nil || err != nil {
			t.Errorf("%v, %v", o, err)
		}
	}
	e, err := NewEntry(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, "apps", "a")
	must.Succeed(t, err)
	if o, err := a.Read(t.Context(), e); o == nil || err != nil || s.discoveries != 1 {
		t.Errorf("%v, %v, after %d discoveries", o, err, s.discoveries)
	}
	_, err = a.Apply(t.Context(), configMaps(1), Options{})
	must.Succeed(t, err)
	e.Version = "v2"
	if o, err := a.Read(t.Context(), e); o == nil || err != nil || s.discoveries != 2 {
		t.Errorf("after other objects were applied: %v, %v, %d discoveries", o, err, s.discoveries)
	}
}

// TestErrorsOfSSA asserts that an error of package ssa does not show the object, and that an error of
// the caller's own function stays as it is.
func TestErrorsOfSSA(t *testing.T) {
	a := New(newServer(), user(), Owner{}, false)
	err := a.failureOf(errors.New(`cannot decode {"kind":"Secret","data":{"password":"s3cr3t"}}`))
	if failed, ok := errors.AsType[*Error](err); !ok || failed.Reason != ReasonInvalid || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "spec.ignore") {
		t.Error(err)
	}
	own := errors.New("own")
	if got := a.failureOf(fmt.Errorf("wrapped: %w", callers(own))); got != own { //nolint:errorlint // exactly this error
		t.Error(got)
	}
}

// TestVerifyBeforeDelete asserts that force deletes nothing if BeforeDelete fails.
func TestVerifyBeforeDelete(t *testing.T) {
	s := newServer()
	a := New(s, user(), Owner{}, false)
	result, err := a.Apply(t.Context(), configMaps(1), Options{})
	must.Succeed(t, err)
	s.fail = func(verb, name string) error {
		if verb != "try" {
			return nil
		}
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, name, field.ErrorList{field.Invalid(field.NewPath("data"), "x", "field is immutable")})
	}
	gone := errors.New("the account is gone")
	_, err = a.Apply(t.Context(), configMaps(1), Options{Inventory: result.Entries(), Force: true, BeforeDelete: func(context.Context) error { return gone }})
	if !errors.Is(err, gone) || s.count("delete") != 0 {
		t.Errorf("%v after %q", err, s.requests)
	}
}

// TestStages checks what is applied before what.
func TestStages(t *testing.T) {
	want := [][]*unstructured.Unstructured{
		{
			object1("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com"),
			object1("v1", "Namespace", "", "apps"),
			object1("rbac.authorization.k8s.io/v1", "ClusterRole", "", "reader"),
		},
		{
			object1("rbac.authorization.k8s.io/v1", "Role", "apps", "reader"),
			object1("storage.k8s.io/v1", "StorageClass", "", "fast"),
		},
		{
			object1("rbac.authorization.k8s.io/v1", "RoleBinding", "apps", "reader"),
			object1("example.com/v1", "Role", "apps", "actor"),
			object1("v1", "ConfigMap", "apps", "config"),
		},
	}
	var all []*unstructured.Unstructured
	for _, stage := range slices.Backward(want) {
		all = append(all, stage...)
	}
	for i, stage := range stagesOf(all) {
		if !slices.Equal(stage, want[i]) {
			t.Errorf("stage %d has %v, want %v", i, stage, want[i])
		}
	}
}
