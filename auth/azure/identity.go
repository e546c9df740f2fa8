package azure

import (
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/attribute"
)

const (
	// ClientAnnotation names the application (client) ID of a ServiceAccount, a GUID. Source: Azure
	// Workload Identity, "Labels and annotations".
	ClientAnnotation = "azure.workload.identity/client-id"
	// TenantAnnotation names the Microsoft Entra tenant of that application, a GUID. Without it the
	// tenant is [Config].TenantID. Source: as above.
	TenantAnnotation = "azure.workload.identity/tenant-id"
	// ClientField names the application (client) ID in the providerConfig of a WorkloadIdentity.
	ClientField = "clientID"
	// TenantField names the tenant of that application in the providerConfig. Without it the tenant
	// is [Config].TenantID.
	TenantField = "tenantID"
)

// statement is what a subject says about its identity. It is comparable.
type statement struct{ tenant, client string }

// identity is an application of a tenant, both GUIDs in lower case.
type identity struct {
	tenant, client string
	// text is <tenant>/<client>: the identity in keys.
	text string
}

// parseStatement reads what a subject says. Its error is an [*attribute.Error].
func parseStatement(said statement) (identity, error) {
	tenant, err := endpoint.ParseGUID(said.tenant)
	if err != nil {
		return identity{}, &attribute.Error{Attribute: tenantAttribute(), Err: err}
	}
	client, err := endpoint.ParseGUID(said.client)
	if err != nil {
		return identity{}, &attribute.Error{Attribute: clientAttribute(), Err: err}
	}
	return identity{tenant: tenant, client: client, text: tenant + "/" + client}, nil
}

// parseIdentity reads an identity's text.
func parseIdentity(text string) (identity, error) {
	tenant, client, _ := strings.Cut(text, "/")
	return parseStatement(statement{tenant, client})
}

func clientAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: ClientAnnotation, Field: ClientField}
}

func tenantAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: TenantAnnotation, Field: TenantField}
}

// GetIdentity implements [auth.Provider]. It returns <tenant-id>/<client-id> in lower case, for the
// application that the ServiceAccount's annotations or the WorkloadIdentity's providerConfig name.
// A subject without a tenant gets [Config].TenantID. An attribute that is present but empty is
// refused.
func (p *Provider) GetIdentity(account auth.Account) (string, error) {
	var said statement
	var hasTenant, hasClient bool
	said.tenant, hasTenant = tenantAttribute().Of(account)
	said.client, hasClient = clientAttribute().Of(account)
	switch {
	case hasTenant && said.tenant == "":
		return "", tenantAttribute().Invalid(account.Subject, attribute.Empty("tenant ID"))
	case hasClient && said.client == "":
		return "", clientAttribute().Invalid(account.Subject, attribute.Empty("client ID"))
	case !hasTenant:
		said.tenant = p.tenant
	}
	id, err := p.identities.Parse(said)
	if err != nil {
		return "", identityError(account.Subject, said, err)
	}
	return id.text, nil
}

// identityError is the error for a statement that does not name an identity.
func identityError(subject auth.Subject, said statement, err error) error {
	switch {
	case said.client == "":
		return clientAttribute().Missing(subject, "Azure application", "the client ID of a Microsoft Entra application or managed identity")
	case said.tenant == "":
		return tenantAttribute().Missing(subject, "Microsoft Entra tenant", "the ID of the application's tenant, or AZURE_TENANT_ID in the controller's environment")
	default:
		return clientAttribute().Invalid(subject, err)
	}
}
