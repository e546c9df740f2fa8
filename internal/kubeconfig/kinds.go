package kubeconfig

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// kinds is a RESTMapper that reads the kinds of one version of an API group when somebody asks for one of
// them. The RESTMappers of Kubernetes' libraries read all kinds at once. A hostile server could list so
// many kinds that this program has no memory left.
type kinds struct {
	client *rest.RESTClient
	final  bool // what is missing once is never asked for again

	mu     sync.Mutex // guards what follows; also held while kinds are read, so that they are read once
	known  map[schema.GroupVersion]map[string]*apimeta.RESTMapping
	failed error // the first failure; a client that has failed once is not used for long
}

// maxVersions is how many versions of one group are read.
const maxVersions = 32

// newKinds returns a RESTMapper. If final is true, it does not notice new kinds.
func newKinds(config *rest.Config, sender *http.Client, final bool) (*kinds, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c, err := rest.UnversionedRESTClientForConfigAndClient(config, sender)
	if err != nil {
		return nil, err
	}
	return &kinds{client: c, final: final, known: map[schema.GroupVersion]map[string]*apimeta.RESTMapping{}}, nil
}

// RESTMapping implements apimeta.RESTMapper.
func (k *kinds) RESTMapping(kind schema.GroupKind, versions ...string) (*apimeta.RESTMapping, error) {
	all, err := k.RESTMappings(kind, versions...)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// RESTMappings implements apimeta.RESTMapper. Without versions, the preferred version of the group comes
// first.
func (k *kinds) RESTMappings(kind schema.GroupKind, versions ...string) ([]*apimeta.RESTMapping, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil {
		return nil, k.failed
	}
	all, err := k.find(kind, versions)
	switch {
	case err != nil:
		k.failed = err
		return nil, err
	case len(all) == 0:
		return nil, &apimeta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	return all, nil
}

func (k *kinds) find(kind schema.GroupKind, versions []string) (all []*apimeta.RESTMapping, err error) {
	if len(versions) == 0 || len(versions) == 1 && versions[0] == "" {
		if versions, err = k.versions(kind.Group); err != nil {
			return nil, err
		}
	}
	for _, version := range versions {
		served, err := k.version(schema.GroupVersion{Group: kind.Group, Version: version})
		if err != nil {
			return nil, err
		}
		if mapping := served[kind.Kind]; mapping != nil {
			all = append(all, mapping)
		}
	}
	return all, nil
}

// versions returns the versions of a group.
func (k *kinds) versions(group string) ([]string, error) {
	if group == "" {
		return []string{"v1"}, nil // the core group never had another version
	}
	var found metav1.APIGroup
	if err := k.read(&found, "apis", group); err != nil {
		return nil, err
	}
	versions := []string{found.PreferredVersion.Version}
	for _, v := range found.Versions[:min(len(found.Versions), maxVersions)] {
		if v.Version != versions[0] {
			versions = append(versions, v.Version)
		}
	}
	return versions, nil
}

// version returns the kinds of a version by their names.
func (k *kinds) version(version schema.GroupVersion) (map[string]*apimeta.RESTMapping, error) {
	if served, ok := k.known[version]; ok {
		return served, nil
	}
	path := []string{"apis", version.Group, version.Version}
	if version.Group == "" {
		path = []string{"api", version.Version}
	}
	var found metav1.APIResourceList
	if version.Version != "" {
		if err := k.read(&found, path...); err != nil {
			return nil, err
		}
	}
	served := map[string]*apimeta.RESTMapping{}
	for _, r := range found.APIResources {
		if strings.Contains(r.Name, "/") { // a subresource
			continue
		}
		scope := apimeta.RESTScopeRoot
		if r.Namespaced {
			scope = apimeta.RESTScopeNamespace
		}
		served[r.Kind] = &apimeta.RESTMapping{Resource: version.WithResource(r.Name), GroupVersionKind: version.WithKind(r.Kind), Scope: scope}
	}
	if len(served) > 0 || k.final {
		k.known[version] = served
	}
	return served, nil
}

// read reads a document. A document that does not exist stays empty.
func (k *kinds) read(into runtime.Object, path ...string) error {
	// The transport ends the request with the reconciliation.
	err := k.client.Get().AbsPath(path...).Do(context.Background()).Into(into)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// errLookup is the error for questions that the clients of this package do not ask.
var errLookup = errors.New("kinds of other clusters are found by their names only")

// KindFor implements apimeta.RESTMapper.
func (*kinds) KindFor(schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return schema.GroupVersionKind{}, errLookup
}

// KindsFor implements apimeta.RESTMapper.
func (*kinds) KindsFor(schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return nil, errLookup
}

// ResourceFor implements apimeta.RESTMapper.
func (*kinds) ResourceFor(schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return schema.GroupVersionResource{}, errLookup
}

// ResourcesFor implements apimeta.RESTMapper.
func (*kinds) ResourcesFor(schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return nil, errLookup
}

// ResourceSingularizer implements apimeta.RESTMapper.
func (*kinds) ResourceSingularizer(string) (string, error) { return "", errLookup }
