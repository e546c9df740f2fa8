package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	fluxBucket = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: Bucket\nmetadata:\n  name: app # mine\n"
	ourBucket  = "apiVersion: toolkit.lanyard.dev/v1alpha1\nkind: Bucket\nmetadata:\n  name: app # mine\n"
	aPod       = "apiVersion: v1\nkind: Pod\n"
)

// manifestFolder makes a folder with files.
func manifestFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o640))
	}
	return folder
}

// contents returns the texts of the files below a folder, by name.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(folder, path)
		all[name] = string(text)
		return err
	})
	must.Succeed(t, err)
	return all
}

func TestConvertToStdout(t *testing.T) {
	folder := manifestFolder(t, map[string]string{
		"a.yaml": fluxBucket, "b/c.yml": aPod, "b/d.json": `{"kind": "Pod"}`, "e.txt": fluxBucket, ".git/f.yaml": fluxBucket, "b/.g.yaml": fluxBucket,
	})
	t.Chdir(folder)
	must.Succeed(t, os.Symlink("b", "link.d"))
	for name, tt := range map[string]struct {
		args     []string
		in       string
		out, err string
	}{
		"stdin": {
			[]string{"-"},
			fluxBucket, ourBucket,
			"stdin:1: Bucket app: source.toolkit.fluxcd.io/v1 -> toolkit.lanyard.dev/v1alpha1\n",
		},
		"folder": {
			[]string{"."},
			"", ourBucket + "---\n" + aPod + "---\n" + `{"kind": "Pod"}`,
			"a.yaml:1: Bucket app: source.toolkit.fluxcd.io/v1 -> toolkit.lanyard.dev/v1alpha1\n",
		},
		"linked folder, file and folder": {
			[]string{"link.d", "a.yaml", "e.txt", "./a.yaml"},
			"", aPod + "---\n" + `{"kind": "Pod"}` + "\n---\n" + ourBucket + "---\n" + ourBucket,
			"a.yaml:1: Bucket app: source.toolkit.fluxcd.io/v1 -> toolkit.lanyard.dev/v1alpha1\n" +
				"e.txt:1: Bucket app: source.toolkit.fluxcd.io/v1 -> toolkit.lanyard.dev/v1alpha1\n",
		},
		"format characters": {
			[]string{"-"},
			strings.Replace(fluxBucket, "app", `"a\e[31m\u202e"`, 1), strings.Replace(ourBucket, "app", `"a\e[31m\u202e"`, 1),
			"stdin:1: Bucket a [31m : source.toolkit.fluxcd.io/v1 -> toolkit.lanyard.dev/v1alpha1\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := command{in: tt.in}
			args := []string{"convert"}
			for _, path := range tt.args {
				args = append(args, "-f", path)
			}
			if status := c.run(t.Context(), args...); status != 0 || c.out.String() != tt.out || c.err.String() != tt.err {
				t.Errorf("status %d, prints %q, says %q", status, c.out.String(), c.err.String())
			}
		})
	}
}

func TestConvertFails(t *testing.T) {
	folder := manifestFolder(t, map[string]string{"a.yaml": fluxBucket, "b.yaml": fluxBucket + "spec: {buckt: x}\n", "c.yaml": aPod, "d.yaml": "a: [\n"})
	t.Chdir(folder)
	before := contents(t, ".")
	for name, tt := range map[string]struct {
		args, in, err string
	}{
		"nothing to convert": {"-f c.yaml", "", "lanyard: there is nothing to convert, and nothing is written; see lanyard convert --help for the kinds\n"},
		"errors of all files": {
			"-f . --write", "", "b.yaml:5: spec.buckt: Lanyard's Bucket does not have this field; remove it\n" +
				"d.yaml:1: did not find expected node content\nlanyard: nothing is written, because of these errors\n",
		},
		"no file": {"-f a.yaml -f e.yaml", "", "stat e.yaml: no such file or directory\nlanyard: nothing is written, because of these errors\n"},
		"too large": {
			"-f -", strings.Repeat("#", 64<<20+1),
			"stdin: all manifests together have more than 64 MiB; convert fewer at once\nlanyard: nothing is written, because of these errors\n",
		},
		"format characters": {"-f -", fluxBucket + "spec: {\"a\\e[31m\": x}\n", "stdin:5: spec.a [31m: Lanyard's Bucket does not have this field; remove it\nlanyard: nothing is written, because of these errors\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := command{in: tt.in}
			if status := c.run(t.Context(), strings.Fields("convert "+tt.args)...); status != frame.Failed || c.out.Len() > 0 || c.err.String() != tt.err {
				t.Errorf("status %d, prints %q, says %q", status, c.out.String(), c.err.String())
			}
		})
	}
	after := contents(t, ".")
	if len(after) != len(before) {
		t.Errorf("%d files became %d", len(before), len(after))
	}
	for name := range before {
		if after[name] != before[name] {
			t.Errorf("%s has changed", name)
		}
	}
}

