package gcp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

const (
	// ServiceAccountAnnotation names the IAM service account that a ServiceAccount is to be, by its address. Without it the
	// ServiceAccount is a principal itself. Source: GKE, "Authenticate to Google Cloud APIs from GKE workloads".
	ServiceAccountAnnotation = "iam.gke.io/gcp-service-account"
	// ProviderAnnotation names the workload identity provider that trusts a ServiceAccount's issuer, by its resource name:
	// projects/<number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>, also as a full resource name or URL of
	// iam.googleapis.com. Without it the issuer is that of the GKE cluster that the controller runs in.
	ProviderAnnotation = "gcp.lanyard.dev/workload-identity-provider"
	// ServiceAccountField is the same as ServiceAccountAnnotation in the providerConfig of a WorkloadIdentity.
	ServiceAccountField = "serviceAccountEmail"
	// ProviderField is the same as ProviderAnnotation in the providerConfig of a WorkloadIdentity. It is required there: the issuer is no
	// GKE cluster.
	ProviderField = "workloadIdentityProvider"
)

// claim is what a subject says of its identity. It is comparable.
type claim struct{ account, provider string }

// identity is who a token is for, as far as the subject has a say.
type identity struct {
	// account is the service account to be; zero where the subject is the principal.
	account endpoint.GCPServiceAccount
	// provider trusts the subject's issuer; zero where that is the GKE cluster.
	provider endpoint.GCPWorkloadProvider
	// text is the canonical form: empty, <address>, <provider> or <provider>/serviceAccounts/<address>.
	text string
}

// accountSegment separates a provider from a service account.
const accountSegment = "/serviceAccounts/"

func (i identity) hasProvider() bool { return i.provider != endpoint.GCPWorkloadProvider{} }

// fieldError is a fault of one part of a claim.
type fieldError struct {
	account bool // else the provider's
	err     error
}

func (e *fieldError) Error() string { return e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

// parseClaim parses what a subject says, for a universe. An error is a [*fieldError].
func parseClaim(c claim, universe endpoint.GCPUniverse) (identity, error) {
	var id identity
	var err error
	if c.provider != "" {
		if id.provider, err = endpoint.ParseGCPWorkloadProvider(c.provider); err != nil {
			return identity{}, &fieldError{err: err}
		}
		id.text = id.provider.String()
	}
	if c.account == "" {
		return id, nil
	}
	if id.account, err = endpoint.ParseGCPServiceAccount(c.account); err != nil {
		return identity{}, &fieldError{account: true, err: err}
	}
	if id.account.Universe != universe.Domain {
		return identity{}, &fieldError{account: true, err: &endpoint.Error{
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
	accountName, providerName := attributeNames(account.Subject)
	var c claim
	var hasAccount, hasProvider bool
	c.account, hasAccount = account.Attributes[accountName]
	c.provider, hasProvider = account.Attributes[providerName]
	switch {
	case hasAccount && c.account == "":
		return "", identityError(account.Subject, accountName, errEmpty, "remove it, or name a service account")
	case hasProvider && c.provider == "":
		return "", identityError(account.Subject, providerName, errEmpty, "remove it, or name a workload identity provider")
	case !hasProvider && account.Subject.Kind() != auth.KindServiceAccount:
		return "", providerMissing(account.Subject)
	}
	id, err := p.identities.Parse(c)
	if err == nil {
		return id.text, nil
	}
	name := providerName
	if e, ok := errors.AsType[*fieldError](err); ok && e.account {
		name = accountName
	}
	return "", refused(auth.StageIdentity, auth.CodeIdentityInvalid, attributeOf(account.Subject, name), err)
}

// errEmpty is what is wrong with an attribute that is there and says nothing: whoever wrote it meant something.
var errEmpty = errors.New("it is empty")

func attributeNames(subject auth.Subject) (account, provider string) {
	if subject.Kind() == auth.KindServiceAccount {
		return ServiceAccountAnnotation, ProviderAnnotation
	}
	return ServiceAccountField, ProviderField
}

// attributeOf names an attribute of the subject for people.
func attributeOf(subject auth.Subject, name string) string {
	if subject.Kind() == auth.KindServiceAccount {
		return fmt.Sprintf("annotation %s of ServiceAccount %s/%s", name, subject.Namespace(), subject.Name())
	}
	return fmt.Sprintf("providerConfig.%s of %s %s/%s", name, subject.Kind(), subject.Namespace(), subject.Name())
}

func identityError(subject auth.Subject, name string, err error, fix string) error {
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid, Fix: fix,
		Err: fmt.Errorf("%s: %w", attributeOf(subject, name), err),
	}
}

// providerMissing says that a subject needs a workload identity provider and names none.
func providerMissing(subject auth.Subject) error {
	_, name := attributeNames(subject)
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityMissing,
		Fix: fmt.Sprintf("set %s to the resource name of a workload identity provider", attributeOf(subject, name)),
		Err: fmt.Errorf("%s/%s names no workload identity provider", subject.Namespace(), subject.Name()),
	}
}
