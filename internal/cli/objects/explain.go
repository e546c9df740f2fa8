package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/diagnosis"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/report"
)

func newExplain(std frame.IO) *cobra.Command {
	flags := cluster.Flags{Std: std}
	c := &cobra.Command{
		Use:   "explain KIND/NAME",
		Short: "Explain whose credential an object gets, how, and where that stops",
		Long: `Explain whose credential an object gets, how, and where that stops.

KIND is ` + cluster.AnyKind(std.Kinds.Where(diagnosis.Knows).Names()) + `. Each row is one step:

  subject     whose credential it is, and the field that decides this
  account     the subject in the cluster, with the cloud identity that it names
  chain       AWS identities, and whether each of them admits the namespace
  proof       what proves the subject
  exchange    who gives a credential for the proof
  credential  what the controller shows to the server
  decryption  who asks key services for encrypted files, and which keys decrypted the first files last
  key         the key of the credential in the controller's cache; digest is its SHA-256, as in the controller's log
  used        whose credential the controller used last
  refused     why the object gets no credential, or what was refused to its account
  unknown     what decides too, and what you cannot see: flags of the controller, and objects that you may not read
  next step   what to do

The command reads with your own permissions. It writes nothing, requests no token, reads no Secret and calls no cloud.
The exit status is 0 also if the object is refused, and 1 if the object cannot be read.`,
		Example: `  # Why does this object get no credential?
  lanyard explain ocirepository/app -n tenant-a

  # The digest of the key, to find the exchange in the controller's log
  lanyard explain bucket/data -o json | jq -r .digest`,
	}
	output := frame.OutputFlag(c, frame.Text, frame.JSON, frame.YAML)
	flags.AddTo(c)
	var t cluster.Target
	c.Args = func(_ *cobra.Command, args []string) (err error) {
		if len(args) != 1 {
			return errors.New("name one object, KIND/NAME")
		}
		t, err = parseExplained(std.Kinds, args[0])
		return err
	}
	c.ValidArgsFunction = frame.CompleteFirst(flags.CompleteTargets(func(o report.Object) bool {
		_, err := parseExplained(std.Kinds, cluster.TargetOf(o).String())
		return err == nil
	}))
	c.RunE = flags.WithCluster(func(ctx context.Context, cluster *cluster.Client, _ []string) error {
		o, err := t.Read(ctx, cluster)
		if err != nil {
			return err
		}
		found, err := diagnosis.Of(ctx, cluster, o)
		if err != nil {
			return cluster.Failed(err)
		}
		return frame.Write(std.Out, output, found, found.Write)
	})
	return c
}

// parseExplained reads KIND/NAME. It refuses a kind whose objects cannot be explained.
func parseExplained(table kinds.Table, arg string) (cluster.Target, error) {
	kind, name, named := cluster.CutKind(arg)
	if !named {
		return cluster.ParseTarget(table, arg)
	}
	if known, ok := table.Where(diagnosis.Knows).Written(kind); ok {
		return cluster.Target{Kind: known.Kind, Name: name}, nil
	}
	return cluster.Target{}, fmt.Errorf("%q is not a kind that can be explained: write %s",
		kind, cluster.AnyKind(table.Where(diagnosis.Knows).Names()))
}
