// Package manifests has the commands that write manifests for clusters. They send no requests to a
// cluster.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/conversion"
	"github.com/lanyard-dev/lanyard/internal/plain"
)

// Commands returns the commands tenant, hub and convert.
func Commands(std frame.IO) []*cobra.Command {
	return []*cobra.Command{newTenant(std), newHub(std), newConvert(std)}
}

// maxManifests is the maximum total size of the manifests that one command reads, in bytes.
const maxManifests = 64 << 20

// stdin is the value of -f for the standard input.
const stdin = "-"

// convertFlags are the flags of the command convert.
type convertFlags struct {
	paths []string
	opts  conversion.Options
	write bool
}

func newConvert(std frame.IO) *cobra.Command {
	f := convertFlags{opts: conversion.Options{Kinds: std.Kinds}}
	c := &cobra.Command{
		Use:   "convert -f PATH",
		Short: "Turn manifests of Flux, Cluster API Provider AWS and Gardener into Lanyard's",
		Long: `Turn manifests of Flux, Cluster API Provider AWS and Gardener into Lanyard's.

These kinds are converted, whatever their version:

  Flux         ` + strings.Join(conversion.Flux.Kinds(std.Kinds), ", ") + `
  CAPA         ` + strings.Join(conversion.ClusterAPI.Kinds(std.Kinds), ", ") + `
  Gardener     ` + strings.Join(conversion.Gardener.Kinds(std.Kinds), ", ") + `, with the providerConfig of AWS, Azure and Google Cloud

Everything else is kept, so that the output replaces the input. A converted object loses its status, and the metadata that a
server or the other project has set. Its comments and the order of its fields stay; blank lines and line breaks may differ. The
standard error has a line about each converted object, and about what still needs your attention.

A converted Kustomization belongs to lanyard-apply-controller, and no longer to Flux. Move it in this order: suspend Flux's
Kustomization in the cluster, delete it, and apply Lanyard's. A suspended Kustomization deletes nothing that it has applied.
With --external-artifacts, Kustomizations stay Flux's, and use what Lanyard's sources publish.

A field that Lanyard does not have is an error, and so is a grant that Lanyard would read in another way. Then nothing is
written. The command asks no cluster, and does not judge the fields' values: try the output with
"kubectl apply --dry-run=server". It does not change trust policies at clouds: Lanyard's issuer has another URL and other
subjects than Gardener's.`,
		Example: `  # The manifests of a repository, in place
  lanyard convert -f ./clusters --write

  # The same without Flux's Kustomizations: they and HelmReleases then use the ExternalArtifacts
  lanyard convert -f ./clusters --external-artifacts --write

  # Objects of a cluster
  kubectl get ocirepositories.source.toolkit.fluxcd.io --all-namespaces -o yaml | lanyard convert -f - > lanyard.yaml
  kubectl apply --dry-run=server -f lanyard.yaml`,
	}
	c.Flags().StringArrayVarP(&f.paths, "filename", "f", nil,
		"file, folder with *.yaml, *.yml and *.json, or - for the standard input (required, repeatable)")
	c.Flags().BoolVar(&f.opts.ExternalArtifacts, "external-artifacts", false,
		"publish converted OCIRepositories and Buckets as ExternalArtifacts, and change the references in Flux's objects of the input; Kustomizations stay Flux's")
	c.Flags().BoolVar(&f.write, "write", false, "replace the files, in place of writing to the standard output")
	frame.CompleteFile(c, "filename", "yaml", "yml", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return frame.UsageError(c, err)
		}
		return f.run(std)
	}
	return c
}

// check refuses flags that name no manifests, or that exclude each other.
func (f *convertFlags) check() error {
	switch {
	case len(f.paths) == 0:
		return errors.New("name a file or a folder with -f, or - for the standard input")
	case f.write && slices.Contains(f.paths, stdin):
		return errors.New("--write replaces files: it does not work with -f -")
	}
	return nil
}

