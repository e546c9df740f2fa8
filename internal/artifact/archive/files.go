package archive

import (
	"archive/tar"
	"context"
	"io"
	"strings"
)

// Files reads a tar archive (plain or gzip) up to its end, and returns the content of each regular
// file by its clean name, such as "apps/web.yaml". It has the same rules and refusals as Normalize.
// Options.Limits bound the memory that the contents need.
func Files(ctx context.Context, in io.Reader, opts Options) (map[string][]byte, error) {
	n := newNormalizer(opts)
	c := &collector{files: map[string][]byte{}, content: n.written}
	n.out, n.written.w = c, &c.file
	if _, err := n.read(ctx, in, func() error { return nil }); err != nil {
		return nil, err
	}
	return c.files, nil
}

// collector is a sink that keeps the files in memory.
type collector struct {
	files   map[string][]byte
	content *meter // writes to file, up to the limit
	name    string // name of the current file, or empty
	file    buffer // content of the current file
}

// buffer is a writer that keeps what is written.
type buffer []byte

func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// WriteHeader begins a file. It leaves folders out.
func (c *collector) WriteHeader(hdr *tar.Header) error {
	if err := c.Close(); err != nil || strings.HasSuffix(hdr.Name, "/") {
		return err
	}
	// A header may claim any size, so the content's limit bounds the capacity.
	c.name, c.file = hdr.Name, make(buffer, 0, max(0, min(hdr.Size, c.content.left)))
	return nil
}

// Write adds to the current file.
func (c *collector) Write(p []byte) (int, error) { return c.content.Write(p) }

// Close keeps the current file.
func (c *collector) Close() error {
	if c.name != "" {
		c.files[c.name] = c.file
	}
	c.name = ""
	return nil
}
