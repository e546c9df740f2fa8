package kinds

import (
	"fmt"
	"slices"
	"strings"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// ChartTemplate returns the Helm template with the lists of kinds that the rules of Lanyard's chart
// use. Each list is the inside of "resources: [...]", sorted. The command dev/kinds writes it into the
// chart.
func (t Table) ChartTemplate() string {
	clusterScoped := func(k Kind) bool { return k.AWSIdentity && k.ClusterScoped }
	lists := []struct {
		name, what, subresource string
		group                   string
		is                      func(Kind) bool
	}{
		{"fetching", "kinds whose objects fetch", "", toolkitv1.Group, Kind.Fetches},
		{"fetching.status", "their statuses", "/status", toolkitv1.Group, Kind.Fetches},
		{"keeping", "kinds whose objects keep artifacts", "", toolkitv1.Group, Kind.KeepsArtifacts},
		{"scanning", "kinds whose objects fetch and keep no artifact", "", toolkitv1.Group, func(k Kind) bool { return k.Fetches() && !k.KeepsArtifacts() }},
		{"proving", "kinds whose objects can have SVIDs", "", toolkitv1.Group, Kind.HasSVIDs},
		{"proving.svid", "the requests for their SVIDs", "/svid", toolkitv1.Group, Kind.HasSVIDs},
		{"awsIdentities", "kinds of AWS identities", "", identityv1.Group, func(k Kind) bool { return k.AWSIdentity }},
		{"awsIdentities.status", "their statuses", "/status", identityv1.Group, func(k Kind) bool { return k.AWSIdentity }},
		{"awsIdentities.cluster", "kinds of AWS identities without a namespace", "", identityv1.Group, clusterScoped},
	}
	var b strings.Builder
	b.WriteString("{{- /* Lists of kinds, made by make generate from the table of internal/kinds. */}}\n")
	for _, list := range lists {
		var names []string
		for _, kind := range t.Where(list.is) {
			if kind.Group == list.group { // the one that the rules name
				names = append(names, kind.Plural+list.subresource)
			}
		}
		slices.Sort(names)
		fmt.Fprintf(&b, "{{- /* %s */}}\n{{- define \"lanyard.kinds.%s\" }}%s{{ end }}\n", list.what, list.name, strings.Join(names, ", "))
	}
	return b.String()
}
