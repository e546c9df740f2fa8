package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// portOpener is the package that opens the ports of all programs.
const portOpener = "internal/port"

// opensPorts maps the path of a package outside this project to functions and types of the package.
// Code that uses such a function or type opens a port, or configures a port that the package opens.
var opensPorts = map[string][]string{
	"net":        {"Listen", "ListenConfig", "ListenTCP"},
	"crypto/tls": {"Listen"},
	"net/http":   {"Server", "ListenAndServe", "ListenAndServeTLS", "Serve", "ServeTLS"},
	"sigs.k8s.io/controller-runtime/pkg/manager": {"Server"},
}

// opensPortsByField lists fields and methods of controller-runtime and of k8s.io/apiserver. Code
// that uses such a field or method opens a port.
var opensPortsByField = []string{"HealthProbeBindAddress", "PprofBindAddress", "GetWebhookServer", "SecureServing", "RunWithContext"}

// withoutDaemons lists folders whose code is in no daemon, for example the code of test servers.
var withoutDaemons = []string{
	"internal/local", "internal/broker/brokertest", "internal/cli", "internal/controlplane", "auth/internal/rig", "auth/transport/attempt/attempttest",
}

// TestOnePackageOpensPorts asserts that the code of the daemons opens ports only through package
// port. That package limits the number of connections to each port.
func TestOnePackageOpensPorts(t *testing.T) {
	root, found := filepath.Join("..", ".."), 0
	for _, folder := range []string{"cmd", "internal", "auth"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(root, path)
			must.Succeed(t, err)
			if entry.IsDir() && slices.Contains(withoutDaemons, filepath.ToSlash(relative)) {
				return fs.SkipDir
			}
			if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			source, err := os.ReadFile(path)
			must.Succeed(t, err)
			for _, at := range portsOpened(t, relative, source) {
				if filepath.ToSlash(filepath.Dir(relative)) != portOpener {
					t.Errorf("%s opens a port: use package %s, which bounds its connections", at, portOpener)
				}
				found++
			}
			return nil
		})
		must.Succeed(t, err)
	}
	if found == 0 {
		t.Error("no code opens a port: the test looks in the wrong place")
	}
}

// TestPortsAreFound asserts that portsOpened finds each way to open a port.
func TestPortsAreFound(t *testing.T) {
	for code, want := range map[string]int{
		`import "net"; var _, _ = net.Listen("tcp", ":1")`:                                                  1,
		`import "crypto/tls"; var _, _ = tls.Listen("tcp", ":1", c)`:                                        1,
		`import n "net"; var _ n.ListenConfig`:                                                              1,
		`import "net/http"; var _ = &http.Server{}`:                                                         1,
		`import "net/http"; func f() { http.ListenAndServe(":1", nil) }`:                                    1,
		`import "sigs.k8s.io/controller-runtime/pkg/manager"; var _ = manager.Options{PprofBindAddress: x}`: 1,
		`func f() { options.HealthProbeBindAddress = ":1" }`:                                                1,
		`import "net"; var _ net.Listener`:                                                                  0,
		`import "sigs.k8s.io/controller-runtime/pkg/manager"; func f() *manager.Server { return nil }`:      0,
	} {
		if got := portsOpened(t, "a.go", []byte("package a; "+code)); len(got) != want {
			t.Errorf("%s: %v, want %d", code, got, want)
		}
	}
}

// TestManagersOpenNoPort asserts that a program's controller-runtime manager opens no port. By
// default, a manager opens a port for metrics.
func TestManagersOpenNoPort(t *testing.T) {
	options, err := program.ManagerOptions(nil)
	must.Succeed(t, err)
	if options.Metrics.BindAddress != "0" || options.HealthProbeBindAddress != "" || options.PprofBindAddress != "" {
		t.Errorf("the manager opens a port: %+v", options)
	}
}

// portsOpened returns the positions in the source of a file at which the code opens a port.
func portsOpened(t *testing.T, path string, source []byte) (at []token.Position) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	must.Succeed(t, err)
	imports := map[string]string{} // path of each imported package, by the package's name in this file
	for _, i := range file.Imports {
		imported := strings.Trim(i.Path.Value, `"`)
		name := imported[strings.LastIndex(imported, "/")+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		imports[name] = imported
	}
	// pointers has each type T that the code uses as *T, for example for a parameter. Such code
	// opens no port, because the code gets a value that other code has made.
	pointers := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StarExpr:
			pointers[n.X] = true
		case *ast.SelectorExpr:
			if pointers[n] {
				return true
			}
			of, _ := n.X.(*ast.Ident)
			if of != nil && slices.Contains(opensPorts[imports[of.Name]], n.Sel.Name) || slices.Contains(opensPortsByField, n.Sel.Name) {
				at = append(at, set.Position(n.Pos()))
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && slices.Contains(opensPortsByField, key.Name) {
				at = append(at, set.Position(n.Pos()))
			}
		}
		return true
	})
	return at
}
