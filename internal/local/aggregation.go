package local

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// An API server reaches the program behind an aggregated API (APIService) through a Service and the
// pod network. This machine has no pod network. But the API server also accepts a Service of type
// ExternalName. Then it dials the external name, at the port of the APIService. It still verifies
// the certificate for the Service's DNS name. So here the Services of aggregated APIs have type
// ExternalName, with this machine's address.
//
// An APIService contains its program's port, so it is applied after this port was reserved. The
// program starts after the APIService was applied, because the program writes its CA bundle into
// the APIService.
//
// Source: k8s.io/apiserver, pkg/util/proxy, ResolveCluster.

// thisMachine is the external name of the Services of aggregated APIs. Kubernetes also allows an IP
// address as an external name.
const thisMachine = "127.0.0.1"

// apiService is the APIService of an aggregated API.
type apiService struct {
	spec   apiServiceSpec
	object *unstructured.Unstructured
}

// apiServiceSpec says how to reach an aggregated API. Source: apiregistration.k8s.io/v1,
// APIServiceSpec.
type apiServiceSpec struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	// Service is nil if the API server itself serves the API.
	Service *struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Port      *int32 `json:"port"` // default 443
	} `json:"service"`
}

// readAPIService decodes the APIService of an aggregated API. It returns false for other objects.
func readAPIService(o *unstructured.Unstructured) (apiService, bool, error) {
	var read struct {
		Spec apiServiceSpec `json:"spec"`
	}
	if o.GetKind() != "APIService" {
		return apiService{}, false, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &read); err != nil {
		return apiService{}, false, err
	}
	return apiService{spec: read.Spec, object: o}, read.Spec.Service != nil, nil
}

// host returns the DNS name and the port of the API's Service.
func (a apiService) host() string {
	port := int32(443)
	if a.spec.Service.Port != nil {
		port = *a.spec.Service.Port
	}
	return net.JoinHostPort(a.spec.Service.Name+"."+a.spec.Service.Namespace+".svc", strconv.Itoa(int(port)))
}

// at returns a copy of the APIService object in which spec.service.port is the given port.
func (a apiService) at(port int64) *unstructured.Unstructured {
	moved := a.object.DeepCopy()
	// Both maps exist: readAPIService has decoded them.
	moved.Object["spec"].(map[string]any)["service"].(map[string]any)["port"] = port
	return moved
}

// reachable returns the objects to apply before any program runs: all objects except the given
// APIServices. The Services of these APIServices are replaced with Services that lead to this
// machine.
func reachable(objects []*unstructured.Unstructured, apis []apiService) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, o := range objects {
		if slices.ContainsFunc(apis, func(a apiService) bool { return a.object == o }) {
			continue
		}
		if o.GetKind() == "Service" && slices.ContainsFunc(apis, func(a apiService) bool {
			return a.spec.Service.Namespace == o.GetNamespace() && a.spec.Service.Name == o.GetName()
		}) {
			o = leadHere(o)
		}
		all = append(all, o)
	}
	return all
}

// leadHere returns a copy of a Service with this machine as its external name.
func leadHere(service *unstructured.Unstructured) *unstructured.Unstructured {
	here := service.DeepCopy()
	spec, _ := here.Object["spec"].(map[string]any)
	delete(spec, "clusterIP")
	spec["type"], spec["externalName"] = string(corev1.ServiceTypeExternalName), thisMachine
	return here
}

// apisOf returns the chart's aggregated APIs that the program with this layout serves.
func (c *Cluster) apisOf(l *layout) []apiService {
	c.mu.Lock()
	defer c.mu.Unlock()
	var own []apiService
	for _, api := range c.chart.apis {
		if _, ok := l.hosts[api.host()]; ok {
			own = append(own, api)
		}
	}
	return own
}

// aggregate applies a program's APIServices. Each APIService gets the port at which the program
// serves the API on this machine.
func (c *Cluster) aggregate(ctx context.Context, l *layout) error {
	for _, api := range c.apisOf(l) {
		here, err := netip.ParseAddrPort(l.hosts[api.host()])
		if err != nil {
			return fmt.Errorf("find the port of %s: %w", nameOf(api.object), err)
		}
		if err := c.applyObject(ctx, api.at(int64(here.Port()))); err != nil {
			return err
		}
	}
	return nil
}

// awaitAPIs waits until the API server reaches the program for each of its aggregated APIs. The
// condition Available is not enough. It stays true for a while after the program moved to another
// port.
func (c *Cluster) awaitAPIs(ctx context.Context, l *layout) error {
	for _, api := range c.apisOf(l) {
		err := c.await(ctx, nameOf(api.object), func(ctx context.Context) (bool, error) {
			err := c.typed.Discovery().RESTClient().Get().AbsPath("/apis", api.spec.Group, api.spec.Version).Do(ctx).Error()
			if apierrors.IsServiceUnavailable(err) || apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
