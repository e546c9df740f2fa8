package azure

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

type openIDConfiguration struct {
	TokenEndpoint         string   `json:"token_endpoint"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported"`
	JWKSURI               string   `json:"jwks_uri"`
	ResponseModes         []string `json:"response_modes_supported"`
	SubjectTypes          []string `json:"subject_types_supported"`
	SigningAlgorithms     []string `json:"id_token_signing_alg_values_supported"`
	ResponseTypes         []string `json:"response_types_supported"`
	Scopes                []string `json:"scopes_supported"`
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	CloudInstance         string   `json:"cloud_instance_name"`
}

// openIDConfiguration returns a tenant's discovery document, of version 2.0 or 1.0. Source: OpenID
// Connect Discovery 1.0 §3; Microsoft Learn, "OpenID Connect on the Microsoft identity platform".
func (c *Cloud) openIDConfiguration(r *service.Request, e *Environment, tenantName string) (any, *service.Refusal) {
	t, no := c.tenant(e, tenantName)
	if no != nil {
		if no.Code == "AADSTS90002" {
			no.Detail = "invalid_tenant" // this endpoint's own error code
		}
		return nil, no
	}
	base := "https://" + e.authority() + "/" + t.id
	doc := openIDConfiguration{
		TokenEndpoint:         base + "/oauth2/v2.0/token",
		AuthMethods:           []string{"client_secret_post", "private_key_jwt", "client_secret_basic"},
		JWKSURI:               base + "/discovery/v2.0/keys",
		ResponseModes:         []string{"query", "fragment", "form_post"},
		SubjectTypes:          []string{"pairwise"},
		SigningAlgorithms:     []string{"RS256"},
		ResponseTypes:         []string{"code", "id_token", "code id_token", "id_token token"},
		Scopes:                []string{"openid", "profile", "email", "offline_access"},
		Issuer:                base + "/v2.0",
		AuthorizationEndpoint: base + "/oauth2/v2.0/authorize",
		CloudInstance:         strings.TrimPrefix(e.authority(), "login."),
	}
	if !strings.HasSuffix(r.URL.Path, "/v2.0/.well-known/openid-configuration") {
		doc.Issuer, doc.JWKSURI = e.issuer(t.id), base+"/discovery/keys"
	}
	return doc, nil
}

// publishedKeys returns the public keys with which access tokens are verified. All tenants have the
// same keys.
func (c *Cloud) publishedKeys(_ *service.Request, e *Environment, tenantName string) (any, *service.Refusal) {
	if !strings.EqualFold(tenantName, "common") {
		if _, no := c.tenant(e, tenantName); no != nil {
			return nil, no
		}
	}
	return json.RawMessage(c.entraKeys().JWKS()), nil
}

type instanceMetadata struct {
	PreferredNetwork string   `json:"preferred_network"`
	PreferredCache   string   `json:"preferred_cache"`
	Aliases          []string `json:"aliases"`
}

type instanceDiscovery struct {
	TenantDiscoveryEndpoint string             `json:"tenant_discovery_endpoint"`
	APIVersion              string             `json:"api-version"`
	Metadata                []instanceMetadata `json:"metadata"`
}

// instanceDiscovery returns the hosts of Entra ID. The hosts of private clouds are left out, so a
// private cloud's clients must disable instance discovery. Source: Microsoft Learn, "Instance
// metadata and authority validation in MSAL".
func (*Cloud) instanceDiscovery(r *service.Request, _ *Environment, _ string) (any, *service.Refusal) {
	unknown := aadsts(50049, http.StatusBadRequest, "invalid_instance", "Unknown or invalid instance.")
	authorize, err := url.Parse(r.URL.Query().Get("authorization_endpoint"))
	if err != nil || authorize.Scheme != "https" {
		return nil, unknown
	}
	known := environments()
	tenantName, _, _ := strings.Cut(strings.TrimPrefix(authorize.Path, "/"), "/")
	if tenantName == "" || !slices.ContainsFunc(known,
		func(e Environment) bool { return slices.Contains(e.AuthorityHosts, authorize.Host) }) {
		return nil, unknown
	}
	doc := instanceDiscovery{
		TenantDiscoveryEndpoint: "https://" + authorize.Host + "/" + url.PathEscape(tenantName) + "/v2.0/.well-known/openid-configuration",
		APIVersion:              "1.1",
	}
	for _, e := range known {
		cache := e.authority()
		if e.Name == AzureCloud {
			cache = "login.windows.net" // old host name, under which clients still cache tokens
		}
		doc.Metadata = append(doc.Metadata,
			instanceMetadata{PreferredNetwork: e.authority(), PreferredCache: cache, Aliases: e.AuthorityHosts})
	}
	return doc, nil
}
