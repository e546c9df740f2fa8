package oci_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// pull does all steps of a pull for the tag latest. It returns the first error.
func pull(ctx context.Context, n http.RoundTripper, opts oci.Options, url string) (string, error) {
	repo, err := oci.ParseURL(url)
	if err != nil {
		return "", err
	}
	opts.Transport = n
	client, err := oci.Connect(ctx, repo, opts)
	if err != nil {
		return "", err
	}
	resolved, err := client.Resolve(ctx, oci.Reference{})
	if err != nil {
		return "", err
	}
	manifest, err := client.Fetch(ctx, resolved)
	if err != nil {
		return "", err
	}
	layer, err := manifest.Select(oci.LayerSelector{})
	if err != nil {
		return "", err
	}
	stream, err := client.Open(ctx, layer)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	body, err := io.ReadAll(stream)
	return string(body), err
}

func credentials() oci.Options { return oci.Options{Auth: oci.Basic(username, password)} }

func TestStatusCodes(t *testing.T) {
	for _, c := range []struct {
		name, at, header string // at: part of the path; header: value of Retry-After
		status           int
		registryCode     string
		want             origin.Error
	}{
		{name: "unauthorized", at: "/v2/", status: 401, want: origin.Error{Code: origin.CodeUnauthorized}},
		{name: "denied", at: "/manifests/", status: 403, registryCode: "DENIED", want: origin.Error{Code: origin.CodeDenied, ServerCode: "DENIED"}},
		{name: "denied at ping", at: "/v2/", status: 403, registryCode: "DENIED", want: origin.Error{Code: origin.CodeDenied, ServerCode: "DENIED"}},
		{name: "denied layer", at: "/blobs/", status: 403, registryCode: "DENIED", want: origin.Error{Code: origin.CodeDenied, ServerCode: "DENIED"}},
		{name: "repository", at: "/manifests/", status: 404, registryCode: "NAME_UNKNOWN", want: origin.Error{Code: origin.CodeNotFound, ServerCode: "NAME_UNKNOWN", Field: "spec.url"}},
		{name: "tag", at: "/manifests/", status: 404, registryCode: "MANIFEST_UNKNOWN", want: origin.Error{Code: origin.CodeTagNotFound, ServerCode: "MANIFEST_UNKNOWN", Field: "spec.ref"}},
		{name: "tag without code", at: "/manifests/", status: 404, want: origin.Error{Code: origin.CodeTagNotFound, Field: "spec.ref"}},
		{name: "no registry", at: "/v2/", status: 404, want: origin.Error{Code: origin.CodeProtocol, Field: "spec.url"}},
		{name: "layer", at: "/blobs/", status: 404, registryCode: "BLOB_UNKNOWN", want: origin.Error{Code: origin.CodeBlobNotFound, ServerCode: "BLOB_UNKNOWN"}},
		{name: "throttled", at: "/manifests/", status: 429, header: "7", registryCode: "TOOMANYREQUESTS", want: origin.Error{Code: origin.CodeThrottled, RetryAfter: 7 * time.Second}},
		{name: "throttled at ping", at: "/v2/", status: 429, header: "8", want: origin.Error{Code: origin.CodeThrottled, RetryAfter: 8 * time.Second}},
		{name: "throttled for a year", at: "/manifests/", status: 429, header: "31536000", want: origin.Error{Code: origin.CodeThrottled, RetryAfter: time.Hour}},
		{name: "throttled nonsense", at: "/manifests/", status: 429, header: "soon", want: origin.Error{Code: origin.CodeThrottled}},
		{name: "maintenance", at: "/blobs/", status: 503, header: "30", want: origin.Error{Code: origin.CodeServer, RetryAfter: 30 * time.Second}},
		{name: "internal", at: "/manifests/", status: 500, registryCode: "UNKNOWN", want: origin.Error{Code: origin.CodeServer}},
		{name: "HTTP 501", at: "/manifests/", status: 501, want: origin.Error{Code: origin.CodeServer}},
		{name: "teapot", at: "/manifests/", status: 418, want: origin.Error{Code: origin.CodeProtocol}},
		{name: "redirect without location", at: "/manifests/", status: 304, want: origin.Error{Code: origin.CodeProtocol}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _ := artifact("layer")
			f.override = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, c.at) || c.at == "/v2/" && r.URL.Path != "/v2/" {
					return c.status == 401 && deny(w)
				}
				if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				switch {
				case c.status == 401:
					deny(w)
				case c.registryCode != "":
					registryError(w, c.status, c.registryCode, "a message\nof two lines")
				default:
					w.WriteHeader(c.status)
					if c.status != 304 {
						_, _ = io.WriteString(w, "<html>some page of a proxy</html>")
					}
				}
				return true
			}
			_, err := pull(t.Context(), serve(t, map[string]http.Handler{registryHost: f}), credentials(), appURL)
			var e *origin.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *origin.Error", err)
			}
			if e.Code != c.want.Code || e.Status != c.status || e.ServerCode != c.want.ServerCode || e.Field != c.want.Field || e.Host != registryHost {
				t.Errorf("got %+v (%v)", e, err)
			}
			if d := e.RetryAfter; d != c.want.RetryAfter {
				t.Errorf("RetryAfter %v, want %v", d, c.want.RetryAfter)
			}
			for _, never := range []string{"html", "a long detail", "\n"} {
				if strings.Contains(err.Error(), never) {
					t.Errorf("%q is shown: %v", never, err)
				}
			}
			// In some cases, the registry is overloaded and refuses a HEAD request. Its answer has
			// no body, and the client sends no GET request to get one. So these cases expect
			// neither a ServerCode nor a message.
			if c.want.ServerCode != "" && !strings.Contains(err.Error(), c.registryCode+": a message of two lines") {
				t.Errorf("the registry's message is missing: %v", err)
			}
			noSecret(t, err)
		})
	}
}

