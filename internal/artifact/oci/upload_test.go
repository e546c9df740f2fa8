package oci_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// large returns a folder with 4 MiB of content that cannot be compressed. The content is the same
// each time.
func large(t *testing.T) string {
	t.Helper()
	content := make([]byte, 4<<20)
	if _, err := rand.NewChaCha8([32]byte{}).Read(content); err != nil {
		t.Fatal(err)
	}
	return folder(t, map[string]string{"large.bin": string(content)})
}

// line is a proxy in front of a registry. It records uploads, and breaks them off.
type line struct {
	registry http.Handler
	// cut returns the number of bytes after which the nth upload request breaks off; negative for
	// never.
	cut func(n int) int64
	// spoil makes the proxy corrupt the bodies of the requests that break off.
	spoil bool
	// answer answers a request in place of the registry. If it returns false, the registry gets the
	// request.
	answer func(w http.ResponseWriter, r *http.Request) bool

	received atomic.Int64 // number of bytes in all requests' bodies

	mu      sync.Mutex
	patches []string // Content-Range of each upload request
	paths   []string // method and path of each request
}

func (l *line) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.paths = append(l.paths, r.Method+" "+r.URL.Path)
	limit := int64(-1)
	if r.Method == http.MethodPatch {
		l.patches = append(l.patches, r.Header.Get("Content-Range"))
		if l.cut != nil {
			limit = l.cut(len(l.patches))
		}
	}
	l.mu.Unlock()
	if l.answer != nil && l.answer(w, r) {
		return
	}
	body := &cable{Reader: r.Body, left: limit, spoil: l.spoil && limit >= 0}
	r.Body = body
	if limit < 0 {
		l.registry.ServeHTTP(w, r)
	} else {
		l.registry.ServeHTTP(discard{http.Header{}}, r)
	}
	l.received.Add(body.n)
	if limit >= 0 {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
}

// sent counts the requests for which "<method> <path>" begins with the prefix.
func (l *line) sent(prefix string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.paths {
		if strings.HasPrefix(p, prefix) {
			n++
		}
	}
	return n
}

// cable is a body that breaks off after a number of bytes. If the number is negative, it never
// breaks off.
type cable struct {
	io.Reader
	left, n int64
	spoil   bool
}

func (c *cable) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	if c.left > 0 {
		p = p[:min(int64(len(p)), c.left)]
	}
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	if c.spoil && n > 0 {
		p[0]++
	}
	if c.left > 0 {
		c.left -= int64(n)
	}
	return n, err
}

func (c *cable) Close() error { return nil }

// discard is a ResponseWriter whose answer never arrives.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func push(ctx context.Context, t *testing.T, n http.RoundTripper, path string, uploads oci.Uploads) (oci.Pushed, error) {
	t.Helper()
	return oci.Push(ctx, repository(t, appURL), "1.0.0", oci.Artifact{Path: path}, oci.Options{Transport: n, Uploads: uploads})
}

// TestUploadGoesOn breaks the connection twice during an upload. Each time, the same push continues
// with the first byte that the registry does not have.
func TestUploadGoesOn(t *testing.T) {
	const first = 1<<20 + 11
	l := &line{registry: distribution(t), cut: func(n int) int64 {
		if n <= 2 {
			return first
		}
		return -1
	}}
	n := serve(t, map[string]http.Handler{registryHost: l})
	pushed, err := push(t.Context(), t, n, large(t), oci.Uploads{})
	must.Succeed(t, err)
	want := []string{"", fmt.Sprintf("%d-%d", first, pushed.Layer.Size-1), fmt.Sprintf("%d-%d", 2*first, pushed.Layer.Size-1)}
	if fmt.Sprint(l.patches) != fmt.Sprint(want) {
		t.Errorf("parts %q, want %q", l.patches, want)
	}
	fetch(t, n, pushed)
}

