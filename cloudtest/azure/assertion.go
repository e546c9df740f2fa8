package azure

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// maxAssertionLife is the longest life of an external token, from iat to exp. Source: AADSTS70023,
// whose text has "1.01:00:00": one day and one hour.
const maxAssertionLife = 25 * time.Hour

const checkCredential = "Check your federated identity credential Subject, Audience and Issuer against the presented assertion. " +
	"https://learn.microsoft.com/entra/workload-id/workload-identity-federation"

// judgeAssertion checks whether an external token lets its bearer act as the application. It checks
// in this order:
//   - the token's form and algorithm
//   - whether a federated credential of the application matches the token
//   - whether the token's life is short enough
//   - the issuer's keys and the token's signature
//   - whether the token is valid at the present time
func (c *Cloud) judgeAssertion(r *service.Request, raw string, app *application) *service.Refusal {
	if algorithm, ok := declaredAlgorithm(raw); ok && !strings.HasPrefix(algorithm, "RS") {
		return badRequest(5002738,
			"Invalid JWT token. '%s' is not a supported signature algorithm. Supported signing algorithms are: 'RS256, RS384, RS512'.",
			algorithm)
	}
	token, err := oidc.Read(raw)
	if err != nil {
		return malformedAssertion(err.Error())
	}
	r.Call.Issuer, r.Call.Subject, r.Call.Audience = token.Issuer, token.Subject, strings.Join(token.Audience, ",")
	if no := c.matchCredential(token, app); no != nil {
		return no
	}
	issued := token.IssuedAt
	if issued.IsZero() {
		issued = r.Now
	}
	if token.Expiry.Sub(issued) > maxAssertionLife {
		return badRequest(70023,
			"External OIDC Provider token must have a lifetime of less than or equal to 1.01:00:00. Token issued at %d. Token expires on %d.",
			issued.Unix(), token.Expiry.Unix())
	}
	if err := c.verifier.Verify(r.Context(), token, r.Now); err != nil {
		return assertionError(err, token, app, r.Now)
	}
	return nil
}

func malformedAssertion(reason string) *service.Refusal {
	return badRequest(50027, "JWT token is invalid or malformed.").Because(reason)
}

var algorithmPattern = regexp.MustCompile(`\A[A-Za-z0-9]{1,16}\z`)

// declaredAlgorithm reads the algorithm from a token's header, even if package oidc cannot read the
// token.
func declaredAlgorithm(raw string) (string, bool) {
	encoded, _, ok := strings.Cut(raw, ".")
	if !ok {
		return "", false
	}
	header, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", false
	}
	var fields struct {
		Algorithm string `json:"alg"`
	}
	if err := json.Unmarshal(header, &fields); err != nil {
		return "", false
	}
	return fields.Algorithm, algorithmPattern.MatchString(fields.Algorithm)
}

// matchCredential looks for a federated credential with exactly the token's issuer, audience and
// subject. It compares the issuers first, then the audiences, then the subjects. If no credential
// is left after a comparison, the error names the compared claim. Entra's error does the same.
func (c *Cloud) matchCredential(token oidc.Token, app *application) *service.Refusal {
	if len(token.Audience) != 1 {
		return malformedAssertion("a token for several audiences is for none")
	}
	if c.isOwnIssuer(token.Issuer) {
		return badClient(700222, "AAD-issued tokens may not be used for federated identity flows.")
	}
	if len(app.credentials) == 0 {
		return badClient(70025, "The client '%s' has no configured federated identity credentials.", app.clientID)
	}
	keep := func(from []FederatedCredential, value func(FederatedCredential) string, is string) []FederatedCredential {
		return slices.DeleteFunc(slices.Clone(from), func(f FederatedCredential) bool { return value(f) != is })
	}
	credentials := keep(app.credentials, func(f FederatedCredential) string { return f.Issuer }, token.Issuer)
	if len(credentials) == 0 {
		return badClient(700211, "No matching federated identity record found for presented assertion issuer '%s'. %s",
			printable(token.Issuer), checkCredential)
	}
	credentials = keep(credentials, func(f FederatedCredential) string { return f.Audience }, token.Audience[0])
	if len(credentials) == 0 {
		return badClient(700212, "No matching federated identity record found for presented assertion audience '%s'. %s",
			printable(token.Audience[0]), checkCredential)
	}
	if len(keep(credentials, func(f FederatedCredential) string { return f.Subject }, token.Subject)) > 0 {
		return nil
	}
	if slices.ContainsFunc(credentials, func(f FederatedCredential) bool { return strings.EqualFold(f.Subject, token.Subject) }) {
		return badClient(7002138, "No matching federated identity record found for presented assertion subject '%s'. "+
			"The subject matches with case-insensitive comparison, but not with case-sensitive comparison. %s",
			printable(token.Subject), checkCredential)
	}
	return badClient(700213, "No matching federated identity record found for presented assertion subject '%s'. %s",
		printable(token.Subject), checkCredential)
}

// isOwnIssuer reports whether an issuer is Entra ID itself. Entra ID's tokens are not accepted as
// external tokens. Source: Microsoft Learn, "Important considerations and restrictions for
// federated identity credentials".
func (c *Cloud) isOwnIssuer(issuer string) bool {
	u, err := url.Parse(issuer)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(c.environments, func(e *Environment) bool {
		return u.Host == e.IssuerHost || slices.Contains(e.AuthorityHosts, u.Host)
	})
}

// assertionError translates a verifier's error into a refusal of Entra ID.
func assertionError(err error, token oidc.Token, app *application, now time.Time) *service.Refusal {
	const precise = "2006-01-02T15:04:05.0000000Z"
	var no *service.Refusal
	switch {
	case errors.Is(err, oidc.ErrExpired), errors.Is(err, oidc.ErrNotYetValid):
		from := token.NotBefore
		if from.IsZero() {
			from = time.Unix(0, 0)
		}
		no = badClient(700024,
			"Client assertion is not within its valid time range. Current time: %s, assertion valid from %s, expiry time of assertion %s. "+
				"Review the documentation at https://learn.microsoft.com/entra/identity-platform/certificate-credentials .",
			now.UTC().Format(precise), from.UTC().Format(precise), token.Expiry.UTC().Format(precise))
	case errors.Is(err, oidc.ErrUnreachable):
		no = badRequest(50166, "Request to External OIDC endpoint failed.")
	case errors.Is(err, oidc.ErrIssuer):
		no = badRequest(501661, "Request to External OIDC endpoint failed.")
	case errors.Is(err, oidc.ErrKey):
		no = badSignature(app, "The key was not found.")
	case errors.Is(err, oidc.ErrSignature):
		no = badSignature(app, "Key was found, but use of the key to verify the signature failed.")
	default:
		return malformedAssertion(err.Error())
	}
	return no.Because(err.Error())
}

func badSignature(app *application, reason string) *service.Refusal {
	return badClient(700027, "Client assertion contains an invalid signature. [Reason - %s, "+
		"Please visit the Azure Portal, Graph Explorer or directly use MS Graph to see configured keys for app Id '%s'].",
		reason, app.clientID)
}
