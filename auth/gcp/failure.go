package gcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// problem is a service's description of a refusal. Error texts show the problem's code and reason,
// if these have the form of a code. They never show the problem's text.
type problem struct {
	// code is an OAuth error code (RFC 6749 §5.2), or the name of a google.rpc.Code.
	code string
	// reason is the reason of a google.rpc.ErrorInfo; empty if there is none.
	reason string
	text   string
}

func parseProblem(body []byte) problem {
	var answer struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"error_description"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return problem{}
	}
	var code string
	if json.Unmarshal(answer.Error, &code) == nil {
		return problem{code: codeOf(code), text: answer.Description}
	}
	var status struct {
		Message string `json:"message"`
		Status  string `json:"status"`
		Details []struct {
			Reason string `json:"reason"`
		} `json:"details"`
	}
	if json.Unmarshal(answer.Error, &status) != nil {
		return problem{}
	}
	p := problem{code: codeOf(status.Status), text: status.Message}
	for _, detail := range status.Details {
		if p.reason == "" {
			p.reason = codeOf(detail.Reason)
		}
	}
	return p
}

// codeOf returns s if it has the form of a code: at most 64 letters and underscores. Otherwise it
// returns an empty string.
func codeOf(s string) string {
	if len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' }) {
		return ""
	}
	return s
}

// what formats the problem for error texts: its code and, in parentheses, its reason, if any.
func (p problem) what() string {
	if p.reason != "" {
		return p.code + " (" + p.reason + ")"
	}
	return p.code
}

// hasReason reports whether the answer is a refusal (4xx, but not 429) with a code of the service.
func hasReason(answer remote.Answer, p problem) bool {
	return p.code != "" && answer.Status >= http.StatusBadRequest && answer.Status < http.StatusInternalServerError &&
		answer.Status != http.StatusTooManyRequests
}

// exchangeFailure describes a failed token exchange. If the answer shows the cause, the fix says
// what to correct.
func (p *Provider) exchangeFailure(answer remote.Answer, where string, x plan, proof *auth.JWT, request *auth.Request) remote.Failure {
	f := answer.Refusal(where, health)
	said := parseProblem(answer.Body)
	if !hasReason(answer, said) {
		return f
	}
	trust := p.trustOf(x)
	claims := remote.ClaimsOf(proof).Shown(request.Key.Subject)
	f.Code, f.What = auth.CodeRefused, said.what()
	switch said.code {
	case "invalid_grant":
		f.Code = auth.CodeTrustRefused
		switch {
		case strings.Contains(said.text, "issuer in ID Token"):
			f.What += ": the proof has another issuer"
			f.Fix = fmt.Sprintf("let %s trust issuer %s", trust, claims.Issuer)
		case strings.Contains(said.text, "audience in ID Token"):
			f.What += ": the proof has another audience"
			f.Fix = fmt.Sprintf("add audience %s to the allowed audiences of %s, or remove all of them", x.proofAudience, trust)
		case strings.Contains(said.text, "ID Token issued at"):
			// for example "ID Token issued at … is stale to sign-in"
			f.Code = auth.CodeProofInvalid
			f.What += ": the proof is not valid at this time"
			f.Fix = "compare the clock of the API server with Google's"
		case strings.Contains(said.text, "signature"):
			f.What += ": no key of the issuer made the signature"
			f.Fix = fmt.Sprintf("upload the current keys of issuer %s to %s, if keys were uploaded; otherwise check which server answers at "+
				"the issuer's URL", claims.Issuer, trust)
		case strings.Contains(said.text, "connecting to the given credential's issuer"):
			// Google gives this answer in two cases: it cannot reach the issuer now, or the
			// uploaded keys are not the issuer's. The first case can end by itself, so the error
			// counts as temporary.
			f.Code = auth.CodeUnavailable
			f.What += ": the issuer's keys cannot be found"
			f.Fix = fmt.Sprintf("check that Google can fetch the keys of issuer %s from the internet, or upload the current keys to %s",
				claims.Issuer, trust)
		case strings.Contains(said.text, "mapped attribute"), strings.Contains(said.text, "attribute mapping"):
			f.What += ": the attribute mapping fails"
			f.Fix = mendMapping(trust, claims)
		default:
			f.Fix = fmt.Sprintf("check the claims iss = %s, sub = %s and aud = %s against %s", claims.Issuer, claims.Subject, x.proofAudience, trust)
		}
	case "unauthorized_client", "access_denied":
		f.Code = auth.CodeTrustRefused
		f.Fix = fmt.Sprintf("let the attribute condition of %s admit sub = %s", trust, claims.Subject)
	case "invalid_target":
		f.Code = auth.CodeTrustRefused
		f.Fix = fmt.Sprintf("check that %s exists and is enabled", trust)
	case "invalid_scope":
		f.Code = auth.CodeOptionInvalid
		f.Fix = "name scopes of Google Cloud, or leave out the scopes"
	default:
		f.Fix = mendMapping(trust, claims)
	}
	return f
}

