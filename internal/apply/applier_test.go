package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
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
}

func newServer() *server {
	return &server{objects: map[object.ObjMetadata]*unstructured.Unstructured{}, fail: func(string, string) error { return nil }}
}

func (s *server) RESTMapper() apimeta.RESTMapper {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, apimeta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, apimeta.RESTScopeRoot)
	return mapper
}

func (s *server) begin(verb string, o client.Object) (object.ObjMetadata, error) {
	key := keyOf(o.(*unstructured.Unstructured))
	s.requests = append(s.requests, verb+" "+key.Name)
	return key, s.fail(verb, key.Name)
}

func (s *server) Get(_ context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.SetNamespace(name.Namespace)
	o.SetName(name.Name)
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
	a := New(s, user, Owner{Namespace: "apps", Name: "app"}, nil)
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
	_, err := New(s, user, Owner{}, nil).Apply(t.Context(), configMaps(3), Options{BeforeWrite: func(context.Context) error { return want }})
	if !errors.Is(err, want) || len(s.objects) != 0 {
		t.Errorf("%v, %d objects", err, len(s.objects))
	}
}

// TestUnreadable asserts that an object that cannot be read is not written.
func TestUnreadable(t *testing.T) {
	s := newServer()
	a := New(s, user, Owner{}, nil)
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
		a := New(s, user, Owner{}, nil)
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
	_, err := New(s, user, Owner{Namespace: "apps", Name: "first"}, nil).Apply(t.Context(), configMaps(1), Options{})
	must.Succeed(t, err)
	stored := maps.Clone(s.objects)
	second := New(s, user, Owner{Namespace: "apps", Name: "second"}, nil)
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

// TestPlace asserts that a cluster-scoped object loses its namespace.
func TestPlace(t *testing.T) {
	s := newServer()
	result, err := New(s, user, Owner{}, nil).Apply(t.Context(), []*unstructured.Unstructured{object1("v1", "Namespace", "injected", "made")}, Options{})
	must.Succeed(t, err)
	if entries := result.Entries(); len(entries) != 1 || entries[0].ID() != "_made__Namespace" {
		t.Errorf("the entries are %v", entries)
	}
}
