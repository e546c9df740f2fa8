package keys

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/discovery/document"
	"github.com/lanyard-dev/lanyard/internal/plain"
)

func newDiscovery(std frame.IO) *cobra.Command {
	c := &cobra.Command{
		Use:     "discovery",
		Short:   "The public documents of Lanyard's issuer",
		Long:    "The public documents of Lanyard's issuer: where services read which keys the issuer has.",
		Example: `  lanyard discovery export ./public`,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newDiscoveryExport(std))
	return c
}

func newDiscoveryExport(std frame.IO) *cobra.Command {
	flags := ringFlags{Flags: cluster.Flags{Std: std}}
	c := &cobra.Command{
		Use:   "export DIR",
		Short: "Write the public documents into a folder, for a bucket or a static web server",
		Long: `Write the public documents into a folder, for a bucket or a static web server.

The folder is the issuer's URL: its content must be reachable there. The documents hold public keys only. Export them again
after each change of the keys; "lanyard keys list" shows which key waits until it is published.`,
		Example: `  # Publish the keys in a bucket, and tell the token server that the new key is there
  lanyard discovery export ./public
  aws s3 sync ./public s3://issuer.example.com --cache-control max-age=3600 --content-type application/json
  lanyard keys confirm NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs`,
	}
	flags.AddTo(c)
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return errors.New("name one folder")
		}
		return nil
	}
	c.RunE = flags.withRing(func(_ context.Context, _ *cluster.Client, ring *identityv1.KeyRing, args []string) error {
		documents, err := document.OfRing(ring.Status.Issuer, &ring.Status)
		if errors.Is(err, document.ErrNoKeys) {
			return fmt.Errorf("%w; \"lanyard keys list\" shows why, and nothing is written: "+
				"services would keep in mind that no key is to be trusted", err)
		}
		if err != nil {
			return err
		}
		written, err := document.Export(args[0], documents)
		for _, path := range written {
			_, _ = fmt.Fprintln(std.Out, path)
		}
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(std.Err, "Serve the folder at %s; caches may keep it for %s at most.\n",
			plain.Text(documents.Issuer), documents.MaxAge)
		return nil
	})
	return c
}
