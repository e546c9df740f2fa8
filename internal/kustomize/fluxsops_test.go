package kustomize_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/keyservice"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// fluxSOPS returns the encrypted files with which Flux tests its kustomize-controller, by their paths,
// and the private keys for them.
func fluxSOPS(t *testing.T) (files map[string]string, keys *keyservice.Keys) {
	t.Helper()
	// The version is also in test/flux.
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/fluxcd/kustomize-controller@v1.9.6")
	command.Stderr = t.Output()
	out, err := command.Output()
	must.Succeed(t, err)
	var module struct{ Dir string }
	must.Succeed(t, json.Unmarshal(out, &module))
	root := os.DirFS(filepath.Join(module.Dir, "internal", "controller", "testdata", "sops"))
	files, secret := map[string]string{}, map[string][]byte{}
	must.Succeed(t, fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, path)
		switch {
		case strings.HasPrefix(path, "keys/age"):
			secret[filepath.Base(path)+".agekey"] = content
		case strings.HasPrefix(path, "keys/"):
			secret[filepath.Base(path)] = content
		default:
			files[path] = string(content)
		}
		return err
	}))
	keys, err = keyservice.ParseKeys(secret)
	must.Succeed(t, err)
	return files, keys
}

// TestSOPSOfFlux decrypts Flux's test data as Flux does, except what docs/deviations.md refuses.
func TestSOPSOfFlux(t *testing.T) {
	files, keys := fluxSOPS(t)
	// The kustomization files that Lanyard refuses have these parts.
	configMaps := regexp.MustCompile(`(?s)configMapGenerator:.*`)
	files["secrets/envs/kustomization.yaml"] = configMaps.ReplaceAllString(files["envs/kustomization.yaml"], "")
	files["secrets/envs/env.env"] = files["envs/env.env"]
	files["secrets/files/kustomization.yaml"] = configMaps.ReplaceAllString(files["files/kustomization.yaml"], "")
	files["secrets/files/file.txt"] = files["files/file.txt"]
	files["components/kustomization.yaml"] = "components: [../component]\n"
	for folder, want := range map[string]struct {
		objects map[string]map[string]string
		refused string
	}{
		"algorithms": {objects: map[string]map[string]string{
			"algo-age": {"key": "value"}, "algo-age-pq": {"key": "value"}, "algo-pgp": {"key": "value"}, "algo-vault": {"key": "value"},
		}},
		"components":    {objects: map[string]map[string]string{"component": {"key": "value"}}},
		"inside":        {objects: map[string]map[string]string{"inside-secret": {"key": "value"}}},
		"patches":       {objects: map[string]map[string]string{"patches-secret": {"key": "merge1", "merge2": "merge2"}}},
		"global":        {objects: map[string]map[string]string{"global-age-secret": {"key": "global-value"}}},
		"secrets/envs":  {objects: map[string]map[string]string{"envs-secret": {"key": "value"}}},
		"secrets/files": {objects: map[string]map[string]string{"files-secret": {"key": "value"}}},
		"envs":          {refused: "configMapGenerator"},
		"files":         {refused: "configMapGenerator"},
		"remote":        {refused: "https://raw.githubusercontent.com"},
	} {
		t.Run(folder, func(t *testing.T) {
			w := &world{t: t, files: files}
			spec := kustomize.Spec{Path: folder}
			first, err := w.build(spec)
			if err == nil {
				w.keys, _, err = (&keyservice.Service{}).DataKeys(t.Context(), first.Missing, keyservice.Caller{Keys: keys})
				must.Succeed(t, err)
				_, err = w.build(spec)
			}
			if want.refused != "" {
				if err == nil || !strings.Contains(err.Error(), want.refused) {
					t.Errorf("%v, want a refusal with %s", err, want.refused)
				}
				return
			}
			must.Succeed(t, err)
			built := w.objects(spec)
			if len(built) != len(want.objects) {
				t.Errorf("%d objects, want %d", len(built), len(want.objects))
			}
			for name, data := range want.objects {
				for key, text := range data {
					if got := value(t, built["Secret "+name], key); got != text {
						t.Errorf("%s of %s is %q, want %q", key, name, got, text)
					}
				}
			}
		})
	}
}
