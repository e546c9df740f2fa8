package oci

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of what is remembered.
const (
	// challengeLife is how long a registry's answer is remembered. If somebody on the way hides the
	// TLS of an insecure registry for a moment, clients go without TLS for this long.
	challengeLife = 10 * time.Minute
	// maxChallenges bounds the registries. Tenants name them: a tenant that names too many costs
	// the others a request each.
	maxChallenges = 1000
	// maxChallengeBytes bounds the WWW-Authenticate headers of one answer. Those of public
	// registries have 200 bytes.
	maxChallengeBytes = 4 << 10
)

// Challenges remembers how registries want to be authenticated to: their answers to GET /v2/.
// Without it each [Connect] asks. It is safe for concurrent use; the zero value remembers nothing
// yet.
//
// An answer serves only clients that reach the same host by the same route. It holds no credential,
// and where a request or a password may go is judged each time. The registry is asked again after
// ten minutes, and after an answer such as HTTP 401, which may mean that the remembered challenge
// is wrong.
type Challenges struct {
	mu    sync.Mutex // never held during I/O
	known map[door]*challenge
}

// door is where a registry is asked: all that may change its answer.
type door struct {
	route, host string
	insecure    bool
}

// challenge is a registry's answer to GET /v2/.
type challenge struct {
	scheme       string // of the URL that was answered
	status       int
	authenticate []string // the WWW-Authenticate headers
	until        time.Time
}

// get returns nil where nothing is remembered.
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

// put remembers what the registry answered to req, if the answer may be used again.
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
		return // an insecure registry may be asked both ways at once
	}
	if c.known == nil {
		c.known = make(map[door]*challenge)
	}
	if len(c.known) >= maxChallenges {
		for other := range c.known {
			delete(c.known, other) // no matter which: its registry is asked once more
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

// current reports whether there is an answer that has not ended.
func (c *challenge) current() bool { return c != nil && time.Now().Before(c.until) }

// usable reports whether the answer may be remembered. Redirects and failures may not. Nor may a
// token server that was named without TLS: an attacker on the way could name their own, and would
// still get passwords later.
func (c *challenge) usable() bool {
	bytes, tokenServer := 0, false
	for _, header := range c.authenticate {
		bytes += len(header)
		tokenServer = tokenServer || strings.Contains(strings.ToLower(header), "bearer")
	}
	return (c.status == http.StatusOK || c.status == http.StatusUnauthorized) && bytes <= maxChallengeBytes &&
		(c.scheme == "https" || !tokenServer)
}

// response is the remembered answer to req. Its own request tells the library which scheme was
// answered.
func (c *challenge) response(req *http.Request) *http.Response {
	answered := req.Clone(req.Context())
	answered.URL.Scheme = c.scheme
	return &http.Response{
		StatusCode: c.status, Header: http.Header{"Www-Authenticate": c.authenticate}, Body: http.NoBody, Request: answered,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}
