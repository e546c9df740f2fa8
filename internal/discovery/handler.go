package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lanyard-dev/lanyard/internal/discovery/document"
	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// Issuer is an issuer whose documents a [Handler] serves. The documents may change while the
// Handler serves them.
type Issuer struct {
	url       *url.URL
	documents atomic.Pointer[document.Set] // nil until there are keys
}

// NewIssuer returns an issuer without documents. The URL must be one that internal/issuer.CheckURL
// accepts.
func NewIssuer(issuer string) (*Issuer, error) {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	return &Issuer{url: u}, nil
}

// Publish replaces the documents; nil withdraws them.
func (i *Issuer) Publish(d *document.Set) { i.documents.Store(d) }

// Documents returns the documents that are served; nil if there are no documents.
func (i *Issuer) Documents() *document.Set { return i.documents.Load() }

// Handler serves the documents of issuers. It answers GET and HEAD and nothing else.
type Handler struct {
	mux     *http.ServeMux
	fetches *prometheus.CounterVec
}

var (
	_ http.Handler         = (*Handler)(nil)
	_ prometheus.Collector = (*Handler)(nil)
)

// NewHandler makes a handler. The handler selects the issuer by the path of a request. It ignores
// the request's host, because proxies in front may change the host. But if two issuers have the
// same path, the host selects the issuer.
func NewHandler(issuers ...*Issuer) (*Handler, error) {
	h := &Handler{
		mux: http.NewServeMux(),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_discovery_key_fetches_total",
			Help: "Answers with a key set that had the key. A key that nobody fetched is not known to any service.",
		}, []string{"kid"}),
	}
	shared := map[string]int{}
	for _, i := range issuers {
		shared[i.url.Path]++
	}
	seen := map[string]bool{}
	for _, i := range issuers {
		host := ""
		if shared[i.url.Path] > 1 {
			host = i.url.Hostname()
		}
		if seen[host+i.url.Path] {
			return nil, fmt.Errorf("two issuers have the URL %s", i.url)
		}
		seen[host+i.url.Path] = true
		h.mux.HandleFunc(host+i.url.Path+document.ConfigurationPath, func(w http.ResponseWriter, r *http.Request) {
			h.serve(w, r, i, "application/json", func(d *document.Set) ([]byte, []string) { return d.Configuration, nil })
		})
		h.mux.HandleFunc(host+i.url.Path+document.KeySetPath, func(w http.ResponseWriter, r *http.Request) {
			h.serve(w, r, i, "application/jwk-set+json", func(d *document.Set) ([]byte, []string) { return d.KeySet, d.KIDs })
		})
		h.mux.HandleFunc(host+i.url.Path+keyring.BundlePath, func(w http.ResponseWriter, r *http.Request) {
			h.serve(w, r, i, "application/json", func(d *document.Set) ([]byte, []string) { return d.Bundle, d.BundleIDs })
		})
	}
	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Strict-Transport-Security", "max-age=31536000")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	h.mux.ServeHTTP(w, r)
}

// serve answers with one of the issuer's documents. The function choose returns this document and
// the IDs of its keys.
func (h *Handler) serve(
	w http.ResponseWriter, r *http.Request, i *Issuer, contentType string, choose func(*document.Set) (content []byte, kids []string),
) {
	header := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
		return
	}
	d := i.Documents()
	if d == nil {
		header.Set("Cache-Control", "no-store")
		header.Set("Retry-After", "15")
		http.Error(w, "the issuer has no keys yet", http.StatusServiceUnavailable)
		return
	}
	content, kids := choose(d)
	if content == nil { // only a trust domain has a bundle
		http.NotFound(w, r)
		return
	}
	tag := etag(content)
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(d.MaxAge/time.Second)))
	header.Set("Access-Control-Allow-Origin", "*") // the documents are public, and programs in browsers check tokens too
	header.Set("ETag", tag)
	if r.Method == http.MethodGet {
		for _, kid := range kids {
			h.fetches.WithLabelValues(kid).Inc()
		}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// Describe implements [prometheus.Collector].
func (h *Handler) Describe(into chan<- *prometheus.Desc) { h.fetches.Describe(into) }

// Collect implements [prometheus.Collector].
func (h *Handler) Collect(into chan<- prometheus.Metric) { h.fetches.Collect(into) }

// etag returns the strong entity tag of a document. Source: RFC 9110, section 8.8.3.
func etag(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:]) + `"`
}
