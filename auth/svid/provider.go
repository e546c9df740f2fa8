package svid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
)

// Name is the provider's name in an [auth.Key] and in metrics.
const Name = "svid"

// Type is the type of an SVID. An object names the type by the same value in spec.credential.type.
type Type string

// The types of SVIDs.
const (
	// JWT is a JWT-SVID.
	JWT Type = "SpiffeJWT"
	// X509 is an X.509-SVID.
	X509 Type = "SpiffeCertificate"
)

// Kinds returns the kinds of toolkit.lanyard.dev whose objects can have SVIDs.
func Kinds() []auth.Kind { return []auth.Kind{auth.KindOCIRepository, auth.KindImageRepository} }

// Resource returns the plural name of a kind whose objects can have SVIDs. SPIFFE IDs and paths of
// the API server contain this name. It returns false for any other kind.
func Resource(kind auth.Kind) (string, bool) {
	if !slices.Contains(Kinds(), kind) {
		return "", false
	}
	return strings.TrimSuffix(strings.ToLower(string(kind)), "y") + "ies", true
}

// Ring returns the current signers of SVIDs. Implementations are safe for concurrent use.
type Ring interface {
	// Signers returns the current signers, from memory. Without signers, the error is an
	// [*auth.Error].
	Signers() (Signers, error)
}

// Signers describes the keys that sign the SVIDs of a trust domain.
type Signers struct {
	// TrustDomain is the trust domain. Required.
	TrustDomain spiffeid.TrustDomain
	// Issuer is the claim iss of JWT-SVIDs; empty if the trust domain has no JWT-SVIDs.
	Issuer string
	// Key identifies the key that signs JWT-SVIDs; empty if no key signs yet.
	Key string
	// Authority is the [AuthorityID] of the authority of X.509-SVIDs; empty if no authority signs
	// yet.
	Authority string
	// Broker is the address of the SPIFFE broker that issues the SVIDs; empty for Lanyard's token
	// server. With a broker, only Broker and TrustDomain are set: the broker's signers are unknown.
	Broker string
}

// Provider is a provider whose token is the SVID of an object: an [auth.JWT] or an
// [auth.Certificate]. There is no exchange. A Provider implements [auth.Provider], and is safe for
// concurrent use.
type Provider struct {
	form Type
	ring Ring
}

var _ auth.Provider = (*Provider)(nil)

// NewProvider makes a Provider for SVIDs of one type.
func NewProvider(form Type, ring Ring) (*Provider, error) {
	if form != JWT && form != X509 || ring == nil {
		return nil, fmt.Errorf("svid: a provider needs a type, %s or %s, and a ring", JWT, X509)
	}
	return &Provider{form, ring}, nil
}

// GetName implements [auth.Provider].
func (*Provider) GetName() string { return Name }

// GetTarget implements [auth.Provider]. The target includes the SVID's trust domain and signer, and
// the audiences of a JWT-SVID.
func (p *Provider) GetTarget(options *auth.Options) (auth.Target, error) {
	if options.STSEndpoint != "" || options.STSRegion != "" || options.ProxyURL != nil {
		return auth.Target{}, refusal.Unsupported(Name, "a token service or a proxy",
			"leave out token service and proxy: nothing is exchanged")
	}
	signers, err := p.ring.Signers()
	if err != nil {
		return auth.Target{}, err
	}
	terms := auth.IssuanceTerms{CredentialType: string(p.form), TrustDomain: signers.TrustDomain.Name(), Signer: signers.Broker}
	if p.form == X509 {
		terms.CADigest = signers.Authority
		return auth.Target{Issuance: auth.NewIssuance(terms)}, signers.unready(signers.Authority, "authority")
	}
	switch {
	case options.Audiences.IsZero():
		return auth.Target{}, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeAudienceRefused,
			Fix: "name the receivers of the token",
			Err: errors.New("a JWT-SVID needs an audience"),
		}
	case signers.Broker != "":
		return auth.Target{Audiences: options.Audiences, Issuance: auth.NewIssuance(terms)}, nil
	case signers.Issuer == "":
		return auth.Target{}, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeNotGranted,
			Fix: "have the administrator set spiffe.issuer of the Helm chart (--spiffe-issuer of lanyard-token-server), or use " +
				"credential.type SpiffeCertificate",
			Err: fmt.Errorf("trust domain %s has no issuer of JWT-SVIDs", signers.TrustDomain),
		}
	}
	terms.Issuer, terms.Signer = signers.Issuer, signers.Key
	return auth.Target{Audiences: options.Audiences, Issuance: auth.NewIssuance(terms)}, signers.unready(signers.Key, "key")
}

// unready returns an error if signer is empty, unless a broker issues the SVIDs. In a new trust
// domain, signer is empty until the first key or authority has been published. The argument what,
// "key" or "authority", names the missing signer in the error.
func (s Signers) unready(signer, what string) error {
	if signer != "" || s.Broker != "" {
		return nil
	}
	return &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeUnavailable,
		Fix: "wait until it is published, or let the administrator see: lanyard keys list --ring=spiffe",
		Err: fmt.Errorf("the SPIFFE ring has no active %s yet", what),
	}
}

// GetIdentity implements [auth.Provider]. It returns the SPIFFE ID of the object.
func (p *Provider) GetIdentity(account auth.Account) (string, error) {
	signers, err := p.ring.Signers()
	if err != nil {
		return "", err
	}
	id, err := IDOf(signers.TrustDomain, account.Subject)
	return id.String(), err
}

// IDOf returns the SPIFFE ID of a subject. The error is an [*auth.Error] if subjects of its kind
// have no SPIFFE ID, or if its names are too long.
func IDOf(domain spiffeid.TrustDomain, subject auth.Subject) (spiffeid.ID, error) {
	resource, ok := Resource(subject.Kind())
	if !ok || subject.Lent() {
		return spiffeid.ID{}, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectInvalid,
			Fix: "use an object that can have SVIDs, such as an OCIRepository",
			Err: fmt.Errorf("%s cannot have an SVID", subject),
		}
	}
	id, err := ID(domain, resource, subject.Namespace(), subject.Name())
	if err != nil {
		return spiffeid.ID{}, &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid, Fix: "give the object a shorter name", Err: err,
		}
	}
	return id, nil
}

// GetProofRequest implements [auth.Provider].
func (p *Provider) GetProofRequest(_ context.Context, request *auth.Request) (auth.ProofRequest, error) {
	if p.form == X509 {
		return auth.ProofRequest{Form: auth.FormCertificate, Lifetime: auth.CredentialLifetime}, nil
	}
	return auth.ProofRequest{Form: auth.FormJWT, Audiences: request.Key.Audiences.Values(), Lifetime: auth.CredentialLifetime}, nil
}

// NewToken implements [auth.Provider]. The token is the proof itself: an [*auth.JWT] or an
// [*auth.Certificate].
func (p *Provider) NewToken(_ context.Context, proof auth.Proof, _ *auth.Request) (auth.Token, error) {
	_, err := auth.JWTOf(proof)
	if p.form == X509 {
		_, err = auth.CertificateOf(proof)
	}
	if err != nil {
		return nil, err
	}
	return proof, nil
}
