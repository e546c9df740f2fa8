package local

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestBackends asserts that the chart's Ingress leads from the issuer's host to discovery. Without
// an issuer, the chart must have no Ingress.
func TestBackends(t *testing.T) {
	for name, tt := range map[string]struct {
		values map[string]any
		want   map[string]string
	}{
		"with the issuer": {WithIssuer([]string{"tenant-a"}, nil), map[string]string{"issuer.lanyard.example": "lanyard-discovery.lanyard-system.svc:80"}},
		"without":         {WithIssuer(nil, map[string]any{"issuer": map[string]any{"url": ""}}), map[string]string{}},
	} {
		objects, err := render(nil, nil, tt.values)
		must.Succeed(t, err)
		var all rendered
		for _, o := range objects {
			must.Succeed(t, all.add(o))
		}
		if got, err := all.backends(); err != nil || !maps.Equal(got, tt.want) {
			t.Errorf("%s: the backends are %v, %v; want %v", name, got, err, tt.want)
		}
	}
}

// TestBackendsRefused asserts an error for each kind of Ingress that this package cannot serve.
func TestBackendsRefused(t *testing.T) {
	const service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: system}\nspec: {ports: [{name: http, port: 80}]}\n"
	path := func(service, port string) string {
		return "{path: '/', pathType: Prefix, backend: {service: {name: " + service + ", port: {" + port + "}}}}"
	}
	for name, rule := range map[string]string{
		"no host":         "{http: {paths: [" + path("s", "name: http") + "]}}",
		"two paths":       "{host: a.example, http: {paths: [" + path("s", "number: 80") + ", " + path("s", "number: 80") + "]}}",
		"another port":    "{host: a.example, http: {paths: [" + path("s", "number: 81") + "]}}",
		"another Service": "{host: a.example, http: {paths: [" + path("t", "name: http") + "]}}",
	} {
		manifests, err := parseManifest("chart.yaml", []byte("apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i, namespace: system}\nspec: {rules: ["+rule+"]}\n"+service))
		must.Succeed(t, err)
		var all rendered
		for _, m := range manifests {
			if err := all.add(m.Unstructured); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if got, err := all.backends(); err == nil || !strings.Contains(err.Error(), "Ingress i") {
			t.Errorf("%s: the backends are %v, %v", name, got, err)
		}
	}
}

// TestEdge asserts that an edge forwards each request to the program that started last, and keeps
// the requested host.
func TestEdge(t *testing.T) {
	e := newEdge()
	front := httptest.NewServer(e)
	t.Cleanup(front.Close)
	for _, name := range []string{"first", "second"} {
		program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, name+" "+r.Host+r.URL.Path)
		}))
		t.Cleanup(program.Close)
		to, err := url.Parse(program.URL)
		must.Succeed(t, err)
		e.to.Store(to)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+"/jwks", nil)
		must.Succeed(t, err)
		req.Host = "issuer.example.com"
		res, err := http.DefaultClient.Do(req)
		must.Succeed(t, err)
		body, err := io.ReadAll(res.Body)
		if want := name + " issuer.example.com/jwks"; err != nil || string(body) != want {
			t.Errorf("answers %q, %v; want %q", body, err, want)
		}
		must.Succeed(t, res.Body.Close())
	}
}

// TestIssuerReadsTheCloud asserts which programs get the variable with the cloud's proxy, and that
// only the controller gets the default Azure tenant.
func TestIssuerReadsTheCloud(t *testing.T) {
	inCloud, err := render([]string{"HTTPS_PROXY=http://127.0.0.1:4711"}, nil, WithIssuer(nil, nil))
	must.Succeed(t, err)
	var all rendered
	for _, o := range inCloud {
		must.Succeed(t, all.add(o))
	}
	for _, w := range all.workloads {
		var proxy, tenant bool
		for _, v := range w.container.Env {
			proxy = proxy || v.Name == "HTTPS_PROXY"
			tenant = tenant || v.Name == "AZURE_TENANT_ID"
		}
		// The identity controller reaches AWS through the proxy. The token server reads the
		// issuer's documents through the proxy.
		if wanted := w.Name != "lanyard-discovery"; proxy != wanted || tenant != (w.Name == "lanyard-controller") {
			t.Errorf("%s: in the cloud %v, with the default tenant %v", w.Name, proxy, tenant)
		}
	}
}
