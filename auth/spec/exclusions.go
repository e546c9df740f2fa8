package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// exclusion is a combination of fields that is always refused, whatever the rules are.
type exclusion struct {
	field   string
	message string
	fix     string
	broken  func(Fields) bool
}

// exclusions returns the exclusions in the order in which they are checked. The error of the first
// that applies is reported. Before the check, callers replace an empty Fields.Provider: by a cloud
// if Fields.ProviderLater is true, and by [Generic] otherwise.
func exclusions() []exclusion {
	return []exclusion{
		{
			field: "spec.secretRef", message: "secretRef works only with provider generic: a cloud provider uses short-lived credentials",
			fix:    "remove secretRef, or set provider: generic",
			broken: func(f Fields) bool { return f.SecretRef != nil && f.Provider != Generic },
		},
		{
			field: "spec.secretRef", message: "secretRef and serviceAccountName exclude each other",
			fix:    "name one source of credentials",
			broken: func(f Fields) bool { return f.SecretRef != nil && f.ServiceAccountName != "" },
		},
		{
			field:   "spec.insecure",
			message: "insecure works only with provider generic: a short-lived credential is never sent over an unprotected connection",
			fix:     "remove insecure",
			broken:  func(f Fields) bool { return f.Insecure && f.Provider != Generic },
		},
		{
			field:   "spec.insecure",
			message: "insecure and sts exclude each other: a short-lived credential is never sent over an unprotected connection",
			fix:     "remove insecure",
			broken:  func(f Fields) bool { return f.Insecure && f.STS != nil },
		},
		{
			field: "spec.sts", message: "sts works only with the providers generic and aws",
			fix:    "remove sts",
			broken: func(f Fields) bool { return f.STS != nil && f.Provider != Generic && f.Provider != aws },
		},
		{
			field: fieldAccount, message: "serviceAccountName with provider generic needs sts",
			fix: "set sts.endpoint to the service that exchanges the account's token, or provider to the bucket's cloud",
			broken: func(f Fields) bool {
				return f.ServiceAccountName != "" && f.Provider == Generic && f.STS == nil && !f.PullSecrets
			},
		},
		{
			field: fieldIdentity, message: "workloadIdentityName and serviceAccountName exclude each other",
			fix:    "name one identity",
			broken: func(f Fields) bool { return f.WorkloadIdentityName != "" && f.ServiceAccountName != "" },
		},
		{
			field: fieldIdentity, message: "workloadIdentityName and secretRef exclude each other",
			fix:    "name one source of credentials",
			broken: func(f Fields) bool { return f.WorkloadIdentityName != "" && f.SecretRef != nil },
		},
		{
			field: fieldIdentity, message: "workloadIdentityName does not work with provider generic alone",
			fix: "set provider to the identity's targetSystem.type, or credential.type to WorkloadIdentityToken where the kind has it",
			broken: func(f Fields) bool {
				return f.WorkloadIdentityName != "" && f.Provider == Generic && f.STS == nil && f.Credential == nil
			},
		},
		{
			field: "spec.sts", message: "sts with provider generic needs serviceAccountName or workloadIdentityName",
			fix: "name the identity whose token is exchanged, or remove sts",
			broken: func(f Fields) bool {
				return f.STS != nil && f.Provider == Generic && f.ServiceAccountName == "" && f.WorkloadIdentityName == ""
			},
		},
		{
			field: fieldCredential, message: "credential works only with provider generic: a cloud provider issues a credential of its own",
			fix:    "remove credential, or set provider: generic",
			broken: func(f Fields) bool { return f.Credential != nil && f.Provider != Generic },
		},
		{
			field: fieldCredential, message: "credential and secretRef exclude each other",
			fix:    "name one source of credentials",
			broken: func(f Fields) bool { return f.Credential != nil && f.SecretRef != nil },
		},
		{
			field:   "spec.insecure",
			message: "insecure and credential exclude each other: a short-lived credential is never sent over an unprotected connection",
			fix:     "remove insecure",
			broken:  func(f Fields) bool { return f.Credential != nil && f.Insecure },
		},
		{
			field: fieldCredential, message: "credential.type WorkloadIdentityToken needs workloadIdentityName",
			fix: "name the WorkloadIdentity whose token is used",
			broken: func(f Fields) bool {
				return f.credentialType() == WorkloadIdentityToken && f.WorkloadIdentityName == ""
			},
		},
		{
			field: fieldCredential, message: "credential.type ServiceAccountToken and workloadIdentityName exclude each other",
			fix:    "set credential.type to WorkloadIdentityToken, or remove workloadIdentityName",
			broken: func(f Fields) bool { return f.credentialType() == ServiceAccountToken && f.WorkloadIdentityName != "" },
		},
		{
			field: fieldCredential, message: "a SPIFFE credential proves the object itself",
			fix: "remove serviceAccountName and workloadIdentityName",
			broken: func(f Fields) bool {
				return f.credentialType().SPIFFE() && (f.ServiceAccountName != "" || f.WorkloadIdentityName != "")
			},
		},
		{
			field: fieldAudiences, message: "audiences do not work with type SpiffeCertificate: a certificate names no audience",
			fix:    "remove audiences",
			broken: func(f Fields) bool { return f.credentialType() == SpiffeCertificate && len(f.Credential.Audiences) > 0 },
		},
		{
			field: fieldAWSIdentity, message: "identityRef works only with provider aws: it names an AWS identity",
			fix:    "name a serviceAccountName or workloadIdentityName instead",
			broken: func(f Fields) bool { return f.IdentityRef != nil && f.Provider != aws && f.ProviderLater },
		},
		{
			field: fieldAWSIdentity, message: "identityRef works only with provider aws: it names an AWS identity",
			fix:    "remove identityRef, or set provider: aws",
			broken: func(f Fields) bool { return f.IdentityRef != nil && f.Provider != aws },
		},
		{
			field: fieldAWSIdentity, message: "identityRef excludes serviceAccountName and workloadIdentityName",
			fix: "name one identity",
			broken: func(f Fields) bool {
				return f.IdentityRef != nil && (f.ServiceAccountName != "" || f.WorkloadIdentityName != "")
			},
		},
		{
			field: fieldAWSIdentity, message: "identityRef and sts exclude each other: an AWS identity is used only at AWS STS",
			fix:    "remove sts",
			broken: func(f Fields) bool { return f.IdentityRef != nil && f.STS != nil },
		},
		{
			field: fieldAWSIdentity, message: "an identity of an administrator is not used over a connection that the object chooses",
			fix: "remove certSecretRef and proxySecretRef, or name an AWSServiceAccountIdentity",
			broken: func(f Fields) bool {
				return f.IdentityRef.lent() && (f.CertSecretRef != nil || f.ProxySecretRef != nil)
			},
		},
		{
			field: "spec.sts.endpoint", message: "Required value: endpoint is the URL of the service",
			fix:    "write https://<host>, or remove sts",
			broken: func(f Fields) bool { return f.STS != nil && f.STS.Endpoint == "" },
		},
	}
}

