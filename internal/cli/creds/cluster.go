package creds

import (
	"context"
	"fmt"
	"slices"
)

// serviceAccountToken reads a token from the file that --sa-token names. Without this flag, it
// requests a token for a ServiceAccount.
func (f *Flags) serviceAccountToken(ctx context.Context, to Receiver) (Credential, error) {
	if f.SAToken != "" {
		return f.readToken(flagSAToken, f.SAToken)
	}
	if len(to.Audiences) == 0 {
		return Credential{}, needsAudience(ServiceAccountToken)
	}
	namespace, name := f.SANamespace, f.SAName
	if name == "" {
		ownNamespace, own, err := f.cluster.Self(ctx)
		if err != nil {
			return Credential{}, fmt.Errorf("--%s names no ServiceAccount, and this Pod's cannot be used: %w", flagSAName, err)
		}
		if namespace != "" && namespace != ownNamespace {
			return Credential{}, fmt.Errorf("--%s needs --%s: this Pod's ServiceAccount is in namespace %s",
				flagSANamespace, flagSAName, ownNamespace)
		}
		namespace, name = ownNamespace, own
	}
	c, err := f.cluster.ServiceAccountToken(ctx, namespace, name, to.Audiences)
	return issuedFor(c, err, to.Audiences, "the token of ServiceAccount "+name)
}

// workloadIdentityToken requests a token for the WorkloadIdentity that --workload-identity names.
func (f *Flags) workloadIdentityToken(ctx context.Context, to Receiver) (Credential, error) {
	if len(to.Audiences) == 0 {
		return Credential{}, needsAudience(WorkloadIdentityToken)
	}
	c, err := f.cluster.WorkloadIdentityToken(ctx, f.WorkloadIdentity, to.Audiences)
	return issuedFor(c, err, to.Audiences, "the token of WorkloadIdentity "+f.WorkloadIdentity)
}

func needsAudience(kind Kind) error {
	return fmt.Errorf("--%s=%s needs --%s: name the receiver of the token", flagCreds, kind, flagAudiences)
}

// issuedFor returns the credential c with the claims of its token. It refuses a token whose
// audiences are not exactly the given ones. The last argument describes the token in errors, such
// as "the token from GitHub".
func issuedFor(c Credential, err error, audiences []string, from string) (Credential, error) {
	if err != nil {
		return Credential{}, err
	}
	read, err := newJWT(c.Secret.Reveal(), from)
	if err != nil {
		return Credential{}, err
	}
	got := slices.Sorted(slices.Values(read.claims.Audience))
	if !slices.Equal(got, slices.Sorted(slices.Values(audiences))) {
		return Credential{}, fmt.Errorf("%s is for audience %.80q, not for %.80q, which was asked for", from, got, audiences)
	}
	if c.User != "" {
		read.User = c.User
	}
	return read, nil
}
