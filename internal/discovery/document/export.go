package document

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// Export writes the documents below a folder, as a static web server or a bucket serves them: the
// folder is the issuer's URL. Each file appears whole or not at all. The key set is written first,
// so that nobody finds a discovery document without keys. It returns the paths that it wrote.
func Export(dir string, d *Set) ([]string, error) {
	var written []string
	for _, file := range []struct {
		path    string
		content []byte
	}{{keyring.BundlePath, d.Bundle}, {KeySetPath, d.KeySet}, {ConfigurationPath, d.Configuration}} {
		if file.content == nil { // only a trust domain has a bundle, and it may have nothing else
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
