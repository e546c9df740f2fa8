package kustomize_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// limits are those of the tests.
var limits = kustomize.Limits{Files: 10_000, FileBytes: 32 << 20, Objects: 5_000, ObjectBytes: 1 << 20, Bytes: 16 << 20, Values: 200_000}

// newBuilder returns a builder with children.
func newBuilder(tb testing.TB) *kustomize.Builder {
	tb.Helper()
	// The test's own binary cannot be the child: the race detector needs more memory than a child
	// may have.
	child := filepath.Join(tb.TempDir(), "child")
	build := exec.Command("go", "build", "-o", child, "./testdata/child")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build the child: %v\n%s", err, output)
	}
	pool := sandbox.New(child, sandbox.Limits{
		Children: 2, Memory: 256 << 20, Time: 20 * time.Second, Request: 32 << 20, Answer: 17 << 20, Requests: 100, Idle: time.Minute,
	})
	tb.Cleanup(pool.Close)
	return kustomize.NewBuilder(pool, limits)
}

// pack returns files as tar.gz.
func pack(tb testing.TB, files map[string]string) []byte {
	tb.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		must.Succeed(tb, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name]))}))
		_, err := archive.Write([]byte(files[name]))
		must.Succeed(tb, err)
	}
	must.Succeed(tb, archive.Close())
	must.Succeed(tb, zip.Close())
	return out.Bytes()
}

// TestBuild builds in a child.
func TestBuild(t *testing.T) {
	builder := newBuilder(t)
	for i := range 3 {
		built, err := builder.Build(t.Context(), kustomize.Request{
			Tenant: "a", Archive: pack(t, map[string]string{"apps/a.yaml": configMap("a"), "apps/d.yaml": deployment("nginx")}),
			Spec: kustomize.Spec{Path: "./apps", NamePrefix: fmt.Sprint("p", i, "-")},
		})
		must.Succeed(t, err)
		if len(built.Objects) != 2 || built.Objects[0].GetName() != fmt.Sprint("p", i, "-a") || built.Objects[1].GetKind() != "Deployment" {
			t.Errorf("built %v", built.Objects)
		}
	}
}

