package artifacts

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

func newTag(std IO) *cobra.Command {
	var tags []string
	c := &cobra.Command{
		Use:   "artifact " + argument,
		Short: "Give an artifact further tags",
		Long: `Give an artifact further tags.

Only the artifact's manifest is read and written: its content is not transferred. A tag that exists is moved.`,
		Example: `  # Promote a version
  lanyard tag artifact oci://registry.example.com/team/app:1.0.0 --tag=latest --tag=production

  # Give exactly what was tested a tag
  lanyard tag artifact oci://registry.example.com/team/app@sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae --tag=tested`,
	}
	c.Flags().StringSliceVar(&tags, "tag", nil, "new tag; may be repeated (required)")
	frame.CompleteNothing(c, "tag")
	output := frame.OutputFlag(c, frame.Text, frame.JSON, frame.YAML)
	return prepare(c, std, func(ctx context.Context, j *job) error { return j.tag(ctx, tags, output) })
}

func (j *job) tag(ctx context.Context, tags []string, output *frame.Format) error {
	if len(tags) == 0 {
		return j.misused("--tag: name the new tag")
	}
	for _, tag := range tags {
		if !oci.IsTag(tag) {
			return j.misused("--tag: %.40q is no tag", tag)
		}
	}
	client, closing, err := j.registry.connect(ctx, j.repository, oci.Options{Write: true})
	if err != nil {
		return err
	}
	defer closing()
	resolved, err := client.Resolve(ctx, j.reference)
	if err != nil {
		return err
	}
	var results []identified
	var lines []string
	for _, tag := range tags {
		if err := client.Tag(ctx, resolved, tag); err != nil {
			return fmt.Errorf("tag %s: %w", tag, err)
		}
		result := identify(j.repository, oci.Resolved{Tag: tag, Digest: resolved.Digest})
		results, lines = append(results, result), append(lines, result.String())
	}
	return j.result(output, results, strings.Join(lines, "\n"))
}
