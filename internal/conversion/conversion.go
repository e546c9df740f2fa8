// Package conversion turns manifests of Flux, of Cluster API Provider AWS and of Gardener into
// Lanyard's. It does not talk to a cluster.
package conversion

import (
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/yamlfile"
)

// File is a file of manifests.
type File struct {
	// Name is the file's name in messages.
	Name string
	// Data is the file's content: YAML or JSON.
	Data []byte
	// Changed says that Convert has changed the content.
	Changed bool
}

// Options change what Convert does.
type Options struct {
	// ExternalArtifacts sets externalArtifact on converted objects that keep artifacts. If an
	// object of Flux refers to such an object, the reference is changed to the object's
	// ExternalArtifact. Kinds of Flux that have such references are not converted then.
	ExternalArtifacts bool
	// Kinds is the table of all kinds. An object of another project is converted to the kind of the
	// same name, if the kind's Peers contain the object's API group. Required.
	Kinds kinds.Table
}

// Convert returns the files with the objects of all known kinds converted, and everything else
// unchanged. The notes list:
//   - each object that is converted
//   - each object that names a converted object
//   - each object that is not converted, if another kind of its API group can be converted
//
// The errors of all files are [*yamlfile.Error] values, joined. With an error, Convert returns
// neither files nor notes.
func Convert(files []File, opts Options) (converted []File, notes []string, err error) {
	c := &conversion{
		opts: opts, targets: targets(opts.Kinds),
		moved: map[identifier]bool{}, lanyards: map[identifier]bool{}, published: map[identifier]string{},
	}
	read, errs := make([][]document, len(files)), make([]error, len(files))
	for i, file := range files {
		var documents []*yamlfile.Document
		documents, errs[i] = yamlfile.Read(file.Name, file.Data)
		for _, d := range documents {
			read[i] = append(read[i], c.newDocument(d))
		}
	}
	converted = slices.Clone(files)
	for i := range converted {
		c.errs = append(c.errs, errs[i])
		c.convertFile(&converted[i], read[i])
	}
	if err := errors.Join(c.errs...); err != nil {
		return nil, nil, err
	}
	return converted, c.notes, nil
}

// groupKind is a kind of an API group.
type groupKind struct{ group, kind string }

// target describes how objects of another project's kind are converted to Lanyard's kind.
type target struct {
	apiVersion string
	// project is the project of the original kind. Its finalizers and owner references are removed.
	project Project
	// check reports fields that Lanyard's kind does not have, and values of a wrong type.
	check func(*yamlfile.Document) error
	// change converts the fields that differ between the two kinds; nil if only the apiVersion
	// differs.
	change func(*object)
	// move says what to do with the original object in a cluster; empty if there is nothing special.
	move string
}

// targets returns the kinds that are converted.
func targets(table kinds.Table) map[groupKind]target {
	all := map[groupKind]target{}
	for _, kind := range table {
		to := target{apiVersion: kind.GroupVersion().String(), check: func(d *yamlfile.Document) error { return d.Decode(kind.New()) }}
		switch kind.Kind {
		case identityv1.AWSClusterControllerIdentityKind:
			to.check, to.change = check[lender[controllerSpec]], (*object).checkGrant
		case identityv1.AWSClusterRoleIdentityKind:
			to.check, to.change = check[lender[roleSpec]], (*object).checkGrant
		case identityv1.AWSClusterStaticIdentityKind:
			to.check, to.change = check[lender[staticSpec]], (*object).changeStaticIdentity
		case identityv1.WorkloadIdentityKind:
			to.change = (*object).changeProviderConfig
		case toolkitv1.KustomizationKind:
			to.change, to.move = (*object).changeKustomization, moveKustomization
		}
		for _, group := range kind.Peers {
			for _, to.project = range []Project{Flux, ClusterAPI, Gardener} {
				if to.project.owns(group) {
					all[groupKind{group, kind.Kind}] = to
				}
			}
		}
	}
	return all
}

// Project is a project whose manifests Lanyard converts, named by the domain that its API groups
// end with.
type Project string

// The projects whose manifests are converted.
const (
	Flux       Project = "fluxcd.io"
	ClusterAPI Project = "cluster.x-k8s.io"
	Gardener   Project = "gardener.cloud"
)

// Kinds returns the names of the project's kinds that are converted.
func (p Project) Kinds(table kinds.Table) []string {
	return table.Where(func(k kinds.Kind) bool { return slices.ContainsFunc(k.Peers, p.owns) }).Names()
}

// owns reports whether a domain, such as an API group, belongs to the project.
func (p Project) owns(domain string) bool { return strings.HasSuffix("."+domain, "."+string(p)) }

// API groups of other projects.
const (
	fluxToolkit = "toolkit." + string(Flux)
	capaGroup   = "infrastructure." + string(ClusterAPI)
)

func check[T any](d *yamlfile.Document) error { return d.Decode(new(T)) }

// lender is the manifest of an AWS identity. It replaces the API type, whose decoder does not
// report unknown fields of the spec.
type lender[Spec any] struct {
	metav1.TypeMeta `json:",inline"`

	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     Spec              `json:"spec"`
}

// These types have the fields of the API types, but not their decoders, so that unknown fields are
// reported.
type (
	controllerSpec identityv1.AWSClusterControllerIdentitySpec
	roleSpec       identityv1.AWSClusterRoleIdentitySpec
	staticSpec     identityv1.AWSClusterStaticIdentitySpec
)

// conversion is one run of Convert.
type conversion struct {
	opts      Options
	targets   map[groupKind]target
	moved     map[identifier]bool   // true for the objects that are converted
	lanyards  map[identifier]bool   // true for the objects that are Lanyard's after the conversion
	published map[identifier]string // ExternalArtifact → kind of its source
	notes     []string
	errs      []error
}

// document is a document of a file with its objects. A list may have several objects; every other
// document is one object.
type document struct {
	*yamlfile.Document

	objects []*object
}

func (c *conversion) newDocument(d *yamlfile.Document) document {
	all := document{Document: d}
	first := newObject(c, d)
	if first.kind != "List" {
		all.objects = append(all.objects, first)
	} else if items := get(first.root, "items"); items != nil {
		for _, item := range items.Content {
			all.objects = append(all.objects, newObject(c, d.Member(item)))
		}
	}
	for _, o := range all.objects {
		if o.target != nil {
			c.moved[o.identifier] = true
		}
		if o.target != nil || o.isLanyards() {
			c.lanyards[o.identifier] = true
		}
	}
	return all
}

// convertFile converts the documents of a file. A document that needs no change keeps its bytes.
func (c *conversion) convertFile(file *File, documents []document) {
	var data []byte
	end := 0
	for _, d := range documents {
		var changes []func()
		for _, o := range d.objects {
			changes = append(changes, o.plan()...)
		}
		if len(changes) == 0 {
			continue
		}
		text, err := d.Rewrite(func() {
			for _, change := range changes {
				change()
			}
		})
		if err != nil {
			c.errs = append(c.errs, err)
			continue
		}
		for _, o := range d.objects {
			if o.target != nil {
				o.report(o.target.check(o.document))
			}
		}
		begin, after := d.Range()
		data = slices.Concat(data, file.Data[end:begin], text)
		end, file.Changed = after, true
	}
	file.Data = append(data, file.Data[end:]...)
}
