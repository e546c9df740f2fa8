package world

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/local"
)

func newCloud(std IO) *cobra.Command {
	var file, listen, dir string
	c := &cobra.Command{
		Use:   "cloud",
		Short: frame.CloudShort,
		Long: `Run the local cloud alone, until it is interrupted.

It is a proxy on loopback with a CA of its own. With the environment that "lanyard cloud env" prints, programs reach three
clouds under their real names. The local cloud checks what those check: signatures, issuers, trust and permissions.

  AWS           IAM, STS, ECR, S3
  Azure         Entra ID, container registries, blob storage, the instance metadata service
  Google Cloud  STS, service account credentials, Artifact Registry, Cloud Storage, the metadata server

The only other hosts that it knows are the issuers in its file, so nothing leaves the machine. "lanyard up" runs the local
cloud together with a cluster.`,
		Example: `  # The demonstration's cloud: three tenants in each cloud
  lanyard cloud

  # Your own description of the clouds
  lanyard cloud -f cloud.yaml --dir .cloud
  eval "$(lanyard cloud env --dir .cloud)"`,
	}
	c.Flags().StringVarP(&file, "file", "f", "",
		"description of the clouds, YAML or JSON (default: examples/cloud/cloud.yaml, the demonstration's)")
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback address of the proxy; port 0 is any free one")
	frame.CompleteFile(c, "file", cloudExtensions()...)
	frame.CompleteNothing(c, "listen")
	dirFlag(c, &dir, "folder for the CA and the address; it must be absent, empty or from an earlier run, whose files are removed")
	c.RunE = func(c *cobra.Command, _ []string) error {
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
		return cmp.Or(err, cloud.Stop())
	}
	c.AddCommand(newCloudEnv(std), newCloudJournal(std))
	return c
}

// dirArgument returns the flag --dir for commands that the user is advised to run. For the default
// folder, it returns "".
func dirArgument(dir string) string {
	if dir == ".demo" {
		return ""
	}
	return " --dir " + shellWord(filepath.Clean(dir))
}

// cloudExtensions are the extensions of files that describe a cloud.
func cloudExtensions() []string { return []string{"yaml", "yml", "json"} }

// readCloudConfig reads the description of a cloud from a file. If the file name is "", it returns
// the description for the demonstration.
func readCloudConfig(file string) (cloudtest.Config, error) {
	if file == "" {
		return local.ParseCloud("cloud.yaml", examples.Cloud())
	}
	data, err := os.ReadFile(file) //nolint:gosec // the file is the user's choice
	if err != nil {
		return cloudtest.Config{}, fmt.Errorf("%w; examples/cloud/cloud.yaml is an example", err)
	}
	return local.ParseCloud(file, data)
}
