package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
)

func newCloud(std IO) *cobra.Command {
	var file, listen, dir string
	c := &cobra.Command{
		Use:   "cloud",
		Short: "Run the local cloud alone",
		Long: `Run the local cloud alone, until it is interrupted.

It is a proxy on loopback with a CA of its own. Programs with the environment that "lanyard cloud env" prints reach three
clouds under their real names, and are judged as there: signatures, issuers, trust and permissions.

  AWS           STS, ECR, S3
  Azure         Entra ID, container registries, blob storage, the instance metadata service
  Google Cloud  STS, service account credentials, Artifact Registry, Cloud Storage, the metadata server

It knows no other host but the issuers in its file, so nothing leaves the machine. "lanyard up" runs it together with a
cluster.`,
		Example: `  # The demonstration's: two tenants in each cloud
  lanyard cloud

  # A world of your own
  lanyard cloud -f cloud.yaml --dir .cloud
  eval "$(lanyard cloud env --dir .cloud)"`,
	}
	c.Flags().StringVarP(&file, "file", "f", "", "what is in the cloud, YAML or JSON (default: the demonstration's, examples/cloud/cloud.yaml)")
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback address of the proxy; port 0 is any free one")
	dirFlag(c, &dir, "folder for the CA and the address; empty, absent, or left by lanyard, which removes what it left")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		config, err := readCloudConfig(file)
		if err != nil {
			return err
		}
		cloud, err := local.StartCloud(c.Context(), local.CloudOptions{Dir: dir, Config: config, Listen: listen})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(std.Out, `The local cloud is up.

  proxy    %s
  CA       %s

In another terminal:

  eval "$(%s cloud env%s)"
  %s cloud journal%s

Stop it with Ctrl-C.
`, cloud.ProxyURL(), cloud.CAFile(), std.Program, dirArgument(dir), std.Program, dirArgument(dir))
		if err == nil {
			<-c.Context().Done()
		}
		if stopErr := cloud.Stop(); err == nil {
			err = stopErr
		}
		return err
	}
	c.AddCommand(newCloudEnv(std), newCloudJournal(std))
	return c
}

// dirArgument is the flag --dir as advice repeats it.
func dirArgument(dir string) string {
	if dir == ".demo" {
		return ""
	}
	return " --dir " + shellWord(filepath.Clean(dir))
}

// readCloudConfig reads a cloud's description, the demonstration's if no file is named.
func readCloudConfig(file string) (cloudtest.Config, error) {
	if file == "" {
		return local.ParseCloud(examples.Cloud())
	}
	data, err := os.ReadFile(file) //nolint:gosec // the file is the user's choice
	if err != nil {
		return cloudtest.Config{}, fmt.Errorf("%w; examples/cloud/cloud.yaml shows what such a file holds", err)
	}
	config, err := local.ParseCloud(data)
	if err != nil {
		return cloudtest.Config{}, fmt.Errorf("%s: %w", file, err)
	}
	return config, nil
}
