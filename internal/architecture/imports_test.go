// Package architecture tests rules for the whole repository. Some of them say which packages may
// import which other packages; a diagram in ARCHITECTURE.md shows these rules. Other rules are
// about the documentation, the versions in go.mod files, and the scripts in dev.
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

// rule says what some packages may not import, not even indirectly.
type rule struct {
	name   string
	dir    string   // folder of the module, relative to the repository's root
	from   string   // import path, relative to module; a trailing /... adds all packages below
	except []string // packages to which the rule does not apply
	deny   []string // import paths, or prefixes that end in /
	allow  []string // import paths that stay allowed
	direct bool     // only direct imports count
}

// The clouds' own modules for Go, as prefixes of import paths.
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
		name: "places are shared without other packages",
		dir:  "auth", from: "/auth/share", deny: []string{"*/"},
	},
	{
		name: "the library knows no Kubernetes client outside auth/kube",
		dir:  "auth", from: "/auth/...", except: []string{"/auth/kube", "/auth/kube/manager"}, deny: []string{"k8s.io/", "sigs.k8s.io/"},
	},
	{
		name: "AWS's SDK stays in AWS's package, and in the one that has all clouds",
		dir:  "auth", from: "/auth/...", except: []string{"/auth/aws", "/auth/providers"}, deny: awsSDK,
	},
	{
		name: "Azure's SDK stays in Azure's package, and in the one that has all clouds",
		dir:  "auth", from: "/auth/...", except: []string{"/auth/azure", "/auth/providers"}, deny: azureSDK,
	},
	{
		name: "Google's SDK stays in Google's package, and in the one that has all clouds",
		dir:  "auth", from: "/auth/...", except: []string{"/auth/gcp", "/auth/providers"}, deny: googleSDK,
	},
	{
		name: "a program decides to link all clouds, no package of the library does",
		dir:  "auth", from: "/auth/...", deny: []string{module + "/auth/providers"},
	},
	{
		name: "a program without a manager does not link one",
		dir:  "auth", from: "/auth/...", except: []string{"/auth/kube/manager"}, deny: []string{"sigs.k8s.io/controller-runtime/pkg/manager"},
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
		name: "no reconciler knows a cloud, except those of AWS's own kinds, of bindings, which may name these, and of Kustomizations",
		dir:  ".", from: "/internal/controller/...", except: []string{"/internal/controller/awsidentity", "/internal/controller/awscluster", "/internal/controller/binding", "/internal/controller/kustomization"},
		deny: slices.Concat([]string{module + "/auth/providers", module + "/auth/aws", module + "/auth/azure", module + "/auth/gcp"}, awsSDK, azureSDK, googleSDK),
	},
	{
		name: "AWS identities know one cloud, by its provider: their memory",
		dir:  ".", from: "/internal/identity", direct: true, deny: slices.Concat([]string{module + "/auth/azure", module + "/auth/gcp"}, awsSDK),
	},
	{
		name: "AWS identities know one cloud, by its provider: their status",
		dir:  ".", from: "/internal/controller/awsidentity", direct: true, deny: slices.Concat([]string{module + "/auth/azure", module + "/auth/gcp"}, awsSDK),
	},
	{
		name: "AWS identities know one cloud, by its provider: who uses them",
		dir:  ".", from: "/internal/controller/awscluster", direct: true, deny: slices.Concat([]string{module + "/auth/azure", module + "/auth/gcp"}, awsSDK),
	},
	{
		name: "bindings know one cloud, by its provider",
		dir:  ".", from: "/internal/controller/binding", direct: true, deny: slices.Concat([]string{module + "/auth/azure", module + "/auth/gcp", module + "/auth/providers"}, awsSDK),
	},
	{
		name: "Kustomizations know the clouds only through key services",
		dir:  ".", from: "/internal/controller/kustomization", direct: true,
		deny: slices.Concat(awsSDK, azureSDK, googleSDK, []string{module + "/auth/aws", module + "/auth/azure", module + "/auth/gcp", module + "/auth/providers"}),
	},
	{
		// The library of SOPS links its own key sources, the SDK of Huawei Cloud, lib/pq, and an audit
		// log whose init reads /etc/sops/audit.yaml. None of them runs: only files are parsed.
		name: "SOPS's library stays in the package that reads files, in confined processes",
		dir:  ".", from: "/internal/...", except: []string{"/internal/sopsfile", "/internal/sopsfile/sopstest"}, direct: true,
		deny: []string{"github.com/getsops/"}, allow: []string{"github.com/getsops/sops/v3/shamir"},
	},
	{
		name: "the command line decrypts nothing, and does not link SOPS's library",
		dir:  ".", from: "/cmd/lanyard", deny: []string{"github.com/getsops/"},
	},
	{
		name: "no code of SOPS's key sources is where credentials are",
		dir:  ".", from: "/internal/keyservice", deny: []string{"github.com/getsops/"}, allow: []string{"github.com/getsops/sops/v3/shamir"},
	},
	{
		name: "the package that reads encrypted files has no credentials",
		dir:  ".", from: "/internal/sopsfile", deny: []string{module + "/auth", module + "/auth/", "k8s.io/", "sigs.k8s.io/"},
	},
	{
		name: "what renders Secrets calls nobody",
		dir:  ".", from: "/internal/delivery", direct: true, deny: []string{"sigs.k8s.io/controller-runtime/", "k8s.io/client-go/kubernetes", "k8s.io/client-go/rest", "net/http"},
	},
	{
		name: "the controller's program is wiring: what it knows of clouds is in auth/providers and internal/clouds",
		dir:  ".", from: "/cmd/lanyard-controller", direct: true,
		deny: slices.Concat([]string{module + "/auth/aws", module + "/auth/azure", module + "/auth/gcp"}, awsSDK, azureSDK, googleSDK),
	},
	{
		name: "what confines processes knows no Kubernetes and no artifacts",
		dir:  ".", from: "/internal/sandbox", deny: []string{module + "/internal/", module + "/api/", "k8s.io/", "sigs.k8s.io/"},
	},
	{
		name: "builds of manifests know no credentials and no cluster",
		dir:  ".", from: "/internal/kustomize", direct: true,
		deny: []string{module + "/auth", module + "/auth/", module + "/api/", "k8s.io/client-go/", "sigs.k8s.io/controller-runtime/", "net/http"},
	},
	{
		name: "artifacts know neither Kubernetes objects nor credentials' origin",
		dir:  ".", from: "/internal/artifact/...", direct: true,
		deny:  []string{module + "/auth", module + "/auth/", module + "/api/", "k8s.io/", "sigs.k8s.io/controller-runtime/"},
		allow: []string{module + "/auth/transport/attempt"}, // for retries, and to explain failures
	},
	{
		name: "the frame of all objects knows neither artifacts nor how objects reach anything",
		dir:  ".", from: "/internal/controller/object",
		deny: []string{module + "/internal/artifact/", module + "/internal/controller/"},
	},
	{
		name: "how objects reach what they name does not depend on what they do with it",
		dir:  ".", from: "/internal/controller/access",
		deny:  []string{module + "/internal/artifact/", module + "/internal/controller/source", module + "/internal/controller/registry"},
		allow: []string{module + "/internal/artifact/origin"}, // access.ExplainOrigin uses it
	},
	{
		name: "only kinds that keep artifacts link the store",
		dir:  ".", from: "/internal/controller/...",
		except: []string{"/internal/controller/source", "/internal/controller/ocirepository", "/internal/controller/bucket", "/internal/controller/controllertest"},
		deny:   []string{module + "/internal/artifact/store", module + "/internal/controller/source"},
	},
	{
		name: "no frame knows its kinds",
		dir:  ".", from: "/internal/controller/source",
		deny: []string{
			module + "/internal/controller/bucket", module + "/internal/controller/imagerepository",
			module + "/internal/controller/ocirepository", module + "/internal/controller/registry",
		},
	},
	{
		name: "code that only tests share is linked into no program",
		dir:  ".", from: "/cmd/...",
		deny: []string{
			module + "/internal/controller/controllertest", module + "/auth/transport/attempt/attempttest", module + "/config/crd/crdtest",
			module + "/config/admission/", module + "/internal/issuer/issuertest", module + "/internal/identity/identitytest",
			module + "/internal/cli/creds/credstest", module + "/internal/cli/pages", module + "/internal/golden",
			module + "/internal/artifact/objectstore/objectstoretest",
			module + "/internal/must", module + "/auth/internal/must", module + "/cloudtest/internal/must",
		},
	},
	{
		name: "only the token server links private keys: other packages",
		dir:  ".", from: "/internal/...", except: []string{"/internal/keyring/sign", "/internal/keyring/sign/awskms"},
		deny: []string{module + "/internal/keyring/sign"},
	},
	{
		name: "only the token server links private keys: other programs",
		dir:  ".", from: "/cmd/...", except: []string{"/cmd/lanyard-token-server"},
		deny: []string{module + "/internal/keyring/sign"},
	},
	{
		name: "what reads objects of tenants for tokens links no private keys",
		dir:  ".", from: "/internal/tokenserver/contextobject", deny: []string{module + "/internal/keyring"},
	},
	{
		name: "AWS's SDK stays in the vault that is in AWS KMS: key rings",
		dir:  ".", from: "/internal/keyring/...", except: []string{"/internal/keyring/sign/awskms"}, deny: awsSDK,
	},
	{
		name: "AWS's SDK stays in the vault that is in AWS KMS: the token server",
		dir:  ".", from: "/internal/tokenserver/...", deny: awsSDK,
	},
	{
		name: "the public side of key rings needs no Kubernetes client",
		dir:  ".", from: "/internal/keyring", deny: []string{"k8s.io/client-go/", "sigs.k8s.io/controller-runtime/"},
	},
	{
		name: "the table of kinds reads no cluster: the token server and the command line link it",
		dir:  ".", from: "/internal/kinds", direct: true, deny: []string{module + "/internal/", "k8s.io/client-go/", "sigs.k8s.io/controller-runtime/"},
	},
	{
		name: "conversion asks no cluster, and judges no values",
		dir:  ".", from: "/internal/conversion",
		deny: []string{"k8s.io/client-go/", "sigs.k8s.io/controller-runtime/", module + "/auth", module + "/auth/", module + "/internal/cli"},
		// Package conversion uses package kinds, which needs these packages.
		allow: []string{module + "/auth", module + "/auth/endpoint", module + "/auth/grant", module + "/auth/spec"},
	},
	{
		name: "programs are not imported",
		dir:  ".", from: "/internal/...", deny: []string{module + "/cmd/"},
	},
	{
		name: "no program but the local world links the local cloud",
		dir:  ".", from: "/cmd/...", except: []string{"/cmd/lanyard-local"}, deny: []string{module + "/cloudtest", module + "/cloudtest/", module + "/internal/local"},
	},
	{
		name: "the command line's root is wiring: its commands are in packages of their own",
		dir:  ".", from: "/internal/cli", direct: true,
		deny: []string{"k8s.io/", "sigs.k8s.io/", module + "/api/", module + "/auth", module + "/auth/", module + "/internal/cli/cluster", module + "/internal/report"},
	},
	{
		name: "no command knows the command line's root",
		dir:  ".", from: "/internal/...", deny: []string{module + "/internal/cli"},
	},
	{
		name: "what commands share knows no command: the process and its streams",
		dir:  ".", from: "/internal/cli/frame", deny: []string{module + "/internal/cli/"},
	},
	{
		name: "what commands share knows no command: clusters",
		dir:  ".", from: "/internal/cli/cluster", deny: []string{module + "/internal/cli/"}, allow: []string{module + "/internal/cli/frame"},
	},
	{
		name: "commands that write manifests ask no cluster",
		dir:  ".", from: "/internal/cli/manifests", direct: true,
		deny: []string{module + "/internal/cli/cluster", "k8s.io/client-go/", "sigs.k8s.io/controller-runtime/"},
	},
	{
		name: "the controller does not link the command line",
		dir:  ".", from: "/cmd/lanyard-controller", deny: []string{module + "/internal/cli"},
	},
	{
		name: "the controller links gRPC for SPIFFE brokers only: Google's clients would bring xDS, and double its size",
		dir:  ".", from: "/cmd/lanyard-controller", deny: []string{"google.golang.org/grpc/xds", "google.golang.org/grpc/xds/", "google.golang.org/api/transport/grpc"},
	},
	{
		name: "the library links no gRPC",
		dir:  "auth", from: "/auth/...", deny: []string{"google.golang.org/grpc", "google.golang.org/grpc/"},
	},
	{
		name: "the command that CI jobs download does not link the local world",
		dir:  ".", from: "/cmd/lanyard",
		deny: []string{module + "/cloudtest", module + "/cloudtest/", module + "/internal/local", module + "/internal/chart", "helm.sh/"},
	},
	{
		name: "the command explains objects by the rules that reconcilers use, but links no reconciler",
		dir:  ".", from: "/cmd/lanyard", deny: []string{module + "/internal/controller/"},
	},
	{
		name: "what a bucket's token says needs no client of buckets",
		dir:  ".", from: "/internal/clouds/location",
		deny: []string{module + "/internal/artifact/objectstore/", module + "/internal/artifact/store", module + "/internal/controller/"},
	},
}

