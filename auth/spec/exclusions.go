package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// exclusion is a combination of fields that is refused whoever asks.
type exclusion struct {
	field   string
	message string
	fix     string
	broken  func(Fields) bool
}

// exclusions are tried in order; the first that is broken is the answer. Fields.Provider is never empty here.
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
			field: "spec.insecure", message: "insecure works only with provider generic: a short-lived credential is never sent over an unprotected connection",
			fix:    "remove insecure",
			broken: func(f Fields) bool { return f.Insecure && f.Provider != Generic },
		},
		{
			field: "spec.insecure", message: "insecure and sts exclude each other: a short-lived credential is never sent over an unprotected connection",
			fix:    "remove insecure",
			broken: func(f Fields) bool { return f.Insecure && f.STS != nil },
		},
		{
			field: "spec.sts", message: "sts works only with the providers generic and aws",
			fix:    "remove sts",
			broken: func(f Fields) bool { return f.STS != nil && f.Provider != Generic && f.Provider != stsAWS },
		},
		{
			field: fieldAccount, message: "serviceAccountName with provider generic needs sts",
			fix: "name in sts.endpoint where the account's token is exchanged, or set provider to the bucket's cloud",
			broken: func(f Fields) bool {
				return f.ServiceAccountName != "" && f.Provider == Generic && f.STS == nil && !f.PullSecrets
			},
		},
		{
			field: "spec.sts", message: "sts with provider generic needs serviceAccountName",
			fix:    "name the ServiceAccount whose token is exchanged, or remove sts",
			broken: func(f Fields) bool { return f.STS != nil && f.Provider == Generic && f.ServiceAccountName == "" },
		},
		{
			field: "spec.sts.endpoint", message: "Required value: endpoint is the URL of the service",
			fix:    "write https://<host>, or remove sts",
			broken: func(f Fields) bool { return f.STS != nil && f.STS.Endpoint == "" },
		},
	}
}

// stsAWS is the protocol of AWS STS, AssumeRoleWithWebIdentity, and the provider that speaks it.
const stsAWS = "aws"

// knownProviders are the values of spec.provider that have a meaning, whether or not this build has it.
func knownProviders() []string { return []string{Generic, "aws", "azure", "gcp"} }

// known refuses providers that have no meaning in any build.
func known(provider string) error {
	if slices.Contains(knownProviders(), provider) {
		return nil
	}
	return refuse(auth.CodeOptionInvalid, "spec.provider",
		fmt.Sprintf("Unsupported value: %.80q", provider), "write one of "+strings.Join(knownProviders(), ", "))
}

// knownSTS refuses protocols that nobody speaks.
func knownSTS(service *TokenService) error {
	const field = "spec.sts.provider"
	switch {
	case service == nil || service.Provider == stsAWS:
		return nil
	case service.Provider == "":
		return refuse(auth.CodeOptionInvalid, field, "Required value: provider is the service's protocol", "write "+stsAWS)
	default:
		return refuse(auth.CodeOptionInvalid, field, fmt.Sprintf("Unsupported value: %.80q", service.Provider), "write "+stsAWS)
	}
}

// secretName refuses what is no name of a Secret.
func secretName(field, name string) error {
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
