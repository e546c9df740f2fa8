package auth

import (
	"context"
	"crypto"
	"crypto/tls"
	"fmt"
	"time"
)

// AccountReader reads subjects from memory. Implementations are safe for concurrent use.
type AccountReader interface {
	// Lookup returns the subject's account from memory. It does no I/O. Its error is an [*Error]
	// with [CodeSubjectNotFound] if the subject is not in memory, for example because it is too
	// new.
	Lookup(ctx context.Context, subject Subject) (Account, error)
	// Subscribe registers a function, which is called for each subject that is deleted or whose UID
	// or attributes change. The calls are prompt, and in the order of the changes.
	Subscribe(changed func(Subject))
}

// Prover makes proofs of subjects. Implementations are safe for concurrent use.
type Prover interface {
	// Read gets the account from its source of truth. It fails with [CodeSubjectNotFound] if the
	// subject does not exist.
	Read(ctx context.Context, subject Subject) (Account, error)
	// Prove makes a proof of exactly this account, in the form and for the audiences of the
	// request. It fails with [CodeSubjectReplaced] if the subject no longer has account.UID. It
	// fails with [CodeOptionUnsupported] if the Prover cannot make a proof of that form.
	Prove(ctx context.Context, account Account, request ProofRequest) (Proof, error)
}

// Accounts reads subjects and makes proofs of them.
type Accounts interface {
	AccountReader
	Prover
}

// AccountsByKind has one Accounts for each kind of subject. The map must not change after the first
// call of one of its methods.
type AccountsByKind map[Kind]Accounts

// Lookup implements [AccountReader].
func (a AccountsByKind) Lookup(ctx context.Context, subject Subject) (Account, error) {
	accounts, err := a.of(subject)
	if err != nil {
		return Account{}, err
	}
	return accounts.Lookup(ctx, subject)
}

// Subscribe implements [AccountReader]. The given function is called for subjects of all kinds,
// possibly for two kinds at the same time.
func (a AccountsByKind) Subscribe(changed func(Subject)) {
	for _, accounts := range a {
		accounts.Subscribe(changed)
	}
}

// Read implements [Prover].
func (a AccountsByKind) Read(ctx context.Context, subject Subject) (Account, error) {
	accounts, err := a.of(subject)
	if err != nil {
		return Account{}, err
	}
	return accounts.Read(ctx, subject)
}

// Prove implements [Prover].
func (a AccountsByKind) Prove(ctx context.Context, account Account, request ProofRequest) (Proof, error) {
	accounts, err := a.of(account.Subject)
	if err != nil {
		return nil, err
	}
	return accounts.Prove(ctx, account, request)
}

func (a AccountsByKind) of(subject Subject) (Accounts, error) {
	if accounts := a[subject.kind]; accounts != nil {
		return accounts, nil
	}
	return nil, &Error{
		Stage: StageSubject, Code: CodeSubjectInvalid,
		Fix: "use a subject of a kind that this program is set up for",
		Err: fmt.Errorf("nobody can prove %s: this program reads no subjects of kind %q", subject, subject.kind),
	}
}

// Form says what a [Proof] is: a JWT, a certificate or another credential.
type Form string

const (
	// FormJWT asks for a [*JWT].
	FormJWT Form = "JWT"
	// FormCertificate asks for a [*Certificate].
	FormCertificate Form = "certificate"
	// FormToken asks for a credential that is neither a JWT nor a certificate. Examples are the
	// static keys of the subject and, in a chain of identities, the [Token] of the previous
	// identity.
	FormToken Form = "token"
)

// ProofRequest says what a proof must contain. A provider requests as little as possible.
type ProofRequest struct {
	// Form is the form of the proof. Required.
	Form Form
	// Audiences are the audiences of a JWT, at least one. Empty for other forms.
	Audiences []string
	// Lifetime is how long the proof is valid. Default: [ProofLifetime].
	Lifetime time.Duration
	// ContextObject is the object that the proof is used for; zero if the proof names no object.
	ContextObject ObjectReference
	// STSRegion is the region in which the provider will exchange a proof of the form [FormToken].
	// If the proof is a token that the Prover gets by an exchange of its own, that exchange must be
	// in the same region. Empty for providers without regions.
	STSRegion string
}

