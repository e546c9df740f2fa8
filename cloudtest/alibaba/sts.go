package alibaba

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

const (
	opAssumeRoleWithOIDC = "AssumeRoleWithOIDC"
	// maxBody is the maximum length of a request's body in bytes. A token has at most 20,000 bytes.
	maxBody = 64 << 10
)

// sessionPattern matches valid names of sessions. Source: STS, AssumeRoleWithOIDC.
var sessionPattern = regexp.MustCompile(`\A[A-Za-z0-9.@_-]{2,64}\z`)

// readSTS reads a request to STS, as a [service.Service] does. The parameters are in the query or
// in a form. Source: Alibaba Cloud, "RPC-style API requests".
func (c *Cloud) readSTS(r *service.Request) (service.Protocol, service.Handler) {
	r.Call.Service = ServiceSTS
	p, refusal := readParams(r)
	if refusal != nil {
		return rpc(), refusal.Handle
	}
	if p.Get("Action") != opAssumeRoleWithOIDC {
		return rpc(), service.Refuse(http.StatusNotFound, "InvalidAction.NotFound",
			"Specified api is not found, please check your url and method.").Handle
	}
	r.Call.Operation = opAssumeRoleWithOIDC
	r.Call.Role, r.Call.Session, r.Call.Resource = p.Get("RoleArn"), p.Get("RoleSessionName"), p.Get("OIDCProviderArn")
	return rpc(), func(r *service.Request) (service.Answer, *service.Refusal) { return c.assumeRoleWithOIDC(r, p) }
}

// readParams reads the parameters of the query and the form. It refuses repeated parameters.
func readParams(r *service.Request) (url.Values, *service.Refusal) {
	bad := func(reason string) (url.Values, *service.Refusal) {
		return nil, service.Refuse(http.StatusBadRequest, "InvalidParameter", "The specified parameter is not valid.").Because(reason)
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return bad("the query is malformed")
	}
	body, err := r.ReadBody(maxBody)
	if err != nil {
		return bad("the body is too long")
	}
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media == "application/x-www-form-urlencoded" {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return bad("the form is malformed")
		}
		for name, texts := range form {
			values[name] = append(values[name], texts...)
		}
	}
	for name, texts := range values {
		if len(texts) > 1 {
			return bad("the parameter " + name + " stands there twice")
		}
	}
	return values, nil
}

// request are the parameters of AssumeRoleWithOIDC.
type request struct {
	provider, role  arn
	token, session  string
	durationSeconds int
}

// readRequest parses the parameters, and makes the checks that need no account.
func readRequest(p url.Values) (request, *service.Refusal) {
	var q request
	if p.Get("Version") != "2015-04-01" {
		return q, invalid("InvalidVersion", "Specified parameter Version is not valid.")
	}
	if p.Get("Format") != "JSON" {
		return q, invalid("InvalidParameter.Format", "Specified parameter Format is not valid.").
			Because("the local cloud answers in JSON only")
	}
	if p.Has("Policy") {
		return q, invalid("InvalidParameter.PolicyGrammar", "The parameter Policy has not passed grammar check.").
			Because("the local cloud has no session policies")
	}
	for _, name := range []string{"OIDCProviderArn", "RoleArn", "OIDCToken", "RoleSessionName"} {
		if p.Get(name) == "" {
			return q, invalid("Missing"+name, name+" is mandatory for this action.")
		}
	}
	var ok bool
	if q.provider, ok = parseARN(p.Get("OIDCProviderArn")); !ok || q.provider.kind != "oidc-provider" {
		return q, wrong("OIDCProviderArn")
	}
	if q.role, ok = parseARN(p.Get("RoleArn")); !ok || q.role.kind != "role" {
		return q, wrong("RoleArn")
	}
	if q.session = p.Get("RoleSessionName"); !sessionPattern.MatchString(q.session) {
		return q, wrong("RoleSessionName")
	}
	q.token, q.durationSeconds = p.Get("OIDCToken"), defaultDuration
	if text := p.Get("DurationSeconds"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < minDuration || seconds > maxDuration {
			return q, invalid("InvalidParameter.DurationSeconds", "The Min/Max value of DurationSeconds is 15min/12hr.")
		}
		q.durationSeconds = seconds
	}
	return q, nil
}