// TestLocalHostsFailForWhatFailed checks the error for hosts that look local. There, the library
// go-containerregistry tries http after https has failed. The error must say why https failed, and
// must not advise to use http.
func TestLocalHostsFailForWhatFailed(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	answering := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		})
	}
	trusting := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	for name, test := range map[string]struct {
		handler http.Handler
		noTLS   bool
		via     *http.Transport
		want    origin.Error
		says    string
	}{
		"authority":   {ok, false, &http.Transport{}, origin.Error{Code: origin.CodeUnreachable}, "set spec.certSecretRef to the CA of the registry"},
		"without TLS": {ok, true, &http.Transport{}, origin.Error{Code: origin.CodeUnreachable}, "does not speak TLS"},
		"overload":    {answering(503), false, trusting, origin.Error{Code: origin.CodeServer, Status: 503, RetryAfter: 7 * time.Second}, "HTTP 503"},
		"downgrade": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+r.Host+"/v2/", http.StatusFound)
		}), false, trusting, origin.Error{Code: origin.CodeProtocol}, "it asks for plain http; use https, or set spec.insecure"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(test.handler)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			if test.noTLS {
				server.Start()
			} else {
				server.StartTLS()
			}
			defer server.Close()
			defer test.via.CloseIdleConnections()
			_, err := oci.Connect(t.Context(), repository(t, "oci://"+server.Listener.Addr().String()+"/app"), oci.Options{Transport: test.via})
			e, ok := errors.AsType[*origin.Error](err)
			if !ok || e.Code != test.want.Code || e.Status != test.want.Status || e.RetryAfter != test.want.RetryAfter || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %+v", err, test.want)
			}
			if wrong := strings.Contains(err.Error(), "insecure"); wrong && (name == "authority" || name == "overload") {
				t.Errorf("it advises to do without TLS: %v", err)
			}
		})
	}
}

func deny(w http.ResponseWriter) bool {
	w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	w.WriteHeader(http.StatusUnauthorized)
	return true
}

