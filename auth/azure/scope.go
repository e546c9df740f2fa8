package azure

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// defaultSuffix turns a resource into the scope of everything that the identity has been granted there. Applications can have no other
// scope. Source: Microsoft identity platform, "Scopes and permissions", "The .default scope".
const defaultSuffix = "/.default"

// DevOpsScope is the scope of Azure DevOps Services, which only the public cloud has. Source: Azure DevOps, "Use service
// principals and managed identities".
const DevOpsScope = "499b84ac-1321-427f-aa17-267ca6975798" + defaultSuffix

// ResourceManagerScope is the scope of Azure Resource Manager in a cloud. Calls that name no scope get this one.
func ResourceManagerScope(cloud endpoint.AzureCloud) string {
	return scopeOf(cloud.ResourceManagerAudience)
}

// RegistryScope is the scope of Azure Container Registry in a cloud.
func RegistryScope(cloud endpoint.AzureCloud) string { return scopeOf(cloud.RegistryAudience) }

// BlobScope is the scope of Azure Storage in a cloud.
func BlobScope(cloud endpoint.AzureCloud) string { return scopeOf(cloud.StorageAudience) }

// KeyVaultScope is the scope of Azure Key Vault in a cloud; empty if the cloud has no Key Vault.
func KeyVaultScope(cloud endpoint.AzureCloud) string { return scopeOf(cloud.KeyVaultAudience) }

// EventHubsScope is the scope of Azure Event Hubs in a cloud.
func EventHubsScope(cloud endpoint.AzureCloud) string { return scopeOf(cloud.EventHubsAudience) }

func scopeOf(resource string) string {
	if resource == "" {
		return ""
	}
	return resource + defaultSuffix
}

// maxScope bounds a scope, in bytes. Source: the limit of an application ID URI, and what follows it.
const maxScope = 255 + len(defaultSuffix)

// oneScope is the one scope in a list. It refuses several, which no single token covers, and malformed ones.
func (p *Provider) oneScope(scopes auth.List) (string, error) {
	scope, err := p.scopes.Parse(scopes)
	switch {
	case err == nil:
		return *scope, nil
	case errors.Is(err, errSeveral):
		return "", scopeError("a token of Microsoft Entra is for one resource", "ask for one scope, and make a call for each")
	}
	return "", scopeError(fmt.Sprintf("scope %q %v", remote.Printable(scopes.Values()[0], remote.MaxQuoted), err),
		"name a resource and /.default, such as "+ResourceManagerScope(p.cloud))
}

var errSeveral = errors.New("there are several")

// parseScopes is the one scope in a list.
func parseScopes(scopes auth.List) (string, error) {
	values := scopes.Values()
	if len(values) != 1 {
		return "", errSeveral
	}
	return values[0], checkScope(values[0])
}

func scopeError(what, fix string) error {
	return &auth.Error{Stage: auth.StageSubject, Code: auth.CodeOptionInvalid, Fix: fix, Err: errors.New(what)}
}

// checkScope refuses what is not the scope of a resource, which is a GUID or a URI with scheme https or api.
func checkScope(scope string) error {
	resource, ok := strings.CutSuffix(scope, defaultSuffix)
	switch {
	case !ok:
		return errors.New("does not end in " + defaultSuffix)
	case len(scope) > maxScope:
		return errors.New("is too long")
	case strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("%,\\\"'<>^`{|}", r) }):
		return errors.New("has a character that no resource has")
	}
	if _, err := parseGUID(resource); err == nil {
		return nil
	}
	u, err := url.Parse(resource)
	if err != nil || (u.Scheme != "https" && u.Scheme != "api") || u.Host == "" || u.User != nil || strings.ContainsAny(resource, "?#") {
		return errors.New("is for nothing that is a resource")
	}
	return nil
}

// scope is the scope of the token that a request needs.
func (p *Provider) scope(key auth.Key) (string, error) {
	switch {
	case key.Image != "":
		return RegistryScope(p.cloud), nil
	case key.Scopes.IsZero():
		return ResourceManagerScope(p.cloud), nil
	default:
		return p.oneScope(key.Scopes)
	}
}

// registryFallback is the scope to ask for next, if there is one, after Microsoft Entra refused scope with that code. In a cloud that
// may lack an audience for registries, they take a token for Azure Resource Manager.
func (p *Provider) registryFallback(key auth.Key, scope string, code aadsts) (fallback string, ok bool) {
	fallback = ResourceManagerScope(p.cloud)
	return fallback, key.Image != "" && code == noResource && p.cloud.RegistriesMayLackAudience && scope != fallback
}
