package grant

import (
	"fmt"
	"strings"
)

// ParseFlag reads the value of a flag such as --controller-identity-namespaces. An empty value
// admits nobody. A JSON object is a grant as in an allowedNamespaces block: {} admits every
// namespace. Any other value is a list of namespaces separated by commas.
func ParseFlag(value string) (Namespaces, error) {
	var n Namespaces
	switch trimmed := strings.TrimSpace(value); {
	case trimmed == "":
		return n, nil
	case strings.HasPrefix(trimmed, "{"):
		err := n.UnmarshalJSON([]byte(trimmed))
		return n, err // after an error, n admits nobody
	case trimmed == "null":
		// The value null could mean a JSON null, which admits nobody, or a namespace with the name
		// null. So ParseFlag refuses it.
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

// Set replaces the grant by the value of a flag; see [ParseFlag]. A refused value leaves the grant
// unchanged. With String and Type, Set implements flag.Value and pflag.Value.
func (n *Namespaces) Set(value string) error {
	parsed, err := ParseFlag(value)
	if err != nil {
		return err
	}
	*n = parsed
	return nil
}

// String returns the grant in the form that Set reads: empty if the grant has no All, no List and
// no Selector, otherwise JSON.
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

// Type returns the type of the value, for a command's help.
func (n *Namespaces) Type() string { return "namespaces" }
