package impersonation

import (
	"errors"
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// discovered is an API server with the kind Widget. Its aggregated API down.example.com does not
// answer.
type discovered struct {
	discovery.DiscoveryInterface

	err error
}

func (d discovered) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	version := metav1.GroupVersionForDiscovery{GroupVersion: "example.com/v1", Version: "v1"}
	return []*metav1.APIGroup{{Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}},
		[]*metav1.APIResourceList{{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget", Namespaced: true}}}}, d.err
}

// TestDiscover distinguishes kinds that are missing from kinds of which nothing is known.
func TestDiscover(t *testing.T) {
	down := schema.GroupVersion{Group: "down.example.com", Version: "v1"}
	kinds, err := discover(discovered{err: &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{down: errors.New("no answer")}}})
	must.Succeed(t, err)
	found, err := kinds.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Widget"}, "v1")
	if err != nil || found.Resource.Resource != "widgets" || found.Scope.Name() != apimeta.RESTScopeNameNamespace {
		t.Errorf("%+v, %v", found, err)
	}
	for _, group := range []string{"example.com", "missing.example.com"} {
		if _, err := kinds.RESTMappings(schema.GroupKind{Group: group, Kind: "Missing"}); !apimeta.IsNoMatchError(err) {
			t.Errorf("%s: %v", group, err)
		}
	}
	unknown := schema.GroupKind{Group: down.Group, Kind: "Widget"}
	_, one := kinds.RESTMapping(unknown, "v1")
	_, all := kinds.RESTMappings(unknown)
	for _, err := range []error{one, all} {
		if err == nil || apimeta.IsNoMatchError(err) || !strings.Contains(err.Error(), "down.example.com/v1 are not known now: no answer") {
			t.Errorf("a kind of which nothing is known: %v", err)
		}
	}
	if _, err := discover(discovered{err: errors.New("the API server is down")}); err == nil {
		t.Error("no answer at all is no error")
	}
}
