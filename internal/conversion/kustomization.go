package conversion

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"

	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// moveKustomization says how the objects that Flux has applied survive the move. Source:
// finalizerShouldDeleteResources of kustomize-controller v1.9.6.
const moveKustomization = "first suspend Flux's Kustomization in the cluster, since otherwise its deletion deletes its objects; " +
	"docs/kustomizations.md says how to move it"

// refuseMissing refuses fields of Flux's Kustomization that Lanyard's Kustomization does not have.
func (o *object) refuseMissing(spec *yamlnode.Node) {
	const patch = "Lanyard has only spec.patches, like Flux's v1; write each patch as text in spec.patches[].patch"
	for _, field := range []struct{ name, why string }{
		{"patchesStrategicMerge", patch},
		{"patchesJson6902", patch + ", with its target"},
	} {
		if get(spec, field.name) != nil {
			o.refuse("spec."+field.name, "%s", field.why)
			remove(spec, field.name) // otherwise the check of the schema would refuse the field again
		}
	}
}

// changeKustomization removes fields that have no effect in Lanyard's Kustomization. It refuses
// references that Lanyard's Kustomization cannot have.
func (o *object) changeKustomization() {
	spec := get(o.root, "spec")
	if spec == nil || spec.Kind != yamlnode.MappingNode {
		return
	}
	o.refuseMissing(spec)
	o.changeSourceRef(get(spec, "sourceRef"))
	o.changeDependencies(get(spec, "dependsOn"))
	o.changeHealthChecks(get(spec, "healthChecks"))
	elsewhere := o.checkKubeConfig(get(spec, "kubeConfig"))
	// Source: v1beta2 of kustomize-controller, "Deprecated: Not used in v1beta2".
	if get(spec, "validation") != nil {
		o.note("spec.validation", "spec.validation is dropped: Flux has not used it since v1beta2, and Lanyard tries all objects before it stores the first")
		remove(spec, "validation")
	}
	// Variables are read in this cluster, also if the manifests are for another one.
	needsAccount := !elsewhere || get(spec, "postBuild", "substituteFrom") != nil
	if text(spec, "serviceAccountName") == "" && needsAccount {
		o.note("spec", "spec.serviceAccountName is not set: Lanyard refuses the object unless the administrator has set "+
			"apply.defaultServiceAccount, because nothing is applied with the controller's own rights")
	}
	if decryption := get(spec, "decryption"); decryption != nil && text(decryption, "serviceAccountName") == "" {
		o.note("spec.decryption", "spec.decryption.serviceAccountName is not set: Lanyard asks no cloud's key service unless the "+
			"administrator has set apply.defaultDecryptionServiceAccount, or lends the controller's own identity with apply.controllerNamespaces")
	}
	if text(spec, "suspend") == "true" {
		o.note("spec.suspend", "spec.suspend is true: Lanyard applies nothing until the field is removed")
	}
}

// changeSourceRef removes the fields apiVersion and namespace of spec.sourceRef.
func (o *object) changeSourceRef(reference *yamlnode.Node) {
	const path = "spec.sourceRef"
	if reference == nil || reference.Kind != yamlnode.MappingNode {
		return
	}
	if apiVersion := get(reference, "apiVersion"); apiVersion != nil {
		group, _ := splitVersion(apiVersion.Value)
		if !isUnset(apiVersion) && group != "source."+fluxToolkit && group != toolkitv1.GroupVersion().Group {
			o.refuse(path+".apiVersion", "a Kustomization's source must be one of Lanyard's; name such a source, and remove the field")
		}
		remove(reference, "apiVersion")
	}
	inPlace := o.removeNamespace(path, reference, "a Kustomization's source must be in its own namespace")
	source := identifier{text(reference, "kind"), o.namespace, text(reference, "name")}
	kinds := o.opts.Kinds.Sources()
	if source.kind != "" && !slices.Contains(kinds, source.kind) {
		o.refuse(path+".kind", "a Kustomization cannot name a %s, only %s; publish the manifests as an OCI artifact "+
			"(lanyard push artifact), and name an OCIRepository, or leave the Kustomization out of the input", source.kind, strings.Join(kinds, ", "))
	} else if inPlace {
		o.noteAbsent(path, source)
	}
	if source.kind == toolkitv1.ExternalArtifactKind {
		o.note(path, "%s names %s: the administrator must set apply.externalArtifacts", path, source)
	}
}