// fetch pulls the pushed artifact and checks it.
func fetch(t *testing.T, n http.RoundTripper, pushed oci.Pushed) {
	t.Helper()
	client, err := oci.Connect(t.Context(), repository(t, appURL), oci.Options{Transport: n})
	must.Succeed(t, err)
	stream, err := client.Open(t.Context(), pushed.Layer)
	must.Succeed(t, err)
	defer stream.Close()
	if _, err := archive.Normalize(t.Context(), stream, io.Discard, archive.Options{}); err != nil {
		t.Error(err)
	}
	if resolved, err := client.Resolve(t.Context(), oci.Reference{Tag: "1.0.0"}); err != nil || resolved != pushed.Resolved {
		t.Errorf("%v, %v; pushed %v", resolved, err, pushed.Resolved)
	}
}

// TestInterruptedPushIsContinued checks that an interrupted push writes no tag, and that the next
// push continues its upload.
func TestInterruptedPushIsContinued(t *testing.T) {
	const first = 2<<20 + 5
	ctx, interrupt := context.WithCancelCause(t.Context())
	signal := errors.New("interrupted")
	l := &line{registry: distribution(t), cut: func(n int) int64 {
		if n == 1 {
			return first
		}
		return -1
	}}
	n := serve(t, map[string]http.Handler{registryHost: l})
	path, uploads := large(t), oci.Uploads{Folder: filepath.Join(t.TempDir(), "uploads")}
	// Interrupt the push when the registry has the first part.
	l.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/uploads/") && r.Method == http.MethodGet {
			interrupt(signal)
		}
		return false
	}
	if _, err := push(ctx, t, n, path, uploads); !errors.Is(err, signal) {
		t.Fatalf("interrupted: %v", err)
	}
	if l.sent("PUT /v2/team/app/manifests/") > 0 {
		t.Error("the tag is written")
	}
	kept, err := os.ReadDir(uploads.Folder)
	if err != nil || len(kept) != 1 {
		t.Fatalf("remembered: %v, %v", kept, err)
	}
	l.answer = nil
	pushed, err := push(t.Context(), t, n, path, uploads)
	must.Succeed(t, err)
	if received := l.received.Load(); received >= pushed.Layer.Size+first {
		t.Errorf("%d bytes were sent, the layer has %d", received, pushed.Layer.Size)
	}
	if kept, err := os.ReadDir(uploads.Folder); err != nil || len(kept) > 0 {
		t.Errorf("still remembered: %v, %v", kept, err)
	}
	fetch(t, n, pushed)
}

// TestPushOutlivesFaults checks that a temporary fault does not end a push, for each kind of
// request.
func TestPushOutlivesFaults(t *testing.T) {
	path := large(t)
	for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodPut} {
		var mu sync.Mutex
		failed := map[string]bool{} // by kind of request
		l := &line{registry: distribution(t), answer: func(w http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			place := fmt.Sprintf("%t %t", strings.Contains(r.URL.Path, "/manifests/"), r.ContentLength > 0)
			if r.Method != method || failed[place] {
				return false
			}
			failed[place] = true
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}}
		n := serve(t, map[string]http.Handler{registryHost: l})
		pushed, err := push(t.Context(), t, n, path, oci.Uploads{})
		if err != nil || len(failed) == 0 {
			t.Errorf("%s: %v, after faults at %v", method, err, failed)
			continue
		}
		fetch(t, n, pushed)
	}
}

// TestUploadOfWhatWasSpoilt checks that everything is sent again if the registry has received wrong
// bytes.
func TestUploadOfWhatWasSpoilt(t *testing.T) {
	l := &line{registry: distribution(t), spoil: true, cut: func(n int) int64 {
		if n == 1 {
			return 1 << 20
		}
		return -1
	}}
	n := serve(t, map[string]http.Handler{registryHost: l})
	pushed, err := push(t.Context(), t, n, large(t), oci.Uploads{})
	must.Succeed(t, err)
	if len(l.patches) != 3 || l.patches[2] != "" {
		t.Errorf("parts %q", l.patches)
	}
	fetch(t, n, pushed)
}

