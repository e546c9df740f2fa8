package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// health is where people see how the services are.
const health = "status.azure.com"

// maxLifetime bounds expires_in. Source: Microsoft identity platform, "Configurable token lifetimes" (a day at the most, and 28
// hours where continuous access evaluation is in force).
const maxLifetime = 28 * time.Hour

// entraToken reads a token response (RFC 6749 §5.1) to a request that was sent at asked. Its errors quote nothing of the response.
func entraToken(body []byte, asked time.Time) (*Token, error) {
	var got struct {
		TokenType   string `json:"token_type"`
		AccessToken string `json:"access_token"`
		ExpiresIn   *int64 `json:"expires_in"`
	}
	switch err := json.Unmarshal(body, &got); {
	case err != nil:
		return nil, errors.New("it is not the JSON of a token answer")
	case got.AccessToken == "":
		return nil, errors.New("no access token in it")
	case !strings.EqualFold(got.TokenType, "Bearer"):
		return nil, errors.New("the token is not a bearer token")
	case got.ExpiresIn == nil:
		return nil, errors.New("no expires_in in it")
	case *got.ExpiresIn <= 0 || *got.ExpiresIn > int64(maxLifetime.Seconds()):
		return nil, errors.New("its expires_in is not a life of a token")
	}
	return &Token{Secret: auth.NewSecret(got.AccessToken), ExpiresAt: asked.Add(time.Duration(*got.ExpiresIn) * time.Second).UTC()}, nil
}

// aadsts is an error code of Microsoft Entra's security token service; zero if there is no code. Source of the codes and their
// meanings: Microsoft Entra, "Authentication and authorization error codes", and Azure Workload Identity, "Troubleshooting".
type aadsts int

const (
	noApplication       aadsts = 700016
	applicationDisabled aadsts = 7000112
	noTenant            aadsts = 90002
	tenantMalformed     aadsts = 900023
	noCredentials       aadsts = 70025
	noMatch             aadsts = 70021
	noIssuer            aadsts = 700211
	noAudience          aadsts = 700212
	noSubject           aadsts = 700213
	noSubjectExactly    aadsts = 7002138
	noSubjectPattern    aadsts = 7002137
	assertionTime       aadsts = 700024
	assertionInvalid    aadsts = 50013
	assertionSignature  aadsts = 700027
	assertionAudience   aadsts = 700023
	assertionMalformed  aadsts = 50027
	assertionAlgorithm  aadsts = 5002738
	assertionLife       aadsts = 70023
	issuerIsEntra       aadsts = 700222
	secretWrong         aadsts = 7000215
	secretExpired       aadsts = 7000222
	noResource          aadsts = 500011
	resourceInvalid     aadsts = 650057
	scopeInvalid        aadsts = 70011
	scopeOfUsers        aadsts = 1002012
	blockedByPolicy     aadsts = 53003
	notAssigned         aadsts = 501051
	transientFault      aadsts = 90033
	tenantThrottled     aadsts = 90055
	requestLoop         aadsts = 50196
	issuerUnreachable   aadsts = 50166
	issuerInvalid       aadsts = 501661
)

// maxFederated is how many federated credentials an application has at the most. Source: Microsoft Graph, "Create
// federatedIdentityCredential".
const maxFederated = 20

// errorCode reads the AADSTS code and the OAuth error (RFC 6749 §5.2) from a response body; ok is false if the body is not Entra's.
func errorCode(body []byte) (code aadsts, oauth string, ok bool) {
	var got struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
		Codes       []int  `json:"error_codes"`
	}
	if json.Unmarshal(body, &got) != nil || got.Error == "" {
		return 0, "", false
	}
	if len(got.Codes) > 0 {
		code = aadsts(got.Codes[0])
	} else if digits, found := strings.CutPrefix(got.Description, "AADSTS"); found {
		digits, _, _ = strings.Cut(digits, ":")
		number, _ := strconv.Atoi(digits)
		code = aadsts(number)
	}
	return code, oauthError(got.Error), true
}

// oauthError is an error code of RFC 6749, which is one word; anything else is not quoted.
func oauthError(s string) string {
	if len(s) > 40 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "an unknown error"
	}
	return s
}