// TestRetriesAreBounded checks that a request succeeds after two failures. If it fails more often,
// the client must give up after three attempts.
func TestRetriesAreBounded(t *testing.T) {
	for failures, want := range map[int32]origin.Code{2: "", 1000: origin.CodeServer} {
		f, _ := artifact("layer")
		var asked atomic.Int32
		f.override = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") || asked.Add(1) > failures {
				return false
			}
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		body, err := pull(t.Context(), serve(t, map[string]http.Handler{registryHost: f}), credentials(), appURL)
		if origin.CodeOf(err) != want || want == "" && body != "layer" {
			t.Errorf("%d failures: %q, %v", failures, body, err)
		}
		if asked.Load() != 3 {
			t.Errorf("%d failures: asked %d times", failures, asked.Load())
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRetriesKeepTheDeadline checks that the pauses between attempts end with the context.
func TestRetriesKeepTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		down := roundTripper(func(*http.Request) (*http.Response, error) {
			asked++
			return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody}, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := pull(ctx, down, credentials(), appURL)
		if origin.CodeOf(err) != origin.CodeUnreachable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(start); waited != 250*time.Millisecond || asked != 2 {
			t.Errorf("waited %v, asked %d times", waited, asked)
		}
	})
}

// drip is the body of an HTTP response that arrives too slowly. Each Read takes two seconds and
// returns one byte. When ctx ends, Read returns the error of ctx.
type drip struct{ ctx context.Context } //nolint:containedctx // the request's context; Read has no parameter for a context

func (d drip) Read(p []byte) (int, error) {
	select {
	case <-time.After(2 * time.Second):
		return copy(p, "x"), nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

func (drip) Close() error { return nil }

// TestSlowLayer pulls a layer that arrives too slowly. The pull must fail, and must not request the
// layer again.
func TestSlowLayer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := artifact(strings.Repeat("x", 1000))
		asked := 0
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			recorder := httptest.NewRecorder()
			f.ServeHTTP(recorder, r)
			resp := recorder.Result()
			if strings.Contains(r.URL.Path, "/blobs/") {
				asked++
				resp.Body = drip{r.Context()}
			}
			return resp, nil
		})
		start := time.Now()
		_, err := pull(t.Context(), slow, credentials(), appURL)
		const want = "slower than 1 KiB/s; find out why the registry"
		if origin.CodeOf(err) != origin.CodeUnreachable || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took > 2*attempt.Grace || asked != 1 {
			t.Errorf("took %v, asked %d times", took, asked)
		}
	})
}

