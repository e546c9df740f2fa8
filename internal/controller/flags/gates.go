package flags

import (
	"fmt"
	"strconv"
	"strings"
)

// Gates are the features that --feature-gates switches. The names are those of Flux.
type Gates struct {
	// ObjectLevelWorkloadIdentity gives objects identities of their own: those of the
	// ServiceAccounts that they name.
	ObjectLevelWorkloadIdentity bool
}

// defaultGates are the gates where the flag says nothing.
func defaultGates() Gates { return Gates{ObjectLevelWorkloadIdentity: true} }

// objectLevel is the name of the one gate.
const objectLevel = "ObjectLevelWorkloadIdentity"

// Set switches the gate, as Name=true or Name=false; the last of several counts.
func (g *Gates) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if name != objectLevel {
			return fmt.Errorf("there is no feature gate %q; there are: %s", name, g)
		}
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("feature gate %s: write %s=true or %s=false", name, name, name)
		}
		g.ObjectLevelWorkloadIdentity = on
	}
	return nil
}

// String is the gate as Set reads it.
func (g *Gates) String() string {
	return objectLevel + "=" + strconv.FormatBool(g.ObjectLevelWorkloadIdentity)
}

// Type is the value's name in the help.
func (*Gates) Type() string { return "gates" }
