package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/lanyard-dev/lanyard/internal/artifact/server"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/port"
)

const content = "the artifact of tenant A"

// open opens a port as a controller does to serve artifacts. The handler h answers the requests.
func open(t *testing.T, h http.Handler) *manager.Server {
	t.Helper()
	opened, err := port.Open(t.Context(), server.Port("127.0.0.1:0", h, slog.New(slog.DiscardHandler)))
	must.Succeed(t, err)
	return opened
}

// start serves a store with one artifact of tenant A and one of tenant B. It returns the paths of
// their URLs.
func start(t *testing.T) (base *httptest.Server, a, b string) {
	t.Helper()
	s, err := store.Open(t.TempDir(), store.Options{})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	place := func(namespace, content string) string {
		o := store.Object{Kind: "OCIRepository", Namespace: namespace, Name: "app", UID: "11111111-2222-3333-4444-555555555555"}
		stored, err := s.Put(t.Context(), o, func(w io.Writer) error { _, err := io.WriteString(w, content); return err })
		must.Succeed(t, err)
		p, err := s.URLPath(o, stored.Digest)
		must.Succeed(t, err)
		return p
	}
	a, b = place("tenant-a", content), place("tenant-b", "the artifact of tenant B")
	base = httptest.NewUnstartedServer(nil)
	opened := open(t, server.New(s))
	must.Succeed(t, base.Listener.Close())
	base.Listener, base.Config = opened.Listener, opened.Server
	base.Start()
	t.Cleanup(base.Close)
	return base, a, b
}

