package creds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// Credential is a short-lived credential of the CI job in which this program runs.
type Credential struct {
	// User is the user name that is sent with Secret to a server that takes only a user and a
	// password. User is not confidential.
	User string
	// Secret is a JWT, or a password at a cloud's registry. It is zero if the credential is a
	// certificate.
	Secret auth.Secret
	// Certificate is the chain of a client certificate, and Key is its private key, both in PEM.
	// Both are empty without a certificate.
	Certificate []byte
	Key         auth.Secret
	// ExpiresAt is when the credential ends, UTC.
	ExpiresAt time.Time

	claims *jwt.Claims // not verified; nil unless Secret is a JWT
}

// Receiver is who a credential is for.
type Receiver struct {
	// Audiences are the audiences of a token, unless --audiences names others.
	Audiences []string
	// Image is an image repository as host/path, or only a registry's host. It is required for
	// [AWS], [Azure] and [GCP], whose credentials are logins to a registry.
	Image string
}

// DefaultUser is the user name for a token, unless another user is configured. A registry that
// takes only a user and a password needs a name. Registries that find the user in the token ignore
// the name.
const DefaultUser = "token"

// Issue gets the credential that the flags select. It does not read the Docker configuration.
// Errors name the flag or the variable to correct, and quote nothing of a credential.
func (f *Flags) Issue(ctx context.Context, to Receiver) (Credential, error) {
	kind, known := f.kind()
	if !known || kind.issue == nil {
		return Credential{}, errNoCredential
	}
	if len(f.Audiences) > 0 {
		to.Audiences = f.Audiences
	}
	return kind.issue(f, ctx, to)
}

// IssueForRegistry works like [Flags.Issue], but refuses a credential that the registry could use
// elsewhere: a token for a cloud or for the cluster.
func (f *Flags) IssueForRegistry(ctx context.Context, to Receiver) (Credential, error) {
	if len(f.Audiences) > 0 {
		to.Audiences = f.Audiences
	}
	if err := spec.CheckAudiences("--"+flagAudiences, to.Audiences); err != nil {
		return Credential{}, err
	}
	credential, err := f.Issue(ctx, to)
	if err != nil {
		return Credential{}, err
	}
	if err := credential.checkForRegistry(); err != nil {
		return Credential{}, err
	}
	if f.Creds != ServiceAccountToken || f.SAToken != "" {
		return credential, nil
	}
	// Also ask the API server: it may accept audiences that checkForRegistry does not recognize.
	opens, err := f.cluster.Accepts(ctx, credential.Secret)
	if err == nil && opens {
		err = opensCluster(to.Audiences[0])
	}
	if err != nil {
		return Credential{}, err
	}
	return credential, nil
}

// checkForRegistry refuses a token that a registry could use elsewhere: at a cloud or a cluster.
func (c *Credential) checkForRegistry() error {
	if c.claims == nil {
		return nil
	}
	if len(c.claims.Audience) == 0 {
		return errors.New("the token names no audience, so a registry that gets it could use it anywhere; request one with an audience")
	}
	for _, audience := range c.claims.Audience {
		if isClusterAudience(audience, c.claims.Issuer) {
			return opensCluster(audience)
		}
	}
	return spec.CheckAudiences("aud of the token", c.claims.Audience)
}

// isClusterAudience reports whether a cluster probably accepts a token of this issuer with this
// audience. Without --api-audiences, an API server accepts its issuer as audience. Managed clusters
// have audiences of their own, such as hosts below azmk8s.io. Source: Kubernetes, "kube-apiserver",
// --api-audiences.
func isClusterAudience(audience, issuer string) bool {
	_, rest, found := strings.Cut(audience, "://")
	if !found {
		rest = audience
	}
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, ":")
	host = strings.ToLower(host)
	return strings.TrimSuffix(audience, "/") == strings.TrimSuffix(issuer, "/") ||
		host == "kubernetes.default.svc" || strings.HasPrefix(host, "kubernetes.default.svc.") || strings.HasSuffix(host, ".azmk8s.io")
}

func opensCluster(audience string) error {
	return fmt.Errorf("a token for audience %.80q opens a cluster, and a registry that gets the token could use it there; "+
		"request one for an audience of the registry's own, such as its host", audience)
}

// newJWT returns a token as a credential. It reads the token's claims without verifying them, which
// is up to the receiver. It refuses a token that has expired, or that never expires. The last
// argument describes the token in errors, such as "the token from GitHub".
func newJWT(token, from string) (Credential, error) {
	parsed, err := jwt.ParseSigned(token, algorithms())
	if err != nil {
		return Credential{}, fmt.Errorf("%s is not a signed JWT", from) // the parser's error may quote the token
	}
	claims := &jwt.Claims{}
	if parsed.UnsafeClaimsWithoutVerification(claims) != nil {
		return Credential{}, fmt.Errorf("%s is not a JWT with the claims of a token", from)
	}
	if claims.Expiry == nil {
		return Credential{}, fmt.Errorf("%s never expires: it is a stored secret; use a token that has an end", from)
	}
	ends := claims.Expiry.Time().UTC()
	if !time.Now().Before(ends) {
		return Credential{}, fmt.Errorf("%s expired at %s; get a new one", from, ends.Format(time.RFC3339))
	}
	return Credential{User: DefaultUser, Secret: auth.NewSecret(token), ExpiresAt: ends, claims: claims}, nil
}

// algorithms returns the signature algorithms that tokens may use. Source: RFC 7518 §3.1, RFC 8037
// §3.1.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}