func TestBrokenContent(t *testing.T) {
	const layer = "the layer's content"
	write := func(length int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			if length >= 0 {
				w.Header().Set("Content-Length", strconv.Itoa(length))
			}
			_, _ = io.WriteString(w, body)
			if length >= 0 && length != len(body) {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler) // cuts the connection
			}
			if f, ok := w.(http.Flusher); ok {
				f.Flush() // sends the header, without Content-Length
			}
		}
	}
	for _, c := range []struct {
		name, at string
		send     func(http.ResponseWriter)
		want     origin.Code
	}{
		{"layer cut off", "/blobs/", write(len(layer), layer[:5]), origin.CodeTruncated},
		{"layer too short", "/blobs/", write(-1, layer[:5]), origin.CodeTruncated},
		{"layer empty", "/blobs/", write(0, ""), origin.CodeTruncated},
		{"layer too long", "/blobs/", write(-1, layer+"!"), origin.CodeDigestMismatch},
		{"layer without end", "/blobs/", func(w http.ResponseWriter) {
			for {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}, origin.CodeDigestMismatch},
		{"layer of other content", "/blobs/", write(-1, strings.ToUpper(layer)), origin.CodeDigestMismatch},
		{"layer cut in a chunk", "/blobs/", func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, layer[:5])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, origin.CodeTruncated},
		{"manifest cut off", "/manifests/sha256:", write(1000, "{"), origin.CodeTruncated},
		{"manifest of other content", "/manifests/sha256:", write(-1, "{}"), origin.CodeDigestMismatch},
		{"manifest too large", "/manifests/sha256:", func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 5<<20)) }, origin.CodeTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _ := artifact(layer)
			f.override = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodHead || !strings.Contains(r.URL.Path, c.at) {
					return false
				}
				c.send(w)
				return true
			}
			n := serve(t, map[string]http.Handler{registryHost: f})
			_, err := pull(t.Context(), n, credentials(), appURL)
			if origin.CodeOf(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// TestManyAnnotations fetches a manifest with 1300 short annotations. In the status of an object,
// each annotation needs memory besides its text. So Fetch counts 64 bytes more for each annotation,
// and returns only as many annotations as fit into 16 KiB.
func TestManyAnnotations(t *testing.T) {
	annotations := map[string]string{}
	for i := range 1300 {
		annotations[fmt.Sprintf("%04d", i)] = "x"
	}
	f, _ := artifact("x")
	text, err := json.Marshal(map[string]any{"schemaVersion": 2, "layers": []any{}, "annotations": annotations})
	must.Succeed(t, err)
	f.manifests["latest"], f.manifests[digestOf(string(text))] = string(text), string(text)
	client := connect(t, serve(t, map[string]http.Handler{registryHost: f}), appURL)
	manifest, err := client.Fetch(t.Context(), oci.Resolved{Digest: digestOf(string(text))})
	must.Succeed(t, err)
	if n := len(manifest.Metadata); n != (16<<10)/(64+5) {
		t.Errorf("%d annotations", n)
	}
}

// TestBrokenLayerThroughNormalize reads a layer that is not an archive. If the layer's digest or
// length is wrong too, Normalize must return that error.
func TestBrokenLayerThroughNormalize(t *testing.T) {
	const layer = "no archive at all, but of the right digest"
	f, digest := artifact(layer)
	n := serve(t, map[string]http.Handler{registryHost: f})
	client := connect(t, n, appURL)
	open := func() error {
		m, err := client.Fetch(t.Context(), oci.Resolved{Digest: digest})
		must.Succeed(t, err)
		stream, err := client.Open(t.Context(), m.Layers[0])
		must.Succeed(t, err)
		defer stream.Close()
		_, err = archive.Normalize(t.Context(), stream, io.Discard, archive.Options{})
		return err
	}
	if err := open(); archive.ReasonOf(err) != archive.ReasonCorrupt {
		t.Errorf("no archive: %v", err)
	}
	f.blobs[digestOf(layer)] = strings.ToUpper(layer)
	if err := open(); origin.CodeOf(err) != origin.CodeDigestMismatch {
		t.Errorf("other content: %v", err)
	}
	f.blobs[digestOf(layer)] = layer[:10]
	if err := open(); origin.CodeOf(err) != origin.CodeTruncated {
		t.Errorf("less content: %v", err)
	}
}

func TestMalformedAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		body, mediaType string
		want            origin.Code
	}{
		"no JSON":           {"<html>", "", origin.CodeProtocol},
		"no media type":     {"{}", " ", origin.CodeProtocol},
		"other type":        {"{}", "text/html; charset=utf-8", origin.CodeUnsupportedMediaType},
		"schema 1":          {"{}", "application/vnd.docker.distribution.manifest.v1+prettyjws", origin.CodeUnsupportedMediaType},
		"negative size":     {`{"layers":[{"digest":"` + digestOf("x") + `","size":-1}]}`, "", origin.CodeProtocol},
		"sha512 layer":      {`{"layers":[{"digest":"sha512:` + strings.Repeat("a", 128) + `","size":1}]}`, "", origin.CodeProtocol},
		"no digest":         {`{"layers":[{"size":1}]}`, "", origin.CodeProtocol},
		"traversing digest": {`{"layers":[{"digest":"sha256:../../x","size":1}]}`, "", origin.CodeProtocol},
		"no layers":         {`{"layers":[]}`, "", origin.CodeUnsupportedMediaType},
		"huge layer":        {`{"layers":[{"digest":"` + digestOf("x") + `","size":268435457}]}`, "", origin.CodeTooLarge},
		"countless layers":  {`{"layers":[` + strings.Repeat("{},", 1<<20) + `{}]}`, "", origin.CodeTooLarge},
		"countless URLs":    {`{"layers":[{"urls":[` + strings.Repeat(`"",`, 1<<20) + `""]}]}`, "", origin.CodeTooLarge},
		// The decoder must also count the values after a number that does not fit into a float64,
		// and after the end of a first document.
		"layers after a number": {`{"x":1e999,"schemaVersion":2,"layers":[` + strings.Repeat("{},", 1<<20) + `{}]}`, "", origin.CodeTooLarge},
		"images after a number": {`{"x":1e999,"manifests":[` + strings.Repeat("{},", 1<<20) + `{}]}`, "application/vnd.oci.image.index.v1+json", origin.CodeTooLarge},
		"layers after a text":   {`{"x":"\""}{"layers":[` + strings.Repeat("{},", 1<<20) + `{}]}`, "", origin.CodeTooLarge},
		"two documents":         {`{"layers":[]}{}`, "", origin.CodeProtocol},
		"countless images":      {`{"manifests":[` + strings.Repeat("{},", 1<<20) + `{}]}`, "application/vnd.oci.image.index.v1+json", origin.CodeTooLarge},
		"index no JSON":         {`[`, "application/vnd.oci.image.index.v1+json", origin.CodeProtocol},
		"index bad digest":      {`{"manifests":[{}]}`, "application/vnd.oci.image.index.v1+json", origin.CodeProtocol},
	} {
		f, _ := artifact("layer")
		f.manifests = map[string]string{"latest": c.body, digestOf(c.body): c.body}
		if c.mediaType != "" {
			f.types = map[string]string{digestOf(c.body): c.mediaType}
		}
		n := serve(t, map[string]http.Handler{registryHost: f})
		if _, err := pull(t.Context(), n, credentials(), appURL); origin.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestHeadIsNotBelieved checks answers to HEAD that are missing or wrong. The digest must then come
// from the content that GET returns.
func TestHeadIsNotBelieved(t *testing.T) {
	for name, head := range map[string]func(http.ResponseWriter){
		"not allowed":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"no digest":     func(http.ResponseWriter) {},
		"other hash":    func(w http.ResponseWriter) { w.Header().Set("Docker-Content-Digest", "md5:00") },
		"says gone":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"says denied":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) },
		"invalid bytes": func(w http.ResponseWriter) { w.Header().Set("Docker-Content-Digest", "sha256:../x") },
	} {
		f, digest := artifact("layer")
		f.override = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodHead {
				return false
			}
			head(w)
			return true
		}
		client := connect(t, serve(t, map[string]http.Handler{registryHost: f}), appURL)
		got, err := client.Resolve(t.Context(), oci.Reference{})
		if err != nil || got.Revision() != "latest@"+digest {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	f, _ := artifact("layer")
	f.override = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			w.Header().Set("Docker-Content-Digest", digestOf("a lie"))
		}
		return r.Method == http.MethodHead
	}
	if _, err := pull(t.Context(), serve(t, map[string]http.Handler{registryHost: f}), credentials(), appURL); origin.CodeOf(err) != origin.CodeTagNotFound {
		t.Errorf("a lie: %v", err)
	}
}

