package alibaba_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/alibaba"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// TestConfig checks which settings are refused, and which field the error names.
func TestConfig(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*alibaba.Account)
		field  string // empty: accepted
	}{
		"good":                {func(*alibaba.Account) {}, ""},
		"no account":          {func(a *alibaba.Account) { a.ID = "" }, "accounts[0].id"},
		"account of AWS":      {func(a *alibaba.Account) { a.ID = "123456789123" }, "accounts[0].id"},
		"provider twice":      {func(a *alibaba.Account) { a.OIDCProviders = append(a.OIDCProviders, a.OIDCProviders[0]) }, "accounts[0].oidcProviders[1]"},
		"name with a slash":   {func(a *alibaba.Account) { a.OIDCProviders[0].Name = "a/b" }, "accounts[0].oidcProviders[0].name"},
		"name that ends in -": {func(a *alibaba.Account) { a.OIDCProviders[0].Name = "a-" }, "accounts[0].oidcProviders[0].name"},
		"issuer over http":    {func(a *alibaba.Account) { a.OIDCProviders[0].IssuerURL = "http://a.example" }, "accounts[0].oidcProviders[0].issuerURL"},
		"no audience":         {func(a *alibaba.Account) { a.OIDCProviders[0].ClientIDs = nil }, "accounts[0].oidcProviders[0].clientIDs"},
		"six fingerprints":    {func(a *alibaba.Account) { a.OIDCProviders[0].Fingerprints = make([]string, 6) }, "accounts[0].oidcProviders[0].fingerprints"},
		"SHA-256":             {func(a *alibaba.Account) { a.OIDCProviders[0].Fingerprints = []string{strings.Repeat("0", 64)} }, "accounts[0].oidcProviders[0].fingerprints[0]"},
		"a long limit":        {func(a *alibaba.Account) { a.OIDCProviders[0].IssuanceLimitHours = 169 }, "accounts[0].oidcProviders[0].issuanceLimitHours"},
		"role twice":          {func(a *alibaba.Account) { a.Roles = append(a.Roles, alibaba.Role{Name: "TENANT-A"}) }, "accounts[0].roles[1]"},
		"role with a slash":   {func(a *alibaba.Account) { a.Roles[0].Name = "a/b" }, "accounts[0].roles[0].name"},
		"a long session":      {func(a *alibaba.Account) { a.Roles[0].MaxSessionDuration = 43201 }, "accounts[0].roles[0].maxSessionDuration"},
		"policy of AWS":       {func(a *alibaba.Account) { a.Roles[0].TrustPolicy = edit(`"1"`, `"2012-10-17"`) }, "accounts[0].roles[0].trustPolicy"},
		"no policy":           {func(a *alibaba.Account) { a.Roles[0].TrustPolicy = nil }, "accounts[0].roles[0].trustPolicy"},
		"two policies":        {func(a *alibaba.Account) { a.Roles[0].TrustPolicy = append(trust(subjectA), "{}"...) }, "accounts[0].roles[0].trustPolicy"},
		"action of AWS": {func(a *alibaba.Account) {
			a.Roles[0].TrustPolicy = edit("sts:AssumeRole", "sts:AssumeRoleWithWebIdentity")
		}, "accounts[0].roles[0].trustPolicy"},
		"unknown operator": {func(a *alibaba.Account) { a.Roles[0].TrustPolicy = edit("StringEquals", "StringNotEquals") }, "accounts[0].roles[0].trustPolicy"},
		"unknown key":      {func(a *alibaba.Account) { a.Roles[0].TrustPolicy = edit("oidc:sub", "oidc:azp") }, "accounts[0].roles[0].trustPolicy"},
		"unknown element":  {func(a *alibaba.Account) { a.Roles[0].TrustPolicy = edit(`"Principal"`, `"NotPrincipal"`) }, "accounts[0].roles[0].trustPolicy"},
		"unknown effect":   {func(a *alibaba.Account) { a.Roles[0].TrustPolicy = edit("Allow", "allow") }, "accounts[0].roles[0].trustPolicy"},
	} {
		a := alibaba.Account{
			ID: account, OIDCProviders: []alibaba.OIDCProvider{{Name: "Lanyard", IssuerURL: issuer, ClientIDs: []string{audience}}},
			Roles: []alibaba.Role{{Name: "tenant-a", TrustPolicy: trust(subjectA)}},
		}
		tt.change(&a)
		_, err := alibaba.New(alibaba.Config{Accounts: []alibaba.Account{a}}, nil)
		refused, ok := errors.AsType[*setting.Error](err)
		if ok != (tt.field != "") || ok && refused.Field != tt.field {
			t.Errorf("%s: %v, want an error about %q", name, err, tt.field)
		}
	}
}

// edit returns the trust policy for subjectA with one replacement.
func edit(old, replacement string) json.RawMessage {
	return json.RawMessage(strings.Replace(string(trust(subjectA)), old, replacement, 1))
}
