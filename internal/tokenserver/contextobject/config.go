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

// config is the content of the file --claims-config.
type config struct {
	// Contexts are the kinds of objects that tokens may be used for, besides Lanyard's own kinds.
	Contexts []kindConfig `json:"contexts"`
}

// kindConfig says which objects of a kind belong to an identity, and what tokens say about them.
type kindConfig struct {
	resourceConfig `json:",inline"`

	// Scope says where the objects lie. Default: IdentityNamespace.
	Scope scope `json:"scope,omitempty"`
	// Via are further objects, whose names are computed from the context object, in the order in
	// which they are read. The token server reads them with its own rights.
	Via []viaConfig `json:"via,omitempty"`
	// Relation is a CEL expression: true if the object uses the identity. Its variables are object,
	// identity, cluster, and the objects of Via by their field As. It must mention the identity,
	// and the object or one of Via.
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

// viaConfig says how the name of one more object is computed from the context object.
type viaConfig struct {
	resourceConfig `json:",inline"`

	// As is the name of the CEL variable for the object. The variable is an optional, which has no
	// value if Name is empty.
	As string `json:"as"`
	// Name is a CEL expression: the name of the object. Its variables are object, which is the
	// context object, and the objects of the entries of Via before this entry. There is no variable
	// identity: the objects must follow from the context object, and not from the identity. An
	// empty name means that there is no object.
	Name string `json:"name"`
	// Namespace is a CEL expression like Name: the namespace of the object. It is absent if the
	// kind is cluster-scoped.
	Namespace string `json:"namespace,omitempty"`
	// Namespaces are the namespaces, besides the context object's own, in which the object may lie.
	Namespaces []string `json:"namespaces,omitempty"`
}

// scope says where the context objects of a kind lie.
type scope string

const (
	// identityNamespace: in the namespace of the identity.
	identityNamespace scope = "IdentityNamespace"
	// anyNamespace: in any namespace. The relation alone decides.
	anyNamespace scope = "AnyNamespace"
	// wholeCluster: in no namespace. The relation alone decides.
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

// Load returns the kinds of the table that tokens can name, and the kinds of the file at path. If
// the path is empty, Load reads no file. Load checks the file and compiles all expressions. Its
// errors name file, line, kind and field.
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

// add checks and compiles a kind. If the kind is wrong, it also returns the path of the wrong
// field.
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

// addVia checks and compiles the entries of via. It returns the variables for these objects, which
// the relation and the claims can use.
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
