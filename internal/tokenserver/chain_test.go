package tokenserver

import (
	"net/http"
	"strings"
	"testing"
	"time"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// hookedSigner calls a function before each signature.
type hookedSigner struct {
	stubSigner

	before func()
}

func (s *hookedSigner) JWT(identityv1.Algorithm, any, time.Time) (string, error) {
	s.before()
	return stubToken, nil
}

// newHookedRig is like newRig, with a signer that calls a function before it signs.
func newHookedRig(t *testing.T, before func()) *rig {
	t.Helper()
	return newRigWith(t, func(c *Config) { c.Signer = &hookedSigner{stubSigner: stubSigner{max: time.Hour}, before: before} }, banana())
}

const mintBody = `{"apiVersion":"token.lanyard.dev/v1alpha1","kind":"TokenRequest"}`

// TestChain checks the effects of those filters in handlerChain that no other test covers.
func TestChain(t *testing.T) {
	r := newRig(t, banana())
	got := r.minter(t).mint(t, `{"audience":"team-foo"}`)
	if warning := got.header.Get("Warning"); !strings.Contains(warning, "spec.audience") {
		t.Errorf("a field that nobody knows: %d with the warning %q", got.code, warning)
	}
	if control := got.header.Get("Cache-Control"); !strings.Contains(control, "no-cache") {
		t.Errorf("a token may be kept by proxies: Cache-Control is %q", control)
	}
	if got.header.Get("Audit-Id") == "" {
		t.Error("the answer does not name its audit event")
	}
	if got := r.call(t, r.proxies, frontName, http.Header{}).mint(t, `{}`); got.code != http.StatusUnauthorized || !strings.Contains(r.audit.String(), `"code":401`) {
		t.Errorf("a request that names no caller gets %d, and the audit log is:\n%s", got.code, r.audit)
	}
	if got := r.minter(t).do(t, http.MethodPost, tokenPath("banana")+"?timeout=soon", mintBody); got.code != http.StatusBadRequest {
		t.Errorf("a timeout that is no duration: %d", got.code)
	}
}

// TestSlowSigner sends a request with a timeout. The server answers when this timeout has passed,
// even if the signer takes longer.
func TestSlowSigner(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	r := newHookedRig(t, func() { <-release })
	if got := r.minter(t).do(t, http.MethodPost, tokenPath("banana")+"?timeout=100ms", mintBody); got.code != http.StatusGatewayTimeout {
		t.Errorf("a signer that takes too long: %d, %s", got.code, got.body)
	}
}