// TestResolveOfDigestAsks checks that even a known digest is requested. Otherwise nobody would
// notice a withdrawn permission.
func TestResolveOfDigestAsks(t *testing.T) {
	f, digest := artifact("layer")
	client := connect(t, serve(t, map[string]http.Handler{registryHost: f}), appURL)
	if _, err := client.Resolve(t.Context(), oci.Reference{Digest: digest}); err != nil {
		t.Fatal(err)
	}
	f.override = func(w http.ResponseWriter, _ *http.Request) bool {
		registryError(w, http.StatusForbidden, "DENIED", "no more")
		return true
	}
	if _, err := client.Resolve(t.Context(), oci.Reference{Digest: digest}); origin.CodeOf(err) != origin.CodeDenied {
		t.Errorf("withdrawn permission: %v", err)
	}
}

func TestSlowServers(t *testing.T) {
	for _, at := range []string{"/v2/", "/manifests/latest", "/manifests/sha256:", "/blobs/", "body"} {
		f, _ := artifact("layer")
		f.override = func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case at == "body" && strings.Contains(r.URL.Path, "/blobs/"):
				_, _ = io.WriteString(w, "lay")
				w.(http.Flusher).Flush()
			case at == "/v2/" && r.URL.Path == at, at != "/v2/" && strings.Contains(r.URL.Path, at):
			default:
				return false
			}
			<-r.Context().Done() // until the client gives up
			return true
		}
		n := serve(t, map[string]http.Handler{registryHost: f})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := pull(ctx, n, credentials(), appURL)
		cancel()
		if origin.CodeOf(err) != origin.CodeUnreachable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("slow at %s: %v", at, err)
		}
	}
}

// ending is a transport that replaces the bodies of some answers, chosen by the request's path.
// Reading a replaced body ends the request's context and returns io.EOF.
type ending struct {
	http.RoundTripper

	at  string
	end context.CancelFunc
}

