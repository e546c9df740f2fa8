package artifacts

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// askedAtOnce is the number of manifests that are requested at the same time.
const askedAtOnce = 8

// row is a tag of a list. All fields except Tag need --details.
type row struct {
	Tag      string `json:"tag"`
	Digest   string `json:"digest,omitempty"`
	Created  string `json:"created,omitempty"`
	Source   string `json:"source,omitempty"`
	Revision string `json:"revision,omitempty"`
}

// listFlags choose what is listed.
type listFlags struct {
	selection oci.TagSelection
	limit     int
	details   bool
}

func newList(std IO) *cobra.Command {
	var f listFlags
	c := &cobra.Command{
		Use:     "artifact oci://HOST/REPOSITORY",
		Aliases: []string{"artifacts"},
		Short:   "List the tags of a repository",
		Long: `List the tags of a repository.

Versions come first, from the highest to the lowest, and then other tags. The tags of cosign's signatures are left out
unless --signatures is set. With --details, each listed artifact is asked for its digest, time, source and revision.`,
		Example: `  # The tags of a repository
  lanyard list artifact oci://registry.example.com/team/app

  # The three highest versions of a range, with what they were made from
  lanyard list artifact oci://registry.example.com/team/app --filter-semver='>=1.0.0 <2.0.0' --limit=3 --details

  # For a script: the highest version
  lanyard list artifact oci://registry.example.com/team/app --filter-semver='*' --limit=1`,
	}
	c.Flags().StringVar(&f.selection.SemVer, "filter-semver", "", "only versions in this range")
	c.Flags().StringVar(&f.selection.Pattern, "filter-regex", "", "only tags that match this regular expression")
	c.Flags().BoolVar(&f.selection.Signatures, "signatures", false, "the tags of cosign's signatures, attestations and SBOMs, too")
	c.Flags().IntVar(&f.limit, "limit", 0, "list so many tags at most; 0 for all")
	c.Flags().BoolVar(&f.details, "details", false, "ask for each artifact's digest, time, source and revision")
	frame.CompleteNothing(c, "filter-semver", "filter-regex", "limit")
	output := frame.OutputFlag(c, frame.Table, frame.JSON, frame.YAML)
	c = prepare(c, std, func(ctx context.Context, j *job) error { return f.run(ctx, j, output) })
	c.ValidArgsFunction = completeRepository // list takes a repository without a tag
	return c
}

func (f *listFlags) run(ctx context.Context, j *job, output *frame.Format) error {
	filter, err := f.selection.Filter()
	if err != nil {
		return frame.UsageError(j.command, err)
	}
	if j.reference != (oci.Reference{}) {
		return j.misused("name the repository alone, %s: all its tags are listed", j.repository)
	}
	client, closing, err := j.registry.connect(ctx, j.repository, oci.Options{})
	if err != nil {
		return err
	}
	defer closing()
	tags, err := client.List(ctx, filter)
	if err != nil {
		return err
	}
	if f.limit > 0 {
		tags = tags[:min(f.limit, len(tags))]
	}
	rows := make([]row, len(tags))
	for i, tag := range tags {
		rows[i].Tag = tag
	}
	if f.details {
		if err := describe(ctx, client, rows); err != nil {
			return err
		}
	}
	return frame.Write(j.std.Out, output, rows, func(w io.Writer) error { return f.table(w, rows) })
}

func (f *listFlags) table(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	if f.details && len(rows) > 0 {
		report.Line(t, "TAG", "DIGEST", "CREATED", "REVISION", "SOURCE")
	}
	for _, r := range rows {
		cells := []string{r.Tag}
		if f.details {
			cells = append(cells, r.Digest, r.Created, r.Revision, r.Source)
		}
		report.Line(t, cells...)
	}
	return t.Flush()
}

// describe fills the rows with digests and with data from the artifacts' manifests.
func describe(ctx context.Context, client *oci.Client, rows []row) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(askedAtOnce)
	for i := range rows {
		group.Go(func() error { return rows[i].describe(ctx, client) })
	}
	if group.Wait() != nil {
		return context.Cause(ctx) // the first error, or why the caller's context ended
	}
	return nil
}

func (r *row) describe(ctx context.Context, client *oci.Client) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	resolved, err := client.Resolve(ctx, oci.Reference{Tag: r.Tag})
	if err != nil {
		return fmt.Errorf("tag %s: %w", r.Tag, err)
	}
	r.Digest = resolved.Digest
	manifest, err := client.Fetch(ctx, resolved)
	if origin.CodeOf(err) == origin.CodeUnsupportedMediaType {
		return nil // the tag's manifest is no artifact: the row has only the digest
	}
	if err != nil {
		return fmt.Errorf("tag %s: %w", r.Tag, err)
	}
	r.Created, r.Source = manifest.Metadata[oci.AnnotationCreated], manifest.Metadata[oci.AnnotationSource]
	r.Revision = manifest.Metadata[oci.AnnotationRevision]
	return nil
}
