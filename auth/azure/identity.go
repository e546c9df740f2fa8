package azure

import (
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/attribute"
)

const (
	// ClientAnnotation is the annotation of a ServiceAccount with the application (client) ID, a
	// GUID. Source: Azure Workload Identity, "Labels and annotations".
	ClientAnnotation = "azure.workload.identity/client-id"
	// TenantAnnotation is the annotation with the application's Microsoft Entra tenant, a GUID. The
	// default is [Config].TenantID. Source: the same document as for ClientAnnotation.
	TenantAnnotation = "azure.workload.identity/tenant-id"
	// ClientField is the field of a WorkloadIdentity's providerConfig with the application (client)
	// ID.
	ClientField = "clientID"
	// TenantField is the field of the providerConfig with the application's tenant. The default is
	// [Config].TenantID.
	TenantField = "tenantID"
)

// statement has the IDs from a subject's attributes, not yet checked. It is comparable, because a
// memo uses it as its key.
type statement struct{ tenant, client string }

// identity is an application of an Entra tenant. The IDs of the tenant and of the application are
// GUIDs in lower case.
type identity struct {
	tenant, client string
	// text is <tenant>/<client>, the form of the identity in keys.
	text string
}

// parseStatement parses the attributes of a subject. Its error is an [*attribute.Error].
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

// parseIdentity parses the text of an identity.
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

// GetIdentity implements [auth.Provider]. It returns <tenant-id>/<client-id> in lower case. The two
// IDs come from the ServiceAccount's annotations or from the WorkloadIdentity's providerConfig. A
// subject that names no Entra tenant gets [Config].TenantID. An attribute that is present but empty
// is refused.
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

// identityError returns the error for a statement that does not name an identity.
func identityError(subject auth.Subject, said statement, err error) error {
	switch {
	case said.client == "":
		return clientAttribute().Missing(subject, "Azure application", "the client ID of a Microsoft Entra application or managed identity")
	case said.tenant == "":
		return tenantAttribute().Missing(subject, "Microsoft Entra tenant",
			"the ID of the application's tenant, or AZURE_TENANT_ID in the controller's environment")
	default:
		return clientAttribute().Invalid(subject, err)
	}
}
