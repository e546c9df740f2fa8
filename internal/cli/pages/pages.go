// Package pages writes a page for each command from the command's own texts. The pages are Markdown
// in docs/cli, and man pages in docs/man. Only tests link the package, and dev/generate runs these
// tests.
package pages

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// Test compares the pages of root and its subcommands with the files in the folder docs. Only
// commands for which own returns true have a page, but pages may link to other commands too. With
// the flag -update, Test writes the files.
func Test(t *testing.T, docs string, root *cobra.Command, own func(*cobra.Command) bool) {
	t.Helper()
	root.CompletionOptions.HiddenDefaultCmd = true
	root.InitDefaultHelpCmd()
	for _, c := range commands(root) {
		if !own(c) {
			continue
		}
		c.DisableAutoGenTag = true // cobra's tag at the end of a page contains the date
		c.InitDefaultHelpFlag()
		c.Long = tables.ReplaceAllString(c.Long, "    $0")
		golden.Compare(t, filepath.Join(docs, "cli", strings.ReplaceAll(c.CommandPath(), " ", "_")+".md"), markdown(t, c))
		golden.Compare(t, filepath.Join(docs, "man", strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"), man(t, c))
	}
}

// tables matches the indentation of a table's lines in a text. Test indents these lines further,
// so that Markdown shows the table unchanged, as a code block.
var tables = regexp.MustCompile(`(?m)^ {2,}`)

// commands returns c and its subcommands that may have a page.
func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
			all = append(all, commands(sub)...)
		}
	}
	return all
}

func markdown(t *testing.T, c *cobra.Command) []byte {
	t.Helper()
	var page bytes.Buffer
	must.Succeed(t, doc.GenMarkdown(c, &page))
	return page.Bytes()
}

func man(t *testing.T, c *cobra.Command) []byte {
	t.Helper()
	var page bytes.Buffer
	header := doc.GenManHeader{Section: "1", Source: "Lanyard", Manual: "Lanyard", Date: new(time.Time{})}
	must.Succeed(t, doc.GenMan(c, &header, &page))
	return bytes.Replace(page.Bytes(), []byte(`"Jan 0001"`), []byte(`""`), 1) // a page has no date
}
