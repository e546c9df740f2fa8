package content_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/content"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const maxBytes = 1 << 20

// body is the artifact of the tests.
const body = "the artifact"

// newServer returns the address of an artifact server, and the paths that were requested.
func newServer(t *testing.T) (host string, requested *[]string) {
	t.Helper()
	requested = &[]string{}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requested = append(*requested, r.URL.Path)
		if r.Header.Get("Authorization") != "" {
			t.Error("the request has a credential")
		}
		switch name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; name {
		case "redirect":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case "gone":
			http.NotFound(w, r)
		case "failed":
			http.Error(w, "secret", http.StatusInternalServerError)
		case "large":
			_, _ = w.Write(bytes.Repeat([]byte("x"), maxBytes+1))
		case "endless":
			for {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
					return
				}
			}
		case "short":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(body))
		case "encoded":
			w.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(w)
			_, _ = zip.Write([]byte(body))
			_ = zip.Close()
		default:
			_, _ = w.Write([]byte(body))
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), requested
}

func TestFetch(t *testing.T) {
	host, requested := newServer(t)
	hosts, err := content.ParseHosts([]string{host, "source-controller.flux-system.svc.cluster.local."})
	must.Succeed(t, err)
	client := content.NewClient(http.DefaultTransport, hosts, maxBytes)
	const own = "/ocirepository/tenant-a/app/"
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(body)))
	size := func(n int64) *int64 { return &n }
	for _, test := range []struct {
		name, url, digest string
		size              *int64
		reason            content.Reason // empty for success
		says              string
	}{
		{"good", "http://" + host + own + "hmac/a.tar.gz", digest, size(int64(len(body))), "", ""},
		{"without a size", "http://" + host + own + "a.tar.gz", digest, nil, "", ""},
		{"SHA-512", "http://" + host + own + "a.tar.gz", fmt.Sprintf("sha512:%x", sha512.Sum512([]byte(body))), nil, "", ""},
		{"SHA-384", "http://" + host + own + "a.tar.gz", fmt.Sprintf("sha384:%x", sha512.Sum384([]byte(body))), nil, "", ""},
		{"source of an ExternalArtifact", "http://" + host + "/bucket/tenant-a/files/a.tar.gz", digest, nil, "", ""},
		{"another namespace", "http://" + host + "/ocirepository/tenant-b/app/a.tar.gz", digest, nil, content.ReasonRefused, "another object"},
		{"another name", "http://" + host + "/ocirepository/tenant-a/app2/a.tar.gz", digest, nil, content.ReasonRefused, "another object"},
		{"another kind", "http://" + host + "/bucket/tenant-a/app/a.tar.gz", digest, nil, content.ReasonRefused, "another object"},
		{"no file", "http://" + host + "/ocirepository/tenant-a/app", digest, nil, content.ReasonRefused, "another object"},
		{"dots", "http://" + host + own + "../../tenant-b/app/a.tar.gz", digest, nil, content.ReasonRefused, "plain path"},
		{"encoded dots", "http://" + host + own + "%2e%2e/%2e%2e/tenant-b/app/a.tar.gz", digest, nil, content.ReasonRefused, "plain path"},
		{"encoded slash", "http://" + host + own + "a%2fb.tar.gz", digest, nil, content.ReasonRefused, "plain path"},
		{"query", "http://" + host + own + "a.tar.gz?x", digest, nil, content.ReasonRefused, "plain path"},
		{"user", "http://user:password@" + host + own + "a.tar.gz", digest, nil, content.ReasonRefused, "plain path"},
		{"another host", "http://example.com" + own + "a.tar.gz", digest, nil, content.ReasonRefused, `"example.com" is no artifact server`},
		{"metadata server", "http://169.254.169.254" + own + "a.tar.gz", digest, nil, content.ReasonRefused, "no artifact server"},
		{"another port", "http://127.0.0.1:1" + own + "a.tar.gz", digest, nil, content.ReasonRefused, "no artifact server"},
		{"file", "file:///etc/passwd", digest, nil, content.ReasonRefused, "http or https"},
		{"no URL", "http://[", digest, nil, content.ReasonRefused, "no URL"},
		{"redirect", "http://" + host + own + "redirect", digest, nil, content.ReasonRefused, "redirect"},
		{"gone", "http://" + host + own + "gone", digest, nil, content.ReasonGone, "no longer"},
		{"failed", "http://" + host + own + "failed", digest, nil, content.ReasonUnreachable, "status 500"},
		{"large", "http://" + host + own + "large", digest, nil, content.ReasonTooLarge, "larger than 1048576 bytes"},
		{"endless", "http://" + host + own + "endless", digest, nil, content.ReasonTooLarge, "larger than 1048576 bytes"},
		{"short", "http://" + host + own + "short", digest, nil, content.ReasonUnreachable, "unexpected EOF"},
		{"encoded", "http://" + host + own + "encoded", digest, nil, content.ReasonDamaged, "digest"},
		{"large by its size", "http://" + host + own + "a.tar.gz", digest, size(maxBytes + 1), content.ReasonTooLarge, "larger"},
		{"endless by its size", "http://" + host + own + "a.tar.gz", digest, size(math.MaxInt64), content.ReasonTooLarge, "larger"},
		{"negative size", "http://" + host + own + "a.tar.gz", digest, size(-1), content.ReasonRefused, "status.artifact.size is negative"},
		{"wrong size", "http://" + host + own + "a.tar.gz", digest, size(1), content.ReasonDamaged, "12 bytes, and the source says 1"},
		{"wrong digest", "http://" + host + own + "a.tar.gz", "sha256:" + strings.Repeat("0", 64), nil, content.ReasonDamaged, "digest"},
		{"digest of another length", "http://" + host + own + "a.tar.gz", digest[:20], nil, content.ReasonRefused, "no sha256"},
		{"unknown digest", "http://" + host + own + "a.tar.gz", "md5:0", nil, content.ReasonRefused, "md5"},
		{"no digest", "http://" + host + own + "a.tar.gz", "", nil, content.ReasonRefused, "algorithm"},
	} {
		t.Run(test.name, func(t *testing.T) {
			*requested = nil
			got, err := client.Fetch(t.Context(), content.Reference{
				URL: test.url, Digest: test.digest, Size: test.size,
				Owners: []content.Owner{{Kind: "OCIRepository", Namespace: "tenant-a", Name: "app"}, {Kind: "Bucket", Namespace: "tenant-a", Name: "files"}},
			})
			if test.reason == "" {
				if err != nil || string(got) != body {
					t.Errorf("content %q, %v", got, err)
				}
				return
			}
			failure, ok := errors.AsType[*content.Error](err)
			if !ok || failure.Reason != test.reason || !strings.Contains(err.Error(), test.says) || failure.Fix == "" || got != nil {
				t.Errorf("content %q, error %v, want %s with %q", got, err, test.reason, test.says)
			}
			if strings.Contains(err.Error(), own) || strings.Contains(err.Error(), "password") {
				t.Errorf("the error has the path of the URL: %v", err)
			}
			if test.reason == content.ReasonRefused && test.name != "redirect" && len(*requested) > 0 {
				t.Errorf("a refused artifact was requested: %s", *requested)
			}
		})
	}
}

// TestFetchGivenUp ends the context during a download.
func TestFetchGivenUp(t *testing.T) {
	host, _ := newServer(t)
	hosts, err := content.ParseHosts([]string{host})
	must.Succeed(t, err)
	reason := errors.New("the object was changed")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	_, err = content.NewClient(http.DefaultTransport, hosts, maxBytes).Fetch(ctx, content.Reference{
		URL: "http://" + host + "/bucket/a/b/c", Digest: "sha256:" + strings.Repeat("0", 64), Owners: []content.Owner{{Kind: "Bucket", Namespace: "a", Name: "b"}},
	})
	if !errors.Is(err, reason) {
		t.Errorf("error %v", err)
	}
}

func TestParseHosts(t *testing.T) {
	for _, list := range [][]string{{""}, {"http://a"}, {"a/b"}, {"a:b"}, {"user@a"}, {"a?b"}, {":80"}, {"a b"}} {
		if _, err := content.ParseHosts(list); err == nil {
			t.Errorf("%q is accepted", list)
		}
	}
	if _, err := content.ParseHosts([]string{"Artifacts.Example.", "[::1]:80", "127.0.0.1:8080"}); err != nil {
		t.Error(err)
	}
}
