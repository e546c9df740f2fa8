package archive

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
)

// Create packs the folder fsys (os.DirFS, or os.Root.FS for a folder of a stranger) as tar.gz into out, in lexical order, with
// Normalize's rules, refusals and uniform headers: equal folders give equal bytes. Unlike in an archive, what
// opts.Ignore leaves out is never read and does not count.
func Create(ctx context.Context, fsys fs.FS, out io.Writer, opts Options) (Summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	ignored := 0
	walked := make(chan struct{})
	go func() {
		defer close(walked)
		tw := tar.NewWriter(pw)
		err := walk(ctx, fsys, tw, opts.Ignore, &ignored)
		if err == nil {
			err = tw.Close()
		}
		pw.CloseWithError(err)
	}()
	sum, err := Normalize(ctx, pr, out, Options{Limits: opts.Limits})
	_ = pr.CloseWithError(errWalkOver)
	<-walked
	sum.Ignored += ignored
	return sum, err
}

// errWalkOver ends the walk when its reader has given up.
var errWalkOver = errors.New("the archive is no longer wanted")

func walk(ctx context.Context, fsys fs.FS, tw *tar.Writer, ignore Patterns, ignored *int) error {
	matcher := ignore.Matcher()
	return fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if name == "." {
			return nil
		}
		excluded, err := matcher.Excludes(name, d.IsDir())
		if err != nil {
			return err
		}
		if excluded {
			*ignored++
			if d.IsDir() && !ignore.negates() {
				return fs.SkipDir
			}
			return nil
		}
		return add(fsys, tw, name, d)
	})
}

func add(fsys fs.FS, tw *tar.Writer, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	target := ""
	if d.Type() == fs.ModeSymlink {
		if target, err = fs.ReadLink(fsys, name); err != nil {
			return err
		}
	}
	hdr, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return refuse(ReasonType, name, "remove it from the folder", "%w", err)
	}
	hdr.Name = name
	if err := tw.WriteHeader(hdr); err != nil {
		return err
	}
	if !d.Type().IsRegular() {
		return nil
	}
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	_, err = io.Copy(tw, f)
	return err
}

// negates reports whether a pattern can take something in again.
func (p Patterns) negates() bool {
	for _, one := range p.list {
		if one.negated {
			return true
		}
	}
	return false
}
