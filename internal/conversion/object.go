package conversion

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"

	"github.com/lanyard-dev/lanyard/internal/yamlfile"
)

// identifier names an object.
type identifier struct{ kind, namespace, name string }

// String is the identifier in messages.
func (i identifier) String() string { return i.kind + " " + path.Join(i.namespace, i.name) }

// object is an object in a file.
type object struct {
	identifier

	*conversion

	document       *yamlfile.Document // a document with only this object
	root           *yamlnode.Node
	group, version string
	target         *target // nil if the object is not converted
}

func newObject(c *conversion, d *yamlfile.Document) *object {
	root := d.Root()
	o := &object{conversion: c, document: d, root: root, identifier: identifier{
		kind: text(root, "kind"), namespace: text(root, "metadata", "namespace"), name: text(root, "metadata", "name"),
	}}
	o.group, o.version = splitVersion(text(root, "apiVersion"))
	if target, ok := c.targets[groupKind{o.group, o.kind}]; ok && !o.staysConsumer() {
		o.target = &target
	}
	return o
}

// isLanyards reports whether the object is of a kind of Lanyard.
func (o *object) isLanyards() bool {
	kind, ok := o.opts.Kinds.Named(o.kind)
	return ok && kind.Group == o.group
}

// staysConsumer reports whether the object stays Flux's, because it uses ExternalArtifacts.
func (o *object) staysConsumer() bool {
	_, consumes := referrers()[groupKind{o.group, o.kind}]
	return consumes && o.opts.ExternalArtifacts
}

// splitVersion splits an apiVersion. The group is empty for the core group.
func splitVersion(apiVersion string) (group, version string) {
	group, version, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return "", group
	}
	return group, version
}

// note adds a note about a field of the object.
func (o *object) note(path, format string, args ...any) {
	o.notes = append(o.notes, o.document.At(path, fmt.Errorf("%s: %w", o, fmt.Errorf(format, args...))).Error())
}

// refuse adds an error about a field of the object.
func (o *object) refuse(path, format string, args ...any) {
	o.errs = append(o.errs, o.document.At(path, fmt.Errorf("%s: %w", path, fmt.Errorf(format, args...))))
}

// report adds the error of a check to the object's errors. The parts of a joined error are added
// one by one.
func (o *object) report(err error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		if unknown, ok := errors.AsType[kjson.FieldError](err); ok {
			o.refuse(unknown.FieldPath(), "Lanyard's %s does not have this field; remove it", o.kind)
		} else if err != nil {
			o.errs = append(o.errs, err)
		}
	}
}

// plan adds what the user should know about the object to the notes of the conversion. It returns
// functions that change the object. If Lanyard does not convert the object, these functions change
// only its references to converted objects.
func (o *object) plan() []func() {
	if o.isLanyards() {
		return nil
	}
	if o.target == nil {
		if why := o.kept(); why != "" {
			o.note("", "kept: %s", why)
		}
		return o.planReferences()
	}
	o.note("", "%s", strings.TrimSuffix(o.group+"/"+o.version+" -> "+o.target.apiVersion+"; "+o.target.move, "; "))
	changes := []func(){o.convert}
	if o.opts.ExternalArtifacts && o.isSource() {
		o.planPublication()
		changes = append(changes, o.publish)
	}
	return changes
}

// kept returns why Lanyard does not convert the object, as text for a note. If Lanyard converts no
// kind of the object's API group, no note is needed, and kept returns an empty string.
func (o *object) kept() string {
	if o.group == capaGroup && o.kind == "AWSCluster" {
		return "Lanyard manages no clusters"
	}
	if _, ok := o.targets[groupKind{o.group, o.kind}]; ok {
		return "with --external-artifacts, it stays Flux's"
	}
	for known := range o.targets {
		if known.group == o.group {
			return "Lanyard does not have this kind"
		}
	}
	return ""
}

// convert changes the object to Lanyard's kind.
func (o *object) convert() {
	get(o.root, "apiVersion").Value = o.target.apiVersion
	remove(o.root, "status")
	if metadata := get(o.root, "metadata"); metadata != nil {
		for _, set := range []string{
			"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
			"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
		} {
			remove(metadata, set)
		}
		if annotations := get(metadata, "annotations"); annotations != nil {
			remove(annotations, "kubectl.kubernetes.io/last-applied-configuration")
			removeEmpty(metadata, "annotations")
		}
		if labels := get(metadata, "labels"); labels != nil {
			remove(labels, "kustomize."+fluxToolkit+"/name") // of the Kustomization that applied the object
			remove(labels, "kustomize."+fluxToolkit+"/namespace")
			removeEmpty(metadata, "labels")
		}
		o.removeOwn(metadata, "finalizers", func(finalizer *yamlnode.Node) string {
			domain, _, _ := strings.Cut(finalizer.Value, "/")
			return domain
		})
		o.removeOwn(metadata, "ownerReferences", func(owner *yamlnode.Node) string {
			group, _ := splitVersion(text(owner, "apiVersion"))
			return group
		})
	}
	if o.target.change != nil {
		o.target.change(o)
	}
}