// check refuses an unknown form, a JWT without audiences, and other forms with audiences.
func (r ProofRequest) check(provider string) error {
	refused := &Error{Stage: StageTokenRequest, Code: CodeAudienceRefused, Fix: "have the provider name the receivers of the proof"}
	switch r.Form {
	case FormJWT:
		if len(r.Audiences) > 0 {
			return nil
		}
		refused.Err = fmt.Errorf("provider %s asks for a JWT without an audience", provider)
	case FormCertificate, FormToken:
		if len(r.Audiences) == 0 {
			return nil
		}
		refused.Err = fmt.Errorf("provider %s names audiences for a proof of form %s, which holds none", provider, r.Form)
	default:
		refused.Code, refused.Fix = CodeOptionInvalid, "have the provider name the form of the proof"
		refused.Err = fmt.Errorf("provider %s asks for a proof of unknown form %q", provider, r.Form)
	}
	return refused
}

// ProofLifetime is the default lifetime of a proof. It is short, because a proof is exchanged at
// once. Kubernetes issues no token with a shorter life (TokenRequestSpec.expirationSeconds).
const ProofLifetime = 600 * time.Second

// CredentialLifetime is the lifetime of a proof that is itself the credential. No provider
// exchanges such a proof, for example an SVID, for another token.
const CredentialLifetime = time.Hour

// Proof is evidence of a subject: a [*JWT], a [*Certificate] or another credential. A Proof is a
// [Token] for two reasons. Some proofs are themselves the credential, and in a chain of identities
// the token of one identity is the proof of the next.
type Proof interface {
	Token
}

// JWT is a signed token (RFC 7519). A provider exchanges the JWT, or returns it as the credential.
type JWT struct {
	// Token is the JWT in compact form.
	Token Secret
	// ExpiresAt is the exp claim, UTC.
	ExpiresAt time.Time
}

// GetDuration implements [Token].
func (j *JWT) GetDuration() time.Duration { return time.Until(j.ExpiresAt) }

// Bearer implements [BearerToken].
func (j *JWT) Bearer() Secret { return j.Token }

// JWTOf returns the proof as a JWT. Its error is an [*Error] with [CodeProofInvalid] if the proof
// is nil or has another form.
func JWTOf(proof Proof) (*JWT, error) {
	if jwt, ok := proof.(*JWT); ok && jwt != nil {
		return jwt, nil
	}
	return nil, wrongForm(FormJWT, proof)
}

// Certificate is an X.509 certificate with its private key, such as an X.509-SVID. Printing it does
// not show the key.
type Certificate struct {
	// ExpiresAt is the leaf's notAfter, UTC.
	ExpiresAt time.Time

	chain [][]byte
	// A closure hides the key even where fmt reaches unexported fields by reflection.
	key func() crypto.Signer
}

// NewCertificate makes a Certificate from a chain in DER, the leaf first, and from the leaf's
// private key.
func NewCertificate(chain [][]byte, key crypto.Signer, expiresAt time.Time) *Certificate {
	return &Certificate{ExpiresAt: expiresAt, chain: chain, key: func() crypto.Signer { return key }}
}

// GetDuration implements [Token].
func (c *Certificate) GetDuration() time.Duration { return time.Until(c.ExpiresAt) }

// TLS returns the certificate for a tls.Config. Printing the result shows the private key.
func (c *Certificate) TLS() tls.Certificate {
	return tls.Certificate{Certificate: c.chain, PrivateKey: c.key()}
}

// CertificateOf returns the proof as a certificate. Its error is an [*Error] with
// [CodeProofInvalid] if the proof is nil or has another form.
func CertificateOf(proof Proof) (*Certificate, error) {
	if certificate, ok := proof.(*Certificate); ok && certificate != nil {
		return certificate, nil
	}
	return nil, wrongForm(FormCertificate, proof)
}

func wrongForm(want Form, got Proof) error {
	return &Error{
		Stage: StageTokenRequest, Code: CodeProofInvalid,
		Fix: "have the Prover make a proof of the form that it is asked for",
		Err: fmt.Errorf("the proof is a %T, not of form %s", got, want),
	}
}
