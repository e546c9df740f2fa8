package gcp

import (
	"cmp"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/attribute"
)

const (
	// ServiceAccountAnnotation has the address of the IAM service account that a ServiceAccount
	// impersonates. Without this annotation the ServiceAccount is itself the principal. Source:
	// GKE, "Authenticate to Google Cloud APIs from GKE workloads".
	ServiceAccountAnnotation = "iam.gke.io/gcp-service-account"
	// ProviderAnnotation has the resource name of the workload identity provider that trusts a
	// ServiceAccount's issuer:
	// projects/<number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>. A full
	// resource name and a URL of iam.googleapis.com are accepted too. Without this annotation the
	// issuer is the GKE cluster that the controller runs in.
	ProviderAnnotation = "gcp.lanyard.dev/workload-identity-provider"
	// FluxProviderAnnotation is Flux's name of ProviderAnnotation. With this annotation the
	// audience of the proof is the one that Flux uses: the provider's full resource name without
	// "https:". A provider that lists allowed audiences must list this one. An account with both
	// annotations is refused.
	FluxProviderAnnotation = "gcp.auth.fluxcd.io/workload-identity-provider"
	// ServiceAccountField takes the place of ServiceAccountAnnotation in a WorkloadIdentity's
	// providerConfig.
	ServiceAccountField = "serviceAccountEmail"
	// ImpersonateAnnotation lists the addresses of service accounts, separated by commas
	// ([endpoint.ParseGCPImpersonation]). The last service account is impersonated, and the service
	// accounts before it are its delegates. The impersonation starts from the service account in
	// ServiceAccountAnnotation. Without that annotation, it starts from the ServiceAccount itself.
	// Only Google's policies decide whether each step is allowed.
	ImpersonateAnnotation = "lanyard.dev/impersonate"
	// ImpersonateField takes the place of ImpersonateAnnotation in a WorkloadIdentity's
	// providerConfig.
	ImpersonateField = "impersonate"
	// ProviderField takes the place of ProviderAnnotation in a WorkloadIdentity's providerConfig. A
	// WorkloadIdentity needs this field, because its issuer is not a GKE cluster.
	ProviderField = "workloadIdentityProvider"
)

// statement has the values of a subject's annotations or providerConfig. It is comparable, because
// a memo uses it as a key.
type statement struct {
	account, provider string
	// impersonated lists the delegates and, at the end, the account to impersonate.
	impersonated string
	// flux is true if the subject names the provider in FluxProviderAnnotation.
	flux bool
}

// identity is the Google Cloud identity that a subject's annotations or providerConfig name. It is
// parsed from a [statement].
type identity struct {
	// account is the service account to impersonate; zero if the subject itself is the principal.
	account endpoint.GCPServiceAccount
	// chain lists the delegates and, at the end, the service account to impersonate. The
	// impersonation starts from account or, if account is zero, from the subject itself. The chain
	// may be empty.
	chain []endpoint.GCPServiceAccount
	// provider is the provider that trusts the subject's issuer; zero if the issuer is the GKE
	// cluster.
	provider endpoint.GCPWorkloadProvider
	// flux is true if the subject names the provider in FluxProviderAnnotation. The proof then has
	// the audience that Flux uses.
	flux bool
	// text is the identity in canonical form, the value of Identity in [auth.Key]. See GetIdentity
	// for its syntax.
	text string
}

// Separators in [identity.text]. accountSegment stands between the workload identity provider and
// the service account. chainSegment stands before the addresses of [identity.chain]. The plus sign
// is unambiguous: no provider's name and no service account's address contains one.
const (
	accountSegment = "/serviceAccounts/"
	chainSegment   = "+"
)

func (i identity) hasProvider() bool { return i.provider != endpoint.GCPWorkloadProvider{} }

// audience returns the audience of the JWT that the workload identity provider accepts as a proof.
func (i identity) audience() string {
	if i.flux {
		return i.provider.FullName()
	}
	return i.provider.Audience()
}

func accountAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: ServiceAccountAnnotation, Field: ServiceAccountField}
}

func impersonateAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: ImpersonateAnnotation, Field: ImpersonateField}
}

func providerAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: ProviderAnnotation, Field: ProviderField}
}

// attribute returns the annotation or field that names the provider, for errors.
func (s statement) attribute() attribute.Attribute {
	if s.flux {
		return attribute.Attribute{Annotation: FluxProviderAnnotation}
	}
	return providerAttribute()
}

