package kube

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/svid"
)

// SPIFFERing keeps the KeyRing of a SPIFFE trust domain in memory. The KeyRing says who signs
// SVIDs, and whose signatures are valid. SPIFFERing implements [svid.Ring], and is safe for
// concurrent use.
type SPIFFERing struct {
	ring    ring
	synced  func() bool
	signers atomic.Pointer[svid.Signers] // nil if there is no trust domain
	// The field lost holds the functions to call in two cases:
	//   - issued SVIDs must no longer be used (see ringState.lost)
	//   - the ring can sign other SVIDs than before (see ability)
	lost subscribers[*svid.Signers]
}

var _ svid.Ring = (*SPIFFERing)(nil)

// NewSPIFFERing watches the KeyRing with this namespace and name. The cluster must have the CRD.
func NewSPIFFERing(ctx context.Context, informers Informers, name types.NamespacedName) (*SPIFFERing, error) {
	r := &SPIFFERing{ring: ring{name: name}}
	r.ring.changed = r.change
	registration, err := watch(ctx, informers, "KeyRings", ringObject(), &r.ring)
	if err != nil {
		return nil, err
	}
	r.synced = registration.HasSynced
	return r, nil
}

// Signers implements [svid.Ring].
func (r *SPIFFERing) Signers() (svid.Signers, error) {
	if signers := r.signers.Load(); signers != nil {
		return *signers, nil
	}
	failed := &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeUnavailable,
		Fix: "wait until the token server has set it up",
		Err: fmt.Errorf("the KeyRing %s is not known yet, or has no trust domain yet", r.ring.name),
	}
	state := r.ring.load()
	switch {
	case !r.synced() || state.known && !state.kept:
		return svid.Signers{}, failed
	case !state.known:
		failed.Err = fmt.Errorf("the cluster has no SPIFFE trust domain: there is no KeyRing %s", r.ring.name)
	default: // the trust domain was switched off
		failed.Err = fmt.Errorf("the cluster has no SPIFFE trust domain: the KeyRing %s has none", r.ring.name)
	}
	failed.Code = auth.CodeNotGranted
	failed.Fix = "have the administrator set spiffe.trustDomain of the Helm chart (--spiffe-trust-domain of lanyard-token-server)"
	return svid.Signers{}, failed
}

// change updates the signers after each change of the ring. It notifies subscribers only in the two
// cases that the field lost lists. A rotation, which replaces the signer, is not among them:
// signatures of the former signer stay valid. The [auth.Key] of an SVID names the signer. So after
// a rotation, the next request has another Key and gets a new SVID.
func (r *SPIFFERing) change(last, next ringState) {
	before, now := signersOf(last), signersOf(next)
	r.signers.Store(now)
	if last.lost(next) || able(before) != able(now) {
		r.lost.notify(now)
	}
}

// ability describes which SVIDs a ring can sign, and for which trust domain and issuer.
type ability struct {
	trustDomain, issuer string
	jwt, x509           bool
}

func able(s *svid.Signers) ability {
	if s == nil {
		return ability{}
	}
	return ability{s.TrustDomain.Name(), s.Issuer, s.Key != "", s.Authority != ""}
}

// signersOf returns the signers in a ring's state, or nil without a valid trust domain. The ring
// may have an active key for each signature algorithm, and only the token server knows which one
// signs. So the field Key of the result joins the IDs of all active keys.
func signersOf(state ringState) *svid.Signers {
	domain, err := svid.ParseTrustDomain(state.trustDomain)
	if err != nil {
		return nil
	}
	signers := &svid.Signers{TrustDomain: domain, Issuer: state.issuer}
	var active []string
	for _, kid := range slices.Sorted(maps.Keys(state.keys)) {
		if state.keys[kid] == keyActive {
			active = append(active, kid)
		}
	}
	signers.Key = strings.Join(active, " ")
	for id, authority := range state.authorities {
		if authority.state == keyActive {
			signers.Authority = id
		}
	}
	return signers
}

// verify refuses a chain that does not lead to a valid authority. The leaf comes first.
func (r *SPIFFERing) verify(chain []*x509.Certificate, now time.Time) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for id, authority := range r.ring.load().authorities {
		certificates, err := svid.ParseChain(authority.certificate)
		if err == nil && authority.state.accepted() && svid.AuthorityID(certificates[0]) == id {
			roots.AddCert(certificates[0])
		}
	}
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return errors.New("it leads to no authority of the KeyRing " + r.ring.name.String() + ", or to one that is revoked")
	}
	return nil
}