// TestRefused builds what is never allowed, and what has a mistake. Each error names the place.
func TestRefused(t *testing.T) {
	k := func(text string) map[string]string { return map[string]string{"kustomization.yaml": text} }
	const remote, outside, invalid = "names another server", "leaves the artifact", "the artifact has no file"
	for _, test := range []struct {
		name   string
		files  map[string]string
		spec   kustomize.Spec
		place  string
		says   string
		reason kustomize.Reason
	}{
		{"resource by URL", k("resources: [https://example.com/a.yaml]"), kustomize.Spec{}, "kustomization.yaml: resources[0]", remote, kustomize.ReasonRefused},
		{"base in a repository", k("resources: ['github.com/org/repo//base?ref=v1']"), kustomize.Spec{}, "kustomization.yaml: resources[0]", remote, kustomize.ReasonRefused},
		{"old field bases", k("bases: ['git@example.com:org/repo.git']"), kustomize.Spec{}, "resources[0]", remote, kustomize.ReasonRefused},
		{"component by URL", k("components: ['ssh://git@example.com/org/repo']"), kustomize.Spec{}, "components[0]", remote, kustomize.ReasonRefused},
		{"crd by URL", k("crds: [https://example.com/crd.json]"), kustomize.Spec{}, "crds[0]", remote, kustomize.ReasonRefused},
		{"schema by URL", k("openapi: {path: 'https://example.com/schema.json'}"), kustomize.Spec{}, "openapi.path[0]", remote, kustomize.ReasonRefused},
		{"configuration by URL", k("configurations: [http://example.com/c.yaml]"), kustomize.Spec{}, "configurations[0]", remote, kustomize.ReasonRefused},
		{"patch by URL", k("patches: [{path: 'https://example.com/p.yaml'}]"), kustomize.Spec{}, "patches[0]", remote, kustomize.ReasonRefused},
		{"old patch by URL", k("patchesStrategicMerge: ['https://example.com/{p}.yaml']"), kustomize.Spec{}, "patchesStrategicMerge[0]", remote, kustomize.ReasonRefused},
		{"JSON patch by URL", k("patchesJson6902: [{path: 'https://example.com/p.yaml', target: {version: v1, kind: A, name: b}}]"), kustomize.Spec{}, "patches[0]", remote, kustomize.ReasonRefused},
		{"replacement by URL", k("replacements: [{path: 'https://example.com/r.yaml'}]"), kustomize.Spec{}, "replacements[0]", remote, kustomize.ReasonRefused},
		{"file of a generator by URL", k("configMapGenerator: [{name: a, files: ['k=https://example.com/f']}]"), kustomize.Spec{}, "configMapGenerator.files[0]", remote, kustomize.ReasonRefused},
		{"variables of a generator by URL", k("secretGenerator: [{name: a, envs: ['https://example.com/f']}]"), kustomize.Spec{}, "secretGenerator.envs[0]", remote, kustomize.ReasonRefused},
		{"generator by URL", k("generators: [https://example.com/g.yaml]"), kustomize.Spec{}, "generators[0]", remote, kustomize.ReasonRefused},
		{"transformer by URL", k("transformers: [https://example.com/t.yaml]"), kustomize.Spec{}, "transformers[0]", remote, kustomize.ReasonRefused},
		{"URL that is YAML", k("transformers: ['http://127.0.0.1:1/a: b']"), kustomize.Spec{}, "transformers[0]", remote, kustomize.ReasonRefused},
		{"validator by URL", k("validators: [https://example.com/v.yaml]"), kustomize.Spec{}, "validators[0]", remote, kustomize.ReasonRefused},
		{"URL in a transformer", k("transformers: [\"apiVersion: builtin\\nkind: PatchTransformer\\nmetadata: {name: a}\\npath: https://example.com/p.yaml\\n\"]"), kustomize.Spec{}, "transformers[0]", remote, kustomize.ReasonRefused},
		{"URL in a generator's file", map[string]string{
			"kustomization.yaml": "generators: [g.yaml]", "g.yaml": "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: a}\nfiles: ['a=https://example.com/f']\n",
		}, kustomize.Spec{}, "g.yaml", remote, kustomize.ReasonRefused},
		{"chart", k("helmCharts: [{name: a, repo: 'https://example.com'}]"), kustomize.Spec{}, "helmCharts", "not inflated", kustomize.ReasonRefused},
		{"chart, old field", k("helmChartInflationGenerator: [{chartName: a}]"), kustomize.Spec{}, "helmCharts", "not inflated", kustomize.ReasonRefused},
		{"chart as a generator", k("generators: [\"apiVersion: builtin\\nkind: HelmChartInflationGenerator\\nmetadata: {name: a}\\n\"]"), kustomize.Spec{}, "generators[0]", "not inflated", kustomize.ReasonRefused},
		{"function", k("transformers: [\"apiVersion: a/v1\\nkind: A\\nmetadata: {name: a, annotations: {config.kubernetes.io/function: '{container: {image: a}}'}}\\n\"]"), kustomize.Spec{}, "transformers[0]", "not run", kustomize.ReasonRefused},
		{"program", k("generators: [\"apiVersion: example.com/v1\\nkind: Program\\nmetadata: {name: a}\\n\"]"), kustomize.Spec{}, "", "external plugins disabled", kustomize.ReasonInvalid},
		{"URL in a folder of transformers", map[string]string{
			"kustomization.yaml": "transformers: [d]", "d/kustomization.yaml": "resources: [t.yaml]",
			"d/t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: a}\npath: https://example.com/p.yaml\n",
		}, kustomize.Spec{}, "d/t.yaml", remote, kustomize.ReasonRefused},
		{"component that is a file", map[string]string{"kustomization.yaml": "resources: []", "c": ""}, kustomize.Spec{Components: []string{"c"}, IgnoreMissingComponents: true}, "components[0]", invalid, kustomize.ReasonInvalid},
		{"component without apiVersion", k("kind: Component"), kustomize.Spec{}, "", "apiVersion for Component should be", kustomize.ReasonInvalid},
		{"absolute path", k("resources: [/etc/passwd]"), kustomize.Spec{}, "resources[0]", "absolute", kustomize.ReasonRefused},
		{"path out of the archive", k("resources: [../../etc]"), kustomize.Spec{}, "resources[0]", outside, kustomize.ReasonRefused},
		{"file out of the archive", k("configMapGenerator: [{name: a, files: [k=../token]}]"), kustomize.Spec{}, "files[0]", outside, kustomize.ReasonRefused},
		{"deep", map[string]string{"kustomization.yaml": "resources: [b]", "b/kustomization.yaml": "resources: [c]", "b/c/kustomization.yaml": "resources: ['http:a']"}, kustomize.Spec{}, "b/c/kustomization.yaml: resources[0]", remote, kustomize.ReasonRefused},
		{"component of the spec", k("resources: []"), kustomize.Spec{Components: []string{"https://example.com/c"}}, "spec.components", remote, kustomize.ReasonRefused},
		{"missing file", k("resources: [a.yaml]"), kustomize.Spec{}, "resources[0]", invalid, kustomize.ReasonInvalid},
		{"missing component", k("resources: []"), kustomize.Spec{Components: []string{"c"}}, "components[0]", invalid, kustomize.ReasonInvalid},
		{"folder without a kustomization file", map[string]string{"kustomization.yaml": "resources: [b]", "b/a.txt": ""}, kustomize.Spec{}, "b", "no kustomization file", kustomize.ReasonInvalid},
		{"two kustomization files", map[string]string{"kustomization.yaml": "{}", "kustomization.yml": "{}"}, kustomize.Spec{}, "kustomization.yaml, kustomization.yml", "several", kustomize.ReasonInvalid},
		{"unknown field", k("resource: [a.yaml]"), kustomize.Spec{}, "kustomization.yaml", `unknown field "resource"`, kustomize.ReasonInvalid},
		{"circle", map[string]string{"kustomization.yaml": "resources: [b]", "b/kustomization.yaml": "resources: [../c]", "c/kustomization.yaml": "resources: [../b]"}, kustomize.Spec{}, "c/kustomization.yaml", "which uses the file", kustomize.ReasonInvalid},
		{"its own parent", map[string]string{"a/kustomization.yaml": "resources: [..]", "kustomization.yaml": "resources: [a]"}, kustomize.Spec{}, "a/kustomization.yaml", "which uses the file", kustomize.ReasonInvalid},
		{"no folder", k("{}"), kustomize.Spec{Path: "./apps"}, "spec.path", `no folder "./apps"`, kustomize.ReasonInvalid},
		{"no Kubernetes object", map[string]string{"a.yaml": "a: b\n"}, kustomize.Spec{}, "a.yaml", "missing Resource metadata", kustomize.ReasonInvalid},
		{"damaged YAML", map[string]string{"a.yaml": "a: b: c\n"}, kustomize.Spec{}, "a.yaml", "mapping values are not allowed", kustomize.ReasonInvalid},
		{"twice the same object", map[string]string{"a.yaml": configMap("a"), "b.yaml": configMap("a")}, kustomize.Spec{}, "", "already registered id", kustomize.ReasonInvalid},
		{"patch without target", k("resources: []"), kustomize.Spec{Patches: []kustomize.Patch{{Patch: configMap("missing")}}}, "", "no resource matches", kustomize.ReasonInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := kustomize.BuildHere(t.Context(), pack(t, test.files), test.spec, limits)
			failure, ok := errors.AsType[*kustomize.Error](err)
			if !ok || failure.Reason != test.reason || !strings.Contains(failure.Place, test.place) || !strings.Contains(failure.Message, test.says) || failure.Fix == "" {
				t.Errorf("error %#v, want %s of %q with %q", failure, test.reason, test.place, test.says)
			}
		})
	}
}

