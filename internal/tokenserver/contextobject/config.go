package contextobject

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/yamlfile"
)

// config is the content of the file that the flag --claims-config names.
type config struct {
	// Contexts are the kinds of objects that tokens may be used for, in addition to Lanyard's own.
	Contexts []kindConfig `json:"contexts"`
}

// kindConfig says which objects of a kind belong to an identity, and what tokens say about them.
type kindConfig struct {
	resourceConfig `json:",inline"`

	// Scope says in which namespaces the objects may be. Default: IdentityNamespace.
	Scope scope `json:"scope,omitempty"`
	// Via lists further objects, in the order in which they are read. Each name is computed from
	// the context object and the objects of earlier entries. The token server reads the objects
	// with its own rights.
	Via []viaConfig `json:"via,omitempty"`
	// Relation is a CEL expression. It is true if the object uses the identity. Its variables are
	// object, identity and cluster. Each entry of Via adds a variable with the name in its field
	// As. Relation must use the variable identity. It must also use the variable object, or a
	// variable of Via.
	Relation string `json:"relation"`
	// Claims are top-level claims of tokens, by name. Each is a CEL expression with the same
	// variables as Relation. The values null and optional.none() make no claim.
	Claims map[string]string `json:"claims,omitempty"`
}

// resourceConfig names a kind, and its plural in paths and in RBAC.
type resourceConfig struct {
	APIVersion string `json:"apiVersion"` // such as core.gardener.cloud/v1beta1
	Kind       string `json:"kind"`       // such as Shoot
	Resource   string `json:"resource"`   // such as shoots
}

// viaConfig is an entry of Via: an object whose name is computed from the context object.
type viaConfig struct {
	resourceConfig `json:",inline"`

	// As is the name of the CEL variable for the object. The variable has an optional value of
	// CEL: the object, or optional.none() if Name evaluates to an empty name.
	As string `json:"as"`
	// Name is a CEL expression for the name of the object. It can use the context object, as the
	// variable "object", and the objects of earlier entries of Via. It cannot use the identity: the
	// objects must depend only on the context object. An empty name means that there is no object.
	Name string `json:"name"`
	// Namespace is a CEL expression for the namespace of the object. It can use the same variables
	// as Name. Omit it for a cluster-scoped kind.
	Namespace string `json:"namespace,omitempty"`
	// Namespaces are the namespaces in which the object may be, besides the namespace of the
	// context object.
	Namespaces []string `json:"namespaces,omitempty"`
}

// scope says in which namespaces the context objects of a kind may be.
type scope string

const (
	// identityNamespace is for objects in the namespace of the identity.
	identityNamespace scope = "IdentityNamespace"
	// anyNamespace is for objects in any namespace. Only the field Relation decides which of them
	// belong to an identity.
	anyNamespace scope = "AnyNamespace"
	// wholeCluster is for cluster-scoped objects. Only the field Relation decides which of them
	// belong to an identity.
	wholeCluster scope = "Cluster"
)

// maxVia is the maximum number of entries in Via. For each entry, the token server sends a request
// to the API server.
const maxVia = 8

// Kinds are the kinds of context objects that a token server accepts.
type Kinds map[schema.GroupVersionKind]*kind

// kind is a kindConfig, checked and compiled.
type kind struct {
	schema.GroupVersionResource

	scope    scope
	via      []via
	relation expression
	claims   map[string]expression
}

// via is a viaConfig, checked and compiled.
type via struct {
	schema.GroupVersionResource

	kind       schema.GroupVersionKind
	as         string
	name       expression
	namespace  *expression // nil for a cluster-scoped kind
	namespaces []string
}

// Load returns the kinds of the table that have a Relation, and the kinds in the file at path. If
// the path is empty, Load reads no file. Load checks the file and compiles all expressions. An
// error about a kind in the file states the file's path, the line, the kind and the field.
func Load(table kinds.Table, path string) (Kinds, error) {
	known := Kinds{}
	for _, own := range table {
		if own.Relation == "" {
			continue
		}
		names := resourceConfig{APIVersion: own.GroupVersion().String(), Kind: own.Kind, Resource: own.Plural}
		if field, err := known.add(kindConfig{resourceConfig: names, Relation: own.Relation}); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", own.Kind, field, err)
		}
	}
	if path == "" {
		return known, nil
	}
	data, err := os.ReadFile(path) //nolint:gosec // a flag names the file
	if err != nil {
		return nil, err
	}
	return known, known.read(path, data)
}

