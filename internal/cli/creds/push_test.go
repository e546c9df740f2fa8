package creds_test

import (
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory" // the registry's storage
	"github.com/sirupsen/logrus"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// direct passes requests to its handler in memory. Without a network, the test can use a fake
// clock.
type direct struct{ http.Handler }

func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	in := req.Clone(req.Context())
	in.Host = req.URL.Host
	if in.Body == nil {
		in.Body = http.NoBody
	}
	answer := httptest.NewRecorder()
	d.ServeHTTP(answer, in)
	resp := answer.Result()
	resp.Request = req
	return resp, in.Body.Close()
}

// distribution returns the registry of the project Distribution. It stores its content in memory.
func distribution(t *testing.T) http.Handler {
	t.Helper()
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{Storage: configuration.Storage{
		"inmemory":    configuration.Parameters{},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.Secret, config.HTTP.RelativeURLs = "for one test", true
	config.Log.Level, config.Log.AccessLog.Disabled = "panic", true
	return handlers.NewApp(t.Context(), config)
}

// guarded is a registry that accepts the issuer's tokens until they expire.
type guarded struct {
	registry http.Handler
	issuer   *oidc.Issuer
	// Pauses of the first large upload: one before its token is checked, and one after the registry
	// has the data.
	before, after time.Duration

	refused  []string // methods of the requests whose token had expired
	received int64    // number of bytes in large uploads
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	upload := r.Method == http.MethodPatch
	if upload {
		time.Sleep(g.before)
		g.before = 0
	}
	raw, shown := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	token, err := oidc.Read(raw)
	if err != nil || g.issuer.CheckSignature(token) != nil || !slices.Equal(token.Audience, []string{repository}) || token.CheckTime(time.Now(), 0) != nil {
		if shown {
			g.refused = append(g.refused, r.Method)
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+host+`/token"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if upload {
		g.received += r.ContentLength
	}
	g.registry.ServeHTTP(w, r)
	if upload {
		time.Sleep(g.after)
		g.after = 0
	}
}

// TestPushOutlivesItsToken checks a push of two hours, during which a token of one hour expires.
// The push gets a new token and continues. It does not send again what the registry already has.
func TestPushOutlivesItsToken(t *testing.T) {
	const size = 2 << 20 // so large that the layer is sent by PATCH
	folder := t.TempDir()
	content := make([]byte, size)
	_, _ = rand.Read(content)
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "large.bin"), content, 0o600))
	repo, err := oci.ParseURL(repository)
	must.Succeed(t, err)
	for name, tt := range map[string]struct {
		before, after time.Duration
		refused       string
	}{
		"it ends while the layer is sent":     {after: 2 * time.Hour, refused: http.MethodPut},
		"it ends before the layer is checked": {before: 2 * time.Hour, refused: http.MethodPatch},
		"each ends":                           {before: 2 * time.Hour, after: 2 * time.Hour, refused: http.MethodPatch + " " + http.MethodPut},
	} {
		registry := distribution(t)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				login, err := w.login(t, "--creds=ServiceAccountToken", "--sa-name=puller")
				must.Succeed(t, err)
				g := &guarded{registry: registry, issuer: w.issuer, before: tt.before, after: tt.after}
				opts := oci.Options{Auth: login.Auth, Transport: direct{g}}
				pushed, err := oci.Push(t.Context(), repo, "1.0.0", oci.Artifact{Path: folder}, opts)
				must.Succeed(t, err)
				if refused := strings.Join(g.refused, " "); refused != tt.refused {
					t.Errorf("refused: %s, want %s", refused, tt.refused)
				}
				if asked, want := len(w.cluster.asked), 1+len(g.refused); asked != want {
					t.Errorf("%d tokens were requested, want %d", asked, want)
				}
				if g.received != pushed.Layer.Size {
					t.Errorf("%d bytes were sent for a layer of %d", g.received, pushed.Layer.Size)
				}
				client, err := oci.Connect(t.Context(), repo, opts)
				must.Succeed(t, err)
				if resolved, err := client.Resolve(t.Context(), oci.Reference{Tag: "1.0.0"}); err != nil || resolved.Digest != pushed.Digest {
					t.Errorf("the tag is %v, %v; want %s", resolved, err, pushed.Digest)
				}
			})
		})
	}
}
