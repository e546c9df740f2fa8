package local

import (
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"

	networkingv1 "k8s.io/api/networking/v1"
)

// An Ingress of the chart exposes a program to the internet under a host name. Here the local cloud
// replaces the internet. It serves the host with its own certificate. It forwards requests to the
// program on this machine.

// edge forwards requests for a host of the local cloud to a program of the chart.
type edge struct {
	to    atomic.Pointer[url.URL]
	proxy httputil.ReverseProxy
	// direct connects to the program without a proxy, even if the environment sets one.
	direct *http.Transport
}

func newEdge() *edge {
	e := &edge{direct: &http.Transport{}}
	e.proxy = httputil.ReverseProxy{
		Transport: e.direct, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(e.to.Load())
			r.Out.Host = r.In.Host
		},
	}
	return e
}

// ServeHTTP implements [http.Handler].
func (e *edge) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.proxy.ServeHTTP(w, r) }

// backends maps each host of the chart's Ingresses to its Service. The Service is written as in the
// keys of layout.hosts, such as "lanyard-discovery.lanyard-system.svc:80".
func (r *rendered) backends() (map[string]string, error) {
	all := map[string]string{}
	for i := range r.ingresses {
		ingress := &r.ingresses[i]
		for _, rule := range ingress.Spec.Rules {
			if rule.Host == "" || rule.HTTP == nil || len(rule.HTTP.Paths) != 1 || rule.HTTP.Paths[0].Backend.Service == nil {
				return nil, fmt.Errorf("rule of Ingress %s: only one host with one path to a Service can be served here", ingress.Name)
			}
			backend := rule.HTTP.Paths[0].Backend.Service
			port, ok := r.servicePort(ingress.Namespace, backend)
			if !ok {
				return nil, fmt.Errorf("rule of Ingress %s: the chart has no Service %s with this port", ingress.Name, backend.Name)
			}
			all[rule.Host] = net.JoinHostPort(backend.Name+"."+ingress.Namespace+".svc", strconv.Itoa(int(port)))
		}
	}
	return all, nil
}

// servicePort returns the number of the Service port of an Ingress backend.
func (r *rendered) servicePort(namespace string, backend *networkingv1.IngressServiceBackend) (int32, bool) {
	for i := range r.services {
		service := &r.services[i]
		for _, port := range service.Spec.Ports {
			named := port.Port == backend.Port.Number || port.Name != "" && port.Name == backend.Port.Name
			if named && service.Name == backend.Name && service.Namespace == namespace {
				return port.Port, true
			}
		}
	}
	return 0, false
}

// expose makes the cloud forward requests for Ingress hosts to one program, whose layout is l. It
// skips a host whose Service belongs to another program. If the cloud already serves a host for a
// program that started earlier, the host now leads to this program.
func (c *Cluster) expose(l *layout) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	backends, err := c.chart.backends()
	if err != nil {
		return err
	}
	for _, host := range slices.Sorted(maps.Keys(backends)) {
		address, ok := l.hosts[backends[host]]
		if !ok {
			continue // the Service of another program
		}
		to := &url.URL{Scheme: "http", Host: address}
		if known := c.edges[host]; known != nil {
			known.to.Store(to)
			continue
		}
		added := newEdge()
		added.to.Store(to)
		if err := c.cloud.publish(host, added); err != nil {
			return fmt.Errorf("publish %s: %w", host, err)
		}
		c.edges[host] = added
	}
	return nil
}

// closeEdges stops serving the hosts of the chart's Ingresses.
func (c *Cluster) closeEdges() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for host, e := range c.edges {
		errs = append(errs, c.cloud.withdraw(host))
		e.direct.CloseIdleConnections()
	}
	clear(c.edges)
	return errs
}