// read adds the kinds of a file.
func (k Kinds) read(file string, data []byte) error {
	documents, err := yamlfile.Read(file, data)
	if err != nil {
		return err
	}
	if len(documents) != 1 {
		return fmt.Errorf("%s: has %d YAML documents, want one", file, len(documents))
	}
	var c config
	if err := documents[0].Decode(&c); err != nil {
		return err
	}
	var wrong []error
	for n, one := range c.Contexts {
		if field, err := k.add(one); err != nil {
			path := fmt.Sprintf("contexts[%d].%s", n, field)
			wrong = append(wrong, documents[0].At(path, fmt.Errorf("%s (%s): %w", path, one.Kind, err)))
		}
	}
	return errors.Join(wrong...)
}

// add checks, compiles and stores a kind. With an error, it returns the path of the wrong field.
func (k Kinds) add(c kindConfig) (field string, err error) {
	gvk, field, err := c.check()
	if err != nil {
		return field, err
	}
	if _, taken := k[gvk]; taken {
		return "kind", errors.New("is there already: it is a kind of Lanyard's, or configured twice")
	}
	made := &kind{GroupVersionResource: gvk.GroupVersion().WithResource(c.Resource), claims: map[string]expression{}}
	made.scope = cmp.Or(c.Scope, identityNamespace)
	if !slices.Contains([]scope{identityNamespace, anyNamespace, wholeCluster}, made.scope) {
		return "scope", fmt.Errorf("must be %s, %s or %s", identityNamespace, anyNamespace, wholeCluster)
	}
	known, field, err := made.addVia(c.Via)
	if err != nil {
		return field, err
	}
	if made.relation, err = known.relation(c.Relation); err != nil {
		return "relation", err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Claims)) {
		if made.claims[name], err = known.claim(name, c.Claims[name]); err != nil {
			return fmt.Sprintf("claims[%q]", name), err
		}
	}
	k[gvk] = made
	return "", nil
}

// addVia checks and compiles the entries of the field Via, and adds them to k. It returns the names
// of the entries' CEL variables, which the relation and the claims can use.
func (k *kind) addVia(configs []viaConfig) (known variables, field string, err error) {
	if len(configs) > maxVia {
		return nil, "via", fmt.Errorf("has %d entries, at most %d are allowed", len(configs), maxVia)
	}
	for n, c := range configs {
		made, field, err := c.compile(known)
		if err != nil {
			return nil, fmt.Sprintf("via[%d].%s", n, field), err
		}
		k.via = append(k.via, made)
		known = append(known, made.as)
	}
	return known, "", nil
}

func (c *viaConfig) compile(known variables) (made via, field string, err error) {
	gvk, field, err := c.check()
	if err != nil {
		return via{}, field, err
	}
	made = via{GroupVersionResource: gvk.GroupVersion().WithResource(c.Resource), kind: gvk, as: c.As, namespaces: c.Namespaces}
	if err := known.admit(c.As); err != nil {
		return via{}, "as", err
	}
	if made.name, err = known.name(c.Name); err != nil {
		return via{}, "name", err
	}
	for _, namespace := range c.Namespaces {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			return via{}, "namespaces", fmt.Errorf("%q is not a namespace: %s", namespace, wrong[0])
		}
	}
	if c.Namespace == "" {
		if len(c.Namespaces) > 0 {
			return via{}, "namespaces", errors.New("needs namespace, an expression that says which of them is meant")
		}
		return made, "", nil
	}
	namespace, err := known.name(c.Namespace)
	made.namespace = &namespace
	return made, "namespace", err
}

// check returns the kind, or the field that is wrong.
func (c *resourceConfig) check() (gvk schema.GroupVersionKind, field string, err error) {
	gv, err := schema.ParseGroupVersion(c.APIVersion)
	switch {
	case err != nil || gv.Version == "":
		return gvk, "apiVersion", fmt.Errorf("%q must be <group>/<version>, such as core.gardener.cloud/v1beta1", c.APIVersion)
	case !regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`).MatchString(c.Kind):
		return gvk, "kind", fmt.Errorf("%q must be the name of a kind, such as Shoot", c.Kind)
	case !regexp.MustCompile(`^[a-z][a-z0-9]*$`).MatchString(c.Resource):
		return gvk, "resource", fmt.Errorf("%q must be the plural of the kind as RBAC has it, such as shoots", c.Resource)
	case gv.Group == "" && c.Resource == "secrets":
		return gvk, "resource", errors.New("must not be secrets: a token is no place for what a Secret has")
	}
	return gv.WithKind(c.Kind), "", nil
}

// checkClaim refuses names that a configured claim cannot have.
func checkClaim(name string) error {
	switch {
	case slices.Contains(issuer.Reserved(), name):
		return fmt.Errorf("is a claim that every token has; the claims %s cannot be set", strings.Join(issuer.Reserved(), ", "))
	case name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }):
		return errors.New("must have a name of printable ASCII characters without spaces")
	}
	return nil
}
