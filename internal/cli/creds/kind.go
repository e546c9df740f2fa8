package creds

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
)

// Kind is a kind of credential, a value of --creds.
type Kind string

// The kinds.
const (
	// ServiceAccountToken is a token of a ServiceAccount, requested from the cluster or read from a
	// file.
	ServiceAccountToken Kind = "ServiceAccountToken"
	// WorkloadIdentityToken is a token of a WorkloadIdentity, signed by Lanyard's issuer.
	WorkloadIdentityToken Kind = "WorkloadIdentityToken"
	// SpiffeJWT is the JWT-SVID of this process, from the SPIFFE Workload API.
	SpiffeJWT Kind = "SpiffeJWT"
	// SpiffeCertificate is the X.509-SVID of this process, for TLS, from the SPIFFE Workload API.
	SpiffeCertificate Kind = "SpiffeCertificate"
	// GitHubOIDCToken is the token of a job of GitHub Actions.
	GitHubOIDCToken Kind = "GitHubOIDCToken" //nolint:gosec // a kind, no credential
	// GitLabOIDCToken is the token of a job of GitLab.
	GitLabOIDCToken Kind = "GitLabOIDCToken" //nolint:gosec // a kind, no credential
	// AWS, Azure and GCP are the identity that the cloud gives to this machine or Pod, for the
	// registries of the same cloud.
	AWS   Kind = "aws"
	Azure Kind = "azure"
	GCP   Kind = "gcp"
)

// ForRegistries reports whether the credential is a login that is valid only at a cloud's registry.
func (k Kind) ForRegistries() bool { return k == AWS || k == Azure || k == GCP }

// tokenFile is the kind of --token-file. It has no name, because it is no value of --creds.
const tokenFile Kind = ""

// source says how to get a credential of one kind.
type source struct {
	kind  Kind
	short string   // description of the credential
	flags []string // names of the flags that may be set with this kind
	issue func(f *Flags, ctx context.Context, to Receiver) (Credential, error)
}

// sources returns a source for each kind that is a value of --creds: all kinds except tokenFile.
func sources() []source {
	return []source{
		{ServiceAccountToken, "a token of a ServiceAccount", []string{flagAudiences, flagSAName, flagSANamespace, flagSAToken}, (*Flags).serviceAccountToken},
		{WorkloadIdentityToken, "a token of a WorkloadIdentity", []string{flagAudiences, flagWorkloadIdentity}, (*Flags).workloadIdentityToken},
		{SpiffeJWT, "the JWT-SVID of this process", []string{flagAudiences}, (*Flags).spiffeJWT},
		{SpiffeCertificate, "the X.509-SVID of this process", nil, (*Flags).spiffeCertificate},
		{GitHubOIDCToken, "the token of a job of GitHub Actions", []string{flagAudiences}, (*Flags).gitHubToken},
		{GitLabOIDCToken, "the token of a job of GitLab", []string{flagAudiences, flagTokenEnv}, (*Flags).gitLabToken},
		{AWS, "the identity of this machine at AWS, for Amazon ECR", nil, (*Flags).cloudLogin},
		{Azure, "the identity of this machine at Azure, for its registries", nil, (*Flags).cloudLogin},
		{GCP, "the identity of this machine at Google Cloud, for Artifact Registry", nil, (*Flags).cloudLogin},
	}
}

// kind returns the source that the choice selects, or false if Creds is unknown. The zero Choice
// selects the zero source, which stands for the Docker configuration.
func (c *Choice) kind() (source, bool) {
	switch {
	case c.Creds == "" && c.TokenFile != "":
		return source{tokenFile, "a token in a file", []string{flagAudiences, flagTokenFile}, (*Flags).fileToken}, true
	case c.Creds == "":
		return source{}, true
	}
	all := sources()
	at := slices.IndexFunc(all, func(s source) bool { return s.kind == c.Creds })
	if at < 0 {
		return source{}, false
	}
	return all[at], true
}

// spelled returns the flag that selects the source, as the user writes the flag.
func (s source) spelled(spell func(flag string) string) string {
	switch {
	case s.kind != "":
		return spell(flagCreds) + "=" + string(s.kind)
	case s.issue != nil:
		return spell(flagTokenFile)
	default:
		return "the Docker configuration"
	}
}

// Kinds returns the values of --creds.
func Kinds() []string { return kindsWith("") }

// kindsWith returns the kinds with which a flag may be set. If flag is empty, it returns all kinds.
func kindsWith(flag string) []string {
	var names []string
	for _, s := range sources() {
		if flag == "" || slices.Contains(s.flags, flag) {
			names = append(names, string(s.kind))
		}
	}
	return names
}

func kindCompletions() []cobra.Completion {
	var offers []cobra.Completion
	for _, s := range sources() {
		offers = append(offers, cobra.CompletionWithDesc(string(s.kind), s.short))
	}
	return offers
}
