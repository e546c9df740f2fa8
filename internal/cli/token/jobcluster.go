package token

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/creds"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// JobProcess returns what package creds needs from this process.
func JobProcess(std frame.IO) creds.Process {
	return creds.Process{Env: std.Env, NewCluster: func() creds.Cluster { return &jobCluster{&cluster.Flags{Std: std}} }}
}

// job implements holder, a source of tokens, for the CI job in which this program runs. The flags
// choose the credential that it gets, such as the job's OIDC token.
type job struct {
	flags       *creds.Flags
	image       string // image repository; empty without a registry
	forRegistry bool   // the credential must be safe to send to a registry
}

// String returns the job's name in messages.
func (*job) String() string { return "this job" }

func (*job) explain(context.Context, io.Writer) {}

// request implements holder. It ignores the audiences of the call, because the job's flags have the
// audiences.
func (j *job) request(ctx context.Context, _ []string, duration time.Duration) (issued, error) {
	if duration > 0 {
		return issued{}, errors.New("--duration is for identities and accounts: who issues the job's credential decides how long it lives")
	}
	issue := j.flags.Issue
	if j.forRegistry {
		issue = j.flags.IssueForRegistry
	}
	c, err := issue(ctx, creds.Receiver{Image: j.image})
	if err != nil {
		return issued{}, err
	}
	token := issued{text: c.Secret.Reveal(), expires: c.ExpiresAt, user: c.User, registry: j.image}
	ends := metav1.NewTime(c.ExpiresAt)
	token.answer = map[string]any{"token": token.text, "expirationTimestamp": ends}
	if len(c.Certificate) > 0 {
		token.setCertificate(string(c.Certificate), c.Key.Reveal())
		token.answer = map[string]any{"certificateChain": token.certificate, "privateKey": token.key, "expirationTimestamp": ends}
	}
	return token, nil
}

// jobCluster issues the tokens of a job. It implements creds.Cluster.
type jobCluster struct{ *cluster.Flags }

// AddTo implements creds.Cluster.
func (j *jobCluster) AddTo(c *cobra.Command) {
	// If the command has the flag --kubeconfig, it has all of these flags already.
	if c.Flags().Lookup("kubeconfig") == nil {
		j.Flags.AddTo(c)
	}
}

// Self implements creds.Cluster with the token that Kubernetes mounts.
func (j *jobCluster) Self(ctx context.Context) (namespace, name string, err error) {
	c, err := j.Connect(ctx)
	switch {
	case err != nil:
		return "", "", err
	case !c.Pod:
		return "", "", errors.New("a kubeconfig names the cluster, which may be another one")
	}
	return creds.ReadAccount(cluster.PodToken(j.Std))
}

// ServiceAccountToken implements creds.Cluster.
func (j *jobCluster) ServiceAccountToken(ctx context.Context, namespace, name string, audiences []string) (creds.Credential, error) {
	return j.request(ctx, namespace, func(c *cluster.Client) holder { return &account{c, name} }, audiences)
}

// WorkloadIdentityToken implements creds.Cluster.
func (j *jobCluster) WorkloadIdentityToken(ctx context.Context, name string, audiences []string) (creds.Credential, error) {
	return j.request(ctx, "", func(c *cluster.Client) holder { return &identity{Client: c, name: name} }, audiences)
}

// request gets a token from a holder, such as a ServiceAccount, in the given namespace. The given
// function makes the holder, with a client of the cluster. If namespace is empty, request uses the
// namespace of the kubeconfig or the Pod.
func (j *jobCluster) request(
	ctx context.Context, namespace string, of func(*cluster.Client) holder, audiences []string,
) (creds.Credential, error) {
	c, err := j.Connect(ctx)
	if err != nil {
		return creds.Credential{}, err
	}
	if namespace != "" {
		c.Namespace = namespace
	}
	token, err := of(c).request(ctx, audiences, 0)
	if err != nil {
		return creds.Credential{}, err
	}
	return creds.Credential{User: token.user, Secret: auth.NewSecret(token.text), ExpiresAt: token.expires}, nil
}

// Accepts implements creds.Cluster.
func (j *jobCluster) Accepts(ctx context.Context, token auth.Secret) (bool, error) {
	c, err := j.Connect(ctx)
	if err != nil {
		return false, err
	}
	return c.Accepts(ctx, token)
}
