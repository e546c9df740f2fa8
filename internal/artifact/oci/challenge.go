package oci

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of the remembered challenges.
const (
	// challengeLife is how long a registry's answer is remembered. An attacker on the network may
	// block the TLS of an insecure registry for a moment. Clients then use plain http until
	// challengeLife is over.
	challengeLife = 10 * time.Minute
	// maxChallenges bounds the number of remembered answers. Tenants choose registries. If a tenant
	// chooses too many, answers of other tenants' registries are dropped. Each dropped answer costs
	// one more request.
	maxChallenges = 1000
	// maxChallengeBytes bounds the WWW-Authenticate headers of one answer. Public registries send
	// 200 bytes.
	maxChallengeBytes = 4 << 10
)

// Challenges remembers the registries' answers to GET /v2/, which say how clients must
// authenticate. Clients without Challenges ask the registry at each [Connect]. Challenges is safe
// for concurrent use. The zero value is empty.
//
// An answer is used only by clients that reach the same host by the same route. The answer contains
// no credential. It does not decide where a request or a password may go: each request is checked.
// The registry is asked again after ten minutes. It is also asked again after an answer such as
// HTTP 401, because the remembered challenge may be wrong.
type Challenges struct {
	mu    sync.Mutex // never held during I/O
	known map[door]*challenge
}

// door is the key of a remembered answer. It has everything that may change the answer.
type door struct {
	route, host string
	insecure    bool
}

// challenge is a registry's answer to GET /v2/.
type challenge struct {
	scheme       string // scheme of the URL at which the registry answered
	status       int
	authenticate []string // the WWW-Authenticate headers
	until        time.Time
}

// get returns the remembered answer; nil if there is none.
func (c *Challenges) get(at door) *challenge {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known[at]; known.current() {
		return known
	}
	return nil
}

// put remembers the registry's answer to req, if the answer may be used again.
func (c *Challenges) put(at door, req *http.Request, resp *http.Response) {
	answer := &challenge{
		scheme: req.URL.Scheme, status: resp.StatusCode, authenticate: slices.Clone(resp.Header.Values("WWW-Authenticate")),
		until: time.Now().Add(challengeLife),
	}
	if c == nil || !answer.usable() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.known[at]; before.current() && before.scheme == "https" && answer.scheme == "http" {
		return // https and http may be tried concurrently: keep the answer that came over https
	}
	if c.known == nil {
		c.known = make(map[door]*challenge)
	}
	if len(c.known) >= maxChallenges {
		for other := range c.known {
			delete(c.known, other) // drop any entry: its registry is asked once more
			break
		}
	}
	c.known[at] = answer
}

// drop forgets a registry's answer.
func (c *Challenges) drop(at door) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, at)
}

// current reports whether the challenge exists and has not expired.
func (c *challenge) current() bool { return c != nil && time.Now().Before(c.until) }

// usable reports whether the answer may be remembered. Redirects and failures are not remembered.
// An answer without TLS is not remembered if it refers to a token server. An attacker on the
// network could refer to their own server, which would get passwords even after the attack.
func (c *challenge) usable() bool {
	bytes, tokenServer := 0, false
	for _, header := range c.authenticate {
		bytes += len(header)
		tokenServer = tokenServer || strings.Contains(strings.ToLower(header), "bearer")
	}
	return (c.status == http.StatusOK || c.status == http.StatusUnauthorized) && bytes <= maxChallengeBytes &&
		(c.scheme == "https" || !tokenServer)
}

// response returns the remembered answer as a response to req. The response's field Request has the
// scheme of the URL at which the registry answered. go-containerregistry reads the scheme from this
// field.
func (c *challenge) response(req *http.Request) *http.Response {
	answered := req.Clone(req.Context())
	answered.URL.Scheme = c.scheme
	return &http.Response{
		StatusCode: c.status, Header: http.Header{"Www-Authenticate": c.authenticate}, Body: http.NoBody, Request: answered,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}
