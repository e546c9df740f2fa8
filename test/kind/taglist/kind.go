// Package taglist implements the kind TagList, a source. The artifact has at most ten tags of a
// repository: those that come last in byte order.
package taglist

import (
	"context"
	"io"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/registry"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/test/kind/v1alpha1"
)

// New returns a reconciler for TagLists, given the kind's entry in the table of kinds.
func New(shared *source.Shared, entry kinds.Kind, access *access.Access) *source.Reconciler[*v1alpha1.TagList, oci.Repository] {
	return source.New(shared, entry, kind{registry.Registries{Access: access}, shared.Artifacts})
}

// kind implements source.Kind. Decide returns the repository, whose tags Fetch lists.
type kind struct {
	registries registry.Registries
	artifacts  *source.Artifacts
}

// Decide implements source.Kind.
func (kind) Decide(o *v1alpha1.TagList, _ source.Call) (oci.Repository, error) {
	return oci.ParseURL(o.Spec.URL)
}

// Fetch implements source.Kind.
func (k kind) Fetch(ctx context.Context, o *v1alpha1.TagList, repository oci.Repository, call source.Call) error {
	return k.registries.Ask(ctx, call.Call, &o.Status.FetchStatus, repository, func(ctx context.Context, registry *oci.Client) error {
		scan, err := registry.Scan(ctx, oci.Exclusions{})
		if err != nil {
			return err
		}
		artifact, err := k.artifacts.Put(ctx, call.Owner, o.Status.Artifact, scan.Revision, func(w io.Writer) error {
			_, err := io.WriteString(w, strings.Join(scan.Latest, "\n"))
			return err
		})
		if err == nil {
			o.Status.Artifact = artifact
		}
		return err
	})
}

// Explain implements source.Kind.
func (kind) Explain(err error) (object.Failure, bool) { return registry.Explain(err) }