// changeDependencies removes the field namespace of each member of spec.dependsOn.
func (o *object) changeDependencies(list *yamlnode.Node) {
	if list == nil || list.Kind != yamlnode.SequenceNode {
		return
	}
	for i, reference := range list.Content {
		path := fmt.Sprintf("spec.dependsOn[%d]", i)
		if o.removeNamespace(path, reference, "a Kustomization depends only on Kustomizations of its own namespace") {
			o.noteAbsent(path, identifier{toolkitv1.KustomizationKind, o.namespace, text(reference, "name")})
		}
	}
}

// changeHealthChecks changes the apiVersion of health checks whose objects are converted.
func (o *object) changeHealthChecks(list *yamlnode.Node) {
	if list == nil || list.Kind != yamlnode.SequenceNode {
		return
	}
	for i, reference := range list.Content {
		named := identifier{text(reference, "kind"), cmp.Or(text(reference, "namespace"), o.namespace), text(reference, "name")}
		group, _ := splitVersion(text(reference, "apiVersion"))
		if kind, ok := o.opts.Kinds.Named(named.kind); ok && o.moved[named] && Flux.owns(group) {
			path := fmt.Sprintf("spec.healthChecks[%d]", i)
			o.note(path, "%s names Lanyard's %s in place of Flux's; the account that applies needs the right to get it", path, named)
			get(reference, "apiVersion").Value = kind.GroupVersion().String()
		}
	}
}

// checkKubeConfig refuses a cluster without a stored credential. It reports whether the manifests
// are for another cluster.
func (o *object) checkKubeConfig(config *yamlnode.Node) bool {
	const path = "spec.kubeConfig"
	if config == nil || config.Kind != yamlnode.MappingNode {
		return false
	}
	if get(config, "configMapRef") != nil {
		o.refuse(path+".configMapRef", "a cluster without a stored credential is not supported yet; use secretRef, or keep this Kustomization Flux's")
		remove(config, "configMapRef") // otherwise the check of the schema would refuse the field again
	}
	o.note(path, "%s: Lanyard refuses files that run a program, name a path or skip the verification of the server; the administrator must list "+
		"an API server with a private address in identity.allowedEndpointHosts", path)
	return true
}

// removeNamespace removes the field namespace of a reference. It refuses the namespace of another
// object, and returns false then.
func (o *object) removeNamespace(path string, reference *yamlnode.Node, rule string) bool {
	namespace := get(reference, "namespace")
	if namespace == nil {
		return true
	}
	own := isUnset(namespace) || namespace.Value == o.namespace && namespace.Kind == yamlnode.ScalarNode
	switch {
	case own:
	case o.namespace == "":
		o.refuse(path+".namespace", "%s; write this namespace in metadata.namespace, or remove the field", rule)
	default:
		o.refuse(path+".namespace", "%s; move one of the two, and remove the field", rule)
	}
	remove(reference, "namespace")
	return own
}

// isUnset reports whether a field has no value, or an empty text.
func isUnset(field *yamlnode.Node) bool {
	return field.ShortTag() == "!!null" || field.Kind == yamlnode.ScalarNode && field.Value == ""
}

// noteAbsent adds a note if a reference names an object that Lanyard would not have.
func (o *object) noteAbsent(path string, named identifier) {
	if _, ok := o.opts.Kinds.Named(named.kind); ok && !o.lanyards[named] {
		o.note(path, "%s names %s, which is not in the input: Lanyard must have an object of this kind and name", path, named)
	}
}
