package kustomize_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// FuzzEntry checks the property of the check: for an entry that passes, kustomize makes no request
// and does not look for git. The seeds are the texts of kustomize's own tests of repositories.
func FuzzEntry(f *testing.F) {
	for _, seed := range repositories(f) {
		f.Add(seed)
	}
	for _, seed := range []string{"a.yaml", "../a", "HTTP:a", "a@b", "a@b/c/d", "a@b:c/d", "gh:a/b", "git::a/b", "file:///a/b", "a..b/c", "a//b", "\x00"} {
		f.Add(seed)
	}
	before := http.DefaultTransport
	f.Cleanup(func() { http.DefaultTransport = before })
	f.Fuzz(func(t *testing.T, entry string) {
		t.Setenv("PATH", "")
		var requested string
		http.DefaultTransport = roundTripper(func(r *http.Request) (*http.Response, error) {
			requested = r.URL.String()
			return nil, errors.New("refused by the test")
		})
		content, err := json.Marshal(map[string]any{"resources": []string{entry}})
		must.Succeed(t, err)
		fs := filesys.MakeFsInMemory()
		must.Succeed(t, fs.WriteFile("/kustomization.yaml", content))
		_, err = krusty.MakeKustomizer(&krusty.Options{LoadRestrictions: types.LoadRestrictionsNone, PluginConfig: types.DisabledPluginConfig()}).Run(fs, "/")
		remote := requested != "" || err != nil && strings.Contains(err.Error(), "no 'git' program on path")
		if remote && kustomize.Passes(entry) {
			t.Errorf("%q passes the check, but kustomize asks another server (%q): %v", entry, requested, err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// repositories returns the texts in kustomize's test of the names of repositories.
func repositories(tb testing.TB) (texts []string) {
	tb.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kustomize/api").Output()
	must.Succeed(tb, err)
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(out)), "internal/git/repospec_test.go"), nil, 0)
	must.Succeed(tb, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				texts = append(texts, text)
			}
		}
		return true
	})
	if len(texts) < 100 {
		tb.Fatalf("only %d texts", len(texts))
	}
	return texts
}

// FuzzWire decodes requests and answers that nobody has made. Neither side may panic, and every error
// has a message.
func FuzzWire(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\x00\x00\xff{}"))
	f.Add([]byte(`{"reason":"refused","message":"x"}`))
	f.Add(append(frame("{}"), frame(`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}`)...))
	f.Add([]byte(`[{"name":"a","groups":[[{"enc":"x","age":{"recipient":"y"}}]]}]`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if _, _, err := kustomize.DecodeRequest(content); err != nil && err.Error() == "" {
			t.Error("an error without a message")
		}
		for _, kind := range []byte{0, 1, 2} {
			objects, failure, err := kustomize.Decode(limits, append([]byte{kind}, content...))
			if err != nil && (err.Error() == "" || objects > 0 || failure != nil) || failure != nil && failure.Message == "" {
				t.Errorf("%d objects, %v, %v", objects, failure, err)
			}
		}
	})
}

// frame returns an object as it is in an answer.
func frame(object string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(object))), object...)
}
