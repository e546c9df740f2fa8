package creds

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// The names of the flags.
const (
	flagCreds            = "creds"
	flagAudiences        = "audiences"
	flagSAName           = "sa-name"
	flagSANamespace      = "sa-namespace"
	flagSAToken          = "sa-token"
	flagTokenFile        = "token-file"
	flagTokenEnv         = "token-env"
	flagWorkloadIdentity = "workload-identity"
)

// Process has what package creds needs from the process.
type Process struct {
	// Env looks up the environment. Required.
	Env func(string) string
	// NewCluster makes the Cluster of one command. Required.
	NewCluster func() Cluster
	// Transport carries requests to GitHub. Default: that of package auth/transport.
	Transport http.RoundTripper
}

// Cluster issues tokens. Its errors say what to do.
type Cluster interface {
	// AddTo adds the flags that name a cluster, such as --kubeconfig.
	AddTo(c *cobra.Command)
	// Self returns the ServiceAccount of the Pod that this program runs in. It fails outside a Pod.
	// It also fails if a kubeconfig selects the cluster, which may not be the Pod's cluster.
	Self(ctx context.Context) (namespace, name string, err error)
	// ServiceAccountToken requests a token of a ServiceAccount for these audiences. An empty
	// namespace means the namespace of the kubeconfig or the Pod.
	ServiceAccountToken(ctx context.Context, namespace, name string, audiences []string) (Credential, error)
	// WorkloadIdentityToken requests a token of a WorkloadIdentity for these audiences. The
	// namespace is that of the kubeconfig or the Pod, unless a flag names another namespace.
	WorkloadIdentityToken(ctx context.Context, name string, audiences []string) (Credential, error)
	// Accepts reports whether the cluster's API server accepts the token as a caller's credential.
	Accepts(ctx context.Context, token auth.Secret) (bool, error)
}

// Choice selects a credential. Each field is a flag, and a field of an entry in the credential
// helper's configuration. The zero Choice selects the Docker configuration.
type Choice struct {
	// Creds is the kind of credential (--creds). If Creds is empty, the credential comes from
	// TokenFile. If TokenFile is empty too, it comes from the Docker configuration.
	Creds Kind `json:"creds,omitempty"`
	// Audiences are the audiences of a token (--audiences). Default: [Receiver.Audiences].
	Audiences []string `json:"audiences,omitempty"`
	// SAName and SANamespace name a ServiceAccount (--sa-name, --sa-namespace). Default: the
	// ServiceAccount of the Pod that this program runs in.
	SAName      string `json:"saName,omitempty"`
	SANamespace string `json:"saNamespace,omitempty"`
	// SAToken is the path of a file with a token of a ServiceAccount (--sa-token).
	SAToken string `json:"saToken,omitempty"`
	// TokenFile is the path of a file with a JWT of any issuer (--token-file).
	TokenFile string `json:"tokenFile,omitempty"`
	// TokenEnv is the environment variable with GitLab's token (--token-env). Default:
	// [DefaultTokenEnv].
	TokenEnv string `json:"tokenEnv,omitempty"`
	// WorkloadIdentity names a WorkloadIdentity (--workload-identity).
	WorkloadIdentity string `json:"workloadIdentity,omitempty"`
}

// DefaultTokenEnv is the environment variable with the token of a GitLab job, unless --token-env
// names another variable. GitLab lets the job choose the name (id_tokens).
const DefaultTokenEnv = "LANYARD_ID_TOKEN"

// Flags say which credential a command uses. Make them with [New].
type Flags struct {
	Choice

	// CompleteAudiences offers the values of --audiences in a shell; nil offers nothing.
	CompleteAudiences cobra.CompletionFunc

	env       func(string) string
	cluster   Cluster
	transport http.RoundTripper // for requests to GitHub
}

// New makes the flags of one command.
func New(process Process) *Flags {
	f := &Flags{env: process.Env, cluster: process.NewCluster(), transport: process.Transport}
	if f.transport == nil {
		f.transport = transport.Default()
	}
	return f
}