// aws is the name of the provider in spec.provider, and of AWS's protocol
// (AssumeRoleWithWebIdentity) in spec.sts.provider.
const aws = "aws"

// knownProviders returns the valid values of spec.provider: first [Generic], then the clouds. A
// build may support only some of the clouds.
func knownProviders() []string { return []string{Generic, aws, "azure", "gcp"} }

// checkProvider refuses a provider that is not valid in any build.
func checkProvider(fields Fields) error {
	known := knownProviders()
	if fields.ProviderLater {
		known = known[1:] // without Generic, which is no cloud
	}
	if slices.Contains(known, fields.Provider) {
		return nil
	}
	return refuse(auth.CodeOptionInvalid, fields.providerField(),
		fmt.Sprintf("Unsupported value: %.80q", fields.Provider), "write one of "+strings.Join(known, ", "))
}

// checkSTS refuses spec.sts without a protocol, or with an unknown protocol.
func checkSTS(service *TokenService) error {
	const field = "spec.sts.provider"
	switch {
	case service == nil || service.Provider == aws:
		return nil
	case service.Provider == "":
		return refuse(auth.CodeOptionInvalid, field, "Required value: provider is the service's protocol", "write "+aws)
	default:
		return refuse(auth.CodeOptionInvalid, field, fmt.Sprintf("Unsupported value: %.80q", service.Provider), "write "+aws)
	}
}

// checkSecretName refuses a name that a Secret cannot have.
func checkSecretName(field, name string) error {
	const fix = "name a Secret of the object's own namespace"
	switch {
	case name == "":
		return refuse(auth.CodeOptionInvalid, field+".name", "Required value: name must be a lower-case DNS-1123 subdomain", fix)
	case !auth.IsSubdomain(name):
		return refuse(auth.CodeOptionInvalid, field+".name", fmt.Sprintf("name must be a lower-case DNS-1123 subdomain, not %.80q", name), fix)
	default:
		return nil
	}
}