// TestUselessMemoryOfUploads checks that a new upload begins if the remembered URL cannot be used.
func TestUselessMemoryOfUploads(t *testing.T) {
	path := large(t)
	for name, spoil := range map[string]func(location string) string{
		"given up":        func(location string) string { return strings.Replace(location, "uploads/", "uploads/0", 1) },
		"another host":    func(location string) string { return strings.Replace(location, registryHost, blobHost, 1) },
		"not a URL":       func(string) string { return "\x00" },
		"empty":           func(string) string { return "" },
		"long":            func(string) string { return strings.Repeat("x", 1<<20) },
		"another's blob":  func(string) string { return "https://" + registryHost + "/v2/other/blobs/uploads/1" },
		"without a state": func(location string) string { before, _, _ := strings.Cut(location, "?"); return before },
	} {
		t.Run(name, func(t *testing.T) {
			l := &line{registry: distribution(t), cut: func(int) int64 { return -1 }}
			n := serve(t, map[string]http.Handler{registryHost: l})
			uploads := oci.Uploads{Folder: t.TempDir()}
			ctx, interrupt := context.WithCancel(t.Context())
			l.answer = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPatch {
					interrupt()
				}
				return false
			}
			if _, err := push(ctx, t, n, path, uploads); err == nil {
				t.Fatal("not interrupted")
			}
			files, err := filepath.Glob(filepath.Join(uploads.Folder, "*"))
			if err != nil || len(files) != 1 {
				t.Fatalf("%v, %v", files, err)
			}
			location, err := os.ReadFile(files[0])
			must.Succeed(t, err)
			must.Succeed(t, os.WriteFile(files[0], []byte(spoil(string(location))), 0o600))
			pushed, err := push(t.Context(), t, n, path, uploads)
			must.Succeed(t, err)
			if sent := n.sent(blobHost); len(sent) > 0 {
				t.Errorf("another host was asked: %v", sent[0].URL)
			}
			fetch(t, n, pushed)
		})
	}
}

