package attack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	// dripEvery is the pause between two bytes of an endless answer.
	dripEvery = 100 * time.Millisecond
)

// registry serves the part of the OCI distribution API that a pull needs. The function manifest may
// return an invalid manifest.
type registry struct {
	manifest func() []byte
	blob     func(w http.ResponseWriter)

	mu    sync.Mutex // guards known
	known map[string][]byte
}

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

func (g *registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, reference, isManifest := strings.Cut(r.URL.Path, "/manifests/")
	switch {
	case isManifest:
		content := g.named(reference)
		w.Header().Set("Content-Type", manifestType)
		w.Header().Set("Docker-Content-Digest", digest(content))
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		if r.Method != http.MethodHead {
			_, _ = w.Write(content)
		}
	case strings.Contains(r.URL.Path, "/blobs/") && g.blob != nil:
		g.blob(w)
	case r.URL.Path == "/v2/":
	default:
		http.NotFound(w, r)
	}
}

// named returns the manifest whose digest is the reference, if g.known has it. Otherwise, it makes
// a new manifest.
func (g *registry) named(reference string) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if content, ok := g.known[reference]; ok {
		return content
	}
	content := g.manifest()
	if g.known == nil || len(g.known) > 1000 {
		g.known = map[string][]byte{}
	}
	g.known[digest(content)] = content
	return content
}

// manifestOf returns the manifest of a Flux artifact with one layer. The manifest contains the
// note, so a different note gives a different digest.
func manifestOf(t *testing.T, layer []byte, note string) []byte {
	t.Helper()
	content, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "annotations": map[string]string{"note": note},
		"config": map[string]any{"mediaType": oci.ConfigMediaType, "digest": digest([]byte("{}")), "size": 2},
		"layers": []any{map[string]any{"mediaType": oci.LayerMediaType, "digest": digest(layer), "size": len(layer)}},
	})
	must(t, "make a manifest", err)
	return content
}

// archive returns a gzipped tar of one file.
func archive(t *testing.T, size int64, content io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	pack := tar.NewWriter(zip)
	must(t, "pack", pack.WriteHeader(&tar.Header{Name: "app.yaml", Typeflag: tar.TypeReg, Mode: 0o644, Size: size}))
	_, err := io.CopyN(pack, content, size)
	must(t, "pack", err)
	must(t, "pack", pack.Close())
	must(t, "pack", zip.Close())
	return out.Bytes()
}

// archiveOf returns a gzipped tar of these files.
func archiveOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	pack := tar.NewWriter(zip)
	for name, content := range files {
		must(t, "pack", pack.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}))
		_, err := pack.Write([]byte(content))
		must(t, "pack", err)
	}
	must(t, "pack", pack.Close())
	must(t, "pack", zip.Close())
	return out.Bytes()
}

// trickle sends one byte now and then, until the client disconnects.
func trickle(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", manifestType)
	w.Header().Set("Docker-Content-Digest", digest(nil))
	for r.Method != http.MethodHead {
		if _, err := io.WriteString(w, " "); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(dripEvery):
		case <-r.Context().Done():
			return
		}
	}
}