// TestBombs builds in children what costs too much. Honest builds go on meanwhile.
func TestBombs(t *testing.T) {
	builder := newBuilder(t)
	done := make(chan struct{})
	var honest sync.WaitGroup
	for i := range 10 {
		honest.Go(func() {
			for built := 0; ; built++ {
				_, err := builder.Build(t.Context(), kustomize.Request{
					Tenant: fmt.Sprint("honest-", i), Archive: pack(t, map[string]string{"a.yaml": configMap("a")}),
				})
				if err != nil {
					t.Errorf("an honest build: %v", err)
				}
				select {
				case <-done:
					if built > 0 {
						return
					}
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	variables := &kustomize.Substitute{Values: map[string]string{"A": strings.Repeat("a", 512<<10)}}
	deep := strings.Repeat("{a: ", 3_000) + "b" + strings.Repeat("}", 3_000)
	for _, test := range []struct {
		name   string
		files  map[string]string
		spec   kustomize.Spec
		reason kustomize.Reason
		says   string
	}{
		{"aliases", map[string]string{"a.yaml": aliases(9)}, kustomize.Spec{}, kustomize.ReasonTooLarge, "the build was ended"},
		{"aliases in the kustomization file", map[string]string{"kustomization.yaml": "resources: []\n" + aliases(9)}, kustomize.Spec{}, kustomize.ReasonInvalid, "excessive aliasing"},
		{"aliases in a patch of the spec", map[string]string{"a.yaml": configMap("a")}, kustomize.Spec{Patches: []kustomize.Patch{{Patch: aliases(9)}}}, kustomize.ReasonTooLarge, "the build was ended"},
		{"an anchor in itself", map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: &a {b: *a}\n"}, kustomize.Spec{}, kustomize.ReasonTooLarge, "the build was ended"},
		{"depth", map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: " + deep + "\n"}, kustomize.Spec{}, "", ""},
		{"100,000 objects", map[string]string{"a.yaml": many(100_000)}, kustomize.Spec{}, kustomize.ReasonTooLarge, ""},
		{"one object of 10 MiB", map[string]string{"a.yaml": configMap("a") + "  large: " + strings.Repeat("a", 10<<20) + "\n"}, kustomize.Spec{}, kustomize.ReasonTooLarge, ""},
		{"variables", map[string]string{"a.yaml": configMap("a") + "  large: '" + strings.Repeat("${A}", 1000) + "'\n"}, kustomize.Spec{Substitute: variables}, kustomize.ReasonTooLarge, ""},
		{"folders that use each other", doubling(30), kustomize.Spec{}, kustomize.ReasonTooLarge, "loads more than 10000 files"},
		{"archive", map[string]string{"zeros": strings.Repeat("\x00", 64<<20)}, kustomize.Spec{}, kustomize.ReasonTooLarge, "larger than 33554432 bytes"},
		{"regular expression", map[string]string{"a.yaml": configMap(strings.Repeat("a", 60))}, kustomize.Spec{Patches: []kustomize.Patch{{
			Patch: "[]", Target: &kustomize.Target{Name: strings.Repeat("(a?){20}", 20) + strings.Repeat("a", 60)},
		}}}, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			begin := time.Now()
			_, err := builder.Build(t.Context(), kustomize.Request{Tenant: "hostile", Archive: pack(t, test.files), Spec: test.spec})
			t.Logf("%s: %v", time.Since(begin).Round(time.Millisecond), err)
			failure, ok := errors.AsType[*kustomize.Error](err)
			if ok && test.reason == "" || err == nil && test.reason == "" {
				return // refused or built, within the limits
			}
			if !ok || failure.Reason != test.reason || !strings.Contains(failure.Message, test.says) {
				t.Errorf("error %v, want %s with %q", err, test.reason, test.says)
			}
		})
	}
	close(done)
	honest.Wait()
}

// aliases returns an object whose aliases stand for ten to the power of levels texts.
func aliases(levels int) string {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < levels; i++ {
		text += fmt.Sprintf("  l%d: &l%d [", i, i) + strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*l%d, ", i-1), 10), ", ") + "]\n"
	}
	return text
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a%d}\n---\n", i)
	}
	return b.String()
}

// doubling returns folders that each use the next folder twice, with different prefixes.
func doubling(levels int) map[string]string {
	files := map[string]string{"kustomization.yaml": "resources: [a0, b0]\n"}
	for i := range levels {
		for _, side := range []string{"a", "b"} {
			files[fmt.Sprintf("%s%d/kustomization.yaml", side, i)] = fmt.Sprintf("namePrefix: %s-\nresources: [../a%d, ../b%d]\n", side, i+1, i+1)
		}
	}
	for _, side := range []string{"a", "b"} {
		files[fmt.Sprintf("%s%d/kustomization.yaml", side, levels)] = "resources: [c.yaml]\n"
		files[fmt.Sprintf("%s%d/c.yaml", side, levels)] = configMap("c")
	}
	return files
}

// TestSubstitution checks the errors of the substitution. None contains a value.
func TestSubstitution(t *testing.T) {
	secret := "s3cret: [value"
	object := func(text string) map[string]string {
		manifest := "apiVersion: v1\nmetadata: {name: a, namespace: ns}\ndata:\n  key: " + text + "\n"
		if !strings.Contains(text, "kind:") {
			manifest += "kind: ConfigMap\n"
		}
		return map[string]string{"a.yaml": manifest}
	}
	for _, test := range []struct {
		name, text string
		values     map[string]string
		strict     bool
		says       string // empty if there is no error
	}{
		{"value", "'${A}'", map[string]string{"A": "b"}, true, ""},
		{"no value", "'${B}'", map[string]string{"A": "b"}, true, `the variable "B" has no value`},
		{"no value, not strict", "'${B}'", map[string]string{"A": "b"}, false, ""},
		{"value that is no YAML", "${A}", map[string]string{"A": secret}, true, "no valid YAML"},
		{"value that is not closed", "x\n  z: ${A}", map[string]string{"A": "{s3cret: ["}, true, "no valid YAML"},
		{"bad name", "'${A}'", map[string]string{"a-b": "x"}, true, `"a-b" is no name of a variable`},
		{"kind without a value", "x\nkind: ${A}", map[string]string{"A": ""}, true, "no kind"},
		{"kind that is a number", "x\nkind: ${A}", map[string]string{"A": "123"}, true, "kind is no text"},
		{"not closed", "'${A'", map[string]string{"A": secret}, true, "not written correctly"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := kustomize.BuildHere(t.Context(), pack(t, object(test.text)), kustomize.Spec{Substitute: &kustomize.Substitute{Values: test.values, Strict: test.strict}}, limits)
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error has the value: %v", err)
			}
			if test.says == "" {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			failure, ok := errors.AsType[*kustomize.Error](err)
			place := ok && (strings.HasSuffix(failure.Place, " ns/a") || failure.Place == "spec.postBuild")
			if !ok || failure.Reason != kustomize.ReasonSubstitution || !strings.Contains(failure.Message, test.says) || !place || failure.Fix == "" {
				t.Errorf("error %#v, want %q", failure, test.says)
			}
		})
	}
}

// TestSameObject checks that two objects cannot become one by their variables.
func TestSameObject(t *testing.T) {
	_, err := kustomize.BuildHere(t.Context(), pack(t, map[string]string{"a.yaml": configMap("a-${A}"), "b.yaml": configMap("a-${B}")}),
		kustomize.Spec{Substitute: &kustomize.Substitute{Values: map[string]string{"A": "s3cret", "B": "s3cret\n"}}}, limits)
	if failure, ok := errors.AsType[*kustomize.Error](err); !ok || failure.Reason != kustomize.ReasonSubstitution || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %v", err)
	}
}

// TestOwnAnnotation checks that both annotations keep an object as it is.
func TestOwnAnnotation(t *testing.T) {
	for _, field := range []string{"annotations", "labels"} {
		for _, key := range []string{"kustomize.toolkit.lanyard.dev/substitute", "kustomize.toolkit.fluxcd.io/substitute"} {
			text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, " + field + ": {" + key + ": disabled}}\ndata: {key: '${A}'}\n"
			built, err := kustomize.BuildHere(t.Context(), pack(t, map[string]string{"a.yaml": text}),
				kustomize.Spec{Substitute: &kustomize.Substitute{Values: map[string]string{"A": "b"}, Strict: true}}, limits)
			must.Succeed(t, err)
			if !bytes.Contains(built[0], []byte("${A}")) {
				t.Errorf("%s %s: %s", field, key, built[0])
			}
		}
	}
}

