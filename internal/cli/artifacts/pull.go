package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// pulled is the result of a pull.
type pulled struct {
	identified

	// Path is the folder that has the content now.
	Path string `json:"path"`
	// Files is the number of files in the artifact.
	Files int `json:"files"`
	// Annotations are the annotations of the artifact's manifest.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// pullFlags say where the content goes.
type pullFlags struct {
	path    string
	replace bool
	sizes   sizeFlags
}

func newPull(std IO) *cobra.Command {
	var f pullFlags
	c := &cobra.Command{
		Use:   "artifact " + argument,
		Short: "Pull an artifact from a registry into a folder",
		Long: `Pull an artifact from a registry into a folder.

The content is judged as the controller judges it: names that leave the folder, links that do, devices and archives that
grow beyond --max-size are refused. Links inside the archive are left out. Digests are verified.

The folder gets the whole content, or stays as it was after a failure or Ctrl-C. If the command is killed, a hidden folder
.lanyard-pull-* stays beside the folder, or in it if it was empty. A folder with content is replaced only with --replace, at
once, and then all that was in it is gone.`,
		Example: `  # Pull a version
  lanyard pull artifact oci://registry.example.com/team/app:1.0.0 --path=./app

  # Exactly this artifact, with the identity of the Pod, in place of what is in the folder
  lanyard pull artifact oci://registry.example.com/team/app@sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae \
    --path=./app --replace --creds=ServiceAccountToken`,
	}
	c.Flags().StringVarP(&f.path, "path", "f", "", "folder for the content (required)")
	c.Flags().BoolVar(&f.replace, "replace", false, "replace what is in the folder")
	f.sizes.addTo(c)
	frame.CompleteDir(c, "path")
	output := frame.OutputFlag(c, frame.Text, frame.JSON, frame.YAML)
	return prepare(c, std, func(ctx context.Context, j *job) error { return f.run(ctx, j, output) })
}

func (f *pullFlags) run(ctx context.Context, j *job, output *frame.Format) error {
	if f.path == "" {
		return j.misused("--path: name the folder for the content")
	}
	if err := f.sizes.check(j); err != nil {
		return err
	}
	client, closing, err := j.registry.connect(ctx, j.repository, oci.Options{MaxLayerBytes: int64(f.sizes.bytes)})
	if err != nil {
		return err
	}
	defer closing()
	manifest, err := client.Get(ctx, j.reference)
	if err != nil {
		return err
	}
	target, err := newTarget(f.path, f.replace)
	if err != nil {
		return err
	}
	defer target.remove()
	sum, err := j.unpack(ctx, client, manifest, target.stage, archive.Options{Limits: f.sizes.limits()})
	if err == nil {
		err = target.publish()
	}
	if err != nil {
		return explainDisk(f.sizes.explain(err), f.path)
	}
	if sum.SkippedLinks > 0 {
		j.note("%d symbolic links were left out.", sum.SkippedLinks)
	}
	result := pulled{identified: identify(j.repository, manifest.Resolved), Path: f.path, Files: sum.Files, Annotations: manifest.Metadata}
	return j.result(output, result, result.String())
}

// unpack transfers an artifact's layer into a folder.
func (j *job) unpack(
	ctx context.Context, client *oci.Client, manifest *oci.Manifest, folder string, opts archive.Options,
) (archive.Summary, error) {
	layer, err := manifest.Select(oci.LayerSelector{})
	if err != nil {
		return archive.Summary{}, err
	}
	stream, err := client.Open(ctx, layer)
	if err != nil {
		return archive.Summary{}, err
	}
	defer stream.Close() //nolint:errcheck // read only
	root, err := os.OpenRoot(folder)
	if err != nil {
		return archive.Summary{}, err
	}
	defer root.Close() //nolint:errcheck // each file is closed
	shown := j.newProgress("pulling")
	defer shown.end()
	return archive.Extract(ctx, &watched{Reader: stream, progress: shown, total: layer.Size}, root, opts)
}

// explainDisk adds a note to an error of the file system: the folder at the path is unchanged.
func explainDisk(err error, path string) error {
	if failed, ok := errors.AsType[*fs.PathError](err); !ok || origin.CodeOf(err) != "" {
		return err
	} else if errors.Is(failed, syscall.ENOSPC) || errors.Is(failed, syscall.EDQUOT) {
		return fmt.Errorf("there is not enough space for the artifact: %w; %s is as it was", failed.Err, path)
	}
	return fmt.Errorf("%w; %s is as it was", err, path)
}
