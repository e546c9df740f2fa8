package bucket

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/azblob"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/gcs"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
)

// opening is a fake [buckets.Service]: the function is its method Open.
type opening func(context.Context, buckets.Request) (objectstore.Storage, error)

func (opening) Locate(spec v1alpha1.BucketSpec) (buckets.Place, error) {
	return buckets.Place{Endpoint: spec.Endpoint, Host: spec.Endpoint, Region: "eu-west-1"}, nil
}

func (o opening) Open(ctx context.Context, r buckets.Request) (objectstore.Storage, error) {
	return o(ctx, r)
}

// TestClientsTakeTheWayOfTheTenant checks the clients of all clouds. They must use only the proxy
// and the certificate authorities that the tenant named. The token exchange must use the proxy too.
func TestClientsTakeTheWayOfTheTenant(t *testing.T) {
	const host, proxyHost = "store.example.com", "proxy.example.com:3128"
	for provider, c := range map[string]struct {
		handler func(t *testing.T, w *world) http.Handler
		open    func(w *world) opening
	}{
		"aws": {
			handler: func(_ *testing.T, w *world) http.Handler { return w.service },
			open:    func(w *world) opening { return signing{w.Cloud}.Open },
		},
		"azure": {
			handler: func(*testing.T, *world) http.Handler { return http.HandlerFunc(container) },
			open: func(*world) opening {
				return func(_ context.Context, r buckets.Request) (objectstore.Storage, error) {
					return azblob.New(azblob.Options{Container: r.Bucket, Endpoint: r.Endpoint, Transport: r.Transport})
				}
			},
		},
		"gcp": {
			handler: func(t *testing.T, _ *world) http.Handler {
				t.Helper()
				server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, PublicHost: host, InitialObjects: []fakestorage.Object{
					{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "tenant-a", Name: "hello.txt"}, Content: []byte("hello tenant-a")},
				}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(server.Stop)
				return server.HTTPHandler()
			},
			open: func(*world) opening {
				return func(_ context.Context, r buckets.Request) (objectstore.Storage, error) {
					return gcs.New(gcs.Options{Bucket: r.Bucket, Endpoint: r.Endpoint, Transport: r.Transport})
				}
			},
		},
	} {
		t.Run(provider, func(t *testing.T) {
			w := newWorld(t)
			w.tenant("tenant-a")
			network := controllertest.NewNetwork(t, map[string]http.Handler{host: c.handler(t, w)})
			proxy := network.ServeProxy(t, proxyHost)
			// The empty pool replaces the system's certificate authorities, so only the tenant's
			// are trusted.
			w.Access.Transports = network.Pool(t, x509.NewCertPool())
			w.Shared.Rules.Providers = []string{provider}
			w.Reconciler = New(w.Shared, w.Access, map[string]buckets.Service{provider: c.open(w)}, 1<<20)
			w.Secret("tenant-a", "authority", corev1.SecretTypeOpaque, map[string]string{"ca.crt": network.CA})
			w.Secret("tenant-a", "proxy", corev1.SecretTypeOpaque, map[string]string{"address": "http://" + proxyHost})

			o := w.create("tenant-a", func(s *v1alpha1.BucketSpec) {
				s.Provider, s.Endpoint, s.ProxySecretRef = provider, host, &meta.LocalReference{Name: "proxy"}
			})
			w.wants(o, meta.ReasonBucketUnreachable, "spec.certSecretRef")
			w.editSpec(o, func(s *v1alpha1.BucketSpec) { s.CertSecretRef = &meta.LocalReference{Name: "authority"} })
			o, _ = w.wants(o, meta.ReasonSucceeded, "")
			if got := w.Served(o); got["hello.txt"] != "hello tenant-a" {
				t.Errorf("served %q", slices.Collect(maps.Keys(got)))
			}
			if got := network.Dialed(); !slices.Equal(got, []string{proxyHost}) {
				t.Errorf("%q were called", got)
			}
			if got := proxy.Tunnels(); !slices.Equal(got, []string{host + ":443"}) {
				t.Errorf("the proxy was asked for %q", got)
			}
			if got := w.Cloud.Exchanges(); len(got) != 1 || got[0].Proxy != proxyHost {
				t.Errorf("exchanges %+v", got)
			}
		})
	}
}

// TestRefusalsSayHowTheEndpointWasAsked checks the messages of refused requests. If the endpoint
// refuses a request without a credential, the message must say that no credential was sent. If the
// proxy refuses, the message must contain the proxy's answer.
func TestRefusalsSayHowTheEndpointWasAsked(t *testing.T) {
	const host, proxyHost = "store.example.com", "proxy.example.com:3128"
	w := newWorld(t)
	w.tenant("tenant-a")
	network := controllertest.NewNetwork(t, map[string]http.Handler{host: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		refuse(rw, http.StatusForbidden, "AccessDenied")
	})})
	network.ServeProxy(t, proxyHost).Refuses = http.StatusForbidden
	w.Access.Transports = network.Pool(t, nil)
	w.Secret("tenant-a", "proxy", corev1.SecretTypeOpaque, map[string]string{"address": "http://" + proxyHost})
	o := w.create("tenant-a", func(s *v1alpha1.BucketSpec) {
		s.Provider, s.ServiceAccountName, s.Endpoint = v1alpha1.ProviderGeneric, "", host
	})
	w.wants(o, meta.ReasonBucketRefused, "HTTP 403 Forbidden: AccessDenied: no credential was sent; name a Secret with a credential in spec.secretRef")
	w.editSpec(o, func(s *v1alpha1.BucketSpec) { s.ProxySecretRef = &meta.LocalReference{Name: "proxy"} })
	w.wants(o, meta.ReasonBucketUnreachable, "no answer: the proxy answered HTTP 403 Forbidden; have the proxy in spec.proxySecretRef allow the endpoint")
}

// container answers as Azure Blob Storage does for a container with one blob.
func container(w http.ResponseWriter, r *http.Request) {
	const content, etag = "hello tenant-a", "0x8DB"
	switch {
	case r.URL.Path == "/tenant-a" && r.URL.Query().Get("comp") == "list":
		w.Header().Set("Content-Type", "application/xml")
		_, _ = fmt.Fprintf(w, `<EnumerationResults><Blobs><Blob><Name>hello.txt</Name><Properties>`+
			`<Content-Length>%d</Content-Length><Etag>%s</Etag></Properties></Blob></Blobs><NextMarker/></EnumerationResults>`, len(content), etag)
	case strings.HasSuffix(r.URL.Path, "/hello.txt") && r.Header.Get("If-Match") == etag:
		w.Header().Set("ETag", etag)
		_, _ = io.WriteString(w, content)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}
