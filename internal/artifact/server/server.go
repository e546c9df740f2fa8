// Package server serves the artifacts of a store over HTTP to clients that know their URLs.
//
// A URL is a capability (see package store), so the server does not check who sends a request. GET
// and HEAD of an exact URL answer with the artifact; every other request gets the same 404. The
// server lists nothing. It logs no request, because whoever reads a logged URL could get the
// artifact.
package server

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/port"
)

// Source opens artifacts by the path of their URL. *store.Store implements it.
type Source interface {
	// ByURLPath returns the artifact and its digest, sha256:<hex>, or store.ErrNotFound.
	ByURLPath(path string) (f *os.File, digest string, err error)
}

// New returns the handler for the artifacts of a source. Answers have the digest as ETag, and
// ranges are supported. If the source fails, the answer is 503, and the client should try again.
func New(source Source) http.Handler {
	return handler{source}
}

type handler struct{ source Source }

// ServeHTTP implements http.Handler.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	// Each artifact has exactly one URL, so escapes and queries are not accepted.
	if !read || r.URL.RawPath != "" || r.URL.RawQuery != "" || r.URL.ForceQuery {
		refuse(w, http.StatusNotFound)
		return
	}
	f, digest, err := h.source.ByURLPath(r.URL.Path)
	if errors.Is(err, store.ErrNotFound) {
		refuse(w, http.StatusNotFound)
		return
	}
	if err != nil {
		refuse(w, http.StatusServiceUnavailable)
		return
	}
	defer f.Close() //nolint:errcheck // opened for reading
	info, err := f.Stat()
	if err != nil {
		refuse(w, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("ETag", strconv.Quote(strings.TrimPrefix(digest, "sha256:")))
	w.Header().Set("Cache-Control", "private, no-transform")
	http.ServeContent(w, r, "", info.ModTime(), f)
}

// refuse answers with a status, but without a reason.
func refuse(w http.ResponseWriter, status int) {
	body := http.StatusText(status) + "\n"
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // net/http omits the body for HEAD
}

// Port returns the configuration of the port that serves artifacts. The server takes at
// most 5 minutes to send an answer.
func Port(address string, h http.Handler, log *slog.Logger) port.Config {
	return port.Config{
		Name: "artifacts", Flag: "--artifact-listen-address", Address: address, Handler: h, Log: log, WriteTimeout: 5 * time.Minute,
	}
}