// removeOwn shortens a list in metadata, such as finalizers. It removes the members that belong to
// the project from which the object is converted, such as Flux. To decide this, it calls the
// function domain, which returns a member's domain.
func (o *object) removeOwn(metadata *yamlnode.Node, field string, domain func(*yamlnode.Node) string) {
	list := get(metadata, field)
	if list == nil || list.Kind != yamlnode.SequenceNode {
		return
	}
	list.Content = slices.DeleteFunc(list.Content, func(member *yamlnode.Node) bool {
		return o.target.project.owns(domain(member))
	})
	removeEmpty(metadata, field)
}

// isSource reports whether the object can publish an ExternalArtifact.
func (o *object) isSource() bool {
	kind, ok := o.opts.Kinds.Named(o.kind)
	return ok && kind.KeepsArtifacts()
}

// planPublication reports an error if two sources would publish the same ExternalArtifact.
func (o *object) planPublication() {
	artifact := identifier{"ExternalArtifact", o.namespace, o.name}
	other, ok := o.published[artifact]
	if !ok {
		o.published[artifact] = o.kind
	} else if other != o.kind {
		o.refuse("metadata.name", "the %s of this name publishes the same %s; give the %s another name", other, artifact, o.kind)
	}
}

// publish sets spec.externalArtifact, so that the object publishes an ExternalArtifact.
func (o *object) publish() {
	if spec := get(o.root, "spec"); spec != nil && spec.Kind == yamlnode.MappingNode {
		remove(spec, "externalArtifact")
		field := mapping("externalArtifact", &yamlnode.Node{Kind: yamlnode.ScalarNode, Tag: "!!bool", Value: "true", Line: spec.Line})
		// The field's name gets quotes if the apiVersion has them, as in JSON.
		field.Content[0].Style = get(o.root, "apiVersion").Style
		spec.Content = append(spec.Content, field.Content...)
	}
}

// get returns the node at a path below a node; nil if it is absent.
func get(node *yamlnode.Node, path ...string) *yamlnode.Node {
	for _, name := range path {
		if _, node = yamlfile.Child(node, name); node == nil {
			return nil
		}
	}
	return node
}

// text returns the value at a path below a node; empty if it is absent or has members.
func text(node *yamlnode.Node, path ...string) string {
	node = get(node, path...)
	if node != nil && node.Kind == yamlnode.AliasNode {
		node = node.Alias
	}
	if node == nil || node.Kind != yamlnode.ScalarNode {
		return ""
	}
	return node.Value
}

// mapping returns the YAML node of a mapping with one field. The node of the field's name gets the
// line number of the value. It gets double quotes if the value has double quotes, as in JSON.
func mapping(name string, value *yamlnode.Node) *yamlnode.Node {
	key := &yamlnode.Node{
		Kind: yamlnode.ScalarNode, Tag: "!!str", Value: name, Line: value.Line, Style: value.Style & yamlnode.DoubleQuotedStyle,
	}
	return &yamlnode.Node{Kind: yamlnode.MappingNode, Tag: "!!map", Content: []*yamlnode.Node{key, value}, Line: value.Line}
}

// remove removes a field of a mapping. A comment after the field stays.
func remove(mapping *yamlnode.Node, name string) {
	if mapping.Kind != yamlnode.MappingNode {
		return
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value != name {
			continue
		}
		if after := mapping.Content[i].FootComment; after != "" && i > 0 {
			before := mapping.Content[i-2]
			before.FootComment = strings.TrimPrefix(before.FootComment+"\n\n"+after, "\n\n")
		}
		mapping.Content = slices.Delete(mapping.Content, i, i+2)
		return
	}
}

// removeEmpty removes a field of a mapping if the field has no members.
func removeEmpty(mapping *yamlnode.Node, name string) {
	if field := get(mapping, name); field != nil && len(field.Content) == 0 {
		remove(mapping, name)
	}
}