func (e *ending) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.RoundTripper.RoundTrip(req)
	if err == nil && strings.Contains(req.URL.Path, e.at) {
		resp.Body = &ended{resp.Body, e.end}
	}
	return resp, err
}

type ended struct {
	io.Closer

	end context.CancelFunc
}

func (e *ended) Read([]byte) (int, error) {
	e.end()
	return 0, io.EOF
}

// TestBodiesEndWithTheirContext ends the context before a body returns io.EOF. The client must not
// accept the body as complete.
func TestBodiesEndWithTheirContext(t *testing.T) {
	for _, at := range []string{"/manifests/sha256:", "/blobs/", "/tags/list"} {
		f, digest := artifact("layer")
		f.override = func(_ http.ResponseWriter, r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/tags/list") }
		n := serve(t, map[string]http.Handler{registryHost: f})
		ctx, cancel := context.WithCancel(t.Context())
		client := connect(t, &ending{n, at, cancel}, appURL)
		var err error
		switch at {
		case "/manifests/sha256:":
			_, err = client.Get(ctx, oci.Reference{Digest: digest})
		case "/tags/list":
			_, err = client.List(ctx, oci.TagFilter{})
		default:
			var layer io.ReadCloser
			if layer, err = client.Open(ctx, oci.Layer{Digest: digestOf("layer"), Size: int64(len("layer"))}); err != nil {
				t.Fatal(err)
			}
			_, err = io.ReadAll(layer)
		}
		if origin.CodeOf(err) != origin.CodeUnreachable || !errors.Is(err, context.Canceled) {
			t.Errorf("at %s: %v", at, err)
		}
		cancel()
	}
}

func TestUnreachable(t *testing.T) {
	n := serve(t, map[string]http.Handler{registryHost: http.NotFoundHandler()})
	_, err := pull(t.Context(), n, credentials(), "oci://nobody.example.com/a")
	if origin.CodeOf(err) != origin.CodeUnreachable || !strings.Contains(err.Error(), "the host's name does not exist") {
		t.Errorf("no such host: %v", err)
	}
	n.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	_, err = pull(t.Context(), n, credentials(), appURL)
	var authority x509.UnknownAuthorityError
	if origin.CodeOf(err) != origin.CodeUnreachable || !errors.As(err, &authority) || !strings.Contains(err.Error(), "spec.certSecretRef") {
		t.Errorf("unknown CA: %v", err)
	}
	_, err = oci.Connect(t.Context(), repository(t, appURL), oci.Options{})
	if err == nil {
		t.Error("no transport")
	}
	_, err = oci.Connect(t.Context(), oci.Repository{}, oci.Options{Transport: n})
	if origin.CodeOf(err) != origin.CodeInvalidURL {
		t.Errorf("no repository: %v", err)
	}
	// A tenant chooses the host name. So the error must show neither the address of a name in the
	// cluster nor the DNS server.
	closed := &net.OpError{
		Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 96, 0, 1), Port: 443},
		Err: &os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED},
	}
	for want, failure := range map[string]error{
		"the connection was refused":                              closed,
		"the proxy cannot be reached: the connection was refused": &net.OpError{Op: "proxyconnect", Net: "tcp", Err: closed},
		"the certificate is for another host": &tls.CertificateVerificationError{Err: x509.HostnameError{
			Certificate: &x509.Certificate{DNSNames: []string{"10.96.0.1.kubernetes.default.svc"}}, Host: "registry.example.com",
		}},
		"the host's name could not be resolved": &net.OpError{
			Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: "registry.example.com", Server: "10.96.0.10:53"},
		},
	} {
		_, err = pull(t.Context(), roundTripper(func(*http.Request) (*http.Response, error) { return nil, failure }), credentials(), appURL)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "10.96.") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// If the injected transport refuses a request, the error wraps this refusal.
	refusal := errors.New("the address is denied")
	_, err = pull(t.Context(), roundTripper(func(*http.Request) (*http.Response, error) { return nil, refusal }), credentials(), appURL)
	if !errors.Is(err, refusal) {
		t.Errorf("refused by the transport: %v", err)
	}
}

