// Package architecture holds the direction in which the house's parts may know each other. ARCHITECTURE.md draws it.
package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/lanyard-dev/lanyard"

// rule says what the packages below from may not reach, however indirectly; but for except.
type rule struct {
	name   string
	dir    string   // of the module, from the repository's root
	from   string   // import path, relative to module; a trailing /... takes all below
	except []string // of from
	deny   []string // import paths or prefixes of them that end in /
	direct bool     // only what from's own files import counts
}

// What the clouds publish for Go, as prefixes of import paths.
var (
	awsSDK    = []string{"github.com/aws/"}
	azureSDK  = []string{"github.com/Azure/", "github.com/AzureAD/"}
	googleSDK = []string{"cloud.google.com/", "google.golang.org/api/", "github.com/googleapis/", "golang.org/x/oauth2/google", "golang.org/x/oauth2/google/"}
)

var rules = []rule{
	{
		name: "the engine imports the standard library only",
		dir:  "auth", from: "/auth", deny: []string{"*/"},
	},
	{
		name: "the library knows no Kubernetes client outside auth/kube",
		dir:  "auth", from: "/auth/...", except: []string{"/auth/kube"}, deny: []string{"k8s.io/", "sigs.k8s.io/"},
	},
	{
		name: "AWS's SDK stays in AWS's package",
		dir:  "auth", from: "/auth/...", except: []string{"/auth/aws"}, deny: awsSDK,
	},
	{
		name: "Azure's SDK stays in Azure's package",
		dir:  "auth", from: "/auth/...", except: []string{"/auth/azure"}, deny: azureSDK,
	},
	{
		name: "Google's SDK stays in Google's package",
		dir:  "auth", from: "/auth/...", except: []string{"/auth/gcp"}, deny: googleSDK,
	},
	{
		name: "the library knows no product",
		dir:  "auth", from: "/auth/...", except: []string{"/auth/internal/rig"},
		deny: []string{module + "/internal/", module + "/api/", module + "/cloudtest", module + "/cloudtest/"},
	},
	{
		name: "the rig of the providers' tests is linked into nothing",
		dir:  "auth", from: "/auth/...", deny: []string{module + "/auth/internal/rig"},
	},
	{
		name: "what providers share knows no provider",
		dir:  "auth", from: "/auth/internal/...", deny: []string{module + "/auth/aws", module + "/auth/azure", module + "/auth/gcp"},
	},
	{
		name: "no provider knows another: AWS's",
		dir:  "auth", from: "/auth/aws", deny: []string{module + "/auth/azure", module + "/auth/gcp"},
	},
	{
		name: "no provider knows another: Azure's",
		dir:  "auth", from: "/auth/azure", deny: []string{module + "/auth/aws", module + "/auth/gcp"},
	},
	{
		name: "no provider knows another: Google's",
		dir:  "auth", from: "/auth/gcp", deny: []string{module + "/auth/aws", module + "/auth/azure"},
	},
	{
		name: "the local cloud checks us by tables and code of its own",
		dir:  "cloudtest", from: "/cloudtest/...",
		deny: slices.Concat([]string{module + "/auth", module + "/auth/", module + "/internal/", "k8s.io/"}, awsSDK, azureSDK, googleSDK),
	},
	{
		name: "API types know nobody but apimachinery",
		dir:  "api", from: "/api/...", deny: []string{module + "/auth/", module + "/internal/", "sigs.k8s.io/controller-runtime/", "k8s.io/client-go/"},
	},
	{
		name: "no reconciler knows a cloud",
		dir:  ".", from: "/internal/controller/...",
		deny: slices.Concat([]string{module + "/auth/aws", module + "/auth/azure", module + "/auth/gcp"}, awsSDK, azureSDK, googleSDK),
	},
	{
		name: "the controller's program is wiring: what it knows of clouds is in internal/clouds",
		dir:  ".", from: "/cmd/lanyard-controller", direct: true,
		deny: slices.Concat([]string{module + "/auth/aws", module + "/auth/azure", module + "/auth/gcp"}, awsSDK, azureSDK, googleSDK),
	},
	{
		name: "artifacts know neither Kubernetes objects nor credentials' origin",
		dir:  ".", from: "/internal/artifact/...", direct: true,
		deny: []string{module + "/auth/", module + "/api/", "k8s.io/", "sigs.k8s.io/controller-runtime/"},
	},
	{
		name: "what tests know of sources is linked into no program",
		dir:  ".", from: "/cmd/...", deny: []string{module + "/internal/controller/source/sourcetest"},
	},
	{
		name: "programs are not imported",
		dir:  ".", from: "/internal/...", deny: []string{module + "/cmd/"},
	},
	{
		name: "the controller does not link the local cloud",
		dir:  ".", from: "/cmd/lanyard-controller", deny: []string{module + "/cloudtest", module + "/cloudtest/", module + "/internal/cli"},
	},
}

func TestImports(t *testing.T) {
	listed := map[string][]pkg{}
	for _, r := range rules {
		if listed[r.dir] == nil {
			listed[r.dir] = list(t, r.dir)
		}
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			found := false
			for _, p := range listed[r.dir] {
				if !r.covers(p.ImportPath) {
					continue
				}
				found = true
				reached := p.Deps
				if r.direct {
					reached = p.Imports
				}
				for _, dep := range reached {
					if r.denies(dep) {
						t.Errorf("%s reaches %s", strings.TrimPrefix(p.ImportPath, module+"/"), dep)
					}
				}
			}
			if !found {
				t.Errorf("no package %s%s: the rule holds nothing", module, r.from)
			}
		})
	}
}

func (r rule) covers(path string) bool {
	if slices.ContainsFunc(r.except, func(e string) bool { return path == module+e }) {
		return false
	}
	if base, all := strings.CutSuffix(r.from, "/..."); all {
		return path == module+base || strings.HasPrefix(path, module+base+"/")
	}
	return path == module+r.from
}

func (r rule) denies(dep string) bool {
	for _, d := range r.deny {
		switch {
		case d == "*/": // everything that is not of the standard library
			if first, _, _ := strings.Cut(dep, "/"); strings.Contains(first, ".") && !strings.HasPrefix(dep, "vendor/") {
				return true
			}
		case strings.HasSuffix(d, "/"):
			if strings.HasPrefix(dep, d) {
				return true
			}
		case dep == d:
			return true
		}
	}
	return false
}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T, dir string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = filepath.Join("..", "..", dir)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list in %s: %s", dir, exit.Stderr)
		}
		t.Fatal(err)
	}
	var packages []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
