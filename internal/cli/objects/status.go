// Package objects has the commands that show, explain and change objects of a cluster.
package objects

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// Commands returns the commands status, explain, reconcile, renew, suspend and resume.
func Commands(std frame.IO) []*cobra.Command {
	return []*cobra.Command{newStatus(std), newExplain(std), newReconcile(std), newRenew(std), newSuspend(std), newResume(std)}
}

func newStatus(std frame.IO) *cobra.Command {
	flags := cluster.Flags{Std: std}
	var all, check bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show each object's identity, result and reason",
		Long: `Show each object's identity, result and reason.

AWSClusters and AWS identities follow, if the cluster has them and you may list them. With -A these are also the identities
that administrators lend.

IDENTITY is the cloud identity that was used. If none was granted, it is the subject that asked. EXPECTED has the
expected result of objects with the annotation demo.lanyard.dev/expect.

The exit status is 1 if the objects cannot be listed. With --check it is also 1 if there is no object, or if an object
has not the result in EXPECTED. An object without EXPECTED must be pulled, scanned or ready.`,
		Example: `  # All namespaces of the cluster that kubectl talks to
  lanyard status -A

  # One tenant of the demonstration, nothing shortened
  lanyard status -n tenant-b -o wide --kubeconfig .demo/cluster/admin.kubeconfig

  # For a script: exit with status 1 if an object of the tenant has not the expected result
  lanyard status -n tenant-a --check

  # Objects whose fetch failed
  lanyard status -A -o json | jq '` + unmet(std.Kinds) + `'`,
	}
	output := frame.OutputFlag(c, frame.Table, frame.Wide, frame.JSON, frame.YAML)
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "objects of all namespaces")
	c.Flags().BoolVar(&check, "check", false, "exit with status 1 if an object has not the expected result, or if there is no object")
	flags.AddTo(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if all && c.Flags().Changed("namespace") {
			return frame.UsageError(c, errors.New("-A and -n exclude each other"))
		}
		cluster, err := flags.Connect(c.Context())
		if err != nil {
			return err
		}
		if all {
			cluster.Namespace = ""
		}
		objects, err := cluster.Objects(c.Context())
		if err != nil {
			return err
		}
		rows := report.All(objects)
		identities, err := report.Identities(c.Context(), cluster, cluster.Kinds, cluster.Namespace)
		if err != nil {
			return cluster.Failed(err)
		}
		rows = append(rows, identities...)
		if len(rows) == 0 {
			where := "in any namespace"
			if cluster.Namespace != "" {
				where = "in namespace " + cluster.Namespace + "; -A shows all namespaces"
			}
			_, _ = fmt.Fprintln(std.Err, "There is no "+report.AnyOf(std.Kinds.Where(kinds.Kind.Fetches).Names())+" "+where+".")
		}
		if err := frame.WriteRows(std.Out, output, rows); err != nil {
			return err
		}
		return verdict(check, rows)
	}
	return c
}

// unmet returns a jq filter that selects the rows whose result is not a success.
func unmet(table kinds.Table) string {
	var tests []string
	for _, kind := range table {
		if test := fmt.Sprintf(".result != %q", kind.Success); kind.Success != "" && !slices.Contains(tests, test) {
			tests = append(tests, test)
		}
	}
	return ".[] | select(" + strings.Join(tests, " and ") + ")"
}

// verdict returns an error if a row does not have the expected result, or if there is no row.
// Without --check, it returns nil.
func verdict(check bool, rows []report.Row) error {
	good := report.CountOK(rows)
	switch {
	case !check || good == len(rows) && good > 0:
		return nil
	case len(rows) == 0:
		return errors.New("--check: there is no object to check")
	}
	return fmt.Errorf("--check: %d of %d objects are as they should be", good, len(rows))
}
