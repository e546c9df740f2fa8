package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/Masterminds/semver/v3"
	fluxoci "github.com/fluxcd/pkg/oci"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/file"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// call pushes or pulls a folder, or lists tags, with the tool's library.
func call(ctx context.Context, tool, verb, reference, folder string) error {
	switch tool + " " + verb {
	case "lanyard push":
		return push(ctx, reference, folder)
	case "lanyard pull":
		return pull(ctx, reference, folder)
	case "lanyard list":
		return list(ctx, reference)
	case "flux push":
		_, err := fluxoci.NewClient(fluxoci.DefaultOptions()).Push(ctx, reference, folder)
		return err
	case "flux pull":
		_, err := fluxoci.NewClient(fluxoci.DefaultOptions()).Pull(ctx, reference, folder)
		return err
	case "oras push":
		return orasPush(ctx, reference, folder)
	case "oras pull":
		return orasPull(ctx, reference, folder)
	case "oras list":
		return orasList(ctx, reference)
	}
	return fmt.Errorf("%s does not %s", tool, verb)
}

// orasRepository returns ORAS's client for the repository in the reference, and the reference's
// tag.
func orasRepository(reference string) (*remote.Repository, string, error) {
	colon := strings.LastIndex(reference, ":")
	repository, err := remote.NewRepository(reference[:colon])
	if err != nil {
		return nil, "", err
	}
	return repository, reference[colon+1:], nil
}

func orasPush(ctx context.Context, reference, folder string) (err error) {
	repository, tag, err := orasRepository(reference)
	if err != nil {
		return err
	}
	store, err := file.New(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	store.TarReproducible = true
	layer, err := store.Add(ctx, "content", "application/vnd.cncf.flux.content.v1.tar+gzip", ".")
	if err != nil {
		return err
	}
	manifest, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_1, "application/vnd.cncf.flux.config.v1+json",
		oras.PackManifestOptions{Layers: []v1.Descriptor{layer}})
	if err != nil {
		return err
	}
	if err := store.Tag(ctx, manifest, tag); err != nil {
		return err
	}
	_, err = oras.Copy(ctx, store, tag, repository, tag, oras.DefaultCopyOptions)
	return err
}

func orasPull(ctx context.Context, reference, folder string) (err error) {
	repository, tag, err := orasRepository(reference)
	if err != nil {
		return err
	}
	store, err := file.New(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	_, err = oras.Copy(ctx, repository, tag, store, tag, oras.DefaultCopyOptions)
	return err
}

// orasList reads the tags and sorts them by version. A program with ORAS's library must sort them
// itself, because the library does not.
func orasList(ctx context.Context, reference string) error {
	repository, _, err := orasRepository(reference)
	if err != nil {
		return err
	}
	var versions semver.Collection
	var others []string
	err = repository.Tags(ctx, "", func(tags []string) error {
		for _, tag := range tags {
			if version, err := semver.NewVersion(tag); err == nil {
				versions = append(versions, version)
			} else {
				others = append(others, tag)
			}
		}
		return nil
	})
	sort.Sort(sort.Reverse(versions))
	slices.Sort(others)
	return err
}

// limits returns the limits of the command lanyard, which are higher than the controller's.
func limits() archive.Limits { return archive.Limits{MaxBytes: 4 << 30, MaxFiles: 200_000} }

// connect returns Lanyard's client for a repository.
func connect(ctx context.Context, reference string) (*oci.Client, oci.Reference, error) {
	repository, ref, err := oci.ParseArtifact("oci://" + reference)
	if err != nil {
		return nil, ref, err
	}
	client, err := oci.Connect(ctx, repository, oci.Options{
		Transport: transport.Default(), MaxLayerBytes: limits().MaxBytes,
	})
	return client, ref, err
}

func push(ctx context.Context, reference, folder string) error {
	repository, ref, err := oci.ParseArtifact("oci://" + reference)
	if err != nil {
		return err
	}
	way := transport.Default()
	// Set no limit: the registry answers only after it has checked the whole content's digest.
	way.ResponseHeaderTimeout = 0
	_, err = oci.Push(ctx, repository, ref.Tag, oci.Artifact{Path: folder, Limits: limits()}, oci.Options{Transport: way})
	return err
}

func pull(ctx context.Context, reference, folder string) error {
	client, ref, err := connect(ctx, reference)
	if err != nil {
		return err
	}
	manifest, err := client.Get(ctx, ref)
	if err != nil {
		return err
	}
	layer, err := manifest.Select(oci.LayerSelector{})
	if err != nil {
		return err
	}
	stream, err := client.Open(ctx, layer)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return errors.Join(err, stream.Close())
	}
	_, err = archive.Extract(ctx, stream, root, archive.Options{Limits: limits()})
	return errors.Join(err, root.Close(), stream.Close())
}

func list(ctx context.Context, reference string) error {
	client, _, err := connect(ctx, reference)
	if err != nil {
		return err
	}
	_, err = client.List(ctx, oci.TagFilter{})
	return err
}
