package artifacts

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/golden"
)

// TestCompletion compares all completions with a golden file. A completion sends no request if the
// command would refuse the flags.
func TestCompletion(t *testing.T) {
	var requests atomic.Int64
	registry := distribution(t)
	host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		registry.ServeHTTP(w, r)
	}))
	app := "oci://" + host + "/team/app"
	source := folder(t, map[string]string{"app.yaml": "1"})
	for _, tag := range []string{"1.0.0", "1.10.0", "latest"} {
		mustRun(t, "push", "artifact", app+":"+tag, "--path", source)
	}
	var all strings.Builder
	for _, tt := range []struct {
		words string
		asks  bool
	}{
		{"push artifact ", false},
		{"push artifact oc", false},
		{"push artifact x", false},
		{"pull artifact " + app, false},
		{"pull artifact " + app + ":", true},
		{"pull artifact " + app + ":1.", true},
		{"tag artifact " + app + ":l", true},
		{"diff artifact " + app + ":1.0.0 ", false},
		{"pull artifact --creds=SpiffeJWT " + app + ":", false}, // no request: SpiffeJWT needs TLS
		{"pull artifact --creds=password " + app + ":", false},
		{"list artifact ", false},
		{"list artifact " + app, false},
		{"list artifact " + app + ":", false},
		{"list artifact -o ", false},
		{"push artifact --creds ", false},
		{"push artifact --path ", false},
		{"pull artifact --path ", false},
		{"push artifact --ca-file ", false},
	} {
		before := requests.Load()
		var p process
		verb, rest, _ := strings.Cut(tt.words, " artifact ")
		args := append([]string{"__complete", verb, "artifact", "--insecure-registry"}, strings.Split(rest, " ")...)
		if status := p.exactly(t.Context(), args...); status != 0 {
			t.Errorf("%s: status %d: %s", tt.words, status, p.err.String())
		}
		if asked := requests.Load() > before; asked != tt.asks {
			t.Errorf("%s: the registry is asked: %v", tt.words, asked)
		}
		fmt.Fprintf(&all, "$ lanyard %s<TAB>\n%s", tt.words, p.out.String())
	}
	golden.Compare(t, "testdata/completion.golden", []byte(strings.ReplaceAll(all.String(), host, "registry.example.com")))
}