func invalid(code, message string) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, code, message)
}

func wrong(parameter string) *service.Refusal {
	return invalid("InvalidParameter."+parameter, "The parameter "+parameter+" is wrongly formed.")
}

// assumeRoleWithOIDC exchanges a token for a session of a role. The checks and the error texts come
// from these pages of Alibaba Cloud's documentation:
//   - STS: "AssumeRoleWithOIDC" and "Error codes"
//   - ACK: "Use RRSA"
//
// The order of the checks is not documented. The local cloud checks in this order: request,
// provider, issuer, audience, fingerprint, keys, signature, time, age, role, trust policy.
func (c *Cloud) assumeRoleWithOIDC(r *service.Request, p url.Values) (service.Answer, *service.Refusal) {
	q, refusal := readRequest(p)
	if refusal != nil {
		return nil, refusal
	}
	provider, ok := c.provider(q.provider)
	if !ok {
		return nil, unauthorized("AuthenticationFail.NoPermission", "No such OIDC Provider registered.")
	}
	token, refusal := c.verify(r, provider, q.token)
	if refusal != nil {
		return nil, refusal
	}
	to, refusal := c.trusting(q, token)
	if refusal != nil {
		return nil, refusal
	}
	name := strings.ToLower(to.Name)
	r.Call.Principal = "acs:ram::" + q.role.account + ":assumed-role/" + name + "/" + q.session
	ends := r.Now.Add(time.Duration(q.durationSeconds) * time.Second)
	return writeJSON(http.StatusOK, assumedRole{
		RequestID: requestID(),
		OIDCTokenInfo: tokenInfo{
			Subject: token.Subject, Issuer: token.Issuer, ClientIDs: strings.Join(token.Audience, ","),
			ExpirationTime: clock(token.Expiry), IssuanceTime: clock(token.IssuedAt), VerificationInfo: "Success",
		},
		AssumedRoleUser: assumedRoleUser{Arn: r.Call.Principal, AssumedRoleID: to.id + ":" + q.session},
		Credentials: credentials{
			AccessKeyID: "STS." + newSecret(18), AccessKeySecret: newSecret(33),
			SecurityToken: "CAIS" + newSecret(300), Expiration: clock(ends),
		},
	}), nil
}

func (c *Cloud) provider(a arn) (OIDCProvider, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p, ok := c.account(a.account).providers[a.name]
	return p, ok
}

// verify parses a token and checks it against an OIDC provider's settings.
func (c *Cloud) verify(r *service.Request, p OIDCProvider, raw string) (oidc.Token, *service.Refusal) {
	token, err := oidc.Read(raw)
	if err != nil {
		return oidc.Token{}, unauthorized("AuthenticationFail.OIDCToken.Invalid",
			"The Jwt content is invalid that cannot be recognized.").Because(err.Error())
	}
	r.Call.Issuer, r.Call.Subject, r.Call.Audience = token.Issuer, token.Subject, strings.Join(token.Audience, ",")
	if token.Issuer != p.IssuerURL {
		return oidc.Token{}, unauthorized("AuthenticationFail.OIDCToken.IssuerNotMatch",
			"The issuer in the OIDC Token doesn't match the OIDC Provider registered.")
	}
	if !slices.ContainsFunc(token.Audience, func(a string) bool { return slices.Contains(p.ClientIDs, a) }) {
		return oidc.Token{}, unauthorized("AuthenticationFail.OIDCToken.AudienceNotMatch", "Invalid audience.")
	}
	verifier := oidc.NewVerifier(&pinned{to: c.issuers, fingerprints: p.Fingerprints}, tokenLeeway)
	if err := verifier.Verify(r.Context(), token, r.Now); err != nil {
		return oidc.Token{}, tokenError(err, token)
	}
	if age := r.Now.Sub(token.IssuedAt); token.IssuedAt.IsZero() || age > time.Duration(p.IssuanceLimitHours)*time.Hour {
		return oidc.Token{}, unauthorized("AuthenticationFail.OIDCToken.Expired", "This JsonWebToken is expired.").
			Because("the token is older than the provider's issuance limit")
	}
	return token, nil
}