// raw sends a request line unchanged and returns the answer.
func raw(t *testing.T, base *httptest.Server, method, target string, header ...string) (*http.Response, string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", base.Listener.Addr().String())
	must.Succeed(t, err)
	defer conn.Close()
	lines := append([]string{method + " " + target + " HTTP/1.1", "Host: artifacts", "Connection: close"}, header...)
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	must.Succeed(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return resp, string(body)
}

func TestServesArtifacts(t *testing.T) {
	base, a, b := start(t)
	resp, body := raw(t, base, "GET", a)
	if resp.StatusCode != 200 || body != content {
		t.Fatalf("%s: %q", resp.Status, body)
	}
	etag := `"` + strings.TrimSuffix(path.Base(a), ".tar.gz") + `"`
	for name, want := range map[string]string{
		"ETag": etag, "Content-Length": fmt.Sprint(len(content)), "Content-Type": "application/gzip",
		"Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if _, err := http.ParseTime(resp.Header.Get("Last-Modified")); err != nil {
		t.Error(err)
	}
	if resp, body := raw(t, base, "HEAD", a); resp.StatusCode != 200 || body != "" || resp.Header.Get("ETag") != etag {
		t.Errorf("HEAD: %s", resp.Status)
	}
	if resp, body := raw(t, base, "GET", a, "Range: bytes=4-11"); resp.StatusCode != 206 || body != content[4:12] {
		t.Errorf("range: %s %q", resp.Status, body)
	}
	if resp, _ := raw(t, base, "GET", a, "If-None-Match: "+etag); resp.StatusCode != 304 {
		t.Errorf("If-None-Match: %s", resp.Status)
	}
	if _, body := raw(t, base, "GET", b); body != "the artifact of tenant B" {
		t.Errorf("tenant B: %q", body)
	}
}

// TestEverythingElseIsTheSame404 checks that every wrong request gets the same answer, byte for
// byte.
func TestEverythingElseIsTheSame404(t *testing.T) {
	base, a, b := start(t)
	parts := strings.Split(a, "/")
	with := func(i int, part string) string {
		changed := append([]string(nil), parts...)
		changed[i] = part
		return strings.Join(changed, "/")
	}
	macB := strings.Split(b, "/")[4]
	last := byte('0')
	if parts[4][63] == '0' {
		last = '1'
	}
	targets := map[string]string{
		"root":                   "/",
		"kind":                   path.Join("/", parts[1]),
		"namespace":              path.Join("/", parts[1], parts[2]) + "/",
		"object":                 path.Join("/", parts[1], parts[2], parts[3]) + "/",
		"object without slash":   path.Join("/", parts[1], parts[2], parts[3]),
		"MAC":                    path.Dir(a),
		"MAC with slash":         path.Dir(a) + "/",
		"wrong MAC":              with(4, strings.Repeat("0", 64)),
		"almost the MAC":         with(4, parts[4][:63]+string(last)),
		"MAC in upper case":      with(4, strings.ToUpper(parts[4])),
		"short MAC":              with(4, parts[4][:62]),
		"no MAC":                 with(4, ""),
		"the neighbour's MAC":    with(4, macB),
		"the neighbour's object": with(2, "tenant-b"),
		"UID for the MAC":        with(4, "11111111-2222-3333-4444-555555555555"),
		"path on the disk":       path.Join("/", parts[1], parts[2], parts[3], "11111111-2222-3333-4444-555555555555", parts[5]),
		"other digest":           with(5, strings.Repeat("0", 64)+".tar.gz"),
		"digest without suffix":  strings.TrimSuffix(a, ".tar.gz"),
		"other suffix":           strings.TrimSuffix(a, ".gz"),
		"unknown kind":           with(1, "bucket"),
		"kind in upper case":     with(1, "OCIRepository"),
		"unknown object":         with(3, "none"),
		"trailing slash":         a + "/",
		"double slash":           "/" + a,
		"double slash inside":    strings.Replace(a, "/tenant-a", "//tenant-a", 1),
		"dot":                    strings.Replace(a, "/tenant-a", "/./tenant-a", 1),
		"traversal":              strings.Replace(a, "/tenant-a", "/../ocirepository/tenant-a", 1),
		"escaped traversal":      strings.Replace(a, "/tenant-a", "/%2e%2e/ocirepository/tenant-a", 1),
		"escaped letter":         strings.Replace(a, "/tenant-a", "/%74enant-a", 1),
		"escaped slash":          strings.Replace(a, "/tenant-a", "%2ftenant-a", 1),
		"backslash":              strings.Replace(a, "/tenant-a", `\tenant-a`, 1),
		"query":                  a + "?x=1",
		"empty query":            a + "?",
		"NUL":                    a + "%00",
		"key":                    "/.key",
		"temporary files":        "/.tmp/",
		"/etc/passwd":            "/../../../../etc/passwd",
	}
	want, _ := raw(t, base, "GET", "/nothing")
	_, wantBody := raw(t, base, "GET", "/nothing")
	want.Header.Del("Date")
	same := func(name string, resp *http.Response, body string) {
		t.Helper()
		resp.Header.Del("Date")
		if resp.StatusCode != 404 || body != wantBody || fmt.Sprint(resp.Header) != fmt.Sprint(want.Header) {
			t.Errorf("%s: %s %v %q", name, resp.Status, resp.Header, body)
		}
	}
	if strings.Contains(wantBody, "nothing") || wantBody == "" {
		t.Errorf("body %q", wantBody)
	}
	for name, target := range targets {
		resp, body := raw(t, base, "GET", target)
		same(name, resp, body)
		if resp, body := raw(t, base, "HEAD", target); resp.StatusCode != 404 || body != "" {
			t.Errorf("HEAD %s: %s %q", name, resp.Status, body)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"} {
		resp, body := raw(t, base, method, a)
		same(method, resp, body)
	}
	resp, body := raw(t, base, "OPTIONS", "*")
	same("OPTIONS *", resp, body)
	resp, body = raw(t, base, "GET", "http://elsewhere/x")
	same("absolute form", resp, body)
	if resp, body := raw(t, base, "GET", a); resp.StatusCode != 200 || body != content {
		t.Errorf("after all this: %s", resp.Status)
	}
}

type failing struct{}

func (failing) ByURLPath(string) (*os.File, string, error) {
	return nil, "", errors.New("open /var/lib/store: input/output error")
}

func TestFailingSource(t *testing.T) {
	w := httptest.NewRecorder()
	server.New(failing{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil))
	if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "store") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// FuzzPaths checks that only the artifact's own path reaches the artifact.
func FuzzPaths(f *testing.F) {
	s, err := store.Open(f.TempDir(), store.Options{})
	must.Succeed(f, err)
	o := store.Object{Kind: "OCIRepository", Namespace: "tenant-a", Name: "app", UID: "11111111-2222-3333-4444-555555555555"}
	stored, err := s.Put(f.Context(), o, func(w io.Writer) error { _, err := io.WriteString(w, content); return err })
	must.Succeed(f, err)
	only, err := s.URLPath(o, stored.Digest)
	must.Succeed(f, err)
	f.Add(only)
	f.Add(only + "/")
	f.Add("/" + stored.Path)
	f.Add("/../.key")
	handler := server.New(s)
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Host != "" {
			return // skip an absolute URL: the server reads only its path (RFC 9112)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}})
		if got := w.Code == http.StatusOK; got != (target == only) || !got && w.Code != http.StatusNotFound {
			t.Fatalf("%q answers %d", target, w.Code)
		}
	})
}
