// Package token has the commands that give people, programs and CI jobs short-lived credentials.
package token

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/creds"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/wholefile"
)

// Values of the flag --format, which selects how a token is written.
const (
	formatRaw            = "raw"
	formatExecCredential = "exec-credential" //nolint:gosec // a format, no credential
	formatDocker         = "docker"
	formatEnv            = "env"
)

// execInfo is the environment variable that a Kubernetes client sets for its credential plugin. The
// variable says which answer the client expects. Source: Kubernetes, "client-go credential
// plugins".
const execInfo = "KUBERNETES_EXEC_INFO"

// tokenOptions are the flags of the command token.
type tokenOptions struct {
	*creds.Flags // --creds and related flags; --audiences also works without --creds

	duration time.Duration
	registry string
	format   string
	file     string
	refresh  bool
}

// Commands returns the commands token and credential-helper.
func Commands(std frame.IO) []*cobra.Command {
	return []*cobra.Command{newToken(std), newCredentialHelper(std)}
}

func newToken(std frame.IO) *cobra.Command {
	flags := &jobCluster{&cluster.Flags{Std: std}}
	process := JobProcess(std)
	process.NewCluster = func() creds.Cluster { return flags }
	o := tokenOptions{Flags: creds.New(process), format: formatRaw}
	c := &cobra.Command{
		Use:   "token [KIND/NAME]",
		Short: "Get a token of a WorkloadIdentity, a ServiceAccount, an object or this CI job",
		Long: `Get a token of a WorkloadIdentity, a ServiceAccount or an object; or, with --creds or --token-file, the credential of this
CI job, as the commands for artifacts use it.

  workloadidentity/NAME  A token that Lanyard's issuer signs. Clouds and other services that trust the issuer accept it as
                         the identity.
  serviceaccount/NAME    A token that the cluster signs, for the audiences that --audiences names.
  KIND/NAME              What the controller shows to the object's registry by spec.credential: a token, or an X.509-SVID
                         with a new key. KIND is ` + cluster.AnyKind(std.Kinds.Where(kinds.Kind.HasSVIDs).Names()) + `.

The caller needs the permission to create the token, such as workloadidentities/token. No role of the chart has this
permission for people, and for SVIDs only the ClusterRole lanyard-svid has it, which the chart binds to nobody.

A token is a credential until it expires. With -o, it is in a file that only you may read, and that appears whole or not
at all. With --refresh, the command keeps the file fresh: it replaces the token at half of its life, until Ctrl-C.`,
		Example: `  # A token for one of the identity's audiences
  lanyard token workloadidentity/app --audiences sts.amazonaws.com

  # A file for the SDKs of the clouds, kept fresh until Ctrl-C
  lanyard token workloadidentity/app -o /run/user/1000/app.token --refresh &
  AWS_WEB_IDENTITY_TOKEN_FILE=/run/user/1000/app.token AWS_ROLE_ARN=arn:aws:iam::123456789123:role/app aws sts get-caller-identity

  # What the controller shows to an object's registry, as a Docker configuration of its own
  lanyard token ocirepository/app --format=docker -o /run/user/1000/config.json
  DOCKER_CONFIG=/run/user/1000 docker pull registry.example.com/team/app

  # In a job of GitHub Actions: a login at a registry, for the tools that read Docker's configuration
  lanyard token --creds=GitHubOIDCToken --audiences registry.example.com --format=docker --registry registry.example.com

  # As kubectl's credential for another cluster, whose API server trusts the issuer
  kubectl config set-credentials app --exec-api-version=client.authentication.k8s.io/v1 --exec-interactive-mode=Never \
    --exec-command=lanyard --exec-arg=token,workloadidentity/app,--namespace=tenant-a,--format=exec-credential`,
	}
	flags.AddTo(c)
	o.CompleteAudiences = flags.completeAudiences
	o.AddTo(c)
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "audience" {
			name = flagAudiences
		}
		return pflag.NormalizedName(name)
	})
	c.Flags().Lookup(flagAudiences).Usage = "receivers of the token, separated by commas (default: all of a WorkloadIdentity's; else none)"
	c.Flags().Lookup("creds").Usage = "credential of this job: " + strings.Join(creds.Kinds(), ", ")
	c.Flags().DurationVar(&o.duration, "duration", 0,
		"how long the token lives; it can only shorten the identity's duration "+
			"(default: the identity's, and one hour for a ServiceAccount)")
	c.Flags().StringVar(&o.registry, "registry", "",
		"with --format=docker or a cloud's --creds: host of the registry (default: the object's)")
	c.Flags().StringVar(&o.format, "format", o.format, "format: "+strings.Join(tokenFormats(), ", "))
	c.Flags().StringVarP(&o.file, "output", "o", "", "write the token to this file, with mode 0600")
	c.Flags().BoolVar(&o.refresh, "refresh", false, "with -o: keep the file fresh until Ctrl-C")
	frame.CompleteValues(c, "format", tokenFormats()...)
	frame.CompleteNothing(c, "duration", "registry")
	c.ValidArgsFunction = frame.CompleteFirst(flags.completeIdentities)
	c.Args = func(_ *cobra.Command, args []string) error {
		return errors.Join(o.checkHolder(std.Kinds, args), o.check())
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if o.ShortLived() {
			return o.run(c.Context(), std, &job{o.Flags, o.registry, o.format == formatDocker})
		}
		of, err := parseHolder(std.Kinds, args)
		if err != nil {
			return err
		}
		cluster, err := flags.Connect(c.Context())
		if err != nil {
			return err
		}
		return o.run(c.Context(), std, of(cluster))
	}
	return c
}

