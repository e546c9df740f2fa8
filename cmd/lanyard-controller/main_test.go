package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

func nothing(string) string { return "" }

func TestRunAnswersWithoutACluster(t *testing.T) {
	for arg, want := range map[string]string{"--help": "Example, for a program", "--version": "lanyard-controller "} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{arg}, nothing, &out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %q, %v", arg, out.String(), err)
		}
	}
}

func TestRunNamesWhatIsWrong(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // wherever the test runs
	missing := filepath.Join(t.TempDir(), "missing")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const base = "--artifact-base-url=http://artifacts.example.com"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"flag":          {[]string{"--concurrent=0", base}, "--concurrent"},
		"no cluster":    {[]string{base}, "--kubeconfig"},
		"no kubeconfig": {[]string{base, "--kubeconfig=" + missing}, "find the API server"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), c.args, nothing, &out); err == nil || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("%s: %v, printed %q", name, err, out.String())
		}
	}
}

func TestStoreSize(t *testing.T) {
	artifacts, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer artifacts.Close()
	size := storeSize(artifacts)
	if got := testutil.ToFloat64(size); got != 0 {
		t.Errorf("empty: %v", got)
	}
	owner := store.Object{Kind: "bucket", Namespace: "tenant-a", Name: "app", UID: "uid"}
	if _, err := artifacts.Put(t.Context(), owner, func(w io.Writer) error { _, err := w.Write([]byte("hello")); return err }); err != nil {
		t.Fatal(err)
	}
	if got := testutil.ToFloat64(size); got != 5 {
		t.Errorf("with five bytes: %v", got)
	}
}

// The Makefile has the linker write the version; a name that it does not find, it passes over in silence.
func TestVersionIsTheLinkers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controller")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.version=v1.2.3", "-o", file, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), file, "--version").Output()
	if err != nil || string(out) != "lanyard-controller v1.2.3\n" {
		t.Errorf("%q, %v", out, err)
	}
}