// TestNoCircleOfFolders checks that the folders of internal have no import cycle. The compiler
// refuses import cycles of packages, but not of folders.
func TestNoCircleOfFolders(t *testing.T) {
	folder := func(path string) string {
		below, _ := strings.CutPrefix(path, module+"/internal/")
		first, _, _ := strings.Cut(below, "/")
		return first
	}
	imports := map[string]map[string]string{} // importing folder → imported folder → a package that imports it
	for _, p := range list(t, ".") {
		for _, to := range p.Imports {
			from, inside := folder(p.ImportPath), strings.HasPrefix(p.ImportPath, module+"/internal/") && strings.HasPrefix(to, module+"/internal/")
			if !inside || folder(to) == from {
				continue
			}
			if imports[from] == nil {
				imports[from] = map[string]string{}
			}
			imports[from][folder(to)] = strings.TrimPrefix(p.ImportPath, module+"/")
		}
	}
	for from := range imports {
		if way := wayBack(imports, from, from, map[string]bool{}); way != nil {
			t.Errorf("folders import each other: %s", strings.Join(way, ", "))
		}
	}
	if len(imports) < 10 {
		t.Errorf("only %d folders import others: the test looks in the wrong place", len(imports))
	}
}

// wayBack returns the imports that lead from a folder to another folder; nil if no imports do.
func wayBack(imports map[string]map[string]string, from, to string, seen map[string]bool) []string {
	seen[from] = true
	for next, by := range imports[from] {
		step := by + " imports " + next
		if next == to {
			return []string{step}
		}
		if seen[next] {
			continue
		}
		if way := wayBack(imports, next, to, seen); way != nil {
			return append([]string{step}, way...)
		}
	}
	return nil
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
	if slices.Contains(r.allow, dep) {
		return false
	}
	for _, d := range r.deny {
		switch {
		case d == "*/": // every package outside the standard library
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
