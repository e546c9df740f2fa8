package grant

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/auth"
)

// Namespaces says which namespaces may use an identity. Its zero value, and a nil pointer to it, admit nobody.
type Namespaces struct {
	// All admits every namespace. It is the JSON object without keys, {}, and excludes the other fields.
	All bool `json:"-"`
	// List names namespaces; empty, it admits nobody.
	List []string `json:"list"`
	// Selector admits the namespaces whose labels match, besides those of List; empty or nil, it admits nobody.
	Selector *Selector `json:"selector,omitempty"`
}

// Decision is whether a namespace is admitted, and why.
type Decision struct {
	// Allowed is the verdict.
	Allowed bool
	// Link is the part of the grant that decided, a clause for people such as "the namespace is in the list". It never
	// repeats the grant's other namespaces, so that a tenant may read it.
	Link string
}

// ErrContradiction means that a grant both admits every namespace and restricts them.
var ErrContradiction = errors.New("the grant admits every namespace and names some besides: write {} alone, or no {}")

// Decide says whether the namespace is admitted. Labels are those of the Namespace object; nil means that they are not known,
// as when it could not be read, and then no selector admits it. (Every real Namespace carries kubernetes.io/metadata.name.)
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

// validate returns why the grant cannot be decided. A namespace name that cannot exist, such as a wildcard, would admit nobody,
// but whoever wrote it meant something else.
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