// TestAnswers decodes answers that an honest child never gives.
func TestAnswers(t *testing.T) {
	object := func(name string) string { return `{"apiVersion":"v1","kind":"A","metadata":{"name":"` + name + `"}}` }
	objects := func(texts ...string) string {
		answer := "\x00" + string(frame("{}"))
		for _, text := range texts {
			answer += string(frame(text))
		}
		return answer
	}
	small := kustomize.Limits{Objects: 2, ObjectBytes: 1000, Bytes: 1500, Values: 20}
	for name, answer := range map[string]string{
		"nothing": "", "no error": "\x01", "empty error": "\x01{}", "other kind": "\x03[]", "no encrypted file": "\x02[]", "a file without keys": "\x02" + `[{"name":"s3cret"}]`, "no report": "\x00", "error without message": `\x01{"reason":"refused"}`,
		"unknown reason": "\x01" + `{"reason":"s3cret","message":"s3cret"}`, "long error": "\x01" + `{"reason":"refused","message":"` + strings.Repeat("s3cret ", 1<<20) + `"}`,
		"short length": "\x00\x00\x00", "long length": "\x00\xff\xff\xff\xffs3cret",
		"no kind": objects(`{"apiVersion":"v1","metadata":{"name":"s3cret"}}`), "no name": objects(`{"apiVersion":"v1","kind":"A"}`),
		"no version": objects(`{"kind":"A","metadata":{"name":"s3cret"}}`), "number": objects("1"), "no JSON": objects("s3cret"),
		"depth": objects(strings.Repeat("[", 500)), "many objects": objects(object("a"), object("b"), object("c")),
		"large object": objects(object(strings.Repeat("a", 1000))), "many bytes": objects(object(strings.Repeat("a", 900)), object(strings.Repeat("b", 900))),
		"many values": objects(`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":[` + strings.TrimSuffix(strings.Repeat("{},", 20), ",") + `]}`),
	} {
		n, failure, err := kustomize.Decode(small, []byte(answer))
		if err == nil || n != 0 || failure != nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %d objects, %v, %v", name, n, failure, err)
		}
	}
	if n, failure, err := kustomize.Decode(small, []byte(objects(object("a"), object(`,,,\\\",,`)))); n != 2 || failure != nil || err != nil {
		t.Errorf("a good answer: %d objects, %v, %v", n, failure, err)
	}
	if _, failure, err := kustomize.Decode(small, []byte("\x01"+`{"reason":"refused","message":"a\nb\u0007c"}`)); err != nil || failure.Message != "a b c" {
		t.Errorf("a good error: %v, %v", failure, err)
	}
}

// TestDecodingCosts measures the memory for the costliest answers that are accepted.
func TestDecodingCosts(t *testing.T) {
	text := `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":[` + strings.TrimSuffix(strings.Repeat(strings.Repeat(`{"":`, 99)+"1"+strings.Repeat("}", 99)+",", limits.Values/100-1), ",") + `]}`
	answer := append(append([]byte{0}, frame("{}")...), frame(text)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, _, err := kustomize.Decode(limits, answer)
	runtime.ReadMemStats(&after)
	if n != 1 || err != nil {
		t.Fatalf("%d objects, %v", n, err)
	}
	if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 100 {
		t.Errorf("decoding %d KiB needed %d MiB", len(answer)>>10, used)
	}
}
