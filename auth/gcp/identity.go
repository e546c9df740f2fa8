package gcp

import (
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/attribute"
)

const (
	// ServiceAccountAnnotation names the IAM service account that a ServiceAccount impersonates, by its address. Without it the
	// ServiceAccount is itself the principal. Source: GKE, "Authenticate to Google Cloud APIs from GKE workloads".
	ServiceAccountAnnotation = "iam.gke.io/gcp-service-account"
	// ProviderAnnotation names the workload identity provider that trusts a ServiceAccount's issuer, by its resource name:
	// projects/<number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>, also as a full resource name or URL of
	// iam.googleapis.com. Without it the issuer is that of the GKE cluster that the controller runs in.
	ProviderAnnotation = "gcp.lanyard.dev/workload-identity-provider"
	// ServiceAccountField is the same as ServiceAccountAnnotation in the providerConfig of a WorkloadIdentity.
	ServiceAccountField = "serviceAccountEmail"
	// ProviderField is the same as ProviderAnnotation in the providerConfig of a WorkloadIdentity. It is required there, since the issuer
	// is not a GKE cluster.
	ProviderField = "workloadIdentityProvider"
)

// claim is what a subject says of its identity. It is comparable.
type claim struct{ account, provider string }

// identity is what the subject decides about the identity of a token.
type identity struct {
	// account is the service account to impersonate; zero if the subject itself is the principal.
	account endpoint.GCPServiceAccount
	// provider trusts the subject's issuer; zero if the issuer is the GKE cluster.
	provider endpoint.GCPWorkloadProvider
	// text is the canonical form: empty, <address>, <provider> or <provider>/serviceAccounts/<address>.
	text string
}

// accountSegment separates a provider from a service account.
const accountSegment = "/serviceAccounts/"

func (i identity) hasProvider() bool { return i.provider != endpoint.GCPWorkloadProvider{} }

func accountAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: ServiceAccountAnnotation, Field: ServiceAccountField}
}

func providerAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: ProviderAnnotation, Field: ProviderField}
}

// parseClaim parses what a subject says, for a universe. An error is an [*attribute.Error].
func parseClaim(c claim, universe endpoint.GCPUniverse) (identity, error) {
	var id identity
	var err error
	if c.provider != "" {
		if id.provider, err = endpoint.ParseGCPWorkloadProvider(c.provider); err != nil {
			return identity{}, &attribute.Error{Attribute: providerAttribute(), Err: err}
		}
		id.text = id.provider.String()
	}
	if c.account == "" {
		return id, nil
	}
	if id.account, err = endpoint.ParseGCPServiceAccount(c.account); err != nil {
		return identity{}, &attribute.Error{Attribute: accountAttribute(), Err: err}
	}
	if id.account.Universe != universe.Domain {
		return identity{}, &attribute.Error{Attribute: accountAttribute(), Err: &endpoint.Error{
			What: "service account", Reason: endpoint.ReasonPartition,
			Detail: id.account.Email + " is of universe " + id.account.Universe + ", the controller of " + universe.Domain,
			Fix:    "name a service account of universe " + universe.Domain,
		}}
	}
	if id.text != "" {
		id.text += accountSegment
	}
	id.text += id.account.Email
	return id, nil
}

// parseIdentity parses the canonical form.
func parseIdentity(text string, universe endpoint.GCPUniverse) (identity, error) {
	provider, account, both := strings.Cut(text, accountSegment)
	if !both && strings.Contains(text, "@") {
		provider, account = "", text
	}
	return parseClaim(claim{account: account, provider: provider}, universe)
}

// GetIdentity implements [auth.Provider]: empty for a ServiceAccount of GKE that is itself the principal, else
//
//	<service account's address>
//	<workload identity provider's resource name>
//	<workload identity provider's resource name>/serviceAccounts/<service account's address>
func (p *Provider) GetIdentity(account auth.Account) (string, error) {
	var c claim
	var hasAccount, hasProvider bool
	c.account, hasAccount = accountAttribute().Of(account)
	c.provider, hasProvider = providerAttribute().Of(account)
	switch {
	case hasAccount && c.account == "":
		return "", accountAttribute().Invalid(account.Subject, attribute.Empty("service account"))
	case hasProvider && c.provider == "":
		return "", providerAttribute().Invalid(account.Subject, attribute.Empty("workload identity provider"))
	case !hasProvider && account.Subject.Kind() != auth.KindServiceAccount:
		return "", providerMissing(account.Subject)
	}
	id, err := p.identities.Parse(c)
	if err != nil {
		return "", providerAttribute().Invalid(account.Subject, err)
	}
	return id.text, nil
}

// providerMissing says that a subject needs a workload identity provider and names none.
func providerMissing(subject auth.Subject) error {
	return providerAttribute().Missing(subject, "workload identity provider", "the resource name of a workload identity provider")
}
