package flags

import (
	"fmt"
	"strconv"
	"strings"
)

// Gates are the features that --feature-gates switches on and off. Flux uses the same names.
type Gates struct {
	// ObjectLevelWorkloadIdentity lets objects use the identities of the ServiceAccounts that they
	// name.
	ObjectLevelWorkloadIdentity bool
}

// defaultGates returns the gates that apply without --feature-gates.
func defaultGates() Gates { return Gates{ObjectLevelWorkloadIdentity: true} }

// objectLevel is the name of the only gate.
const objectLevel = "ObjectLevelWorkloadIdentity"

// Set reads a list of Name=true or Name=false, separated by commas. The last value of a gate
// counts.
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

// String returns the gate in the format that Set reads.
func (g *Gates) String() string {
	return objectLevel + "=" + strconv.FormatBool(g.ObjectLevelWorkloadIdentity)
}

// Type returns the name that the help shows for the flag's value.
func (*Gates) Type() string { return "gates" }
