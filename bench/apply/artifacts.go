package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"time"
)

// artifacts serves an artifact for each object.
type artifacts struct {
	server  *httptest.Server
	served  map[string]artifact // by path
	fetches atomic.Int64        // number of requests
}

// artifact is a .tar.gz file.
type artifact struct {
	data   []byte
	digest string
}

// serveArtifacts starts a server. The caller closes it. The server has the artifact of each object:
// its files are the object's manifests.
func serveArtifacts(n int) (*artifacts, error) {
	a := &artifacts{served: map[string]artifact{}}
	for i := range n {
		file, err := pack(manifests(namespaceOf(i), nameOf(i)))
		if err != nil {
			return nil, fmt.Errorf("pack the artifact of %s: %w", nameOf(i), err)
		}
		a.served[pathOf(i)] = file
	}
	slow, err := pack(slowManifests())
	if err != nil {
		return nil, fmt.Errorf("pack the artifact of the slow tenant: %w", err)
	}
	a.served[slowPath] = slow
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.fetches.Add(1)
		file, found := a.served[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/gzip")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.data))
	}))
	return a, nil
}

// pathOf returns the URL's path of the i-th artifact. The path names the source, as the paths of
// Flux's and of Lanyard's artifact servers do.
func pathOf(i int) string {
	return fmt.Sprintf("/ocirepository/%s/%s/1.4.2.tar.gz", namespaceOf(i), nameOf(i))
}

// slowName is the name of the slow tenant's source, and slowPath is the path of its artifact.
const (
	slowName = "slow"
	slowPath = "/ocirepository/" + slowNamespace + "/" + slowName + "/1.4.2.tar.gz"
)

// status returns the status of a source with the i-th artifact.
func (a *artifacts) status(i int) map[string]any { return a.statusAt(pathOf(i)) }

// statusAt returns the status of a source with the artifact at a path.
func (a *artifacts) statusAt(path string) map[string]any {
	now := time.Now().UTC().Format(time.RFC3339)
	file := a.served[path]
	return map[string]any{
		"observedGeneration": int64(1),
		"artifact": map[string]any{
			"digest": file.digest, "lastUpdateTime": now, "path": path[1:], "revision": "1.4.2@" + file.digest,
			"size": int64(len(file.data)), "url": a.server.URL + path,
		},
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "Succeeded", "message": "the artifact is stored",
			"lastTransitionTime": now, "observedGeneration": int64(1),
		}},
	}
}

// pack returns an artifact with the given files.
func pack(files map[string]string) (artifact, error) {
	var data bytes.Buffer
	compressed := gzip.NewWriter(&data)
	archive := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
			return artifact{}, err
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			return artifact{}, err
		}
	}
	if err := archive.Close(); err != nil {
		return artifact{}, err
	}
	if err := compressed.Close(); err != nil {
		return artifact{}, err
	}
	return artifact{data.Bytes(), fmt.Sprintf("sha256:%x", sha256.Sum256(data.Bytes()))}, nil
}