// flagAudiences is the name of a flag that package creds defines. The command "lanyard token"
// accepts the flag both with and without --creds.
const flagAudiences = "audiences"

// checkHolder refuses arguments and flags that name no holder, or more than one.
func (o *tokenOptions) checkHolder(table kinds.Table, args []string) error {
	if o.ShortLived() {
		if len(args) > 0 {
			return fmt.Errorf("%s and --creds name two holders of a token: leave out one", args[0])
		}
		return o.Check()
	}
	if len(args) == 0 {
		return errors.New("name KIND/NAME, such as workloadidentity/app, or a credential of this job with --creds or --token-file")
	}
	_, err := parseHolder(table, args)
	without := *o.Flags
	// Without --creds and --token-file, Check would refuse --audiences, which is allowed here.
	without.Audiences = nil
	return errors.Join(err, without.Check())
}

func tokenFormats() []string {
	return []string{formatRaw, formatExecCredential, formatDocker, formatEnv, frame.JSON}
}

// check refuses flags that make no sense together.
func (o *tokenOptions) check() error {
	switch {
	case !slices.Contains(tokenFormats(), o.format):
		return fmt.Errorf("--format: write one of %s", strings.Join(tokenFormats(), ", "))
	case slices.Contains(append(tokenFormats(), frame.YAML), o.file):
		return fmt.Errorf("-o names a file here: write --format=%[1]s for the format, or -o ./%[1]s for a file of this name", o.file)
	case o.format == formatExecCredential && o.Creds.ForRegistries():
		return fmt.Errorf("--format=%s is for clusters, and --creds=%s gives a registry's password; write --format=%s",
			formatExecCredential, o.Creds, formatDocker)
	case o.refresh && o.file == "":
		return errors.New("--refresh needs -o: name the file to keep fresh")
	case o.duration < 0 || o.duration%time.Second != 0:
		return errors.New("--duration: write whole seconds, such as 30m")
	}
	return nil
}

// run gets a token and writes it: once, or with --refresh again and again until ctx ends.
func (o *tokenOptions) run(ctx context.Context, std frame.IO, h holder) error {
	next, err := o.deliver(ctx, std, h)
	if err != nil {
		return err
	}
	h.explain(ctx, std.Err)
	if !o.refresh {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil // Ctrl-C is the expected end
		case <-time.After(next):
		}
		if next, err = o.deliver(ctx, std, h); err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintln(std.Err, err)
			next = retryInterval
		}
	}
}

// retryInterval is the pause after a failed request for a new token. The first request is made at
// half of the old token's life. A ServiceAccount's token lives for at least ten minutes, so there
// is time for many requests.
const retryInterval = 10 * time.Second