func (f *convertFlags) run(std frame.IO) error {
	files, err := f.read(std.In)
	var notes []string
	if err == nil {
		files, notes, err = conversion.Convert(files, f.opts)
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			_, _ = fmt.Fprintln(std.Err, plain.Text(strings.TrimSuffix(line, "\n")))
		}
		return errors.New("nothing is written, because of these errors")
	}
	for _, note := range notes {
		_, _ = fmt.Fprintln(std.Err, plain.Text(note)) // the command continues if a note cannot be written
	}
	if !slices.ContainsFunc(files, func(f conversion.File) bool { return f.Changed }) {
		return errors.New("there is nothing to convert, and nothing is written; see lanyard convert --help for the kinds")
	}
	if f.write {
		return replaceFiles(files)
	}
	_, err = std.Out.Write(joinFiles(files))
	return err
}

// read reads the manifests that -f names, each file once.
func (f *convertFlags) read(in io.Reader) ([]conversion.File, error) {
	var files []conversion.File
	var errs []error
	left := int64(maxManifests)
	add := func(name string, open func() (io.ReadCloser, error)) {
		if slices.ContainsFunc(files, func(f conversion.File) bool { return f.Name == name }) {
			return
		}
		data, err := readBounded(open, left)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		left -= int64(len(data))
		files = append(files, conversion.File{Name: name, Data: data})
	}
	for _, path := range f.paths {
		if path == stdin {
			add("stdin", func() (io.ReadCloser, error) { return io.NopCloser(in), nil })
			continue
		}
		names, err := manifestNames(path)
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range names {
			add(name, func() (io.ReadCloser, error) { return os.Open(name) }) //nolint:gosec // the user's own
		}
	}
	return files, errors.Join(errs...)
}

// readBounded reads an input. It refuses an input with more than limit bytes.
func readBounded(open func() (io.ReadCloser, error), limit int64) ([]byte, error) {
	input, err := open()
	if err != nil {
		return nil, err
	}
	defer input.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(input, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("all manifests together have more than %d MiB; convert fewer at once", maxManifests>>20)
	}
	return data, err
}

// manifestNames returns the path of a file. For a folder, it returns the paths of all manifests in
// the folder, except hidden ones.
func manifestNames(path string) (names []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{filepath.Clean(path)}, nil
	}
	root := path + string(filepath.Separator) // with the separator, WalkDir follows a symbolic link
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != root && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			names = append(names, filepath.Clean(name))
		}
		return nil
	})
	return names, err
}

// joinFiles returns the contents of files as one stream of YAML.
func joinFiles(files []conversion.File) []byte {
	var all []byte
	for _, f := range files {
		if len(all) > 0 && !bytes.HasSuffix(all, []byte("\n")) {
			all = append(all, '\n')
		}
		if len(all) > 0 && !bytes.HasPrefix(f.Data, []byte("---")) {
			all = append(all, "---\n"...)
		}
		all = append(all, f.Data...)
	}
	return all
}

// replaceFiles replaces the files that have changed. Until all new contents are on the disk, no file
// is replaced.
func replaceFiles(files []conversion.File) (err error) {
	staged := map[string]string{} // name of the old file → name of the new file
	defer func() {
		for _, temporary := range staged {
			err = errors.Join(err, os.Remove(temporary))
		}
	}()
	for _, f := range files {
		if !f.Changed {
			continue
		}
		temporary, err := stageFile(f)
		if temporary != "" {
			staged[f.Name] = temporary
		}
		if err != nil {
			return fmt.Errorf("%s: %w; no file is changed", f.Name, err)
		}
	}
	for _, f := range files {
		if temporary, ok := staged[f.Name]; ok {
			if err := os.Rename(temporary, f.Name); err != nil {
				return err
			}
			delete(staged, f.Name)
		}
	}
	return nil
}

// stageFile writes a file's new content to a temporary file beside it, with the same mode. If
// the temporary file was created, stageFile returns its name, even with an error.
func stageFile(f conversion.File) (string, error) {
	info, err := os.Lstat(f.Name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is a symbolic link or not a file: name the file itself with -f")
	}
	temporary, err := os.CreateTemp(filepath.Dir(f.Name), "."+filepath.Base(f.Name)+"-*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = temporary.Write(f.Data)
	return temporary.Name(), errors.Join(err, temporary.Chmod(info.Mode().Perm()), temporary.Close())
}
