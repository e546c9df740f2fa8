package credstest

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// GitHub is the endpoint where jobs of GitHub Actions ask for their tokens. It is an http.Handler.
// Source: GitHub, "OpenID Connect reference".
type GitHub struct {
	// Issuer signs the tokens.
	Issuer *oidc.Issuer
	// RequestToken is the job's ACTIONS_ID_TOKEN_REQUEST_TOKEN.
	RequestToken string

	mu    sync.Mutex // guards the fields below
	fail  []int
	asked int
}

// GitHubPath is the path and the query of the job's ACTIONS_ID_TOKEN_REQUEST_URL.
const GitHubPath = "/run/1/idtoken/2/3?api-version=2.0"

// GitHubSubject is the subject of the tokens: that of a job on the branch main.
const GitHubSubject = "repo:tenant-a/app:ref:refs/heads/main"

// NewGitHub makes an endpoint whose tokens come from an issuer with the given URL.
func NewGitHub(tb testing.TB, issuer string) *GitHub {
	tb.Helper()
	signs, err := oidc.NewIssuer(issuer, oidc.ES256)
	must.Succeed(tb, err)
	return &GitHub{Issuer: signs, RequestToken: "request-token-of-the-job"}
}

// Fail makes the endpoint answer the next requests with these statuses, one each.
func (g *GitHub) Fail(statuses ...int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = statuses
}

// Asked returns the number of requests that the endpoint has got.
func (g *GitHub) Asked() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// ServeHTTP implements http.Handler.
func (g *GitHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.asked++
	status := http.StatusOK
	if len(g.fail) > 0 {
		status, g.fail = g.fail[0], g.fail[1:]
	}
	g.mu.Unlock()
	query := r.URL.Query()
	audience := query.Get("audience")
	if audience == "" {
		audience = "https://github.com/tenant-a"
	}
	switch {
	case status != http.StatusOK:
	case r.Header.Get("Authorization") != "Bearer "+g.RequestToken:
		status = http.StatusUnauthorized
	case r.Method != http.MethodGet || r.URL.Path != "/run/1/idtoken/2/3":
		status = http.StatusNotFound
	case query.Get("api-version") == "" || len(query["audience"]) > 1:
		status = http.StatusBadRequest
	}
	if status != http.StatusOK {
		// Echo the secret, as a careless server may do. The client must not repeat it in an error.
		http.Error(w, "refused: "+r.Header.Get("Authorization"), status)
		return
	}
	now := time.Now()
	token, err := g.Issuer.Mint(oidc.Claims{
		"sub": GitHubSubject, "aud": audience, "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
		"repository": "tenant-a/app", "ref": "refs/heads/main", "event_name": "push",
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]any{"count": len(token), "value": token}) // an error means that the client is gone
}
