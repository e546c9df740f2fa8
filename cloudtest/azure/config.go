package azure

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// Limits of federated credentials. Sources: Microsoft Learn, "Important considerations and
// restrictions for federated identity credentials"; Microsoft Graph, federatedIdentityCredential
// resource type.
const (
	maxFederatedCredentials = 20  // per application or managed identity
	maxCredentialField      = 600 // characters of an issuer, subject or audience
)

// maxHost is the maximum length of a DNS name in bytes. Source: RFC 1035 §2.3.4.
const maxHost = 253

// Config describes the tenants of the local Azure.
type Config struct {
	// Environments are private clouds, in addition to the three built-in clouds.
	Environments []Environment `json:"environments,omitempty"`
	// Tenants have unique IDs and domains. The names of their registries, storage accounts and key
	// vaults are unique within an environment.
	Tenants []Tenant `json:"tenants,omitempty"`
	// ManagedIdentity has the identities for which the instance metadata service issues tokens.
	// Without it, the cloud has no such service.
	ManagedIdentity *ManagedIdentity `json:"managedIdentity,omitempty"`
}

// Tenant is a directory of Entra ID with its registries, storage accounts, key vaults and
// subscriptions.
type Tenant struct {
	// ID is the tenant's ID, a UUID in lower case.
	ID string `json:"id"`
	// Environment is the cloud that the tenant is in, [AzureCloud] by default.
	Environment string `json:"environment,omitempty"`
	// Domains are verified domain names. Requests may contain a domain name instead of the ID.
	Domains []string `json:"domains,omitempty"`
	// Applications are app registrations and user-assigned managed identities, unique by client ID.
	Applications []Application `json:"applications,omitempty"`
	// Registries are container registries, unique by name.
	Registries []RegistryConfig `json:"registries,omitempty"`
	// StorageAccounts are storage accounts, unique by name.
	StorageAccounts []StorageAccountConfig `json:"storageAccounts,omitempty"`
	// KeyVaults are key vaults, unique by name.
	KeyVaults []KeyVaultConfig `json:"keyVaults,omitempty"`
	// Subscriptions are subscriptions with their resource groups. Their IDs are unique across all
	// tenants.
	Subscriptions []Subscription `json:"subscriptions,omitempty"`
}

// Application is an app registration with its service principal, or a user-assigned managed
// identity. It has no secrets or certificates. A caller can act as it only with a federated
// credential, or through the instance metadata service.
type Application struct {
	// ClientID is the application's ID, a UUID in lower case.
	ClientID string `json:"clientID"`
	// ObjectID is the ID of the application's service principal, a UUID in lower case. The default
	// is a new ID. Changes of the application preserve the ID.
	ObjectID string `json:"objectID,omitempty"`
	// FederatedCredentials are the external identities that may act as the application, at most
	// twenty. No two have the same name, and no two have the same issuer and subject.
	FederatedCredentials []FederatedCredential `json:"federatedCredentials,omitempty"`
	// GraphPermissions are the application permissions that the application has in Microsoft Graph.
	// Its tokens for Microsoft Graph contain them. Allowed values are Application.Read.All and
	// Application.ReadWrite.All.
	GraphPermissions []string `json:"graphPermissions,omitempty"`
}

// FederatedCredential is a federated identity credential: an external identity that may act as the
// application. The claims iss, sub and aud of the identity's token must equal Issuer, Subject and
// Audience, letter by letter.
type FederatedCredential struct {
	// Name is the credential's name: 3 to 120 letters, digits, dashes and underscores, the first a
	// letter or digit.
	Name string `json:"name"`
	// Issuer is the claim iss, an https URL of at most 600 characters.
	Issuer string `json:"issuer"`
	// Subject is the claim sub, at most 600 characters.
	Subject string `json:"subject"`
	// Audience is the claim aud. The default is the environment's audience,
	// api://AzureADTokenExchange in the public cloud.
	Audience string `json:"audience,omitempty"`
}

// ManagedIdentity lists the identities of the machine on which the instance metadata service
// pretends to run.
type ManagedIdentity struct {
	// Tenant is the ID of the tenant to which all identities belong.
	Tenant string `json:"tenant"`
	// ClientIDs are the applications that are assigned to the machine. A request that names no
	// application gets a token of the first application.
	ClientIDs []string `json:"clientIDs"`
}