// TestRedirectsCarryNoCredentials redirects blobs to another host, which must not get credentials.
func TestRedirectsCarryNoCredentials(t *testing.T) {
	const bearer = "bearer-token-of-this-test"
	blobs := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, "layer")
	})
	redirecting := func() *fake {
		f, _ := artifact("layer")
		f.override = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			http.Redirect(w, r, "https://"+blobHost+"/bucket?X-Signature=presigned", http.StatusTemporaryRedirect)
			return true
		}
		return f
	}
	tokens := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != username || p != password || r.URL.Query().Get("scope") != "repository:team/app:pull" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"token": bearer})
	})
	withBearer := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+bearer {
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="https://%s/token",service="test"`, tokenHost))
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	for name, handler := range map[string]http.Handler{"basic": basic(redirecting()), "bearer": withBearer(redirecting())} {
		n := serve(t, map[string]http.Handler{registryHost: handler, blobHost: blobs, tokenHost: tokens})
		body, err := pull(t.Context(), n, credentials(), appURL)
		if err != nil || body != "layer" {
			t.Errorf("%s: %q, %v", name, body, err)
		}
		if len(n.sent(blobHost)) != 1 {
			t.Errorf("%s: the redirect was not followed", name)
		}
		for _, r := range n.sent(blobHost) {
			if r.Header.Get("Authorization") != "" {
				t.Errorf("%s: credentials went to %s", name, blobHost)
			}
		}
		for _, r := range n.sent(registryHost) {
			if a := r.Header.Get("Authorization"); name == "bearer" && a != "" && a != "Bearer "+bearer {
				t.Errorf("the password went to the registry, not to the token server")
			}
		}
	}
	// The error must show the name of blobHost, but not the signed query of the redirect.
	n := serve(t, map[string]http.Handler{registryHost: basic(redirecting()), blobHost: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	})})
	_, err := pull(t.Context(), n, credentials(), appURL)
	var e *origin.Error
	if !errors.As(err, &e) || e.Code != origin.CodeDenied || e.Host != blobHost || strings.Contains(err.Error(), "presigned") {
		t.Errorf("expired signature: %v", err)
	}
	n = serve(t, map[string]http.Handler{registryHost: basic(redirecting())})
	if _, err = pull(t.Context(), n, credentials(), appURL); err == nil || strings.Contains(err.Error(), "presigned") {
		t.Errorf("unreachable blob host: %v", err)
	}
}

func TestRedirectsThatAreRefused(t *testing.T) {
	for _, to := range []string{
		"http://" + blobHost + "/x", "https://127.0.0.1/x", "https://10.0.0.1/x", "https://169.254.169.254/latest/meta-data",
		"https://[::1]/x", "https://[fd00:ec2::254]/x", "https://[::ffff:10.0.0.1]/x", "https://0.0.0.0/x", "/loop", "file:///etc/passwd",
	} {
		for _, at := range []string{"/blobs/", "/manifests/"} {
			f, _ := artifact("layer")
			f.override = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, at) && r.URL.Path != "/loop" {
					return false
				}
				w.Header().Set("Location", to)
				w.WriteHeader(http.StatusFound)
				return true
			}
			n := serve(t, map[string]http.Handler{registryHost: f})
			_, err := pull(t.Context(), n, credentials(), appURL)
			if origin.CodeOf(err) != origin.CodeProtocol {
				t.Errorf("%s at %s: %v", to, at, err)
			}
			for _, r := range n.requests {
				if r.URL.Host != registryHost || r.URL.Scheme != "https" {
					t.Errorf("%s was asked", r.URL)
				}
			}
		}
	}
}

// TestPlainHTTPNeedsInsecure checks that no request is sent over http without Insecure, not even
// after a redirect or to a loopback address.
func TestPlainHTTPNeedsInsecure(t *testing.T) {
	f, _ := artifact("layer")
	plain := httptest.NewServer(basic(f))
	defer plain.Close()
	url := "oci://" + strings.TrimPrefix(plain.URL, "http://") + "/team/app"
	n := &network{Transport: &http.Transport{}}
	defer n.CloseIdleConnections()
	_, err := pull(t.Context(), n, credentials(), url)
	if err == nil {
		t.Fatal("plain http was used without insecure")
	}
	noSecret(t, err)
	for _, r := range n.requests {
		if r.URL.Scheme == "http" {
			t.Errorf("%s was asked", r.URL)
		}
	}
	insecure := credentials()
	insecure.Insecure = true
	if body, err := pull(t.Context(), n, insecure, url); err != nil || body != "layer" {
		t.Errorf("insecure: %q, %v", body, err)
	}

	downgrading := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+registryHost+r.URL.Path, http.StatusFound)
	})
	n = serve(t, map[string]http.Handler{registryHost: downgrading})
	_, err = pull(t.Context(), n, credentials(), appURL)
	if origin.CodeOf(err) != origin.CodeProtocol {
		t.Errorf("downgrade: %v", err)
	}
	for _, r := range n.requests {
		if r.URL.Scheme == "http" {
			t.Errorf("%s was asked", r.URL)
		}
	}
}

// TestMessagesShowAllTheirCharacters checks that an error shows a registry's message without
// invisible control characters, which could reverse the text around it.
func TestMessagesShowAllTheirCharacters(t *testing.T) {
	n := serve(t, map[string]http.Handler{registryHost: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		registryError(w, http.StatusForbidden, "DENIED\u2067", "\u202etxt.exe\u2028is\u200b denied\ufeff")
	})})
	_, err := pull(t.Context(), n, oci.Options{}, appURL)
	if err == nil || !strings.Contains(err.Error(), "HTTP 403 Forbidden: DENIED: txt.exe is  denied;") {
		t.Errorf("%q", err)
	}
}

// TestEchoedIdentityTokenIsRedacted lets a hostile token server echo an identity token. The client
// sends this token in a form and not in a header. The error must not show the token.
func TestEchoedIdentityTokenIsRedacted(t *testing.T) {
	const token = "identity-token-of-this-test"
	n := serve(t, map[string]http.Handler{
		registryHost: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="https://%s/token",service="test"`, tokenHost))
			w.WriteHeader(http.StatusUnauthorized)
		}),
		tokenHost: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			registryError(w, http.StatusForbidden, "DENIED", "you sent "+r.FormValue("refresh_token"))
		}),
	})
	_, err := pull(t.Context(), n, oci.Options{Auth: authn.FromConfig(authn.AuthConfig{IdentityToken: token})}, appURL)
	if origin.CodeOf(err) != origin.CodeDenied || !strings.Contains(err.Error(), "you sent [redacted]") {
		t.Errorf("%v", err)
	}
	noSecret(t, err, token)
}

