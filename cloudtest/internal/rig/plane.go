package rig

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// Plane is a registry in memory. It stores blobs and manifests by path, takes each upload in one
// piece, and lists tags. Tests use it as a data plane, which must not get credentials. So it
// refuses a request with an Authorization header.
type Plane struct {
	mu      sync.Mutex
	content map[string][]byte
}

// NewPlane returns an empty Plane.
func NewPlane() *Plane { return &Plane{content: map[string][]byte{}} }

// Put stores content under a path.
func (p *Plane) Put(path, content string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.content[path] = []byte(content)
}

// ServeHTTP stores and serves content.
func (p *Plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		http.Error(w, "a data plane got credentials", http.StatusTeapot)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	repository, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/blobs/")
	switch {
	case r.Method == http.MethodPost:
		if r.URL.Query().Has("mount") {
			http.Error(w, "a data plane was asked to mount", http.StatusTeapot)
			return
		}
		w.Header().Set("Location", r.Header.Get("X-Forwarded-Proto")+"://"+r.Host+r.URL.Path+"upload-1")
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/uploads/"):
		sum := sha256.Sum256(body)
		p.content["/v2/"+repository+"/blobs/sha256:"+hex.EncodeToString(sum[:])] = body
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPut:
		sum := sha256.Sum256(body)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		p.content[r.URL.Path] = body
		p.content[path.Dir(r.URL.Path)+"/"+digest] = body
		w.Header().Set("Docker-Content-Digest", digest)
		w.WriteHeader(http.StatusCreated)
	case strings.HasSuffix(r.URL.Path, "/tags/list"):
		p.listTags(w, strings.TrimSuffix(r.URL.Path, "tags/list")+"manifests/")
	default:
		content, ok := p.content[r.URL.Path]
		if !ok {
			http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"unknown"}]}`, http.StatusNotFound)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

// listTags answers with the tags of the manifests under a path.
func (p *Plane) listTags(w http.ResponseWriter, manifests string) {
	tags := []string{}
	for at := range p.content {
		if tag, ok := strings.CutPrefix(at, manifests); ok && !strings.Contains(tag, ":") {
			tags = append(tags, tag)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string][]string{"tags": tags})
}
