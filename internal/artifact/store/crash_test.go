package store

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// crashDir is set if this test binary runs as the process that a test kills.
var crashDir = flag.String("store-crash-dir", "", "write artifacts into this folder until killed")

func TestMain(m *testing.M) {
	flag.Parse()
	if *crashDir != "" {
		writeUntilKilled(*crashDir)
		return
	}
	os.Exit(m.Run())
}

// writeUntilKilled stores artifacts, and calls Collect to remove old ones. After an artifact is
// stored, it prints the digest.
func writeUntilKilled(dir string) {
	s, err := Open(dir, Options{})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	s.keep.records = 3
	for i := 0; ; i++ {
		o := object("tenant-a", fmt.Sprintf("app-%d", i%3))
		content := strings.Repeat(fmt.Sprintf("%d ", rand.Uint64()), 1+rand.IntN(5000))
		stored, err := s.Put(context.Background(), o, text(content))
		if err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Println("stored", o.Name, stored.Digest)
		if i%5 == 4 {
			_, err := s.Collect(context.Background(), func(Object) ([]string, bool) { return nil, true })
			if err != nil {
				fmt.Println("error", err)
				return
			}
		}
	}
}

// TestKilledAtAnyMoment kills a process that writes. Only whole artifacts remain, including the
// last reported one. Open removes everything else.
func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	last := make(map[string]string) // the keys are object names
	for round := range 15 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-store-crash-dir="+dir)
		out, err := cmd.StdoutPipe()
		must.Succeed(t, err)
		must.Succeed(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			fields := strings.Fields(lines.Text())
			if len(fields) != 3 || fields[0] != "stored" {
				t.Fatalf("round %d: %s", round, lines.Text())
			}
			last[fields[1]] = fields[2]
			if n == 3 {
				// Kill the process at a random moment within its next writes.
				kill := time.AfterFunc(time.Duration(rand.IntN(5000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
				defer kill.Stop()
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the process ended by itself")
		}
		check(t, dir, last)
	}
}

func check(t *testing.T, dir string, last map[string]string) {
	t.Helper()
	s, err := Open(dir, Options{})
	must.Succeed(t, err)
	defer s.Close()
	if names := leftovers(t, dir); len(names) != 0 {
		t.Errorf("temporary files stay: %v", names)
	}
	for name, digest := range last {
		if err := s.Verify(t.Context(), object("tenant-a", name), digest); err != nil {
			t.Errorf("%s, which was reported as stored: %v", digest, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*", "*", "*", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	var total int64
	for _, file := range files {
		o := object("tenant-a", filepath.Base(filepath.Dir(filepath.Dir(file))))
		if err := s.Verify(t.Context(), o, "sha256:"+strings.TrimSuffix(filepath.Base(file), ".tar.gz")); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		info, err := os.Stat(file)
		must.Succeed(t, err)
		total += info.Size()
	}
	if s.Size() != total {
		t.Errorf("%d bytes counted, %d there", s.Size(), total)
	}
}
