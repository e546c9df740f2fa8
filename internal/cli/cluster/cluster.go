// Package cluster reaches a cluster as kubectl does, for the commands that send requests to a
// cluster. It also reads and completes the names of objects on command lines.
package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// requestTimeout bounds a request to a cluster.
const requestTimeout = 30 * time.Second

// Limits of the client for requests to the cluster, per second and in a burst. kubectl has the same
// limits.
const (
	requestRate  = 50
	requestBurst = 300
)

// DefaultWait is how long a command waits for a controller, unless --timeout says otherwise.
const DefaultWait = 5 * time.Minute

// Pause waits between two reads of an object by a command. It returns early if ctx ends.
func Pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(500 * time.Millisecond):
		return nil
	}
}

// Flags are the flags that name a cluster and a namespace.
type Flags struct {
	// Std has what the command gets from its program, such as the environment. Required.
	Std frame.IO
	// Namespace is the value of --namespace.
	Namespace string

	kubeconfig string
}

// AddTo adds the flags to a command.
func (f *Flags) AddTo(c *cobra.Command) {
	c.Flags().StringVarP(&f.Namespace, "namespace", "n", "", "objects of one namespace (default: the kubeconfig's)")
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "",
		"how to reach the cluster (default: $KUBECONFIG, else ~/.kube/config, else in a Pod its own cluster)")
	frame.CompleteFlag(c, "namespace", f.completeNamespaces)
}

// At returns flags for another cluster, which the kubeconfig file names.
func (f Flags) At(kubeconfig string) *Flags {
	f.kubeconfig = kubeconfig
	return &f
}

// config finds the kubeconfig as kubectl does, but takes the environment and the home folder from
// f.Std.
func (f *Flags) config() clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: f.kubeconfig}
	if env := f.Std.Env(clientcmd.RecommendedConfigPathEnvVar); env != "" {
		rules.Precedence = filepath.SplitList(env)
	} else if f.Std.Home != "" {
		rules.Precedence = []string{filepath.Join(f.Std.Home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
}

// Client is a client of a cluster for the objects of a namespace.
type Client struct {
	client.Client

	// Config says how the cluster is reached.
	Config *rest.Config
	// Namespace is the namespace of the objects; empty for all.
	Namespace string
	// Kinds is the table of the kinds of objects that commands support.
	Kinds kinds.Table
	// Pod says that the cluster is reached with the ServiceAccount of the Pod that this program
	// runs in.
	Pod bool
}

// Connect makes the client, whose requests end with ctx. It sends no request yet.
func (f *Flags) Connect(ctx context.Context) (*Client, error) {
	access, namespace, err := f.access()
	pod := false
	if clientcmd.IsEmptyConfig(err) {
		access, namespace, err = f.podAccess()
		pod = true
	}
	if err != nil {
		return nil, err
	}
	if access.ExecProvider, err = enterPlugin(access.ExecProvider, f.Std.Env(pluginsVar)); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(f.Std.Kinds.AddToScheme(scheme), corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	access.Timeout, access.QPS, access.Burst = requestTimeout, requestRate, requestBurst
	access.ContentType = runtime.ContentTypeJSON
	access.Wrap(func(next http.RoundTripper) http.RoundTripper { return bound{ctx, next} })
	c, err := client.New(access, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", access.Host, err)
	}
	return &Client{Client: c, Config: access, Namespace: namespace, Kinds: f.Std.Kinds, Pod: pod}, nil
}

// WithCluster returns a function for RunE of a [cobra.Command]. The function connects to the
// cluster and calls run.
func (f *Flags) WithCluster(
	run func(ctx context.Context, cluster *Client, args []string) error,
) func(c *cobra.Command, args []string) error {
	return func(c *cobra.Command, args []string) error {
		cluster, err := f.Connect(c.Context())
		if err != nil {
			return err
		}
		return run(c.Context(), cluster, args)
	}
}

// pluginsVar is the environment variable that lists the credential plugins through which this
// process was started. This program can itself be such a plugin: the list keeps it from starting
// itself without end.
const pluginsVar = "LANYARD_EXEC_PLUGINS"

// enterPlugin prepares a kubeconfig's credential plugin. It adds the plugin to this process's list
// of running plugins, and passes the longer list on in [pluginsVar]. It refuses a plugin that is
// already in the list: otherwise each process would start the next one, without end.
func enterPlugin(plugin *clientcmdapi.ExecConfig, waiting string) (*clientcmdapi.ExecConfig, error) {
	if plugin == nil {
		return nil, nil // a kubeconfig without a plugin
	}
	written, err := json.Marshal([]any{plugin.Command, plugin.Args, plugin.Env})
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%x", sha256.Sum256(written))
	if slices.Contains(strings.Fields(waiting), key) {
		return nil, fmt.Errorf("the kubeconfig's user gets its credential by %q, "+
			"which runs this command with the same kubeconfig, without end; "+
			"add --kubeconfig to the plugin's args, with the file of another cluster or user", plugin.Command)
	}
	plugin = plugin.DeepCopy()
	plugin.Env = append(plugin.Env, clientcmdapi.ExecEnvVar{Name: pluginsVar, Value: strings.TrimSpace(waiting + " " + key)})
	return plugin, nil
}

// access reads the kubeconfig. Without a kubeconfig, clientcmd.IsEmptyConfig is true for the error.
func (f *Flags) access() (*rest.Config, string, error) {
	config := f.config()
	access, err := config.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", err
	}
	namespace := f.Namespace
	if err == nil && namespace == "" {
		namespace, _, err = config.Namespace()
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w; name another with --kubeconfig", err)
	}
	return access, namespace, nil
}

// PodToken returns the path of the token that Kubernetes mounts for a Pod's ServiceAccount.
func PodToken(std frame.IO) string { return filepath.Join(std.Mount, "token") }

// Names in the folder that Kubernetes mounts for a Pod's ServiceAccount, and the variables with the
// address of the API server. Source: Kubernetes, "Accessing the Kubernetes API from a Pod".
const (
	podAuthority = "ca.crt"
	podNamespace = "namespace"
	podHost      = "KUBERNETES_SERVICE_HOST"
	podPort      = "KUBERNETES_SERVICE_PORT"
)

// podAccess returns the client configuration and the namespace of the Pod that this program runs
// in.
func (f *Flags) podAccess() (*rest.Config, string, error) {
	host, port := f.Std.Env(podHost), f.Std.Env(podPort)
	if host == "" || port == "" || f.Std.Mount == "" {
		return nil, "", errors.New("there is no kubeconfig; name one with --kubeconfig or KUBECONFIG, or run lanyard up, which prints one")
	}
	namespace := f.Namespace
	if namespace == "" {
		text, err := os.ReadFile(filepath.Join(f.Std.Mount, podNamespace))
		if err != nil {
			return nil, "", fmt.Errorf("this Pod mounts no ServiceAccount: %w; "+
				"set automountServiceAccountToken, or name a kubeconfig with --kubeconfig", err)
		}
		namespace = strings.TrimSpace(string(text))
	}
	return &rest.Config{
		Host: "https://" + net.JoinHostPort(host, port), BearerTokenFile: PodToken(f.Std),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(f.Std.Mount, podAuthority)},
	}, namespace, nil
}

// Objects reads all objects of the namespace.
func (c *Client) Objects(ctx context.Context) ([]report.Object, error) {
	objects, err := report.List(ctx, c, c.Kinds, c.Namespace)
	if err != nil {
		return nil, c.Failed(err)
	}
	return objects, nil
}

// Failed adds the cluster's host, and what to check next, to the error of a request.
func (c *Client) Failed(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("at %s: %w; the ClusterRoles lanyard-view and lanyard-edit of Lanyard's chart have the permissions",
			c.Config.Host, err)
	}
	return fmt.Errorf("at %s: %w; is the cluster up, and Lanyard's chart installed there? lanyard up starts one that has it",
		c.Config.Host, err)
}

