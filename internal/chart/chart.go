// Package chart renders Lanyard's Helm chart as Helm would, without Helm's
// client, a cluster or files on disk. What installs Lanyard without Helm (the
// command lanyard up, the end-to-end tests) applies this rendering, so that
// every program runs under the permissions that users get.
package chart

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/charts"
)

// Release is one installation of the chart.
type Release struct {
	// Name of the release, as in helm install. Required.
	Name string
	// Namespace that the release is installed in. The chart does not make it.
	// Required.
	Namespace string
	// Values override those of the chart's values.yaml, key by key; nil takes
	// them as they are. A key that the chart does not know, and a value out of
	// its limits, is an error (values.schema.json).
	Values map[string]any
}

// Render returns the manifests of the release, each begun by "---", in the
// order in which they are to be installed.
func Render(release Release) ([]byte, error) {
	manifests, err := render(release)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, manifest := range manifests {
		fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", manifest.Name, strings.TrimSpace(manifest.Content))
	}
	return out.Bytes(), nil
}

// Objects returns the objects of the release in the order in which they are to
// be installed: CustomResourceDefinitions come before what uses them.
func Objects(release Release) ([]*unstructured.Unstructured, error) {
	manifests, err := render(release)
	if err != nil {
		return nil, err
	}
	objects := make([]*unstructured.Unstructured, 0, len(manifests))
	for _, manifest := range manifests {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(manifest.Content), &object.Object); err != nil {
			return nil, fmt.Errorf("decode an object of %s: %w", manifest.Name, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func render(release Release) ([]releaseutil.Manifest, error) {
	if release.Name == "" || release.Namespace == "" {
		return nil, fmt.Errorf("render the chart: a release needs a name and a namespace, not %q and %q", release.Name, release.Namespace)
	}
	files, err := charts.Lanyard()
	if err != nil {
		return nil, fmt.Errorf("open the chart: %w", err)
	}
	loaded, err := load(files)
	if err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
	}
	options := chartutil.ReleaseOptions{Name: release.Name, Namespace: release.Namespace, Revision: 1, IsInstall: true}
	values, err := chartutil.ToRenderValues(loaded, release.Values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, fmt.Errorf("check the values of release %s: %w", release.Name, err)
	}
	rendered, err := engine.Engine{Strict: true}.Render(loaded, values)
	if err != nil {
		return nil, fmt.Errorf("render release %s: %w", release.Name, err)
	}
	for name := range rendered {
		// NOTES.txt is for people, and partials render to nothing.
		if path.Ext(name) != ".yaml" {
			delete(rendered, name)
		}
	}
	_, manifests, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, fmt.Errorf("sort the manifests of release %s: %w", release.Name, err)
	}
	return manifests, nil
}

func load(files fs.FS) (*chart.Chart, error) {
	var buffered []*loader.BufferedFile
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		buffered = append(buffered, &loader.BufferedFile{Name: name, Data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	return loader.LoadFiles(buffered)
}