// TestUploadsInTheFolderOfOthers puts another user's files into Uploads.Folder. A push must not use
// a URL from them, or change an unrelated file.
func TestUploadsInTheFolderOfOthers(t *testing.T) {
	path, uploads := large(t), oci.Uploads{Folder: filepath.Join(t.TempDir(), "uploads")}
	var interrupt atomic.Pointer[context.CancelFunc]
	l := &line{registry: distribution(t), answer: func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			(*interrupt.Load())()
		}
		return false
	}}
	n := serve(t, map[string]http.Handler{registryHost: l})
	interrupted := func(t *testing.T) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		interrupt.Store(&cancel)
		if _, err := push(ctx, t, n, path, uploads); err == nil {
			t.Fatal("not interrupted")
		}
	}
	interrupted(t)
	files, err := filepath.Glob(filepath.Join(uploads.Folder, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	for name, plant := range map[string]func(victim string) error{
		"a file that others may read": func(string) error {
			return errors.Join(os.WriteFile(files[0], []byte("https://"+registryHost+"/v2/thief/blobs/uploads/1"), 0o600), os.Chmod(files[0], 0o644))
		},
		"a link": func(victim string) error { return errors.Join(os.RemoveAll(files[0]), os.Symlink(victim, files[0])) },
		"an old file": func(victim string) error {
			return errors.Join(os.RemoveAll(files[0]), os.Chtimes(victim, time.Time{}, time.Now().AddDate(0, 0, -30)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			victim := filepath.Join(uploads.Folder, "notes")
			must.Succeed(t, errors.Join(os.WriteFile(victim, []byte("mine"), 0o600), plant(victim)))
			interrupted(t)
			if l.sent("GET /v2/thief/") > 0 {
				t.Error("the upload went on where somebody else said")
			}
			if kept, err := os.ReadFile(victim); err != nil || string(kept) != "mine" {
				t.Errorf("%q, %v", kept, err)
			}
			if info, err := os.Lstat(files[0]); err != nil || info.Mode() != 0o600 {
				t.Errorf("the new upload is remembered as %v, %v", info, err)
			}
		})
	}
}

// TestHostileUploads checks a registry's hostile answers to an upload. After a bounded number of
// requests, the push returns an error with the right code. It sends nothing to forbidden hosts.
func TestHostileUploads(t *testing.T) {
	path := large(t)
	upload := func(w http.ResponseWriter, headers ...string) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
	}
	const location = "/v2/team/app/blobs/uploads/1"
	start := func(to string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost {
				return false
			}
			upload(w, "Location", to)
			w.WriteHeader(http.StatusAccepted)
			return true
		}
	}
	// status returns a handler of uploads. The handler aborts the connection during each PATCH. A
	// client then asks by GET how much arrived: the answer has the given headers.
	status := func(headers ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case r.Method == http.MethodPost:
				upload(w, "Location", location)
				w.WriteHeader(http.StatusAccepted)
			case r.Method == http.MethodPatch:
				_, _ = io.CopyN(io.Discard, r.Body, 1000)
				panic(http.ErrAbortHandler)
			// This is the upload of the configuration.
			case r.Method == http.MethodPut && r.URL.Path == location && r.ContentLength > 0:
				w.WriteHeader(http.StatusCreated)
			case r.Method == http.MethodGet && r.URL.Path == location:
				upload(w, headers...)
				w.WriteHeader(http.StatusNoContent)
			default:
				return false
			}
			return true
		}
	}
	var growing atomic.Int64
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request) bool
		code   origin.Code
	}{
		"no location":                    {start(""), origin.CodeProtocol},
		"location without TLS elsewhere": {start("http://" + blobHost + "/upload"), origin.CodeProtocol},
		"location at a private address":  {start("https://10.0.0.1/upload"), origin.CodeProtocol},
		"metadata service":               {start("http://169.254.169.254/latest/meta-data"), origin.CodeProtocol},
		"location is no URL":             {start("http://[::1"), origin.CodeProtocol},
		"more than there is":             {status("Range", "0-99999999"), origin.CodeUnreachable},
		"negative":                       {status("Range", "0--5"), origin.CodeUnreachable},
		"no range":                       {status(), origin.CodeUnreachable},
		"malformed range":                {status("Range", "bytes=0-1-2"), origin.CodeUnreachable},
		"never further":                  {status("Range", "0-999"), origin.CodeUnreachable},
		"a byte further each time": {func(w http.ResponseWriter, r *http.Request) bool {
			return status("Range", fmt.Sprintf("0-%d", 1000+growing.Add(1)))(w, r)
		}, origin.CodeProtocol},
		"all is there, and is not": {func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut && r.ContentLength <= 0 {
				registryError(w, http.StatusBadRequest, "DIGEST_INVALID", "provided digest did not match uploaded content")
				return true
			}
			return status("Range", "0-1000000")(w, r)
		}, origin.CodeUnreachable},
		"another digest of the blob": {func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/uploads/") {
				return false
			}
			upload(w, "Docker-Content-Digest", digestOf("another"))
			w.WriteHeader(http.StatusCreated)
			return true
		}, origin.CodeDigestMismatch},
		"another digest of the manifest": {func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			upload(w, "Docker-Content-Digest", digestOf("another"))
			w.WriteHeader(http.StatusCreated)
			return true
		}, origin.CodeDigestMismatch},
		"no right to write": {func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				registryError(w, http.StatusForbidden, "DENIED", "requested access to the resource is denied")
			}
			return r.Method == http.MethodPost
		}, origin.CodeDenied},
		"read only": {func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				registryError(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "The operation is unsupported.")
			}
			return r.Method == http.MethodPost
		}, origin.CodeProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			l := &line{registry: distribution(t), answer: tt.answer}
			n := serve(t, map[string]http.Handler{registryHost: l})
			_, err := push(t.Context(), t, n, path, oci.Uploads{Folder: t.TempDir()})
			if origin.CodeOf(err) != tt.code {
				t.Errorf("%s: %v", origin.CodeOf(err), err)
			}
			if sent := n.sent(registryHost); len(sent) > 100 {
				t.Errorf("%d requests", len(sent))
			}
			for _, host := range []string{blobHost, "10.0.0.1", "169.254.169.254"} {
				if sent := n.sent(host); len(sent) > 0 {
					t.Errorf("%s was asked", host)
				}
			}
			if name != "another digest of the manifest" && l.sent("PUT /v2/team/app/manifests/") > 0 {
				t.Error("the tag is written")
			}
		})
	}
}