// AddTo adds the flags to a command: --creds, --audiences, --sa-name, --sa-namespace, --sa-token,
// --token-file, --token-env, --workload-identity, and the flags that select a cluster.
func (f *Flags) AddTo(c *cobra.Command) {
	set := c.Flags()
	set.StringVar((*string)(&f.Creds), flagCreds, "",
		"credential of this job: "+strings.Join(Kinds(), ", ")+" (default: the Docker configuration)")
	set.StringSliceVar(&f.Audiences, flagAudiences, nil, "receivers of the token, separated by commas (default: the artifact's URL)")
	set.StringVar(&f.SAName, flagSAName, "", "ServiceAccount of the token (default: in a Pod, its own)")
	set.StringVar(&f.SANamespace, flagSANamespace, "", "namespace of --sa-name (default: the kubeconfig's or the Pod's)")
	set.StringVar(&f.SAToken, flagSAToken, "", "file with a token of a ServiceAccount, such as a projected volume's")
	set.StringVar(&f.TokenFile, flagTokenFile, "", "file with a token (JWT) of any issuer, in place of --creds")
	set.StringVar(&f.TokenEnv, flagTokenEnv, "", "variable with GitLab's token, a name below id_tokens (default: "+DefaultTokenEnv+")")
	set.StringVar(&f.WorkloadIdentity, flagWorkloadIdentity, "", "name of the WorkloadIdentity of the token")
	f.cluster.AddTo(c)
	frame.CompleteValues(c, flagCreds, kindCompletions()...)
	complete := f.CompleteAudiences
	if complete == nil {
		complete = cobra.NoFileCompletions
	}
	frame.CompleteFlag(c, flagAudiences, complete)
	frame.CompleteNothing(c, flagSAName, flagSANamespace, flagTokenEnv, flagWorkloadIdentity)
}

// ShortLived reports whether the flags ask for a short-lived credential, issued for this run of the
// command. If they do not, the Docker configuration is used. A short-lived credential is never sent
// without TLS. So a command refuses these flags together with a flag such as --insecure-registry.
func (c *Choice) ShortLived() bool { return c.Creds != "" || c.TokenFile != "" }

// Check refuses flags that do not go together. The error names the flag and the fix. Callers pass
// the error to frame.UsageError.
func (f *Flags) Check() error { return f.check(func(name string) string { return "--" + name }) }

// check does the work of Check. For its errors, it calls spell, which returns a flag's name as the
// user writes it.
func (c *Choice) check(spell func(flag string) string) error {
	kind, known := c.kind()
	if !known {
		return fmt.Errorf("%s: there is no credential %.40q; write one of %s", spell(flagCreds), c.Creds, strings.Join(Kinds(), ", "))
	}
	if c.Creds != "" && c.TokenFile != "" {
		return fmt.Errorf("%s stands in place of %s: name one of them", spell(flagTokenFile), spell(flagCreds))
	}
	for _, name := range c.set() {
		if !slices.Contains(kind.flags, name) {
			return fmt.Errorf("%s does not go with %s; it is for %s", spell(name), kind.spelled(spell), strings.Join(kindsWith(name), ", "))
		}
	}
	switch {
	case c.SAToken != "" && (c.SAName != "" || c.SANamespace != ""):
		return fmt.Errorf("%s and %s exclude each other: the file's token has its own account", spell(flagSAToken), spell(flagSAName))
	case c.Creds == WorkloadIdentityToken && c.WorkloadIdentity == "":
		return fmt.Errorf("%s=%s needs %s: name the identity", spell(flagCreds), c.Creds, spell(flagWorkloadIdentity))
	case c.Creds == GitHubOIDCToken && len(c.Audiences) > 1:
		return fmt.Errorf("%s: a token of GitHub has one audience; name one receiver", spell(flagAudiences))
	}
	return nil
}

// set returns the names of the flags that are set, except --creds.
func (c *Choice) set() []string {
	var names []string
	for name, set := range map[string]bool{
		flagAudiences: len(c.Audiences) > 0, flagSAName: c.SAName != "", flagSANamespace: c.SANamespace != "", flagSAToken: c.SAToken != "",
		flagTokenFile: c.TokenFile != "", flagTokenEnv: c.TokenEnv != "", flagWorkloadIdentity: c.WorkloadIdentity != "",
	} {
		if set {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// errNoCredential says that no flag names a credential.
var errNoCredential = errors.New("name a credential with --creds or --token-file")
