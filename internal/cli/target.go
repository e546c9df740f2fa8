package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/plain"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// target names an object of the command's namespace.
type target struct {
	kind string // one of report.Kinds, or a binding
	name string
}

// String is how a command line names the object: "bucket/app".
func (t target) String() string { return strings.ToLower(t.kind) + "/" + t.name }

// targetOf names an object.
func targetOf(o report.Object) target { return target{o.Kind, o.GetName()} }

// shortName is the short name of a kind of report.Kinds, which its CRD has too.
func shortName(kind string) string {
	return map[string]string{v1alpha1.OCIRepositoryKind: "loci", v1alpha1.BucketKind: "lbkt", v1alpha1.ImageRepositoryKind: "lir"}[kind]
}

// cutKind splits KIND/NAME. It returns the kind in lower case and without the API group, which it
// has when kubectl get -o name printed it: "bucket.toolkit.lanyard.dev/app".
func cutKind(arg, group string) (kind, name string, ok bool) {
	kind, name, ok = strings.Cut(arg, "/")
	return strings.TrimSuffix(strings.ToLower(kind), "."+group), name, ok && name != "" && !strings.Contains(name, "/")
}

// parseTarget reads KIND/NAME. The kind may be written as kubectl takes it: as in manifests, in
// lower case, in the plural, with the API group, and by its short name.
func parseTarget(arg string) (target, error) {
	kind, name, ok := cutKind(arg, v1alpha1.GroupVersion().Group)
	if !ok {
		return target{}, fmt.Errorf("%q is not KIND/NAME, such as %s", arg, target{report.Kinds()[0], "app"})
	}
	for _, known := range report.Kinds() {
		plural, singular := apimeta.UnsafeGuessKindToResource(v1alpha1.GroupVersion().WithKind(known))
		if slices.Contains([]string{singular.Resource, plural.Resource, shortName(known)}, kind) {
			return target{known, name}, nil
		}
	}
	short := strings.TrimSuffix(kind, "."+identityv1.Group)
	if slices.Contains([]string{"binding", "lwib", "workloadidentitybinding", "workloadidentitybindings"}, short) {
		return target{identityv1.WorkloadIdentityBindingKind, name}, nil
	}
	return target{}, fmt.Errorf("%q is not a kind: write %s", kind, strings.ToLower(anyOf(append(report.Kinds(), "binding"))))
}

// parseTargets reads each argument once.
func parseTargets(args []string) ([]target, error) {
	var targets []target
	for _, arg := range args {
		t, err := parseTarget(arg)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(targets, t) {
			targets = append(targets, t)
		}
	}
	return targets, nil
}

// asWritten returns the word KIND/NAME with the kind as the user has written it, if that means the
// same. Otherwise it returns the usual word.
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
			named, _ := parseTargets(args) // none if a word is wrong
			for _, o := range objects {
				t := targetOf(o)
				word := asWritten(begun, t.name, t.String(), func(word string) bool {
					same, err := parseTarget(word)
					return err == nil && same == t
				})
				if fits(o) && !slices.Contains(named, t) {
					offers = append(offers, cobra.CompletionWithDesc(word, string(report.Of(o).Result)+" "+plain.Text(o.Source)))
				}
			}
			return offers, err
		})
	}
}