var uuidPattern = regexp.MustCompile(`\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\z`)

var hostPattern = regexp.MustCompile(`\A[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)+\z`)

var credentialNamePattern = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9_-]{2,119}\z`)

func checkHost(host string) error {
	if len(host) > maxHost || !hostPattern.MatchString(host) {
		return fmt.Errorf("%q is not a DNS name in lower case with at least one dot", host)
	}
	return nil
}

func checkUUID(field, id string) error {
	if !uuidPattern.MatchString(id) {
		return setting.Invalid(field, "%q is not an ID: give a UUID in lower case", id)
	}
	return nil
}

// complete sets the default audience if the credential has no audience, and checks all fields.
func (f FederatedCredential) complete(e *Environment) (FederatedCredential, error) {
	f.Audience = cmp.Or(f.Audience, e.ExchangeAudience)
	if !credentialNamePattern.MatchString(f.Name) {
		return f, setting.Invalid("name",
			"%q is invalid: give 3 to 120 letters, digits, dashes and underscores, the first a letter or digit", f.Name)
	}
	for _, field := range []struct{ name, value string }{{"issuer", f.Issuer}, {"subject", f.Subject}, {"audience", f.Audience}} {
		switch {
		case field.value == "":
			return f, setting.Invalid(field.name, "it is required")
		case len([]rune(field.value)) > maxCredentialField:
			return f, setting.Invalid(field.name, "give at most %d characters", maxCredentialField)
		case strings.TrimSpace(field.value) != field.value:
			return f, setting.Invalid(field.name, "leave white space at its ends out: no token would match")
		}
	}
	if u, err := url.Parse(f.Issuer); err != nil || u.Scheme != "https" || u.Host == "" {
		return f, setting.Invalid("issuer", "%q is not an https URL", f.Issuer)
	}
	return f, nil
}

// checkCredentials checks the number of an application's credentials, and that they are unique.
// Source: Microsoft Learn, "Important considerations and restrictions for federated identity
// credentials".
func checkCredentials(all []FederatedCredential) error {
	if len(all) > maxFederatedCredentials {
		return setting.Invalid("federatedCredentials", "an application has at most %d, these are %d", maxFederatedCredentials, len(all))
	}
	for i, f := range all {
		for _, other := range all[:i] {
			switch {
			case other.Name == f.Name:
				return setting.Invalid(setting.At("federatedCredentials", i), "the name %q is given twice", f.Name)
			case other.Issuer == f.Issuer && other.Subject == f.Subject:
				return setting.Invalid(setting.At("federatedCredentials", i),
					"issuer and subject combination already exists: %q has it", other.Name)
			}
		}
	}
	return nil
}

// parse checks an application's settings, and returns the application that they describe.
func (a Application) parse(e *Environment) (*application, error) {
	if err := checkUUID("clientID", a.ClientID); err != nil {
		return nil, err
	}
	if a.ObjectID != "" {
		if err := checkUUID("objectID", a.ObjectID); err != nil {
			return nil, err
		}
	}
	for i, p := range a.GraphPermissions {
		if p != permissionRead && p != permissionWrite {
			return nil, setting.Invalid(setting.At("graphPermissions", i),
				"%q is not a permission: give %s or %s", p, permissionRead, permissionWrite)
		}
	}
	app := &application{clientID: a.ClientID, objectID: a.ObjectID, permissions: slices.Clone(a.GraphPermissions)}
	for i, f := range a.FederatedCredentials {
		complete, err := f.complete(e)
		if err != nil {
			return nil, setting.In(setting.At("federatedCredentials", i), err)
		}
		app.credentials = append(app.credentials, complete)
	}
	return app, checkCredentials(app.credentials)
}

func (m ManagedIdentity) validate() error {
	if err := checkUUID("tenant", m.Tenant); err != nil {
		return err
	}
	if len(m.ClientIDs) == 0 {
		return setting.Invalid("clientIDs", "give at least one application")
	}
	for i, id := range m.ClientIDs {
		if err := checkUUID(setting.At("clientIDs", i), id); err != nil {
			return err
		}
		if slices.Contains(m.ClientIDs[:i], id) {
			return setting.Invalid(setting.At("clientIDs", i), "it is given twice")
		}
	}
	return nil
}
