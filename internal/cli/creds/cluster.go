package creds

import (
	"context"
	"fmt"
	"slices"
)

// serviceAccountToken requests a token of --sa-name, or reads --sa-token.
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

// workloadIdentityToken requests a token of --workload-identity.
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

// issuedFor returns c with the claims of its token. It refuses a token whose audiences differ from
// the parameter audiences. The parameter from describes the token in errors.
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
