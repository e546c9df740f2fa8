package kinds

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// Table has the entries of kinds, in the order in which output lists the kinds.
type Table []Kind

// All returns the table of all kinds of Lanyard.
func All() Table {
	return Table{
		OCIRepository(), Bucket(), ImageRepository(), Kustomization(),
		WorkloadIdentity(), WorkloadIdentityBinding(), KeyRing(),
		AWSCluster(),
		AWSServiceAccountIdentity(), AWSClusterControllerIdentity(), AWSClusterRoleIdentity(), AWSClusterStaticIdentity(),
	}
}

// Where returns the kinds for which the function returns true.
func (t Table) Where(is func(Kind) bool) Table {
	return slices.DeleteFunc(slices.Clone(t), func(k Kind) bool { return !is(k) })
}

// Names returns the kinds' names, as in manifests.
func (t Table) Names() []string {
	names := make([]string, 0, len(t))
	for _, k := range t {
		names = append(names, k.Kind)
	}
	return names
}

// Sources returns the names of the kinds that a Kustomization can have as its source: the kinds whose
// objects keep artifacts, and Flux's ExternalArtifact.
func (t Table) Sources() []string {
	return append(t.Where(Kind.KeepsArtifacts).Names(), toolkitv1.ExternalArtifactKind)
}

// Named returns the kind with this name, as in manifests.
func (t Table) Named(name string) (Kind, bool) {
	return t.find(func(k Kind) bool { return k.Kind == name })
}

// Of returns the kind of an object. It compares Go types, because objects that a client has read do
// not contain their kind.
func (t Table) Of(o Resource) (Kind, bool) {
	return t.find(func(k Kind) bool { return reflect.TypeOf(k.New()) == reflect.TypeOf(o) })
}

// Written returns the kind for a word that a user wrote. Like kubectl, it accepts the name, the
// plural and the short name of a kind. Upper and lower case are the same. The API group may follow,
// after a dot.
func (t Table) Written(word string) (Kind, bool) {
	word = strings.ToLower(word)
	return t.find(func(k Kind) bool {
		word := strings.TrimSuffix(word, "."+k.Group)
		return word == strings.ToLower(k.Kind) || word == k.Plural || word == k.Short
	})
}

func (t Table) find(is func(Kind) bool) (Kind, bool) {
	if i := slices.IndexFunc(t, is); i >= 0 {
		return t[i], true
	}
	return Kind{}, false
}

// AddToScheme adds the types of the kinds, and of Lanyard's API groups, to the scheme s. All
// programs use it to make their schemes. It returns an error if an entry is wrong. It also returns
// an error if a kind of Lanyard's API groups has no entry. Code that ranges over the table would
// leave this kind out.
func (t Table) AddToScheme(s *runtime.Scheme) error {
	for _, group := range groups() {
		if err := group.add(s); err != nil {
			return err
		}
	}
	var wrong []error
	for _, k := range t {
		s.AddKnownTypes(k.GroupVersion(), k.New(), k.NewList())
		metav1.AddToGroupVersion(s, k.GroupVersion())
		wrong = append(wrong, k.check())
	}
	for _, group := range groups() {
		for name, goType := range s.KnownTypes(group.version) {
			_, isObject := reflect.TypeAssert[Resource](reflect.New(goType))
			if _, known := t.Named(name); isObject && !known {
				wrong = append(wrong, fmt.Errorf("kind %s of %s has no entry in the table of package kinds", name, group.version))
			}
		}
	}
	return errors.Join(wrong...)
}

// group is an API group with custom resources of Lanyard.
type group struct {
	version schema.GroupVersion
	add     func(*runtime.Scheme) error
}

func groups() []group {
	return []group{
		{toolkitv1.GroupVersion(), toolkitv1.AddToScheme},
		{identityv1.GroupVersion(), identityv1.AddToScheme},
		{infrav1.GroupVersion(), infrav1.AddToScheme},
	}
}

// check returns an error for an entry that lacks a field which its other fields need. Code that
// uses an entry does not check these fields again.
func (k Kind) check() error {
	_, hasStatus := k.New().(Object)
	for _, rule := range []struct {
		holds bool
		says  string
	}{
		{k.Plural != "" && k.Short != "", "needs Plural and Short"},
		{slices.Contains([]Program{Controller, IdentityController, ApplyController, TokenServer}, k.Program), "needs the Program that reconciles it"},
		{reflect.TypeOf(k.New()).Elem().Name() == k.Kind, "needs a Go type of its name"},
		{
			!k.Fetches() || k.Server != "" && k.Found != nil && k.UsesAWSIdentities() && k.WorkloadIdentity != nil,
			"must be made by Acting, with a Server",
		},
		{k.Server == "" || k.AddressField != "" && k.Fields != nil, "needs AddressField and Fields with Server"},
		{k.IdentityRef == nil || k.Program == IdentityController || k.OnlyIdentityRef != nil, "needs OnlyIdentityRef with IdentityRef"},
		{!k.HasSVIDs() || k.Fields != nil, "needs Fields, since its objects can have SVIDs"},
		{k.Success == "" || k.Found != nil && k.Source != nil && hasStatus, "needs Found, Source and a status with Success"},
	} {
		if !rule.holds {
			return fmt.Errorf("the entry of kind %s in the table of package kinds %s", k.Kind, rule.says)
		}
	}
	return nil
}
