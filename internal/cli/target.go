package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/plain"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// target is the kind and the name of an object in the command's namespace.
type target struct {
	kind string // of the commands' table, as in manifests
	name string
}

// String returns the object as on a command line: "bucket/app".
func (t target) String() string { return strings.ToLower(t.kind) + "/" + t.name }

// read reads the object.
func (t target) read(ctx context.Context, c *cluster) (report.Object, error) {
	kind, ok := c.kinds.Named(t.kind)
	if !ok {
		return report.Object{}, fmt.Errorf("there is no kind %s", t.kind)
	}
	return report.Get(ctx, c, kind, client.ObjectKey{Namespace: c.namespace, Name: t.name})
}

// targetOf returns the target of an object.
func targetOf(o report.Object) target { return target{o.Kind.Kind, o.GetName()} }

// cutKind splits KIND/NAME. It returns the kind in lower case. The kind may have an API group, which
// kubectl get -o name prints: "bucket.toolkit.lanyard.dev/app".
func cutKind(arg string) (kind, name string, ok bool) {
	kind, name, ok = strings.Cut(arg, "/")
	return strings.ToLower(kind), name, ok && name != "" && !strings.Contains(name, "/")
}

// anyKind joins the names of kinds, as on a command line: "bucket or awscluster".
func anyKind(names []string) string { return strings.ToLower(report.AnyOf(names)) }

// bindingWord is a short word for the kind WorkloadIdentityBinding. Only lanyard's command line
// knows the word, not kubectl.
const bindingWord = "binding"

// parseTarget reads KIND/NAME. The kind may be written as kubectl takes it: as in manifests, in
// lower case, in the plural, with the API group, and by its short name.
func parseTarget(table kinds.Table, arg string) (target, error) {
	table = table.Where(report.Lists)
	kind, name, ok := cutKind(arg)
	if !ok {
		return target{}, fmt.Errorf("%q is not KIND/NAME, such as %s", arg, target{table[0].Kind, "app"})
	}
	if strings.TrimSuffix(kind, "."+identityv1.Group) == bindingWord {
		return target{identityv1.WorkloadIdentityBindingKind, name}, nil
	}
	if known, ok := table.Written(kind); ok {
		return target{known.Kind, name}, nil
	}
	words := append(table.Where(kinds.Kind.Fetches).Names(), bindingWord)
	kind = strings.TrimSuffix(kind, "."+v1alpha1.Group)
	return target{}, fmt.Errorf("%q is not a kind: write %s", kind, anyKind(words))
}

// parseTargets reads the arguments. An object that is named twice is returned once.
func parseTargets(table kinds.Table, args []string) ([]target, error) {
	var targets []target
	for _, arg := range args {
		t, err := parseTarget(table, arg)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(targets, t) {
			targets = append(targets, t)
		}
	}
	return targets, nil
}

// asWritten returns the word KIND/NAME with the kind as the user has written it, if same accepts
// this word. Otherwise it returns the usual word.
func asWritten(begun, name, usual string, same func(word string) bool) string {
	kind, _, ok := strings.Cut(begun, "/")
	if word := kind + "/" + name; ok && same(word) {
		return word
	}
	return usual
}

// completeTargets completes KIND/NAME with the objects of the namespace that fit. It offers no
// object twice.
func (f *clusterFlags) completeTargets(fits func(report.Object) bool) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return f.complete(c, begun, func(ctx context.Context, cluster *cluster) (offers []cobra.Completion, err error) {
			objects, err := cluster.list(ctx)
			named, _ := parseTargets(cluster.kinds, args) // none if a word is wrong
			for _, o := range objects {
				t := targetOf(o)
				word := asWritten(begun, t.name, t.String(), func(word string) bool {
					same, err := parseTarget(cluster.kinds, word)
					return err == nil && same == t
				})
				if fits(o) && !slices.Contains(named, t) {
					row := report.Of(o)
					offers = append(offers, cobra.CompletionWithDesc(word, string(row.Result)+" "+plain.Text(row.Source)))
				}
			}
			return offers, err
		})
	}
}
