package alibaba

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// ServiceSTS is the name of the Security Token Service in the journal and in faults.
const ServiceSTS = "alibaba-sts"

// globalHost is the host of STS without a region. Source: STS API reference, "Endpoints".
const globalHost = "sts.aliyuncs.com"

// regionalHost matches the hosts of STS in a region, on the internet and in a VPC network. It
// checks only the form of the region's name.
var regionalHost = regexp.MustCompile(`\Asts(?:-vpc)?\.[a-z]{2}(?:-[a-z0-9]+){1,4}\.aliyuncs\.com\z`)

// Limits of Alibaba Cloud's Resource Access Management (RAM) and STS. Sources: RAM,
// CreateOIDCProvider; STS, AssumeRoleWithOIDC.
const (
	maxClientIDs         = 50
	maxFingerprints      = 5
	defaultIssuanceLimit = 12  // hours
	maxIssuanceLimit     = 168 // hours
	minDuration          = 900 // seconds, like the next two constants
	defaultDuration      = 3600
	maxDuration          = 43200
)

// Config describes the accounts of the local Alibaba Cloud.
type Config struct {
	// Accounts are the accounts, unique by ID.
	Accounts []Account `json:"accounts,omitempty"`
}

// Account is an Alibaba Cloud account with its OIDC providers and roles.
type Account struct {
	// ID is the account's ID, sixteen digits.
	ID string `json:"id"`
	// OIDCProviders are the issuers that the account trusts, unique by name.
	OIDCProviders []OIDCProvider `json:"oidcProviders,omitempty"`
	// Roles are the account's roles, unique by name without regard to case.
	Roles []Role `json:"roles,omitempty"`
}

// OIDCProvider is an issuer. Its tokens may assume the roles whose trust policies name the
// provider. The provider's ARN is acs:ram::<account>:oidc-provider/<name>.
type OIDCProvider struct {
	// Name is the provider's name: 1 to 128 letters, digits, dots, underscores and hyphens. The
	// first and the last character are letters or digits.
	Name string `json:"name"`
	// IssuerURL is the issuer, equal to the claim iss: an https URL without port.
	IssuerURL string `json:"issuerURL"`
	// ClientIDs are the audiences that are accepted, at least one and at most fifty.
	ClientIDs []string `json:"clientIDs"`
	// Fingerprints are SHA-1 fingerprints, 40 hexadecimal digits each, at most five. A certificate
	// in the chain of the issuer's host must have one of them. If the list is empty, the local
	// cloud only verifies the certificate chain.
	Fingerprints []string `json:"fingerprints,omitempty"`
	// IssuanceLimitHours is the maximum age of a token in hours, counted from the claim iat: 1 to
	// 168. The default is 12.
	IssuanceLimitHours int `json:"issuanceLimitHours,omitempty"`
}

// Role is a RAM role. Its ARN is acs:ram::<account>:role/<name>, with the name in lower case.
type Role struct {
	// Name is the role's name: 1 to 64 letters, digits, dots and hyphens.
	Name string `json:"name"`
	// TrustPolicy says who may assume the role: a RAM policy document of version 1. It may use the
	// condition keys oidc:iss, oidc:aud and oidc:sub, and the operators StringEquals and
	// StringLike.
	TrustPolicy json.RawMessage `json:"trustPolicy"`
	// MaxSessionDuration is the longest session in seconds, 3600 (default) to 43200.
	MaxSessionDuration int `json:"maxSessionDuration,omitempty"`
}

var (
	accountPattern     = regexp.MustCompile(`\A[0-9]{16}\z`)
	providerPattern    = regexp.MustCompile(`\A[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?\z`)
	rolePattern        = regexp.MustCompile(`\A[A-Za-z0-9.-]{1,64}\z`)
	fingerprintPattern = regexp.MustCompile(`\A[0-9A-Fa-f]{40}\z`)
)

func (p *OIDCProvider) check() error {
	if !providerPattern.MatchString(p.Name) {
		return setting.Invalid("name", "%q is not the name of a provider", p.Name)
	}
	if _, err := oidc.ParseURL(p.IssuerURL); err != nil {
		return setting.In("issuerURL", err)
	}
	if len(p.ClientIDs) == 0 || len(p.ClientIDs) > maxClientIDs {
		return setting.Invalid("clientIDs", "give 1 to %d audiences", maxClientIDs)
	}
	if len(p.Fingerprints) > maxFingerprints {
		return setting.Invalid("fingerprints", "give at most %d", maxFingerprints)
	}
	for i, fingerprint := range p.Fingerprints {
		if !fingerprintPattern.MatchString(fingerprint) {
			return setting.Invalid(setting.At("fingerprints", i), "give 40 hexadecimal digits")
		}
	}
	if p.IssuanceLimitHours < 0 || p.IssuanceLimitHours > maxIssuanceLimit {
		return setting.Invalid("issuanceLimitHours", "give 1 to %d", maxIssuanceLimit)
	}
	return nil
}

func (r *Role) parse() (trustPolicy, error) {
	if !rolePattern.MatchString(r.Name) {
		return trustPolicy{}, setting.Invalid("name", "%q is not the name of a role", r.Name)
	}
	if r.MaxSessionDuration != 0 && (r.MaxSessionDuration < defaultDuration || r.MaxSessionDuration > maxDuration) {
		return trustPolicy{}, setting.Invalid("maxSessionDuration", "give %d to %d", defaultDuration, maxDuration)
	}
	trust, err := parseTrust(r.TrustPolicy)
	return trust, setting.In("trustPolicy", err)
}

// arn is a parsed acs:ram::<account>:<kind>/<name>.
type arn struct{ account, kind, name string }

func parseARN(s string) (arn, bool) {
	parts := strings.SplitN(s, ":", 5)
	if len(parts) != 5 || parts[0] != "acs" || parts[1] != "ram" || parts[2] != "" || !accountPattern.MatchString(parts[3]) {
		return arn{}, false
	}
	kind, name, ok := strings.Cut(parts[4], "/")
	return arn{parts[3], kind, name}, ok && name != ""
}

func (a arn) String() string { return "acs:ram::" + a.account + ":" + a.kind + "/" + a.name }