// Accepts reports whether the cluster accepts a token. It sends the token with a request that asks
// the API server who the caller is.
func (c *Client) Accepts(ctx context.Context, token auth.Secret) (bool, error) {
	bearer := rest.AnonymousClientConfig(c.Config)
	bearer.BearerToken = token.Reveal()
	as, err := authenticationclient.NewForConfig(bearer)
	if err != nil {
		return false, err
	}
	_, err = as.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return false, nil
	case err == nil || apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return true, nil
	default:
		return false, fmt.Errorf("at %s: cannot find out whether the token opens the cluster: %w", c.Config.Host, err)
	}
}

// Complete offers the words that begin with what the user has typed so far. It gets all words from
// the cluster by calling find.
func (f *Flags) Complete(
	c *cobra.Command, begun string, find func(context.Context, *Client) ([]cobra.Completion, error),
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), frame.CompletionTimeout)
	defer cancel()
	cluster, err := f.Connect(ctx)
	var words []cobra.Completion
	if err == nil {
		words, err = find(ctx, cluster)
	}
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words = slices.DeleteFunc(words, func(word cobra.Completion) bool { return !strings.HasPrefix(word, begun) })
	slices.Sort(words)
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces completes the name of a namespace.
func (f *Flags) completeNamespaces(c *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.Complete(c, begun, func(ctx context.Context, cluster *Client) (names []cobra.Completion, err error) {
		var namespaces corev1.NamespaceList
		err = cluster.List(ctx, &namespaces)
		for _, n := range namespaces.Items {
			names = append(names, n.Name)
		}
		return names, err
	})
}
