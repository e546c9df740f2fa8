package grant

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/auth"
)

// Namespaces says which namespaces may use an identity. Its zero value, and a nil pointer to it,
// admit nobody.
type Namespaces struct {
	// All admits every namespace. Its JSON is {}, the object without keys. The other fields must be
	// empty.
	All bool `json:"-"`
	// List admits the namespaces in the list. An empty list admits nobody.
	List []string `json:"list"`
	// Selector admits the namespaces whose labels match, in addition to those of List. An empty or
	// nil selector admits nobody.
	Selector *Selector `json:"selector,omitempty"`
}

// Decision says whether a namespace is admitted, and why.
type Decision struct {
	// Allowed is true if the namespace is admitted.
	Allowed bool
	// Link says which part of the grant decided, as a clause such as "the namespace is in the
	// list". Tenants may read Link, because it does not repeat the grant's list of namespaces.
	Link string
}

// ErrContradiction is the error of a grant that admits every namespace and also names individual
// namespaces.
var ErrContradiction = errors.New("the grant admits every namespace and also names some: write {}, or a list and a selector without {}")

// Decide says whether the grant admits the namespace. The labels are those of the Namespace object.
// Nil means that they are unknown, for example because the object could not be read. Only All and
// List admit a namespace with unknown labels. The labels of a real Namespace are never nil: it
// always has the label kubernetes.io/metadata.name.
func (n *Namespaces) Decide(namespace string, labels map[string]string) Decision {
	switch {
	case namespace == "":
		return deny("no namespace was named")
	case n == nil:
		return deny("there is no grant")
	}
	if err := n.validate(); err != nil {
		return deny("the grant cannot be decided: " + err.Error())
	}
	switch {
	case n.All:
		return allow("the grant is {}, which admits every namespace")
	case slices.Contains(n.List, namespace):
		return allow("the namespace is in the list")
	case n.Selector == nil && len(n.List) == 0:
		return deny("the grant names no namespace")
	case n.Selector == nil:
		return deny("the namespace is not in the list")
	case n.Selector.empty():
		return deny("the namespace is not in the list, and an empty selector admits nobody")
	case labels == nil:
		return deny("the namespace is not in the list, and its labels are not known")
	case n.Selector.matches(labels):
		return allow("the selector matches the namespace's labels")
	default:
		return deny("the namespace is not in the list, and the selector does not match its labels")
	}
}

func allow(link string) Decision { return Decision{Allowed: true, Link: link} }
func deny(link string) Decision  { return Decision{Link: link} }

// validate returns an error if the grant cannot be decided. A name that no namespace can have, such
// as a wildcard, would admit nobody. Such a name is an error, because its author meant something
// else.
func (n *Namespaces) validate() error {
	if n.All && (len(n.List) > 0 || n.Selector != nil) {
		return ErrContradiction
	}
	for i, name := range n.List {
		if !auth.IsLabel(name) {
			return fmt.Errorf("list[%d]: %w: %s", i, ErrNamespace, quote(name))
		}
	}
	if n.Selector != nil {
		if err := n.Selector.validate(); err != nil {
			return fmt.Errorf("selector: %w", err)
		}
	}
	return nil
}