// TestConvertFiles checks that --write replaces only the files that it converts, keeps their mode,
// and leaves no other file behind.
func TestConvertFiles(t *testing.T) {
	folder := manifestFolder(t, map[string]string{"a.yaml": fluxBucket, "b/c.yaml": aPod + "---\n" + fluxBucket, "d.yaml": aPod})
	t.Chdir(folder)
	must.Succeed(t, os.Chmod("a.yaml", 0o604))
	kept, err := os.Stat("d.yaml")
	must.Succeed(t, err)
	var c command
	if status := c.run(t.Context(), "convert", "-f", ".", "--write"); status != 0 || c.out.Len() > 0 {
		t.Fatalf("status %d, prints %q, says %q", status, c.out.String(), c.err.String())
	}
	after := contents(t, ".")
	if len(after) != 3 || after["a.yaml"] != ourBucket || after["b/c.yaml"] != aPod+"---\n"+ourBucket || after["d.yaml"] != aPod {
		t.Errorf("%q", after)
	}
	if info, err := os.Stat("a.yaml"); err != nil || info.Mode() != 0o604 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if same, err := os.Stat("d.yaml"); err != nil || !os.SameFile(kept, same) {
		t.Errorf("a file without a change is replaced: %v", err)
	}
	var again command
	if status := again.run(t.Context(), "convert", "-f", ".", "--write"); status != frame.Failed || !strings.Contains(again.err.String(), "nothing to convert") {
		t.Errorf("status %d, says %q", status, again.err.String())
	}
}

// TestConvertKustomizations checks that Flux's Kustomizations are converted, and that they stay
// Flux's with --external-artifacts.
func TestConvertKustomizations(t *testing.T) {
	const (
		spec  = "kind: Kustomization\nmetadata:\n  name: app\nspec:\n  sourceRef: {kind: Bucket, name: app}\n  serviceAccountName: deployer\n"
		flux  = "apiVersion: kustomize.toolkit.fluxcd.io/v1\n" + spec
		ours  = "apiVersion: toolkit.lanyard.dev/v1alpha1\n" + spec
		moved = "stdin:1: Kustomization app: kustomize.toolkit.fluxcd.io/v1 -> toolkit.lanyard.dev/v1alpha1; " +
			"first suspend Flux's Kustomization in the cluster, since otherwise its deletion deletes its objects; " +
			"docs/kustomizations.md says how to move it\n"
		bucket = "stdin:9: Bucket app: source.toolkit.fluxcd.io/v1 -> toolkit.lanyard.dev/v1alpha1\n"
	)
	c := command{in: flux + "---\n" + fluxBucket}
	if status := c.run(t.Context(), "convert", "-f", "-"); status != 0 || c.out.String() != ours+"---\n"+ourBucket || c.err.String() != moved+bucket {
		t.Errorf("status %d, prints %q, says %q", status, c.out.String(), c.err.String())
	}
	kept := command{in: flux + "---\n" + fluxBucket + "spec:\n  interval: 1m\n"}
	status := kept.run(t.Context(), "convert", "-f", "-", "--external-artifacts")
	text := strings.Replace(flux, "kind: Bucket", "kind: ExternalArtifact", 1) + "---\n" + ourBucket + "spec:\n  interval: 1m\n  externalArtifact: true\n"
	const notes = "stdin:1: Kustomization app: kept: with --external-artifacts, it stays Flux's\n" +
		"stdin:6: Kustomization app: spec.sourceRef names ExternalArtifact app in place of Bucket app\n" + bucket
	if status != 0 || kept.out.String() != text || kept.err.String() != notes {
		t.Errorf("status %d, prints %q, says %q", status, kept.out.String(), kept.err.String())
	}
}

// TestConvertThroughLink checks that --write does not replace a link. If one of the files is a
// link, --write replaces no file.
func TestConvertThroughLink(t *testing.T) {
	folder := manifestFolder(t, map[string]string{"a.yaml": fluxBucket, "elsewhere.txt": fluxBucket})
	t.Chdir(folder)
	must.Succeed(t, os.Symlink("elsewhere.txt", "b.yaml"))
	var c command
	if status := c.run(t.Context(), "convert", "-f", ".", "--write"); status != frame.Failed || !strings.Contains(c.err.String(), "lanyard: b.yaml: it is a symbolic link") {
		t.Errorf("status %d, says %q", status, c.err.String())
	}
	if after := contents(t, "."); len(after) != 3 || after["a.yaml"] != fluxBucket || after["elsewhere.txt"] != fluxBucket {
		t.Errorf("%q", after)
	}
	var read command
	if status := read.run(t.Context(), "convert", "-f", "b.yaml"); status != 0 || read.out.String() != ourBucket {
		t.Errorf("status %d, prints %q, says %q", status, read.out.String(), read.err.String())
	}
}
