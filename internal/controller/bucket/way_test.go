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

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket/azblob"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket/gcs"
	"github.com/lanyard-dev/lanyard/internal/controller/source/sourcetest"
)

// opening is a service whose buckets a function opens.
type opening func(context.Context, Request) (bucket.Storage, error)

func (opening) Locate(spec v1alpha1.BucketSpec) (Place, error) {
	return Place{Endpoint: spec.Endpoint, Host: spec.Endpoint, Region: "eu-west-1"}, nil
}

func (o opening) Open(ctx context.Context, r Request) (bucket.Storage, error) { return o(ctx, r) }

// The clouds' own clients take the proxy and the authorities that the tenant named, to list and to read, and no other way. So does the
// exchange its proxy.
func TestClientsTakeTheWayOfTheTenant(t *testing.T) {
	const host, proxyHost = "store.example.com", "proxy.example.com:3128"
	for provider, c := range map[string]struct {
		handler func(t *testing.T, w *world) http.Handler
		open    func(w *world) opening
	}{
		"aws": {
			handler: func(_ *testing.T, w *world) http.Handler { return w.service },
			open:    func(w *world) opening { return signing{w.cloud}.Open },
		},
		"azure": {
			handler: func(*testing.T, *world) http.Handler { return http.HandlerFunc(container) },
			open: func(*world) opening {
				return func(_ context.Context, r Request) (bucket.Storage, error) {
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
				return func(ctx context.Context, r Request) (bucket.Storage, error) {
					return gcs.New(ctx, gcs.Options{Bucket: r.Bucket, Endpoint: r.Endpoint, Transport: r.Transport})
				}
			},
		},
	} {
		t.Run(provider, func(t *testing.T) {
			w := newWorld(t)
			w.tenant("tenant-a")
			network := sourcetest.NewNetwork(t, map[string]http.Handler{host: c.handler(t, w)})
			proxy := network.ServeProxy(t, proxyHost)
			w.access.Transports = network.Pool(t, x509.NewCertPool()) // the system trusts nobody
			w.access.Providers = map[string]auth.Provider{provider: w.cloud}
			w.shared.Rules.Providers = []string{provider}
			w.r = New(w.shared, w.access, map[string]Service{provider: c.open(w)}, 1<<20)
			w.secret("tenant-a", "authority", map[string]string{"ca.crt": network.CA})
			w.secret("tenant-a", "proxy", map[string]string{"address": "http://" + proxyHost})

			o := w.create("tenant-a", func(s *v1alpha1.BucketSpec) {
				s.Provider, s.Endpoint, s.ProxySecretRef = provider, host, &meta.LocalReference{Name: "proxy"}
			})
			w.wants(o, meta.ReasonBucketUnreachable, "spec.certSecretRef")
			w.edit(o, func(s *v1alpha1.BucketSpec) { s.CertSecretRef = &meta.LocalReference{Name: "authority"} })
			o, _ = w.wants(o, meta.ReasonSucceeded, "")
			if got := w.served(o); got["hello.txt"] != "hello tenant-a" {
				t.Errorf("served %q", slices.Collect(maps.Keys(got)))
			}
			if got := network.Dialed(); !slices.Equal(got, []string{proxyHost}) {
				t.Errorf("%q were called", got)
			}
			if got := proxy.Tunnels(); !slices.Equal(got, []string{host + ":443"}) {
				t.Errorf("the proxy was asked for %q", got)
			}
			if got := w.cloud.Exchanges(); len(got) != 1 || got[0].Proxy != proxyHost {
				t.Errorf("exchanges %+v", got)
			}
		})
	}
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

// What is suspended is not asked for.
func TestSuspendedBucketIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a")
	o := w.create("tenant-a", func(s *v1alpha1.BucketSpec) { s.Suspend = true })
	got, result := w.reconcile(o)
	if len(w.cloud.Exchanges()) != 0 || got.Status.Artifact != nil || result.RequeueAfter != 0 {
		t.Errorf("%+v, %d exchanges, again after %s", got.Status, len(w.cloud.Exchanges()), result.RequeueAfter)
	}
}
