package azure

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
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
		return identity{}, &fieldError{tenantField, err}
	}
	client, err := parseGUID(n.client)
	if err != nil {
		return identity{}, &fieldError{clientField, err}
	}
	return identity{tenant: tenant, client: client, text: tenant + "/" + client}, nil
}

// parseIdentity takes an identity's text apart.
func parseIdentity(text string) (identity, error) {
	tenant, client, _ := strings.Cut(text, "/")
	return newIdentity(named{tenant, client})
}

// field is one of the two that make an identity.
type field int

const (
	clientField field = iota
	tenantField
)

// fieldError is what is wrong with a field.
type fieldError struct {
	field field
	err   error
}

func (e *fieldError) Error() string { return e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

// parseGUID returns a GUID in lower case: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12 (RFC 9562 §4). Nothing else names a
// tenant here: the words common, organizations and consumers mean tenants of the other side's choice, and a domain can change
// hands.
func parseGUID(s string) (string, error) {
	const form = "00000000-0000-0000-0000-000000000000"
	if len(s) != len(form) {
		return "", fmt.Errorf("%q is not a GUID", printable(s, maxQuoted))
	}
	for i := range len(s) {
		c := s[i] | 0x20
		if hex := '0' <= s[i] && s[i] <= '9' || 'a' <= c && c <= 'f'; hex == (form[i] == '-') || !hex && s[i] != '-' {
			return "", fmt.Errorf("%q is not a GUID", printable(s, maxQuoted))
		}
	}
	return strings.ToLower(s), nil
}

// attribute is the name under which subjects of that kind keep a field.
func attribute(subject auth.Subject, f field) string {
	switch {
	case subject.Kind() != auth.KindServiceAccount && f == tenantField:
		return TenantField
	case subject.Kind() != auth.KindServiceAccount:
		return ClientField
	case f == tenantField:
		return TenantAnnotation
	default:
		return ClientAnnotation
	}
}

// place says where a subject keeps a field, for people.
func place(subject auth.Subject, f field) string {
	if subject.Kind() == auth.KindServiceAccount {
		return fmt.Sprintf("annotation %s of ServiceAccount %s/%s", attribute(subject, f), subject.Namespace(), subject.Name())
	}
	return fmt.Sprintf("providerConfig.%s of %s %s/%s", attribute(subject, f), subject.Kind(), subject.Namespace(), subject.Name())
}

// GetIdentity implements [auth.Provider]: <tenant-id>/<client-id> in lower case, of the application that the ServiceAccount's
// annotations or the WorkloadIdentity's providerConfig name.
func (p *Provider) GetIdentity(account auth.Account) (string, error) {
	n := named{account.Attributes[attribute(account.Subject, tenantField)], account.Attributes[attribute(account.Subject, clientField)]}
	if n.tenant == "" {
		n.tenant = p.tenant
	}
	id, err := p.identities.parse(n)
	if err != nil {
		return "", identityError(account.Subject, n, err)
	}
	return id.text, nil
}

func identityError(subject auth.Subject, n named, err error) error {
	missing := func(f field, what, fix string) error {
		return &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityMissing,
			Fix: "set " + place(subject, f) + " " + fix,
			Err: fmt.Errorf("%s/%s names no %s", subject.Namespace(), subject.Name(), what),
		}
	}
	switch {
	case n.client == "":
		return missing(clientField, "Azure application", "to the client ID of a Microsoft Entra application or managed identity")
	case n.tenant == "":
		return missing(tenantField, "Microsoft Entra tenant", "to the ID of the application's tenant, or AZURE_TENANT_ID in the controller's environment")
	}
	wrong := clientField
	if e, ok := errors.AsType[*fieldError](err); ok {
		wrong = e.field
	}
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
		Fix: "write the ID as 00000000-0000-0000-0000-000000000000, in hexadecimal digits",
		Err: fmt.Errorf("%s: %w", place(subject, wrong), err),
	}
}
