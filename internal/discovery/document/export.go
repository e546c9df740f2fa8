package document

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// Export writes the documents to files below a folder. A static web server or a bucket can serve
// the folder at the issuer's URL. Each file is written atomically. The key set is written before
// the discovery document, so that nobody finds a discovery document without keys. Export returns
// the paths of the written files.
func Export(dir string, d *Set) ([]string, error) {
	var written []string
	for _, file := range []struct {
		path    string
		content []byte
	}{{keyring.BundlePath, d.Bundle}, {KeySetPath, d.KeySet}, {ConfigurationPath, d.Configuration}} {
		// Without a trust domain, there is no bundle. Without an issuer, there is only a bundle.
		if file.content == nil {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(file.path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // the documents are public
			return written, fmt.Errorf("export the public documents: %w", err)
		}
		temporary := path + ".new"
		if err := os.WriteFile(temporary, file.content, 0o644); err != nil { //nolint:gosec // the documents are public
			return written, fmt.Errorf("export the public documents: %w", err)
		}
		if err := os.Rename(temporary, path); err != nil {
			return written, fmt.Errorf("export the public documents: %w", err)
		}
		written = append(written, path)
	}
	return written, nil
}
