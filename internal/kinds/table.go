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

// Table has the entries of kinds, in the order in which people see the kinds.
type Table []Kind

// All returns the table of all kinds of Lanyard.
func All() Table {
	return Table{
		OCIRepository(), Bucket(), ImageRepository(),
		workloadIdentity(), workloadIdentityBinding(), keyRing(),
		awsCluster(),
		awsServiceAccountIdentity(), awsClusterControllerIdentity(), awsClusterRoleIdentity(), awsClusterStaticIdentity(),
	}
}

// Where returns the kinds for which a test is true.
func (t Table) Where(is func(Kind) bool) Table {
	return slices.DeleteFunc(slices.Clone(t), func(k Kind) bool { return !is(k) })
}

// Names returns the names of the kinds in manifests.
func (t Table) Names() []string {
	names := make([]string, 0, len(t))
	for _, k := range t {
		names = append(names, k.Kind)
	}
	return names
}

// Named returns the kind with a name in manifests.
func (t Table) Named(name string) (Kind, bool) {
	return t.find(func(k Kind) bool { return k.Kind == name })
}

// Of returns the kind of an object. The object's Go type decides, because objects that a client has
// read do not say their kind.
func (t Table) Of(o Resource) (Kind, bool) {
	return t.find(func(k Kind) bool { return reflect.TypeOf(k.New()) == reflect.TypeOf(o) })
}

// Written returns the kind that a user means by a word. The word is what kubectl takes: the name,
// the plural or the short name, in any case, with or without the API group.
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

// Groups returns the API groups of the kinds, each once.
func (t Table) Groups() []string {
	var groups []string
	for _, k := range t {
		if !slices.Contains(groups, k.Group) {
			groups = append(groups, k.Group)
		}
	}
	return groups
}

// AddToScheme registers the types of the kinds, and of Lanyard's API groups, with s. All programs make
// their schemes with it. It calls [Table.Check].
func (t Table) AddToScheme(s *runtime.Scheme) error {
	err := errors.Join(toolkitv1.AddToScheme(s), identityv1.AddToScheme(s), infrav1.AddToScheme(s))
	if err != nil {
		return err
	}
	for _, k := range t {
		s.AddKnownTypes(k.GroupVersion(), k.New(), k.NewList())
		metav1.AddToGroupVersion(s, k.GroupVersion())
	}
	return t.Check(s)
}

// Check refuses a scheme that has a kind of Lanyard's API groups which the table lacks. Programs
// call Check when they start, because code that ranges over the table would leave the kind out.
func (t Table) Check(scheme *runtime.Scheme) error {
	var missing []error
	for gvk, goType := range scheme.AllKnownTypes() {
		_, isObject := reflect.TypeAssert[Resource](reflect.New(goType))
		if isObject && isLanyards(gvk.GroupVersion()) && !slices.ContainsFunc(t, func(k Kind) bool { return k.GroupVersionKind == gvk }) {
			missing = append(missing, fmt.Errorf("kind %s of %s has no entry in the table of package kinds", gvk.Kind, gvk.GroupVersion()))
		}
	}
	slices.SortFunc(missing, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(missing...)
}

// isLanyards reports whether the API group has custom resources of Lanyard. The group of the token
// server's requests has none.
func isLanyards(gv schema.GroupVersion) bool {
	return gv == toolkitv1.GroupVersion() || gv == identityv1.GroupVersion() || gv == infrav1.GroupVersion()
}