// deliver gets one token and writes it. It returns the time until the token has half of its life
// left.
func (o *tokenOptions) deliver(ctx context.Context, std frame.IO, h holder) (half time.Duration, err error) {
	requested := time.Now()
	token, err := h.request(ctx, o.Audiences, o.duration)
	if err != nil {
		return 0, err
	}
	text, err := o.render(std, token)
	if err != nil {
		return 0, err
	}
	if o.file == "" {
		_, err := fmt.Fprintln(std.Out, text)
		return 0, err
	}
	if err := wholefile.Write(o.file, []byte(text)); err != nil {
		return 0, fmt.Errorf("write the token: %w", err)
	}
	_, _ = fmt.Fprintf(std.Err, "%s: the token in %s expires at %s\n", h, o.file, token.expires.UTC().Format(time.RFC3339))
	return max(token.expires.Sub(requested)/2, time.Second), nil
}

// render returns a token in the format, without a newline at the end: some SDKs read a token's file
// as it is.
func (o *tokenOptions) render(std frame.IO, token issued) (string, error) {
	var err error
	value := token.answer
	switch o.format {
	case formatRaw:
		return token.text, nil
	case formatEnv:
		if token.certificate != "" {
			return "", errors.New("--format=env is for tokens: write a certificate to a file with -o")
		}
		return fmt.Sprintf("LANYARD_TOKEN=%s\nLANYARD_TOKEN_EXPIRES=%s", token.text, token.expires.UTC().Format(time.RFC3339)), nil
	case formatDocker:
		value, err = dockerConfig(cmp.Or(o.registry, token.registry), token)
	case formatExecCredential:
		value, err = execCredential(std.Env(execInfo), token)
	}
	if err != nil {
		return "", err
	}
	data, err := json.MarshalIndent(value, "", "  ")
	return string(data), err
}

// dockerConfig returns a Docker configuration in which the token is the password of the registry's
// user. Source: Docker, "docker login", config.json.
func dockerConfig(registry string, token issued) (any, error) {
	switch {
	case registry == "":
		return nil, errors.New("--format=docker needs --registry: name the host of the registry")
	case token.certificate != "":
		return nil, errors.New("--format=docker is for tokens: Docker's client reads certificates from /etc/docker/certs.d")
	}
	login := base64.StdEncoding.EncodeToString([]byte(cmp.Or(token.user, "token") + ":" + token.text))
	return map[string]any{"auths": map[string]any{registry: map[string]string{"auth": login}}}, nil
}

// execCredential returns a token as the answer to a Kubernetes client that runs this command. The
// client says in the variable execInfo which version of the answer it understands. info is the
// value of the variable. It is empty if a shell runs the command.
func execCredential(info string, token issued) (*clientauthv1.ExecCredential, error) {
	answer := &clientauthv1.ExecCredential{Status: &clientauthv1.ExecCredentialStatus{ExpirationTimestamp: new(metav1.NewTime(token.expires))}}
	if token.certificate != "" {
		answer.Status.ClientCertificateData, answer.Status.ClientKeyData = token.certificate, token.key
	} else {
		answer.Status.Token = token.text
	}
	answer.APIVersion, answer.Kind = clientauthv1.SchemeGroupVersion.String(), "ExecCredential"
	if info == "" {
		return answer, nil
	}
	var asked struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal([]byte(info), &asked); err != nil {
		return nil, fmt.Errorf("the variable %s of the calling program is not JSON: %w", execInfo, err)
	}
	// The fields that are used here are the same in v1 and v1beta1.
	if beta := clientauthv1.SchemeGroupVersion.Group + "/v1beta1"; asked.APIVersion == beta {
		answer.APIVersion = beta
	} else if asked.APIVersion != answer.APIVersion {
		return nil, fmt.Errorf("the calling program asks for a credential of the version %q; write %s in its kubeconfig",
			asked.APIVersion, answer.APIVersion)
	}
	return answer, nil
}

// explain prints why services refuse the identity's tokens, if the identity's status has the
// reason. It prints nothing if the caller has no right to read the identity.
func (i *identity) explain(ctx context.Context, w io.Writer) {
	if why := i.notReady(ctx); why != "" {
		_, _ = fmt.Fprintf(w, "%s is not ready: %s\n", i, why)
	}
}
