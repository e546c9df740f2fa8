// Package chart renders Lanyard's Helm chart as Helm does, without Helm's client, a cluster or
// files on disk. The command lanyard up and the end-to-end tests install Lanyard from this
// rendering. So every program has the same permissions as in a user's cluster.
package chart

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/charts"
)

// Release is one installation of the chart.
type Release struct {
	// Name of the release, as in helm install. Required.
	Name string
	// Namespace that the release is installed in. The chart does not create it. Required.
	Namespace string
	// Values override the values of the chart's values.yaml, key by key; nil overrides none. An
	// unknown key is an error, and so is a value outside the limits in values.schema.json.
	Values map[string]any
}

// Render returns the manifests of the release in the order of installation. Each begins with "---".
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

// Objects returns the objects of the release in the order of installation:
// CustomResourceDefinitions come before the objects that need them.
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

// ParseValues parses values in the form of Helm's --set, name=value, such as "log.level=debug".
// Later values replace earlier values.
func ParseValues(lines []string) (map[string]any, error) {
	values := map[string]any{}
	for _, line := range lines {
		if err := strvals.ParseInto(line, values); err != nil {
			return nil, fmt.Errorf("read value %q: %w", line, err)
		}
	}
	return values, nil
}

// ValueNames returns the sorted names of the chart's values, such as "log.level". A map whose keys
// users choose, such as labels, is one value with one name.
func ValueNames() ([]string, error) {
	loaded, err := load()
	if err != nil {
		return nil, err
	}
	names := valueNames("", loaded.Values)
	slices.Sort(names)
	return names, nil
}

func valueNames(prefix string, values map[string]any) (names []string) {
	for name, value := range values {
		if further, ok := value.(map[string]any); ok && len(further) > 0 {
			names = append(names, valueNames(prefix+name+".", further)...)
		} else {
			names = append(names, prefix+name)
		}
	}
	return names
}

// render returns the manifests of the release in the order of installation.
func render(release Release) ([]releaseutil.Manifest, error) {
	files, err := renderFiles(release)
	if err != nil {
		return nil, err
	}
	for name := range files {
		// Only .yaml files are manifests: NOTES.txt is for people, and a partial renders to an
		// empty text.
		if path.Ext(name) != ".yaml" {
			delete(files, name)
		}
	}
	_, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, fmt.Errorf("sort the manifests of release %s: %w", release.Name, err)
	}
	return manifests, nil
}

// renderFiles returns the content of each template's file, by the file's name in the chart.
func renderFiles(release Release) (map[string]string, error) {
	if release.Name == "" || release.Namespace == "" {
		return nil, fmt.Errorf("render the chart: a release needs a name and a namespace, not %q and %q", release.Name, release.Namespace)
	}
	loaded, err := load()
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
	return rendered, nil
}

func load() (*chart.Chart, error) {
	files, err := charts.Lanyard()
	if err != nil {
		return nil, err
	}
	var buffered []*loader.BufferedFile
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
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
