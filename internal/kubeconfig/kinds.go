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

// kinds is a RESTMapper that reads the kinds of one version of an API group when somebody asks for
// one of them. The RESTMappers of Kubernetes' libraries read all kinds at once. A hostile server
// could list so many kinds that this program has no memory left.
type kinds struct {
	ctx          context.Context //nolint:containedctx // the methods of a RESTMapper get no context
	client       *rest.RESTClient
	cachesMisses bool // a missing kind is not asked for again

	mu     sync.Mutex // guards what follows; also held while kinds are read, so that they are read once
	known  map[schema.GroupVersion]map[string]*apimeta.RESTMapping
	groups map[string][]string           // versions of groups
	failed map[schema.GroupVersion]error // versions that could not be read; the server is not asked again
}

// maxVersions is how many versions of one group are read.
const maxVersions = 32

// newKinds returns a RESTMapper. If cachesMisses is true, it does not notice new kinds.
func newKinds(ctx context.Context, config *rest.Config, sender *http.Client, cachesMisses bool) (*kinds, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c, err := rest.UnversionedRESTClientForConfigAndClient(config, sender)
	if err != nil {
		return nil, err
	}
	return &kinds{
		ctx: ctx, client: c, cachesMisses: cachesMisses, known: map[schema.GroupVersion]map[string]*apimeta.RESTMapping{},
		groups: map[string][]string{}, failed: map[schema.GroupVersion]error{},
	}, nil
}

// RESTMapping implements apimeta.RESTMapper.
func (k *kinds) RESTMapping(kind schema.GroupKind, versions ...string) (*apimeta.RESTMapping, error) {
	all, err := k.RESTMappings(kind, versions...)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// RESTMappings implements apimeta.RESTMapper. Without versions, the preferred version of the group
// comes first.
func (k *kinds) RESTMappings(kind schema.GroupKind, versions ...string) ([]*apimeta.RESTMapping, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all, err := k.find(kind, versions)
	if err == nil && len(all) == 0 {
		err = &apimeta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	return all, err
}

func (k *kinds) find(kind schema.GroupKind, versions []string) (all []*apimeta.RESTMapping, err error) {
	if len(versions) == 0 {
		if versions, err = k.versions(kind.Group); err != nil {
			return nil, err
		}
	}
	for _, version := range versions {
		mapping, err := k.mapping(kind.WithVersion(version))
		if err != nil {
			return nil, err
		}
		if mapping != nil {
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
	if versions, ok := k.groups[group]; ok {
		return versions, nil
	}
	var found metav1.APIGroup
	if err := k.read(schema.GroupVersion{Group: group}, &found, "apis", group); err != nil {
		return nil, err
	}
	versions := []string{found.PreferredVersion.Version}
	for _, v := range found.Versions[:min(len(found.Versions), maxVersions)] {
		if v.Version != versions[0] {
			versions = append(versions, v.Version)
		}
	}
	if k.cachesMisses {
		k.groups[group] = versions
	}
	return versions, nil
}

// mapping returns how a kind is served; nil if it is not served.
func (k *kinds) mapping(kind schema.GroupVersionKind) (*apimeta.RESTMapping, error) {
	served, ok := k.known[kind.GroupVersion()]
	if mapping := served[kind.Kind]; mapping != nil || ok && k.cachesMisses {
		return mapping, nil
	}
	served, err := k.version(kind.GroupVersion())
	if err != nil {
		return nil, err
	}
	k.known[kind.GroupVersion()] = served
	return served[kind.Kind], nil
}

// version reads the kinds of a version, by their names.
func (k *kinds) version(version schema.GroupVersion) (map[string]*apimeta.RESTMapping, error) {
	path := []string{"apis", version.Group, version.Version}
	if version.Group == "" {
		path = []string{"api", version.Version}
	}
	var found metav1.APIResourceList
	if version.Version != "" {
		if err := k.read(version, &found, path...); err != nil {
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
	return served, nil
}

// read reads the document of a version, or of a group. A document that does not exist stays empty.
func (k *kinds) read(version schema.GroupVersion, into runtime.Object, path ...string) error {
	if err := k.failed[version]; err != nil {
		return err
	}
	err := k.client.Get().AbsPath(path...).Do(k.ctx).Into(into)
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	k.failed[version] = shortened(err)
	return k.failed[version]
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
