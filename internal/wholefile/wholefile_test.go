package wholefile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/wholefile"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	for _, content := range []string{"old", "new"} {
		must.Succeed(t, wholefile.Write(path, []byte(content)))
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Errorf("%q, %v; want %q", got, err, content)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// Write cannot replace a folder with a file, and must remove its temporary file.
	folder := filepath.Join(dir, "folder")
	must.Succeed(t, os.Mkdir(folder, 0o700))
	if err := wholefile.Write(folder, []byte("new")); err == nil {
		t.Error("a file replaced a folder")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
