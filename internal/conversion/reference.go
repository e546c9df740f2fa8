package conversion

import (
	"cmp"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"

	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// referrers returns the fields of Flux's kinds that refer to a source. It maps each field to the
// API version in which the field can name an ExternalArtifact; empty if there is no such version.
// Source: CrossNamespaceSourceReference of kustomize-controller and helm-controller in
// Flux 2.7.
func referrers() map[groupKind]map[string]string {
	return map[groupKind]map[string]string{
		{"kustomize." + fluxToolkit, "Kustomization"}: {"spec.sourceRef": "v1"},
		{"helm." + fluxToolkit, "HelmRelease"}:        {"spec.chartRef": "v2", "spec.chart.spec.sourceRef": ""},
		{"source." + fluxToolkit, "HelmChart"}:        {"spec.sourceRef": ""},
	}
}

// planReferences adds notes about the object's references to objects that are converted. It returns
// functions that change such references. A changed reference names the ExternalArtifact that the
// converted object publishes.
func (o *object) planReferences() (changes []func()) {
	visit("", o.root, func(path string, reference *yamlnode.Node) {
		named := identifier{text(reference, "kind"), text(reference, "namespace"), text(reference, "name")}
		for _, kind := range o.opts.Kinds {
			if kind.FluxReference != "" && strings.HasSuffix(path, kind.FluxReference) {
				named.kind = kind.Kind
			}
		}
		named.namespace = cmp.Or(named.namespace, o.namespace)
		apiVersion := get(reference, "apiVersion")
		group, _ := splitVersion(text(reference, "apiVersion"))
		if path == "" || !o.moved[named] || apiVersion != nil && !Flux.owns(group) {
			return
		}
		version, known := referrers()[groupKind{o.group, o.kind}][path]
		switch {
		case !known || !o.opts.ExternalArtifacts:
			does := "fetches"
			if kind, _ := o.opts.Kinds.Named(named.kind); kind.Program == kinds.ApplyController {
				does = "applies"
			}
			o.note(path, "%s still names %s, which Flux no longer %s", path, named, does)
		case version == "":
			o.refuse(path, "Flux takes a chart of %s from no ExternalArtifact here; push the chart to a registry, and name an OCIRepository in spec.chartRef of the HelmRelease", named)
		case o.version != version:
			o.refuse(path, "only %s/%s can name an ExternalArtifact; change apiVersion", o.group, version)
		default:
			o.note(path, "%s names ExternalArtifact %s in place of %s", path, named.name, named)
			changes = append(changes, func() {
				get(reference, "kind").Value = "ExternalArtifact"
				if apiVersion != nil {
					apiVersion.Value = "source." + fluxToolkit + "/v1"
				}
			})
		}
	})
	return changes
}

// visit calls a function for each mapping at and below a node.
func visit(path string, node *yamlnode.Node, see func(path string, mapping *yamlnode.Node)) {
	isMapping := node.Kind == yamlnode.MappingNode
	if isMapping {
		see(path, node)
	}
	for i, below := range node.Content {
		switch {
		case !isMapping:
			visit(path+"["+strconv.Itoa(i)+"]", below, see)
		case i%2 == 1:
			visit(strings.TrimPrefix(path+"."+node.Content[i-1].Value, "."), below, see)
		}
	}
}
