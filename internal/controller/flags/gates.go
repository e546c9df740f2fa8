package flags

import (
	"fmt"
	"slices"
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

// gate is a feature and its name.
type gate struct {
	name string
	on   *bool
}

func (g *Gates) all() []gate {
	return []gate{{"ObjectLevelWorkloadIdentity", &g.ObjectLevelWorkloadIdentity}}
}

// Set switches the gates that text names, as Name=true,Other=false.
func (g *Gates) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		gates := g.all()
		i := slices.IndexFunc(gates, func(known gate) bool { return known.name == name })
		if i < 0 {
			return fmt.Errorf("there is no feature gate %q; there are: %s", name, g)
		}
		on, err := strconv.ParseBool(value)
		if !ok || err != nil {
			return fmt.Errorf("feature gate %s: write %s=true or %s=false", name, name, name)
		}
		*gates[i].on = on
	}
	return nil
}

// String is the gates as Set reads them.
func (g *Gates) String() string {
	var parts []string
	for _, known := range g.all() {
		parts = append(parts, known.name+"="+strconv.FormatBool(*known.on))
	}
	return strings.Join(parts, ",")
}

// Type is the value's name in the help.
func (*Gates) Type() string { return "gates" }
