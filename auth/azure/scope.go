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

// defaultSuffix turns a resource into a scope with all permissions of the identity at the resource.
// Applications can ask for no other scope. Source: Microsoft identity platform, "Scopes and
// permissions", "The .default scope".
const defaultSuffix = "/.default"

// DevOpsScope is the scope of Azure DevOps Services, which exist only in the public cloud. Source:
// Azure DevOps, "Use service principals and managed identities".
const DevOpsScope = "499b84ac-1321-427f-aa17-267ca6975798" + defaultSuffix

// ResourceManagerScope returns the scope of Azure Resource Manager in a cloud. It is the default
// scope of calls.
func ResourceManagerScope(cloud endpoint.AzureCloud) string {
	return scopeOf(cloud.ResourceManagerAudience)
}

// RegistryScope returns the scope of Azure Container Registry in a cloud.
func RegistryScope(cloud endpoint.AzureCloud) string { return scopeOf(cloud.RegistryAudience) }

// BlobScope returns the scope of Azure Storage in a cloud.
func BlobScope(cloud endpoint.AzureCloud) string { return scopeOf(cloud.StorageAudience) }

// KeyVaultScope returns the scope of Azure Key Vault in a cloud; empty if the cloud has no Key
// Vault.
func KeyVaultScope(cloud endpoint.AzureCloud) string { return scopeOf(cloud.KeyVaultAudience) }

// EventHubsScope returns the scope of Azure Event Hubs in a cloud.
func EventHubsScope(cloud endpoint.AzureCloud) string { return scopeOf(cloud.EventHubsAudience) }

func scopeOf(resource string) string {
	if resource == "" {
		return ""
	}
	return resource + defaultSuffix
}

// maxScope is the maximum length of a scope in bytes: the limit of an application ID URI, plus the
// suffix.
const maxScope = 255 + len(defaultSuffix)

// oneScope returns the one scope in a list. It refuses a malformed scope. It refuses several
// scopes, because a token has one scope.
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

// parseScopes returns the one scope in a list.
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

// checkScope refuses a text that is not <resource>/.default. A resource is a GUID, or a URI with
// scheme https or api.
func checkScope(scope string) error {
	resource, ok := strings.CutSuffix(scope, defaultSuffix)
	switch {
	case !ok:
		return errors.New("does not end in " + defaultSuffix)
	case len(scope) > maxScope:
		return errors.New("is too long")
	case strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("%&=,\\\"'<>^`{|}", r) }):
		return errors.New("has a character that a resource cannot have")
	}
	if _, err := endpoint.ParseGUID(resource); err == nil {
		return nil
	}
	u, err := url.Parse(resource)
	if err != nil || (u.Scheme != "https" && u.Scheme != "api") || u.Host == "" || u.User != nil || strings.ContainsAny(resource, "?#") {
		return errors.New("does not name a resource")
	}
	return nil
}

// scope returns the scope to request for a token with the given key.
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

// registryFallback returns another scope to ask for, after Microsoft Entra has refused the given
// scope with the given code. A cloud may have no audience for registries. Its registries then
// accept a token for Azure Resource Manager. registryFallback returns false if there is no other
// scope.
func (p *Provider) registryFallback(key auth.Key, scope string, code aadsts) (fallback string, ok bool) {
	fallback = ResourceManagerScope(p.cloud)
	return fallback, key.Image != "" && code == noResource && p.cloud.RegistriesMayLackAudience && scope != fallback
}