// TestTagAndKnownBlobs checks that a second push of a folder does not send its layer again. Adding
// a tag must not fetch any blob.
func TestTagAndKnownBlobs(t *testing.T) {
	l := &line{registry: distribution(t)}
	n := serve(t, map[string]http.Handler{registryHost: l})
	path := large(t)
	pushed, err := push(t.Context(), t, n, path, oci.Uploads{})
	must.Succeed(t, err)
	sent := l.received.Load()
	if again, err := push(t.Context(), t, n, path, oci.Uploads{}); err != nil || again.Resolved != pushed.Resolved || l.received.Load() > sent+2000 || l.sent("PATCH ") != 1 {
		t.Errorf("%v, %v: %d bytes were sent again", again, err, l.received.Load()-sent)
	}
	client, err := oci.Connect(t.Context(), repository(t, appURL), oci.Options{Transport: n, Write: true})
	must.Succeed(t, err)
	blobs := l.sent("GET /v2/team/app/blobs/")
	must.Succeed(t, client.Tag(t.Context(), pushed.Resolved, "stable"))
	if resolved, err := client.Resolve(t.Context(), oci.Reference{Tag: "stable"}); err != nil || resolved.Digest != pushed.Digest || l.sent("GET /v2/team/app/blobs/") != blobs {
		t.Errorf("%v, %v", resolved, err)
	}
	if err := client.Tag(t.Context(), pushed.Resolved, "a/b"); origin.CodeOf(err) != origin.CodeInvalidReference {
		t.Errorf("not a tag: %v", err)
	}
}

// TestDownloadGoesOn checks a download that breaks off. It continues if the registry sends the
// missing range or the whole content. It ends if no more bytes arrive.
func TestDownloadGoesOn(t *testing.T) {
	layer := strings.Repeat("0123456789", 1000)
	for name, tt := range map[string]struct {
		// answer answers every request after the first, which got only a part of the layer.
		answer   func(w http.ResponseWriter, from string, request int)
		requests int
		code     origin.Code
	}{
		"part": {func(w http.ResponseWriter, from string, _ int) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %s-9999/10000", from))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, layer[4000:])
		}, 2, ""},
		"everything": {func(w http.ResponseWriter, _ string, _ int) { _, _ = io.WriteString(w, layer) }, 2, ""},
		"another part": {func(w http.ResponseWriter, _ string, _ int) {
			w.Header().Set("Content-Range", "bytes 0-9999/10000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, layer)
		}, 2, origin.CodeTruncated},
		"a part of something longer": {func(w http.ResponseWriter, from string, _ int) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %s-19999/20000", from))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, layer)
		}, 2, origin.CodeTruncated},
		"another content": {func(w http.ResponseWriter, from string, _ int) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %s-9999/10000", from))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, strings.Repeat("x", 6000))
		}, 2, origin.CodeDigestMismatch},
		"no ranges": {func(w http.ResponseWriter, _ string, _ int) {
			registryError(w, http.StatusRequestedRangeNotSatisfiable, "RANGE_INVALID", "invalid content range")
		}, 2, origin.CodeTruncated},
		"a byte each time": {func(w http.ResponseWriter, from string, request int) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %s-9999/10000", from))
			w.Header().Set("Content-Length", "5000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, layer[3999+request:4000+request])
		}, 6, origin.CodeTruncated},
		"nothing": {func(w http.ResponseWriter, from string, _ int) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %s-9999/10000", from))
			w.Header().Set("Content-Length", "6000")
			w.WriteHeader(http.StatusPartialContent)
		}, 2, origin.CodeTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := artifact(layer)
			requests := 0
			f.override = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/blobs/") {
					return false
				}
				if requests++; requests == 1 {
					w.Header().Set("Content-Length", "10000")
					_, _ = io.WriteString(w, layer[:4000])
					return true // the body is too short: net/http closes the connection
				}
				from, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")
				tt.answer(w, from, requests-1)
				return true
			}
			n := serve(t, map[string]http.Handler{registryHost: f})
			client, err := oci.Connect(t.Context(), repository(t, appURL), oci.Options{Transport: n})
			must.Succeed(t, err)
			stream, err := client.Open(t.Context(), oci.Layer{Digest: digestOf(layer), Size: int64(len(layer))})
			must.Succeed(t, err)
			defer stream.Close()
			got, err := io.ReadAll(stream)
			if origin.CodeOf(err) != tt.code || requests != tt.requests {
				t.Errorf("%s after %d requests: %v", origin.CodeOf(err), requests, err)
			}
			if err == nil && !bytes.Equal(got, []byte(layer)) {
				t.Error("another content")
			}
		})
	}
}
