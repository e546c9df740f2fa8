package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// published is the result of a push.
type published struct {
	identified

	// Files is the number of files in the artifact.
	Files int `json:"files"`
	// Size is the length of the layer in bytes.
	Size int64 `json:"size"`
	// SkippedLinks is the number of symbolic links that were left out.
	SkippedLinks int `json:"skippedLinks,omitempty"`
}

// pushFlags describe what is pushed.
type pushFlags struct {
	content          contentFlags
	source, revision string
	annotations      map[string]string
	reproducible     bool
}

func newPush(std IO) *cobra.Command {
	var f pushFlags
	c := &cobra.Command{
		Use:   "artifact oci://HOST/REPOSITORY:TAG",
		Short: "Push a folder or file to a registry as an artifact",
		Long: `Push a folder or file to a registry as an artifact.

The artifact has the media types and annotations of Flux's, so that Flux and Lanyard's controller deploy it. Equal content
gives equal layers: owners, times and permissions except "executable" are left out. With --reproducible, the whole artifact
has the same digest each time. A gzip archive is brought into the same form.

Left out are version control files, and, unless --ignore-paths or a file .sourceignore in the folder says otherwise, CI
configuration, media and archives. Symbolic links inside the folder are left out; a link that leaves it is refused, as are
sockets, devices, and files that change while they are read.

The tag is written last. If the push is interrupted, the tag stays as it was, and the next push of the same content on this
machine goes on where the upload ended, if the registry allows it.`,
		Example: `  # Push manifests from a CI job of GitHub, with the job's own identity
  lanyard push artifact oci://registry.example.com/team/app:1.0.0 --path=./deploy --creds=GitHubOIDCToken \
    --source=https://github.com/team/app --revision=main@sha1:6c1b1a7

  # From a Pod, with its ServiceAccount, and with an annotation; print the result as JSON
  lanyard push artifact oci://registry.example.com/team/app:latest --path=./deploy --creds=ServiceAccountToken \
    --annotations=team=a -o json

  # With docker login's credential, the same digest for the same content each time
  lanyard push artifact oci://registry.example.com/team/app:1.0.0 --path=./deploy --reproducible`,
	}
	f.content.addTo(c)
	c.Flags().StringVar(&f.source, "source", "", "where the content comes from, such as the URL of a Git repository")
	c.Flags().StringVar(&f.revision, "revision", "", "version of the content there, such as main@sha1:COMMIT")
	c.Flags().StringToStringVarP(&f.annotations, "annotations", "a", nil, "annotation of the artifact, KEY=VALUE; may be repeated")
	c.Flags().BoolVar(&f.reproducible, "reproducible", false,
		"set the time of creation to 1970-01-01, so that equal content has an equal digest")
	output := frame.OutputFlag(c, frame.Text, frame.JSON, frame.YAML)
	frame.CompleteNothing(c, "source", "revision", "annotations")
	return prepare(c, std, func(ctx context.Context, j *job) error { return f.run(ctx, j, output) })
}

func (f *pushFlags) run(ctx context.Context, j *job, output *frame.Format) error {
	if err := f.content.check(j); err != nil {
		return err
	}
	if j.reference.Tag == "" {
		return j.misused("name the artifact's tag: %s:TAG", j.repository)
	}
	artifact, err := f.artifact()
	if err != nil {
		return err
	}
	opts, closing, err := j.registry.options(ctx, j.repository, oci.Options{Uploads: oci.Uploads{Folder: j.std.Uploads}})
	if err != nil {
		return err
	}
	defer closing()
	shown := j.newProgress("pushing")
	artifact.Progress = shown.show
	pushed, err := oci.Push(ctx, j.repository, j.reference.Tag, artifact, opts)
	shown.end()
	if err != nil {
		return f.content.sizes.explain(err)
	}
	if pushed.SkippedLinks > 0 {
		j.note("%d symbolic links were left out.", pushed.SkippedLinks)
	}
	result := published{
		identified: identify(j.repository, pushed.Resolved),
		Files:      pushed.Files, Size: pushed.Layer.Size, SkippedLinks: pushed.SkippedLinks,
	}
	return j.result(output, result, result.String())
}

// artifact returns the artifact to push, as the flags describe it.
func (f *pushFlags) artifact() (oci.Artifact, error) {
	for key := range f.annotations {
		if strings.TrimSpace(key) == "" {
			return oci.Artifact{}, errors.New("--annotations: a key is empty")
		}
	}
	ignore, err := f.content.patterns()
	if err != nil {
		return oci.Artifact{}, err
	}
	created := time.Now()
	if f.reproducible {
		created = time.Unix(0, 0)
	}
	return oci.Artifact{
		Path: f.content.path, Ignore: ignore, Limits: f.content.sizes.limits(),
		Source: f.source, Revision: f.revision, Created: created, Annotations: f.annotations,
	}, nil
}

// Pack writes the content of a folder as a push writes it, with the same files left out. The errors
// name the flag --path.
func Pack(ctx context.Context, folder string, limits archive.Limits, out io.Writer) error {
	if err := staysBelow(folder); err != nil {
		return err
	}
	content := contentFlags{path: folder}
	ignore, err := content.patterns()
	if err != nil {
		return err
	}
	if _, err := (oci.Artifact{Path: folder, Ignore: ignore, Limits: limits}).Pack(ctx, out); err != nil {
		return fmt.Errorf("--path: %w", err)
	}
	return nil
}
