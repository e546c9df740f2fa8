// Package wholefile writes files atomically.
package wholefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write creates or replaces a file. Only the file's owner may read it. Readers see either the old
// content or the new content, never a part. After an error the old content stays.
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
