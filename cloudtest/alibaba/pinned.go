package alibaba

import (
	"crypto/sha1" //nolint:gosec // RAM's fingerprints are SHA-1
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// errFingerprint: no certificate of the issuer's host has one of the provider's fingerprints.
var errFingerprint = errors.New("no certificate of the issuer's host has a fingerprint of the OIDC provider")

// pinned is a transport to hosts that have a certificate with one of the fingerprints. Source: RAM,
// "Manage an OIDC IdP: fingerprint".
type pinned struct {
	to           http.RoundTripper
	fingerprints []string // empty: RoundTrip checks no fingerprint
}

// RoundTrip returns [errFingerprint] if no certificate of the host has one of the fingerprints.
func (p *pinned) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := p.to.RoundTrip(r)
	if err != nil || len(p.fingerprints) == 0 {
		return res, err // unwrapped error, as callers of an http.RoundTripper expect
	}
	if res.TLS != nil && slices.ContainsFunc(res.TLS.VerifiedChains, p.known) {
		return res, nil
	}
	_ = res.Body.Close()
	return nil, errFingerprint
}

// known reports whether a certificate in the chain has one of the fingerprints.
func (p *pinned) known(chain []*x509.Certificate) bool {
	return slices.ContainsFunc(chain, func(c *x509.Certificate) bool {
		sum := sha1.Sum(c.Raw) //nolint:gosec // see the import
		return slices.ContainsFunc(p.fingerprints, func(f string) bool { return strings.EqualFold(f, hex.EncodeToString(sum[:])) })
	})
}