// entraFailure is the failure of a token request, worded by its AADSTS code. Callers that know more of the request replace the fix.
func entraFailure(a remote.Answer, where string) (remote.Failure, aadsts) {
	f := a.Refusal(where, health)
	code, oauth, ok := errorCode(a.Body)
	if !ok || a.Status == http.StatusOK {
		return f, 0
	}
	f.What = oauth
	if code != 0 {
		f.What = fmt.Sprintf("AADSTS%d (%s)", code, oauth)
	}
	if meaning := code.meaning(); meaning != "" {
		f.What += ": " + meaning
	}
	switch {
	case f.Code == auth.CodeThrottled, f.Code == auth.CodeUnavailable:
	case code == tenantThrottled, code == requestLoop:
		f.Code, f.Fix = auth.CodeThrottled, remote.WaitForQuota(where)
	case code == transientFault, code == issuerUnreachable, oauth == "temporarily_unavailable":
		f.Code, f.Fix = auth.CodeUnavailable, "wait, and see "+health+" if it goes on"
	case code.isTrust():
		f.Code = auth.CodeTrustRefused
	case code == assertionTime, code == assertionMalformed, code == assertionAlgorithm, code == assertionLife:
		f.Code = auth.CodeProofInvalid
	case code == blockedByPolicy, code == notAssigned:
		f.Code = auth.CodePermissionDenied
	default:
		f.Code = auth.CodeRefused
	}
	if f.Code != auth.CodeThrottled && f.Code != auth.CodeUnavailable {
		f.Fix = "see RFC 6749, section 5.2"
		if code != 0 {
			f.Fix = fmt.Sprintf("see https://login.microsoftonline.com/error?code=%d", code)
		}
	}
	return f, code
}

// isTrust reports whether the code means that Entra does not trust the subject to be the application.
func (c aadsts) isTrust() bool {
	switch c {
	case noApplication, applicationDisabled, noTenant, tenantMalformed, noCredentials, noMatch, noIssuer, noAudience, noSubject, noSubjectExactly,
		noSubjectPattern, issuerIsEntra, issuerInvalid, assertionInvalid, assertionSignature, assertionAudience, secretWrong, secretExpired:
		return true
	default:
		return false
	}
}

// meaning is what a code means, in our own words.
func (c aadsts) meaning() string {
	switch c {
	case noApplication:
		return "the tenant has no such application"
	case applicationDisabled:
		return "the application is disabled"
	case noTenant, tenantMalformed:
		return "there is no such tenant in this cloud"
	case noCredentials:
		return "the application has no federated credential"
	case noMatch:
		return "no federated credential matches the proof"
	case noIssuer:
		return "no federated credential has the proof's issuer"
	case noAudience:
		return "no federated credential has the proof's audience"
	case noSubject, noSubjectPattern:
		return "no federated credential has the proof's subject"
	case noSubjectExactly:
		return "a federated credential has the proof's subject in other letters: capitals count"
	case assertionTime:
		return "the proof is not valid at this time"
	case assertionInvalid, assertionSignature:
		return "the proof's signature cannot be verified with the issuer's keys"
	case assertionAudience:
		return "the proof is for another audience"
	case assertionMalformed:
		return "the proof is malformed"
	case assertionAlgorithm:
		return "the proof is not signed with RSA"
	case assertionLife:
		return "the proof is valid for more than a day"
	case issuerIsEntra:
		return "the proof is a token of Microsoft Entra itself"
	case secretWrong:
		return "the client secret is not the application's"
	case secretExpired:
		return "the client secret has expired"
	case noResource, resourceInvalid:
		return "the tenant does not know the resource"
	case scopeInvalid, scopeOfUsers:
		return "the scope is not one for applications"
	case blockedByPolicy:
		return "a conditional access policy blocks the application"
	case notAssigned:
		return "the application is not assigned to a role of the resource"
	case transientFault:
		return "a fault that passes"
	case tenantThrottled, requestLoop:
		return "too many requests"
	case issuerUnreachable:
		return "the issuer's keys cannot be fetched"
	case issuerInvalid:
		return "what the issuer publishes is not its own"
	default:
		return ""
	}
}
