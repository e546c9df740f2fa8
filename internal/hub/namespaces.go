package hub

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Namespaces maps namespaces of the spoke to namespaces of the hub. Namespaces of the spoke that
// are not in the map have no identities.
//
// Patterns such as "<spoke>-<namespace>" are not supported, for three reasons:
//   - Whoever creates a namespace in the spoke would choose a namespace of the hub.
//   - Two spokes could get the same namespace: "a-b-c" is namespace "b-c" of spoke "a", and
//     namespace "c" of spoke "a-b".
//   - The spoke would need the right to watch the identities of the whole hub.
type Namespaces map[string]string

// Of returns the hub's namespace for a namespace of the spoke, or a [*NotMappedError].
func (n Namespaces) Of(namespace string) (string, error) {
	if at := n[namespace]; at != "" {
		return at, nil
	}
	return "", &NotMappedError{Namespace: namespace}
}

// NotMappedError says that a namespace of the spoke has no namespace at the hub.
type NotMappedError struct{ Namespace string }

func (e *NotMappedError) Error() string {
	return fmt.Sprintf(
		"namespace %s has no namespace at the hub; have the administrator add it to --hub-namespace-map (hub.namespaces of the Helm chart)",
		e.Namespace)
}

// Set implements pflag.Value. It adds entries of the form spoke=hub,spoke=hub.
func (n *Namespaces) Set(value string) error {
	for entry := range strings.SplitSeq(value, ",") {
		spoke, at, ok := strings.Cut(entry, "=")
		switch {
		case !ok:
			return fmt.Errorf("%q is not <namespace of the spoke>=<namespace of the hub>", entry)
		case strings.Contains(entry, "*"):
			return fmt.Errorf(
				"%q: write one entry for each namespace: with a pattern, anyone who makes a namespace could choose one of the hub", entry)
		}
		for _, name := range []string{spoke, at} {
			if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
				return fmt.Errorf("%q: %q is not the name of a namespace", entry, name)
			}
		}
		if former := (*n)[spoke]; former != "" && former != at {
			return fmt.Errorf("namespace %s has two namespaces at the hub, %s and %s", spoke, former, at)
		}
		if *n == nil {
			*n = Namespaces{}
		}
		(*n)[spoke] = at
	}
	return nil
}

// String implements pflag.Value.
func (n *Namespaces) String() string {
	var entries []string
	for _, spoke := range slices.Sorted(maps.Keys(*n)) {
		entries = append(entries, spoke+"="+(*n)[spoke])
	}
	return strings.Join(entries, ",")
}

// Type implements pflag.Value.
func (*Namespaces) Type() string { return "spoke=hub" }
