package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// statusTimeout bounds the questions to a cluster.
const statusTimeout = 30 * time.Second

func newStatus(std IO) *cobra.Command {
	var kubeconfig, namespace string
	var all, check bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Tell for each object that fetches as whom it did, with what result, and why",
		Long: `Tell for each object that fetches as whom it did, with what result, and why.

IDENTITY is the cloud identity that was used or, if none was granted, who asked. EXPECTED is there for objects that say
in the annotation demo.lanyard.dev/expect what must come of them.

The exit status says whether the objects could be listed. With --check it is 1 also if an object is not as it should be
(as EXPECTED says, or else pulled or scanned), or if there is none.`,
		Example: `  # All namespaces of the cluster that kubectl talks to
  lanyard status -A

  # One tenant of the demonstration, nothing shortened
  lanyard status -n tenant-b -o wide --kubeconfig .demo/cluster/admin.kubeconfig

  # End with status 1 if one of a tenant's objects is not as it should be, for a script
  lanyard status -n tenant-a --check

  # What has not got what it asks for
  lanyard status -A -o json | jq '` + unmet() + `'`,
	}
	output := outputFlag(c, formatTable, formatWide, formatJSON, formatYAML)
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "objects of all namespaces")
	c.Flags().BoolVar(&check, "check", false, "end with status 1 if an object is not as it should be, or if there is none")
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "objects of one namespace (default: the kubeconfig's)")
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the cluster (default: $KUBECONFIG, else ~/.kube/config)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if all && c.Flags().Changed("namespace") {
			return &usageError{c.CommandPath(), errors.New("-A and -n exclude each other")}
		}
		config := kubeconfigOf(std, kubeconfig)
		if !all && namespace == "" {
			var err error
			if namespace, _, err = config.Namespace(); err != nil {
				return fmt.Errorf("read the kubeconfig: %w; name one with --kubeconfig", err)
			}
		}
		rows, err := readRows(c.Context(), config, namespace)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			where := "in any namespace"
			if namespace != "" {
				where = "in namespace " + namespace + "; -A shows all namespaces"
			}
			_, _ = fmt.Fprintln(std.Err, "There is no "+anyOf(report.Kinds())+" "+where+".")
			if output.value == formatTable || output.value == formatWide {
				return verdict(check, rows)
			}
		}
		if err := writeRows(std.Out, output, rows); err != nil {
			return err
		}
		return verdict(check, rows)
	}
	return c
}

// anyOf joins names as a sentence does: "a, b or c".
func anyOf(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// unmet is what jq selects the rows by that have not got what they ask for.
func unmet() string {
	return fmt.Sprintf(".[] | select(.result != %q and .result != %q)", report.Pulled, report.Scanned)
}

// verdict is the failure of rows that were to be checked. What is not there is not as it should be.
func verdict(check bool, rows []report.Row) error {
	good := countOK(rows)
	switch {
	case !check || good == len(rows) && good > 0:
		return nil
	case len(rows) == 0:
		return errors.New("--check: there is no object to check")
	}
	return fmt.Errorf("--check: %d of %d objects are as they should be", good, len(rows))
}

// countOK counts the rows that are as they should be.
func countOK(rows []report.Row) int {
	good := 0
	for _, r := range rows {
		if r.OK() {
			good++
		}
	}
	return good
}

// kubeconfigOf finds the cluster as kubectl does, but for the environment, which is the caller's.
func kubeconfigOf(std IO, path string) clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	if env := std.Env(clientcmd.RecommendedConfigPathEnvVar); env != "" {
		rules.Precedence = filepath.SplitList(env)
	} else if std.Home != "" {
		rules.Precedence = []string{filepath.Join(std.Home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
}

// readRows reads the rows of a namespace, or of all if it is empty.
func readRows(ctx context.Context, config clientcmd.ClientConfig, namespace string) ([]report.Row, error) {
	rest, err := config.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("there is no kubeconfig; name one with --kubeconfig or KUBECONFIG, or run lanyard up, which prints one")
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w; name another with --kubeconfig", err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	rest.Timeout = statusTimeout
	cluster, err := client.New(rest, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", rest.Host, err)
	}
	objects, err := report.List(ctx, cluster, namespace)
	if err != nil {
		return nil, fmt.Errorf("at %s: %w; is the cluster up, and Lanyard's chart installed there? lanyard up starts one that has it", rest.Host, err)
	}
	return report.All(objects), nil
}
