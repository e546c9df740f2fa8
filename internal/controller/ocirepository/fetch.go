package ocirepository

import (
	"context"
	"fmt"
	"io"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// Fetch implements source.Kind. It fetches the artifact of the plan and writes the artifact into
// the status.
func (k kind) Fetch(ctx context.Context, o *v1alpha1.OCIRepository, p plan, call source.Call) error {
	err := k.registries.Ask(ctx, call.Call, &o.Status.FetchStatus, p.repository, func(ctx context.Context, registry *oci.Client) error {
		artifact, err := k.pull(ctx, o, p, call, registry)
		if err == nil {
			o.Status.Artifact = artifact
		}
		return err
	})
	if err == nil {
		o.Status.ObservedIgnore, o.Status.ObservedLayerSelector = o.Spec.Ignore, o.Spec.LayerSelector
	}
	return err
}

// pull asks the registry for the revision. It stores the artifact if the revision is new.
func (k kind) pull(ctx context.Context, o *v1alpha1.OCIRepository, p plan, call source.Call, registry *oci.Client) (*v1alpha1.Artifact, error) {
	resolved, err := registry.Resolve(ctx, p.reference)
	if err != nil {
		return nil, err
	}
	if upToDate(o, p, resolved.Revision()) {
		return k.artifacts.Renew(call.Owner, o.Status.Artifact)
	}
	manifest, err := registry.Fetch(ctx, resolved)
	if err != nil {
		return nil, err
	}
	layer, err := manifest.Select(p.selector)
	if err != nil {
		return nil, err
	}
	artifact, err := k.artifacts.Put(ctx, call.Owner, o.Status.Artifact, resolved.Revision(), func(w io.Writer) error {
		return nameLimit(k.write(ctx, w, registry, layer, p))
	})
	if err != nil {
		return nil, err
	}
	artifact.Metadata = manifest.Metadata
	return artifact, nil
}

// write writes the layer to the store, extracted or copied as the spec says.
func (k kind) write(ctx context.Context, w io.Writer, registry *oci.Client, layer oci.Layer, p plan) error {
	stream, err := registry.Open(ctx, layer)
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // read only
	limits := archive.Limits{MaxBytes: k.maxSize}
	if p.selector.Operation == oci.Copy {
		_, err = archive.Copy(ctx, stream, w, limits)
	} else {
		_, err = archive.Normalize(ctx, stream, w, archive.Options{Ignore: p.ignore, Limits: limits})
	}
	return err
}

// nameLimit completes the error for a layer that is too large: it names the flag that sets the
// limit. The flag belongs to the program, so packages oci and archive cannot name it.
func nameLimit(err error) error {
	if archive.ReasonOf(err) == archive.ReasonTooLarge || origin.CodeOf(err) == origin.CodeTooLarge {
		return fmt.Errorf("%w (--artifact-max-decompressed-size)", err)
	}
	return err
}
