package azure

import (
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/attribute"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

const (
	// ClientAnnotation names the application (client) ID of a ServiceAccount, a GUID. Source: Azure Workload Identity, "Labels
	// and annotations".
	ClientAnnotation = "azure.workload.identity/client-id"
	// TenantAnnotation names the Microsoft Entra tenant of that application, a GUID; without it, [Config].TenantID does. Source:
	// as above.
	TenantAnnotation = "azure.workload.identity/tenant-id"
	// ClientField names the application (client) ID in the providerConfig of a WorkloadIdentity.
	ClientField = "clientID"
	// TenantField names the tenant of that application there; without it, [Config].TenantID does.
	TenantField = "tenantID"
)

// named is what a subject says of its identity.
type named struct{ tenant, client string }

// identity is an application of a tenant, both GUIDs in lower case.
type identity struct {
	tenant, client string
	// text is <tenant>/<client>: the identity in keys.
	text string
}

func newIdentity(n named) (identity, error) {
	tenant, err := parseGUID(n.tenant)
	if err != nil {
		return identity{}, &attribute.Error{Attribute: tenantAttribute(), Err: err}
	}
	client, err := parseGUID(n.client)
	if err != nil {
		return identity{}, &attribute.Error{Attribute: clientAttribute(), Err: err}
	}
	return identity{tenant: tenant, client: client, text: tenant + "/" + client}, nil
}

// parseIdentity takes an identity's text apart.
func parseIdentity(text string) (identity, error) {
	tenant, client, _ := strings.Cut(text, "/")
	return newIdentity(named{tenant, client})
}

func clientAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: ClientAnnotation, Field: ClientField}
}

func tenantAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: TenantAnnotation, Field: TenantField}
}

// parseGUID returns a GUID in lower case: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12 (RFC 9562 §4). Nothing else is accepted
// as a tenant: with the words common, organizations and consumers Entra would choose it, and a domain can change hands.
func parseGUID(s string) (string, error) {
	const form = "00000000-0000-0000-0000-000000000000"
	refuse := func() (string, error) {
		return "", &endpoint.Error{
			What: "ID", Reason: endpoint.ReasonMalformed, Detail: fmt.Sprintf("%q is not a GUID", remote.Printable(s, remote.MaxQuoted)),
			Fix: "write the ID as " + form + ", in hexadecimal digits",
		}
	}
	if len(s) != len(form) {
		return refuse()
	}
	for i := range len(s) {
		c := s[i] | 0x20
		if hex := '0' <= s[i] && s[i] <= '9' || 'a' <= c && c <= 'f'; hex == (form[i] == '-') || !hex && s[i] != '-' {
			return refuse()
		}
	}
	return strings.ToLower(s), nil
}

// GetIdentity implements [auth.Provider]: <tenant-id>/<client-id> in lower case, of the application that the ServiceAccount's
// annotations or the WorkloadIdentity's providerConfig name. A subject that does not mention a tenant gets [Config].TenantID; an
// attribute that is present but empty is refused.
func (p *Provider) GetIdentity(account auth.Account) (string, error) {
	var n named
	var hasTenant, hasClient bool
	n.tenant, hasTenant = tenantAttribute().Of(account)
	n.client, hasClient = clientAttribute().Of(account)
	switch {
	case hasTenant && n.tenant == "":
		return "", tenantAttribute().Invalid(account.Subject, attribute.Empty("tenant ID"))
	case hasClient && n.client == "":
		return "", clientAttribute().Invalid(account.Subject, attribute.Empty("client ID"))
	case !hasTenant:
		n.tenant = p.tenant
	}
	id, err := p.identities.Parse(n)
	if err != nil {
		return "", identityError(account.Subject, n, err)
	}
	return id.text, nil
}

func identityError(subject auth.Subject, n named, err error) error {
	switch {
	case n.client == "":
		return clientAttribute().Missing(subject, "Azure application", "the client ID of a Microsoft Entra application or managed identity")
	case n.tenant == "":
		return tenantAttribute().Missing(subject, "Microsoft Entra tenant", "the ID of the application's tenant, or AZURE_TENANT_ID in the controller's environment")
	default:
		return clientAttribute().Invalid(subject, err)
	}
}
