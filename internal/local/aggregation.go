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
// network of the pods, and there is no such network here. It also takes a Service of type
// ExternalName: then it dials the external name, at the port that the APIService names. It verifies
// the certificate for the Service's DNS name in both cases. So the Services of aggregated APIs lead
// to this machine, and an APIService is applied as soon as its program has a port. This is before
// the program runs, because the program writes the certificate that vouches for it into the
// APIService.
//
// Source: k8s.io/apiserver, pkg/util/proxy, ResolveCluster.

// thisMachine is the external name of the Services of aggregated APIs. Kubernetes allows addresses.
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
	// Service is nil for an API of the API server's own.
	Service *struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Port      *int32 `json:"port"` // default 443
	} `json:"service"`
}

// readAPIService returns an object as the APIService of an aggregated API; false for other objects.
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

// host is the DNS name and the port of the API's Service.
func (a apiService) host() string {
	port := int32(443)
	if a.spec.Service.Port != nil {
		port = *a.spec.Service.Port
	}
	return net.JoinHostPort(a.spec.Service.Name+"."+a.spec.Service.Namespace+".svc", strconv.Itoa(int(port)))
}

// at returns the object with another port.
func (a apiService) at(port int64) *unstructured.Unstructured {
	moved := a.object.DeepCopy()
	moved.Object["spec"].(map[string]any)["service"].(map[string]any)["port"] = port //nolint:forcetypeassert // readAPIService has read it
	return moved
}

// reachable returns the objects of a chart as they are applied before a program runs: without the
// aggregated APIs, and with their Services leading to this machine.
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

// leadHere returns a Service whose external name is this machine.
func leadHere(service *unstructured.Unstructured) *unstructured.Unstructured {
	here := service.DeepCopy()
	spec, _ := here.Object["spec"].(map[string]any)
	delete(spec, "clusterIP")
	spec["type"], spec["externalName"] = string(corev1.ServiceTypeExternalName), thisMachine
	return here
}

// apisOf returns the aggregated APIs whose Service leads to a program.
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

// aggregate applies the aggregated APIs of a program with its ports.
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

// awaitAPIs waits until the API server reaches a program at its aggregated APIs.
func (c *Cluster) awaitAPIs(ctx context.Context, l *layout) error {
	for _, api := range c.apisOf(l) {
		if err := c.awaitAPI(ctx, api); err != nil {
			return err
		}
	}
	return nil
}

// awaitAPI waits until the API server passes a request on to the program of an aggregated API. The
// condition Available would also be true for a while after the program moved to another port.
func (c *Cluster) awaitAPI(ctx context.Context, api apiService) error {
	return c.await(ctx, nameOf(api.object), func(ctx context.Context) (bool, error) {
		err := c.typed.Discovery().RESTClient().Get().AbsPath("/apis", api.spec.Group, api.spec.Version).Do(ctx).Error()
		if apierrors.IsServiceUnavailable(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}
