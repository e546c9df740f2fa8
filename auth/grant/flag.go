package grant

import (
	"fmt"
	"strings"
)

// ParseFlag reads the value of a flag such as --controller-identity-namespaces. Empty admits nobody; an object is a grant as
// in an allowedNamespaces block, {} admitting every namespace; anything else is a list of namespaces separated by commas.
func ParseFlag(value string) (Namespaces, error) {
	var n Namespaces
	switch trimmed := strings.TrimSpace(value); {
	case trimmed == "":
		return n, nil
	case strings.HasPrefix(trimmed, "{"):
		if err := n.UnmarshalJSON([]byte(trimmed)); err != nil {
			return Namespaces{}, err
		}
		return n, nil
	case trimmed == "null":
		// As an object's field it admits nobody; as a list it would admit a namespace of that name.
		return n, fmt.Errorf(`%w: null; leave the value empty to admit nobody, or write {"list":["null"]}`, ErrSyntax)
	default:
		for name := range strings.SplitSeq(trimmed, ",") {
			n.List = append(n.List, strings.TrimSpace(name))
		}
		if err := n.validate(); err != nil {
			return Namespaces{}, err
		}
		return n, nil
	}
}

// Set replaces the grant by the flag's value; see [ParseFlag]. With String and Type it makes the grant a flag's value
// (flag.Value, pflag.Value). A value that is refused leaves the grant as it was.
func (n *Namespaces) Set(value string) error {
	parsed, err := ParseFlag(value)
	if err != nil {
		return err
	}
	*n = parsed
	return nil
}

// String is the grant as Set reads it: empty where it admits nobody by having no list and no selector, JSON otherwise.
func (n *Namespaces) String() string {
	if n == nil || !n.All && len(n.List) == 0 && n.Selector == nil {
		return ""
	}
	data, err := n.MarshalJSON()
	if err != nil {
		return "undecidable: " + err.Error()
	}
	return string(data)
}

// Type is the value's name in a command's help.
func (n *Namespaces) Type() string { return "namespaces" }
