package impersonation

import (
	"errors"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
)

// discover reads all kinds that an API server serves.
func discover(reader discovery.DiscoveryInterface) (apimeta.RESTMapper, error) {
	groups, lists, err := reader.ServerGroupsAndResources()
	partial, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err)
	if err != nil && !ok {
		return nil, err
	}
	resources := map[string][]metav1.APIResource{} // by group and version
	for _, list := range lists {
		resources[list.GroupVersion] = list.APIResources
	}
	found := make([]*restmapper.APIGroupResources, 0, len(groups))
	for _, group := range groups {
		versions := map[string][]metav1.APIResource{}
		for _, version := range group.Versions {
			versions[version.Version] = resources[version.GroupVersion]
		}
		found = append(found, &restmapper.APIGroupResources{Group: *group, VersionedResources: versions})
	}
	m := &mapper{RESTMapper: restmapper.NewDiscoveryRESTMapper(found)}
	if partial != nil {
		m.failed = partial.Groups
	}
	return m, nil
}

// mapper is a RESTMapper that distinguishes missing kinds from kinds of which nothing is known. An
// aggregated API whose server is down says nothing about its kinds.
type mapper struct {
	apimeta.RESTMapper

	failed map[schema.GroupVersion]error
}

// RESTMapping implements apimeta.RESTMapper.
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*apimeta.RESTMapping, error) {
	found, err := m.RESTMapper.RESTMapping(kind, versions...)
	return found, m.explain(kind, err)
}

// RESTMappings implements apimeta.RESTMapper.
func (m *mapper) RESTMappings(kind schema.GroupKind, versions ...string) ([]*apimeta.RESTMapping, error) {
	found, err := m.RESTMapper.RESTMappings(kind, versions...)
	return found, m.explain(kind, err)
}

func (m *mapper) explain(kind schema.GroupKind, err error) error {
	if !apimeta.IsNoMatchError(err) {
		return err
	}
	for version, cause := range m.failed {
		if version.Group == kind.Group {
			return fmt.Errorf("the kinds of %s are not known now: %w", version, cause)
		}
	}
	return err
}
