// Package wholefile writes files that appear whole or not at all.
package wholefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write creates or replaces a file that only its owner may read. Readers see the old content or the
// new content, and never a part. After an error the old content stays.
func Write(path string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = temporary.Write(data)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