// trusting finds the requested role. It refuses a token that the role's trust policy does not
// allow. It also refuses a session that is longer than the role permits.
func (c *Cloud) trusting(q request, token oidc.Token) (role, *service.Refusal) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	to := c.account(q.role.account).roles[strings.ToLower(q.role.name)]
	switch {
	case to.id == "":
		return role{}, service.Refuse(http.StatusNotFound, "EntityNotExist.Role", "The role not exists: "+q.role.String()+". ")
	case !to.trust.allows(q.provider.String(),
		map[string][]string{"oidc:iss": {token.Issuer}, "oidc:aud": token.Audience, "oidc:sub": {token.Subject}}):
		return role{}, unauthorized("AuthenticationFail.NoPermission", "There is no permission").
			Because("the trust policy of the role does not allow the token")
	case q.durationSeconds > to.MaxSessionDuration:
		return role{}, invalid("InvalidParameter.DurationSeconds",
			"The Min/Max value of DurationSeconds is 15min/"+strconv.Itoa(to.MaxSessionDuration/3600)+"hr.")
	}
	return to, nil
}

func unauthorized(code, message string) *service.Refusal {
	return service.Refuse(http.StatusUnauthorized, code, message)
}

// tokenError translates an error of the verifier into STS's refusal.
func tokenError(err error, t oidc.Token) *service.Refusal {
	var e *service.Refusal
	switch {
	case errors.Is(err, errFingerprint):
		e = unauthorized("AuthenticationFail.OIDCToken.PublicKeyFingerprintMismatch", "The fingerprint of the public key doesn't match.")
	case errors.Is(err, oidc.ErrExpired):
		e = unauthorized("AuthenticationFail.OIDCToken.Expired", "This JsonWebToken is expired.")
	case errors.Is(err, oidc.ErrSignature), errors.Is(err, oidc.ErrKey):
		e = unauthorized("AuthenticationFail.OIDCToken.InvalidSignature", "OIDC token validate failed: invalid signature.")
	case errors.Is(err, oidc.ErrUnreachable), errors.Is(err, oidc.ErrIssuer):
		e = unauthorized("AuthenticationFail.OIDCToken.IssuerConfigurationBroken",
			"Get public keys from OIDC Provider failed, the issuer is "+t.Issuer+".")
	default:
		e = unauthorized("AuthenticationFail.OIDCToken.Invalid", "The Jwt content is invalid that cannot be recognized.")
	}
	return e.Because(err.Error())
}

// clock formats a time as STS does.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func newSecret(bytes int) string { return base64.RawURLEncoding.EncodeToString(wire.Random(bytes)) }

func requestID() string { return strings.ToUpper(wire.UUID()) }

type assumedRole struct {
	RequestID       string `json:"RequestId"`
	OIDCTokenInfo   tokenInfo
	AssumedRoleUser assumedRoleUser
	Credentials     credentials
}

type tokenInfo struct {
	Subject, Issuer  string
	ClientIDs        string `json:"ClientIds"`
	ExpirationTime   string
	IssuanceTime     string
	VerificationInfo string
}

type assumedRoleUser struct {
	Arn           string
	AssumedRoleID string `json:"AssumedRoleId"`
}

type credentials struct {
	AccessKeyID     string `json:"AccessKeyId"`
	AccessKeySecret string
	SecurityToken   string
	Expiration      string
}

func writeJSON(status int, body any) service.Answer {
	return service.Whole(status, "application/json;charset=utf-8", wire.Must(json.Marshal(body)))
}

// rpc returns Alibaba Cloud's RPC protocol, with answers in JSON. Sources: Alibaba Cloud, "Response
// formats" and "Common error codes".
func rpc() service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, e *service.Refusal) service.Answer {
			return writeJSON(e.Status, struct {
				RequestID string `json:"RequestId"`
				HostID    string `json:"HostId"`
				Code      string
				Message   string
			}{requestID(), wire.Host(r.Host), e.Code, e.Message})
		},
		Failure: service.Refuse(http.StatusInternalServerError, "InternalError",
			"The request processing has failed due to some unknown error."),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable",
			"The request has failed due to a temporary failure of the server."),
		Throttled: service.Refuse(http.StatusBadRequest, "Throttling.User", "Request was denied due to user flow control."),
		Broken:    service.Whole(http.StatusOK, "application/json;charset=utf-8", []byte(`{"RequestId":"`)),
	}
}