// parseStatement parses a statement. Its service accounts must be in the universe. The error is an
// [*attribute.Error].
func parseStatement(said statement, universe endpoint.GCPUniverse) (identity, error) {
	var id identity
	var err error
	if said.provider != "" {
		if id.provider, err = endpoint.ParseGCPWorkloadProvider(said.provider); err != nil {
			return identity{}, &attribute.Error{Attribute: said.attribute(), Err: err}
		}
		id.text = id.provider.String()
		if id.flux = said.flux; id.flux {
			id.text = id.provider.FullName()
		}
	}
	if said.account != "" {
		id.account, err = endpoint.ParseGCPServiceAccount(said.account)
		if err = cmp.Or(err, checkUniverse(universe, id.account)); err != nil {
			return identity{}, &attribute.Error{Attribute: accountAttribute(), Err: err}
		}
		if id.text != "" {
			id.text += accountSegment
		}
		id.text += id.account.Email
	}
	if said.impersonated == "" {
		return id, nil
	}
	id.chain, err = endpoint.ParseGCPImpersonation(said.impersonated)
	if err = cmp.Or(err, checkUniverse(universe, id.chain...)); err != nil {
		return identity{}, &attribute.Error{Attribute: impersonateAttribute(), Err: err}
	}
	id.text += chainSegment + said.impersonated
	return id, nil
}

// checkUniverse refuses service accounts of another universe.
func checkUniverse(universe endpoint.GCPUniverse, accounts ...endpoint.GCPServiceAccount) error {
	for _, account := range accounts {
		if account.Universe != universe.Domain {
			return &endpoint.Error{
				What: "service account", Reason: endpoint.ReasonPartition,
				Detail: account.Email + " is in universe " + account.Universe + ", but the controller is in universe " + universe.Domain,
				Fix:    "name a service account in universe " + universe.Domain,
			}
		}
	}
	return nil
}

// parseIdentity reads an identity's canonical form.
func parseIdentity(text string, universe endpoint.GCPUniverse) (identity, error) {
	own, chain, _ := strings.Cut(text, chainSegment)
	provider, account, both := strings.Cut(own, accountSegment)
	if !both && strings.Contains(own, "@") {
		provider, account = "", own
	}
	return parseStatement(statement{account: account, provider: provider, impersonated: chain, flux: strings.HasPrefix(provider, "//")},
		universe)
}

// GetIdentity implements [auth.Provider]. It returns an empty string for a ServiceAccount of GKE
// that is itself the principal. Otherwise it returns the names in the subject's annotations or
// providerConfig, in one of these forms:
//
//	<service account's address>
//	<workload identity provider's resource name>
//	<workload identity provider's resource name>/serviceAccounts/<service account's address>
//
// If the subject has [ImpersonateAnnotation] or [ImpersonateField], GetIdentity appends a plus sign
// and the addresses from it, separated by commas. If the workload identity provider is from
// [FluxProviderAnnotation], its full resource name is used, which starts with //.
func (p *Provider) GetIdentity(account auth.Account) (string, error) {
	var said statement
	var hasAccount, hasChain, hasProvider bool
	said.account, hasAccount = accountAttribute().Of(account)
	said.impersonated, hasChain = impersonateAttribute().Of(account)
	said.provider, hasProvider = providerAttribute().Of(account)
	if account.Subject.Kind() == auth.KindServiceAccount {
		value, hasFlux := account.Attributes[FluxProviderAnnotation]
		if hasFlux && hasProvider {
			return "", providerAttribute().Invalid(account.Subject, &endpoint.Error{
				What: "workload identity provider", Reason: endpoint.ReasonMalformed,
				Detail: "the annotation " + FluxProviderAnnotation + " names one too", Fix: "remove one of the two",
			})
		}
		if hasFlux {
			said.provider, said.flux, hasProvider = value, true, true
		}
	}
	switch {
	case hasAccount && said.account == "":
		return "", accountAttribute().Invalid(account.Subject, attribute.Empty("service account"))
	case hasChain && said.impersonated == "":
		return "", impersonateAttribute().Invalid(account.Subject, attribute.Empty("service account"))
	case hasProvider && said.provider == "":
		return "", said.attribute().Invalid(account.Subject, attribute.Empty("workload identity provider"))
	case !hasProvider && account.Subject.Kind() != auth.KindServiceAccount:
		return "", providerMissing(account.Subject)
	}
	id, err := p.identities.Parse(said)
	if err != nil {
		return "", said.attribute().Invalid(account.Subject, err)
	}
	return id.text, nil
}

// providerMissing is the error for a subject that needs a workload identity provider but names
// none.
func providerMissing(subject auth.Subject) error {
	return providerAttribute().Missing(subject, "workload identity provider", "the resource name of a workload identity provider")
}