func mendMapping(trust string, c remote.Claims) string {
	return fmt.Sprintf("check the attribute mapping of %s for sub = %s (google.subject has at most 127 bytes)", trust, c.Subject)
}

// failure describes a failed impersonation. If the answer shows the cause, the fix says what to
// correct.
func (x step) failure(answer remote.Answer, where string, request *auth.Request) remote.Failure {
	f := answer.Refusal(where, health)
	said := parseProblem(answer.Body)
	if !hasReason(answer, said) {
		return f
	}
	f.Code, f.What = auth.CodeRefused, said.what()
	f.Fix = "see the reason in the API reference of IAM Credentials"
	switch said.code {
	case "PERMISSION_DENIED":
		f.Code = auth.CodeTrustRefused
		f.Fix = x.grants()
		if said.reason == "SERVICE_DISABLED" {
			f.Code = auth.CodeRefused
			f.Fix = fmt.Sprintf("enable iamcredentials.googleapis.com in the project of %s", x.account.Email)
		}
	case "NOT_FOUND":
		f.Code = auth.CodeTrustRefused
		f.Fix = fmt.Sprintf("create service account %s, or name another service account", x.account.Email)
	case "INVALID_ARGUMENT":
		f.Fix = fmt.Sprintf("check that the scopes are Google's, and that %s exists", x.account.Email)
		if !request.Key.Scopes.IsZero() {
			f.Code = auth.CodeOptionInvalid
		}
	case "FAILED_PRECONDITION":
		f.Fix = fmt.Sprintf("check that service account %s is enabled", x.account.Email)
	case "UNAUTHENTICATED":
		f.Fix = "compare the controller's clock with Google's"
	}
	return f
}

// grants returns the fix for missing roles: which role to grant, on which account, to whom.
func (x step) grants() string {
	if len(x.delegates) > 0 {
		return fmt.Sprintf("grant roles/iam.serviceAccountTokenCreator on %s to %s, and on each service account after it to the one "+
			"before, up to %s",
			x.delegates[0].Email, x.by, x.account.Email)
	}
	role := "roles/iam.serviceAccountTokenCreator"
	if x.own {
		role = "roles/iam.workloadIdentityUser"
	}
	return fmt.Sprintf("grant %s on %s to %s", role, x.account.Email, x.by)
}

// trustOf returns the resource that decides whether Google trusts the proof, for error texts.
func (p *Provider) trustOf(x plan) string {
	if x.hasProvider() {
		return "workload identity provider " + x.provider.String()
	}
	return fmt.Sprintf("workload identity pool %s of cluster %s in %s",
		p.universe.WorkloadPool(x.cluster.Project), x.cluster.Name, x.cluster.Location)
}

// principalOf returns the subject's name in IAM policies, if the attribute mapping is the usual one
// (google.subject = assertion.sub).
func (p *Provider) principalOf(x plan, proof *auth.JWT, request *auth.Request) string {
	if x.hasProvider() {
		return x.provider.Principal(remote.ClaimsOf(proof).Shown(request.Key.Subject).Subject)
	}
	return x.cluster.Principal(p.universe, request.Key.Subject.Namespace(), request.Key.Subject.Name())
}
