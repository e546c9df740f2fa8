// Package artifacts has the commands that push, pull, list, tag and compare artifacts in OCI
// registries. The artifacts have Flux's format: a manifest with one layer, which is an archive.
package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/cli/creds"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// IO has what the commands need from the process, such as the standard output.
type IO struct {
	// Out receives a command's result. Err receives progress and notes.
	Out, Err io.Writer
	// Terminal says that Err is a terminal, where a line can be overwritten.
	Terminal bool
	// Uploads is the folder that records interrupted uploads, so that a later push continues them.
	// If empty, no upload is recorded.
	Uploads string
	// Credentials has what package creds needs from the process.
	Credentials creds.Process
}

// Commands returns the commands push, pull, list, tag and diff. Each has the subcommand artifact. The
// command diff also has the given subcommands.
func Commands(std IO, otherDiffs ...*cobra.Command) []*cobra.Command {
	diff := verb("diff", newDiff(std))
	diff.Short = "Show how a folder differs from an artifact, or from a cluster"
	diff.AddCommand(otherDiffs...)
	return []*cobra.Command{
		verb("push", newPush(std)), verb("pull", newPull(std)), verb("list", newList(std)), verb("tag", newTag(std)), diff,
	}
}

// verb returns a command with one subcommand, artifact.
func verb(name string, artifact *cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: artifact.Short, Example: artifact.Example,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(artifact)
	return c
}

// job is one run of a command about an artifact.
type job struct {
	std        IO
	repository oci.Repository
	reference  oci.Reference
	registry   *registryFlags
	command    *cobra.Command
}

// misused returns the error for a wrong use of the command line.
func (j *job) misused(format string, args ...any) error {
	return frame.UsageError(j.command, fmt.Errorf(format, args...))
}

// argument is the placeholder in help for an artifact with a tag or a digest.
const argument = "oci://HOST/REPOSITORY[:TAG|@DIGEST]"

// prepare adds to a command the flags of a registry and one argument: the artifact's URL. The
// command checks the argument and the flags, and then calls run.
func prepare(c *cobra.Command, std IO, run func(context.Context, *job) error) *cobra.Command {
	flags := &registryFlags{creds: creds.New(std.Credentials)}
	flags.addTo(c)
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("name one artifact, such as oci://registry.example.com/team/app:1.0.0")
		}
		return nil
	}
	c.ValidArgsFunction = flags.completeTags
	c.RunE = func(c *cobra.Command, args []string) error {
		repository, reference, err := oci.ParseArtifact(args[0])
		if err = errors.Join(err, flags.check()); err != nil {
			return frame.UsageError(c, err)
		}
		ctx, cancel := flags.limit(c.Context())
		defer cancel()
		return run(ctx, &job{std: std, repository: repository, reference: reference, registry: flags, command: c})
	}
	return c
}

// note prints a line for the user to Err, separate from the result.
func (j *job) note(format string, args ...any) {
	_, _ = fmt.Fprintf(j.std.Err, format+"\n", args...) // the command continues if a note is lost
}

// result writes a command's result in the format of -o.
func (j *job) result(format *frame.Format, value any, text string) error {
	return frame.Write(j.std.Out, format, value, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, text)
		return err
	})
}

// identified has the fields of a result that identify the artifact.
type identified struct {
	// URL is oci://host/repository@sha256:digest.
	URL string `json:"url"`
	// Repository is host/repository.
	Repository string `json:"repository"`
	// Tag is empty for an artifact that was named by its digest.
	Tag string `json:"tag,omitempty"`
	// Digest is sha256:<hex> of the manifest.
	Digest string `json:"digest"`
}

func identify(repository oci.Repository, r oci.Resolved) identified {
	return identified{
		URL: repository.String() + "@" + r.Digest, Repository: repository.Host() + "/" + repository.Name(), Tag: r.Tag, Digest: r.Digest,
	}
}

// String is the artifact's full name, oci://host/repository:tag@sha256:digest.
func (i identified) String() string {
	if i.Tag == "" {
		return i.URL
	}
	return "oci://" + i.Repository + ":" + i.Tag + "@" + i.Digest
}

// Limits of an artifact's content, unless flags say otherwise.
const (
	defaultMaxSize  = 4 << 30
	defaultMaxFiles = 200_000
)

// sizeFlags bound an artifact's content.
type sizeFlags struct {
	bytes size
	files int
}

func (f *sizeFlags) addTo(c *cobra.Command) {
	f.bytes, f.files = defaultMaxSize, defaultMaxFiles
	c.Flags().Var(&f.bytes, "max-size", "largest size of the artifact, both transferred and unpacked")
	c.Flags().IntVar(&f.files, "max-files", f.files, "most files and folders in the artifact")
	frame.CompleteNothing(c, "max-size", "max-files")
}

// check refuses a --max-files that is not positive.
func (f *sizeFlags) check(j *job) error {
	if f.files <= 0 {
		return j.misused("--max-files: write a positive number")
	}
	return nil
}

func (f *sizeFlags) limits() archive.Limits {
	return archive.Limits{MaxBytes: int64(f.bytes), MaxFiles: f.files}
}

// explain adds a fix to an error about too many bytes or files: the flag that raises the limit.
func (f *sizeFlags) explain(err error) error {
	refused, ok := errors.AsType[*archive.Error](err)
	if !ok {
		return err
	}
	switch refused.Reason {
	case archive.ReasonTooLarge:
		refused.Fix = "raise --max-size"
	case archive.ReasonTooMany:
		refused.Fix = "raise --max-files"
	default: // package archive has set Fix for every other Reason
	}
	return refused
}

// size is a number of bytes. It is a pflag.Value.
type size int64

// String is the quantity in Kubernetes' notation.
func (s *size) String() string { return resource.NewQuantity(int64(*s), resource.BinarySI).String() }

// Type is the placeholder for the flag's value in help.
func (s *size) Type() string { return "bytes" }

// Set reads a quantity.
func (s *size) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return fmt.Errorf("%q is no number of bytes, such as 2Gi", text)
	}
	*s = size(q.Value())
	return nil
}
