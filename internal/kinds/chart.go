package kinds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
)

// ChartTemplate returns the text of a Helm file with the chart's RBAC rules for the kinds. The file
// defines named templates, such as lanyard.kinds.fetching for the kinds whose objects fetch. A
// named template has one rule for each API group. Its argument is the list of verbs. The command
// dev/kinds writes the file into the chart.
func (t Table) ChartTemplate() string {
	scans := func(k Kind) bool { return k.Fetches() && !k.KeepsArtifacts() }
	isNamed := func(k Kind) bool { return k.Relation != "" || k.HasSVIDs() }
	isAWSIdentity := func(k Kind) bool { return k.AWSIdentity }
	isShared := func(k Kind) bool { return k.AWSIdentity && k.ClusterScoped }
	isTenants := func(k Kind) bool { return k.AWSIdentity && !k.ClusterScoped }
	isApplied := func(k Kind) bool { return k.Program == ApplyController }
	actsAtAWS := func(k Kind) bool { return k.Server == AWS }
	parts := []struct {
		name, what, subresource string
		group                   string // API group of the subresource; empty for the kind's group
		is                      func(Kind) bool
	}{
		{"fetching", "kinds whose objects fetch", "", "", Kind.Fetches},
		{"fetching.status", "their statuses", "/status", "", Kind.Fetches},
		{"keeping", "kinds whose objects keep artifacts", "", "", Kind.KeepsArtifacts},
		{"scanning", "kinds whose objects fetch and keep no artifact", "", "", scans},
		{"proving", "kinds whose objects can have SVIDs", "", "", Kind.HasSVIDs},
		{"proving.svid", "the requests for their SVIDs", "/svid", tokenv1.Group, Kind.HasSVIDs},
		{"contexts", "kinds whose objects tokens can name, or that can have SVIDs", "", "", isNamed},
		{"awsIdentities", "kinds of AWS identities", "", "", isAWSIdentity},
		{"awsIdentities.status", "their statuses", "/status", "", isAWSIdentity},
		{"awsIdentities.cluster", "kinds of AWS identities without a namespace", "", "", isShared},
		{"awsIdentities.tenant", "kinds of AWS identities in namespaces", "", "", isTenants},
		{"applying", "kinds whose objects apply manifests", "", "", isApplied},
		{"applying.status", "their statuses", "/status", "", isApplied},
		{"atAWS", "kinds whose objects act at AWS's APIs", "", "", actsAtAWS},
		{"atAWS.status", "their statuses", "/status", "", actsAtAWS},
	}
	var b strings.Builder
	b.WriteString("{{- /* Rules about kinds, made by make generate from the table of internal/kinds. The argument is the verbs. */}}\n")
	for _, part := range parts {
		var groups []string
		names := map[string][]string{} // plurals of the kinds by API group
		for _, kind := range t.Where(part.is) {
			group := cmp.Or(part.group, kind.Group)
			if names[group] == nil {
				groups = append(groups, group)
			}
			names[group] = append(names[group], kind.Plural+part.subresource)
		}
		fmt.Fprintf(&b, "{{- /* %s */}}\n{{- define \"lanyard.kinds.%s\" -}}\n", part.what, part.name)
		for _, group := range groups {
			slices.Sort(names[group])
			fmt.Fprintf(&b, "- apiGroups: [%s]\n  resources: [%s]\n  verbs: [{{ . }}]\n", group, strings.Join(names[group], ", "))
		}
		b.WriteString("{{- end }}\n")
	}
	return b.String()
}
