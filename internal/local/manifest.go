package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/admission"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/yamlfile"
)

// Manifests are objects that [ReadManifests] has checked, namespaces first.
type Manifests struct{ all []manifest }

// manifest is an object with its position in a file.
type manifest struct {
	*unstructured.Unstructured

	document *yamlfile.Document
}

// at returns an error about a field as a *yamlfile.Error.
func (m manifest) at(path, format string, args ...any) error {
	return m.document.At(path, fmt.Errorf("%s: %w", m.name(), fmt.Errorf(format, args...)))
}

// name returns kind, namespace and name of the object, for errors.
func (m manifest) name() string { return nameOf(m.Unstructured) }

func nameOf(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + path.Join(o.GetNamespace(), o.GetName())
}

// text returns the string in a field of the object, or "" if the field is missing or not a string.
func (m manifest) text(path ...string) string {
	text, _, _ := unstructured.NestedString(m.Object, path...) // empty after an error
	return text
}

// repository returns the image repository of an OCIRepository or ImageRepository.
func (m manifest) repository() (oci.Repository, error) {
	field := "spec.url"
	if kind, ok := kinds.All().Named(m.GetKind()); ok && kind.Server == kinds.Registry && m.GroupVersionKind().Group == kind.Group {
		field = kind.AddressField
	}
	return oci.ParseField(field, m.text(strings.Split(field, ".")...))
}

// ReadManifests reads the manifests at the root of a file system (*.yaml, *.yml). It checks what
// can be checked without a cluster:
//
//   - YAML
//   - the fields of Kubernetes' and Lanyard's kinds
//   - the schemas of Lanyard's kinds
//   - namespaces
//   - the expected results in annotations
//
// If an object that fetches has no annotation with an expected result, the expected result is
// "pulled". Errors name each file with its folder. The errors of all objects are joined. Each error
// that a file causes is a *yamlfile.Error.
func ReadManifests(ctx context.Context, folder string, files fs.FS) (*Manifests, error) {
	all, err := parseManifests(folder, files)
	if err != nil {
		return nil, err
	}
	checks, err := newChecks(all)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, m := range all {
		errs = append(errs, checks.judge(ctx, m))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	// Sort namespaces first: in files, an object may come before its namespace.
	slices.SortStableFunc(all, func(a, b manifest) int { return rank(a) - rank(b) })
	return &Manifests{all: all}, nil
}

// Namespaces returns the names of the Namespaces in the manifests, in their order.
func (m *Manifests) Namespaces() []string {
	var names []string
	for _, o := range m.namespaces() {
		names = append(names, o.GetName())
	}
	return names
}

func (m *Manifests) namespaces() []manifest {
	return slices.DeleteFunc(slices.Clone(m.all), func(o manifest) bool { return !isNamespace(o) })
}

func rank(m manifest) int {
	if isNamespace(m) {
		return 0
	}
	return 1
}

func isNamespace(m manifest) bool {
	return m.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Namespace"}
}

func parseManifests(folder string, files fs.FS) ([]manifest, error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("read the manifests in folder %s: %w; name another folder with --examples", folder, errors.Unwrap(err))
	}
	var all []manifest
	for _, entry := range entries {
		if extension := path.Ext(entry.Name()); entry.IsDir() || extension != ".yaml" && extension != ".yml" {
			continue
		}
		data, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
		found, err := parseManifest(filepath.Join(folder, entry.Name()), data)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no manifests (*.yaml, *.yml) in folder %s; name a folder that holds some with --examples", folder)
	}
	return all, nil
}

// parseManifest reads the objects of one file.
func parseManifest(file string, data []byte) ([]manifest, error) {
	documents, err := yamlfile.Read(file, data)
	if err != nil {
		return nil, err
	}
	var found []manifest
	for _, d := range documents {
		m := manifest{Unstructured: &unstructured.Unstructured{}, document: d}
		if err := d.Decode(&m.Object); err != nil {
			return nil, err
		}
		for _, required := range []struct{ path, value string }{
			{"apiVersion", m.GetAPIVersion()}, {"kind", m.GetKind()}, {"metadata.name", m.GetName()},
		} {
			if required.value == "" {
				return nil, d.At(required.path, errors.New("an object needs apiVersion, kind and metadata.name"))
			}
		}
		found = append(found, m)
	}
	return found, nil
}

