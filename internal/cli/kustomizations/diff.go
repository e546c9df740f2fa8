// Package kustomizations has the command that shows what a Kustomization would change.
package kustomizations

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/desired"
)

// diff is one run of the command.
type diff struct {
	program string // the path of this program's file
	path    string // the value of --path
	cluster *cluster.Client
	target  cluster.Target
	remote  *cluster.Flags // the cluster of spec.kubeConfig; nil if none is named
}

// NewDiff returns the subcommand kustomization of lanyard diff. The program is the path of this
// program's file, which builds the manifests in a child; empty if it is not known.
func NewDiff(std frame.IO, program string) *cobra.Command {
	flags := cluster.Flags{Std: std}
	path, remote := "", ""
	c := &cobra.Command{
		Use:   "kustomization NAME --path=FOLDER",
		Short: "Show what a Kustomization would change if its artifact had a folder's content",
		Long: `Show what a Kustomization would change if its artifact had a folder's content.

The command reads the Kustomization from the cluster. It builds the manifests from --path with the Kustomization's spec, and
compares each object with the cluster by a server-side dry run. --path is the artifact's root, in which spec.path names a
folder. The folder is packed as a push packs it, with the same files left out.

  created     the object does not exist yet
  changed     the fields below change, from the value after - to the value after +
  recreated   the object is deleted and created anew, because a field cannot be changed and force is set
  deleted     the folder no longer has the object, and spec.prune is set
  left alone  the folder no longer has the object, but the object stays
  skipped     an annotation of the object forbids the change

The requests are sent with your own rights, and not with those of spec.serviceAccountName. You need get, create and patch for
the objects, and get for the ConfigMaps and Secrets of spec.postBuild.substituteFrom. Nothing is ever written.

Fields that kubectl or Flux have written, and that the manifests lack, are not shown, although the controller removes them.

If spec.kubeConfig is set, the objects are in another cluster. Say with --remote-kubeconfig how you reach that cluster. The
Secret of spec.kubeConfig is not read.

The values of Secrets are masked. If substituteFrom names a Secret, the values of all objects are masked. Names of objects and
of fields are shown.

The exit status is 0 if nothing would change, 1 if something would, 2 if the command line is wrong, and 3 if the command
failed.`,
		Example: `  # What would a release of this folder change?
  lanyard diff kustomization app -n tenant-a --path=./deploy

  # For a script: the names of the objects that would be deleted
  lanyard diff kustomization app -n tenant-a --path=./deploy -o json | jq -r '.[] | select(.action == "deleted").object.name'`,
	}
	c.Flags().StringVarP(&path, "path", "f", "", "folder with the content of the artifact (required)")
	frame.CompleteDir(c, "path")
	c.Flags().StringVar(&remote, "remote-kubeconfig", "", "how you reach the cluster of spec.kubeConfig (required if the Kustomization has this field)")
	output := frame.OutputFlag(c, frame.Text, frame.JSON, frame.YAML)
	flags.AddTo(c)
	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) != 1:
			return errors.New("name one Kustomization")
		case path == "":
			return errors.New("--path: name a folder with the content of the artifact; the artifact itself can only be read inside the cluster, " +
				"and lanyard pull artifact gets the one of an OCIRepository")
		}
		return nil
	}
	c.ValidArgsFunction = frame.CompleteFirst(func(c *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return flags.Complete(c, begun, names)
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		d := diff{program: program, path: path, target: cluster.Target{Kind: v1alpha1.KustomizationKind, Name: args[0]}}
		if remote != "" {
			d.remote = flags.At(remote)
		}
		var err error
		if d.cluster, err = flags.Connect(c.Context()); err != nil {
			return frame.Undecide(err)
		}
		found, err := d.compare(c.Context())
		if err == nil {
			err = write(std.Out, output, found)
		}
		if err != nil {
			return frame.Undecide(err)
		}
		if n := writes(found); n > 0 {
			return fmt.Errorf("%s would change the cluster in %d places", d.target, n)
		}
		return nil
	}
	return c
}

// names returns the names of the Kustomizations of a namespace.
func names(ctx context.Context, cluster *cluster.Client) (words []cobra.Completion, err error) {
	var all v1alpha1.KustomizationList
	err = cluster.List(ctx, &all, client.InNamespace(cluster.Namespace))
	for _, o := range all.Items {
		words = append(words, o.Name)
	}
	return words, err
}

// writes returns the number of objects that would change.
func writes(found []apply.Difference) (n int) {
	for _, d := range found {
		if d.Effect.Writes() {
			n++
		}
	}
	return n
}

// compare builds the manifests, and compares them with the cluster.
func (d *diff) compare(ctx context.Context) ([]apply.Difference, error) {
	harmless, err := newHarmless(d.cluster)
	if err != nil {
		return nil, err
	}
	reader := *d.cluster
	reader.Client = harmless
	read, err := d.target.Read(ctx, &reader)
	if err != nil {
		return nil, err
	}
	o, ok := read.Resource.(*v1alpha1.Kustomization)
	if !ok {
		return nil, fmt.Errorf("%s is no Kustomization", d.target)
	}
	target, err := d.destination(ctx, o, harmless)
	if err != nil {
		return nil, err
	}
	inventory, err := desired.Inventory(o)
	if err != nil {
		return nil, err
	}
	ignored, err := desired.Ignored(o.Spec.Ignore)
	if err != nil {
		return nil, err
	}
	variables, err := desired.ReadVariables(ctx, harmless, o)
	if err != nil {
		return nil, err
	}
	manifests, err := d.build(ctx, o, variables)
	if err != nil {
		return nil, err
	}
	if common := o.Spec.CommonMetadata; common != nil {
		utils.SetCommonMetadata(manifests, common.Labels, common.Annotations)
	}
	owner := apply.Owner{Namespace: o.Namespace, Name: o.Name}
	applier := apply.New(target, apply.User{Name: "you", Permit: "use a kubeconfig that impersonates nobody"}, owner, namesSecret(o))
	return applier.Diff(ctx, manifests, apply.Options{
		Inventory: inventory, Force: o.Spec.Force, TakeOver: o.Status.LastAppliedRevision == "", Ignore: ignored,
		Yields: func(ctx context.Context, e apply.Entry, other apply.Owner) (bool, error) {
			return desired.Yields(ctx, harmless, owner, other, applier.Canonical, e)
		},
	}, o.Spec.Prune)
}

// destination returns the cluster of the applied objects: own, unless spec.kubeConfig is set.
func (d *diff) destination(ctx context.Context, o *v1alpha1.Kustomization, own *harmless) (*harmless, error) {
	switch elsewhere := o.Spec.KubeConfig != nil; {
	case elsewhere && d.remote == nil:
		return nil, errors.New("spec.kubeConfig: the objects are in another cluster; say with --remote-kubeconfig how you reach that cluster")
	case !elsewhere && d.remote != nil:
		return nil, errors.New("--remote-kubeconfig: the Kustomization has no spec.kubeConfig, so its objects are in its own cluster; leave the flag out")
	case !elsewhere:
		return own, nil
	}
	remote, err := d.remote.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return newHarmless(remote)
}

// namesSecret reports whether objects of any kind may have secret values: variables come from Secrets,
// or files are encrypted. A Secret that does not exist counts too:
// objects of the cluster may still have its values.
func namesSecret(o *v1alpha1.Kustomization) bool {
	return o.Spec.Decryption != nil || o.Spec.PostBuild != nil && slices.ContainsFunc(o.Spec.PostBuild.SubstituteFrom, func(ref v1alpha1.SubstituteReference) bool {
		return ref.Kind == "Secret"
	})
}
