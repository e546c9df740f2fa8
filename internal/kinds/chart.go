package kinds

import (
	"fmt"
	"slices"
	"strings"
)

// ChartTemplate returns the Helm template with the lists of kinds that the rules of Lanyard's chart
// use. Each list is the inside of "resources: [...]", sorted. The command dev/kinds writes it into the
// chart.
func (t Table) ChartTemplate() string {
	clusterScoped := func(k Kind) bool { return k.AWSIdentity && k.ClusterScoped }
	lists := []struct {
		name, what, subresource string
		is                      func(Kind) bool
	}{
		{"fetching", "kinds whose objects fetch", "", Kind.Fetches},
		{"fetching.status", "their statuses", "/status", Kind.Fetches},
		{"keeping", "kinds whose objects keep artifacts", "", Kind.KeepsArtifacts},
		{"scanning", "kinds whose objects fetch and keep no artifact", "", func(k Kind) bool { return k.Fetches() && !k.KeepsArtifacts() }},
		{"proving", "kinds whose objects can have SVIDs", "", Kind.HasSVIDs},
		{"proving.svid", "the requests for their SVIDs", "/svid", Kind.HasSVIDs},
		{"awsIdentities", "kinds of AWS identities", "", func(k Kind) bool { return k.AWSIdentity }},
		{"awsIdentities.status", "their statuses", "/status", func(k Kind) bool { return k.AWSIdentity }},
		{"awsIdentities.cluster", "kinds of AWS identities without a namespace", "", clusterScoped},
	}
	var b strings.Builder
	b.WriteString("{{- /* Lists of kinds, made by make generate from the table of internal/kinds. */}}\n")
	for _, list := range lists {
		var names []string
		for _, kind := range t.Where(list.is) {
			names = append(names, kind.Plural+list.subresource)
		}
		slices.Sort(names)
		fmt.Fprintf(&b, "{{- /* %s */}}\n{{- define \"lanyard.kinds.%s\" }}%s{{ end }}\n", list.what, list.name, strings.Join(names, ", "))
	}
	return b.String()
}