// checks holds what is needed to check objects before a cluster runs.
type checks struct {
	// scheme maps kinds to Go types. Decoding an object into its Go type finds unknown fields.
	scheme     *runtime.Scheme
	admissions map[schema.GroupVersionKind]*admission.Admission // of Lanyard's kinds
	// groups has the API groups of the CRDs among the manifests.
	groups     map[string]bool
	namespaces map[string]bool // namespaces that the cluster will have
}

func newChecks(all []manifest) (*checks, error) {
	known, err := scheme()
	if err != nil {
		return nil, err
	}
	c := &checks{
		scheme: known, admissions: map[schema.GroupVersionKind]*admission.Admission{}, groups: map[string]bool{},
		namespaces: map[string]bool{"default": true, "kube-system": true, "kube-public": true, Namespace: true},
	}
	for _, m := range all {
		if isNamespace(m) {
			c.namespaces[m.GetName()] = true
		}
		if m.GetKind() == customResourceDefinition {
			c.groups[m.text("spec", "group")] = true
		}
	}
	return c, c.addChart()
}

// addChart adds the kinds of the chart's CRDs.
func (c *checks) addChart() error {
	objects, err := render(nil, nil, nil)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.GetKind() != customResourceDefinition {
			continue
		}
		data, err := o.MarshalJSON()
		if err != nil {
			return fmt.Errorf("read the chart's %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		crd, err := admission.ReadCRD(data)
		if err != nil {
			return err
		}
		gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Kind: crd.Spec.Names.Kind}
		if c.admissions[gvk], err = admission.New(crd); err != nil {
			return err
		}
	}
	return nil
}

// judge returns the errors of an object. It may add the annotation demo.lanyard.dev/expect: see
// expect.
func (c *checks) judge(ctx context.Context, m manifest) error {
	gvk := m.GroupVersionKind()
	if !c.serves(gvk) {
		return m.at("apiVersion", "the cluster does not serve kind %s of %s; Lanyard's kinds %s are of %s, "+
			"and other kinds need their CustomResourceDefinition among the manifests",
			gvk.Kind, m.GetAPIVersion(), strings.Join(kinds.All().Where(kinds.Kind.Fetches).Names(), ", "), v1alpha1.GroupVersion())
	}
	if into, err := c.scheme.New(gvk); err == nil {
		if err := m.document.Decode(into); err != nil {
			return err
		}
		if m.GetNamespace() == "" && !clusterScoped(gvk.Kind) {
			return m.at("metadata", "metadata.namespace is missing")
		}
	}
	if namespace := m.GetNamespace(); namespace != "" && !c.namespaces[namespace] {
		return m.at("metadata.namespace", "namespace %q will not exist; add a Namespace to the manifests", namespace)
	}
	if judge := c.admissions[gvk]; judge != nil {
		var errs []error
		for _, reason := range judge.Admit(ctx, m.DeepCopy().Object) {
			errs = append(errs, m.at(reason.Field, "%w", reason))
		}
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
	if err := expect(m.Unstructured); err != nil {
		return m.at(field.NewPath("metadata", "annotations").Key(examples.ExpectAnnotation).String(), "%w", err)
	}
	return nil
}

// serves reports whether a cluster could serve a kind. The API server's built-in groups have no
// dot, or end with .k8s.io.
func (c *checks) serves(gvk schema.GroupVersionKind) bool {
	if slices.ContainsFunc(kinds.All(), func(k kinds.Kind) bool { return k.Group == gvk.Group }) {
		return c.admissions[gvk] != nil
	}
	return !strings.Contains(gvk.Group, ".") || strings.HasSuffix(gvk.Group, ".k8s.io") || c.groups[gvk.Group]
}

// clusterScoped reports whether a kind is cluster-scoped. The kind must be in checks.scheme.
func clusterScoped(kind string) bool {
	known, _ := kinds.All().Named(kind)
	return known.ClusterScoped ||
		slices.Contains([]string{"Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding"}, kind)
}