// TestEchoedCredentialsAreRedacted checks that errors do not show credentials which a server
// echoes.
func TestEchoedCredentialsAreRedacted(t *testing.T) {
	const bearer = "bearer-token-of-this-test"
	echo := func(w http.ResponseWriter, r *http.Request) {
		user, pass, _ := r.BasicAuth()
		registryError(w, http.StatusForbidden, "DENIED", "you sent "+r.Header.Get("Authorization")+" "+user+" "+pass+" "+user+":"+pass)
	}
	challenge := func(next http.HandlerFunc) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="https://%s/token?secret=query",service="test"`, tokenHost))
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next(w, r)
		})
	}
	give := func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"token": bearer})
	}
	for name, hosts := range map[string]map[string]http.Handler{
		"basic":    {registryHost: basic(http.HandlerFunc(echo))},
		"bearer":   {registryHost: challenge(echo), tokenHost: http.HandlerFunc(give)},
		"exchange": {registryHost: challenge(echo), tokenHost: http.HandlerFunc(echo)},
		"no token": {registryHost: challenge(echo), tokenHost: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]string{"oops": r.Header.Get("Authorization")})
		})},
		"no JSON": {registryHost: challenge(echo), tokenHost: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Header.Get("Authorization"))
		})},
		"realm": {registryHost: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://169.254.169.254/?secret=query"`)
			w.WriteHeader(http.StatusUnauthorized)
		})},
	} {
		_, err := pull(t.Context(), serve(t, hosts), credentials(), appURL)
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		noSecret(t, err, bearer, "secret=query", "oops")
		if name != "no token" && name != "no JSON" && name != "realm" && origin.CodeOf(err) != origin.CodeDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}
