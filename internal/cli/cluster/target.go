package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/plain"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// Target is the kind and the name of an object in the command's namespace.
type Target struct {
	// Kind is the name of the object's kind, as in manifests. It must be one of [Client.Kinds].
	Kind string
	// Name is the name of the object.
	Name string
}

// String returns the object as on a command line: "bucket/app".
func (t Target) String() string { return strings.ToLower(t.Kind) + "/" + t.Name }

// Read reads the object. Its errors say what to check next.
func (t Target) Read(ctx context.Context, c *Client) (report.Object, error) {
	kind, ok := c.Kinds.Named(t.Kind)
	if !ok {
		return report.Object{}, fmt.Errorf("there is no kind %s", t.Kind)
	}
	o, err := report.Get(ctx, c, kind, client.ObjectKey{Namespace: c.Namespace, Name: t.Name})
	switch {
	case apierrors.IsNotFound(err):
		return o, fmt.Errorf("there is no %s in namespace %s; -n names another namespace", t, c.Namespace)
	case err != nil:
		return o, c.Failed(err)
	}
	return o, nil
}

// TargetOf returns the target of an object.
func TargetOf(o report.Object) Target { return Target{o.Kind.Kind, o.GetName()} }

// CutKind splits KIND/NAME. It returns the kind in lower case. The kind may have an API group,
// which kubectl get -o name prints: "bucket.toolkit.lanyard.dev/app".
func CutKind(arg string) (kind, name string, ok bool) {
	kind, name, ok = strings.Cut(arg, "/")
	return strings.ToLower(kind), name, ok && name != "" && !strings.Contains(name, "/")
}

// AnyKind puts the names of kinds in lower case and joins them with "or": "bucket or awscluster".
func AnyKind(names []string) string { return strings.ToLower(report.AnyOf(names)) }

// bindingWord is a short word for the kind WorkloadIdentityBinding. Only lanyard's command line
// accepts the word, not kubectl.
const bindingWord = "binding"

// ParseTarget reads KIND/NAME. The kind may be written as kubectl takes it: as in manifests, in
// lower case, in the plural, with the API group, or as its short name.
func ParseTarget(table kinds.Table, arg string) (Target, error) {
	table = table.Where(report.Lists)
	kind, name, ok := CutKind(arg)
	if !ok {
		return Target{}, fmt.Errorf("%q is not KIND/NAME, such as %s", arg, Target{table[0].Kind, "app"})
	}
	if strings.TrimSuffix(kind, "."+identityv1.Group) == bindingWord {
		return Target{identityv1.WorkloadIdentityBindingKind, name}, nil
	}
	if known, ok := table.Written(kind); ok {
		return Target{known.Kind, name}, nil
	}
	words := append(table.Where(kinds.Kind.Fetches).Names(), bindingWord)
	kind = strings.TrimSuffix(kind, "."+v1alpha1.Group)
	return Target{}, fmt.Errorf("%q is not a kind: write %s", kind, AnyKind(words))
}

// ParseTargets reads the arguments. An object that is named twice is returned once.
func ParseTargets(table kinds.Table, args []string) ([]Target, error) {
	var targets []Target
	for _, arg := range args {
		t, err := ParseTarget(table, arg)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(targets, t) {
			targets = append(targets, t)
		}
	}
	return targets, nil
}

// AsWritten completes an argument KIND/NAME of a command, for one object. Its parameters are:
//   - begun: what the user has typed of the argument
//   - name: the object's name
//   - usual: the whole argument in its usual spelling, such as "bucket/app"
//   - same: a function that reports whether a whole argument names the object
//
// If begun contains a slash, AsWritten keeps the kind as the user has spelled it. For example, it
// completes "Buckets/a" to "Buckets/app". If begun has no slash, or if same returns false for the
// completed argument, AsWritten returns usual.
func AsWritten(begun, name, usual string, same func(word string) bool) string {
	kind, _, ok := strings.Cut(begun, "/")
	if word := kind + "/" + name; ok && same(word) {
		return word
	}
	return usual
}

// CompleteTargets completes KIND/NAME. It offers the namespace's objects o for which fits(o) is
// true, except those that earlier arguments name.
func (f *Flags) CompleteTargets(fits func(report.Object) bool) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return f.Complete(c, begun, func(ctx context.Context, cluster *Client) (offers []cobra.Completion, err error) {
			objects, err := cluster.Objects(ctx)
			named, _ := ParseTargets(cluster.Kinds, args) // empty if an argument is wrong
			for _, o := range objects {
				t := TargetOf(o)
				word := AsWritten(begun, t.Name, t.String(), func(word string) bool {
					same, err := ParseTarget(cluster.Kinds, word)
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
