package kustomize_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	flux "github.com/fluxcd/pkg/kustomize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// judged are builds that Flux's library judges. Each is a folder of its test data, or files.
var judged = []struct {
	name   string
	folder string // below testdata of Flux's library
	files  map[string]string
	spec   string // the spec of a Kustomization
	values map[string]string
}{
	{name: "without a kustomization file", folder: "nokustomization/resources"},
	{name: "two names of files", folder: "resources", spec: "{targetNamespace: apps}"},
	{name: "overlay outside its folder", folder: "relbase", spec: "{path: ./clusters/staging/flux-system}"},
	{name: "without resources", folder: "noResources"},
	{name: "metadata of the build", folder: "buildMetadata", spec: "{buildMetadata: [originAnnotations]}"},
	{name: "prefix and suffix", folder: "resources", spec: "{namePrefix: a-, nameSuffix: -z}"},
	{name: "schema of the archive", folder: "openapiPollution/pollutor"},
	{name: "no schema after a schema", folder: "openapiPollution/victim"},
	{name: "hidden folders and other files", files: map[string]string{
		"a.yaml": configMap("a"), "sub/b.yml": configMap("b"), ".hidden/c.yaml": configMap("c"), "README.md": "no YAML", "sub/deep/d.yaml": configMap("d"),
		"base/kustomization.yaml": "resources: [e.yaml]\nnamePrefix: base-\n", "base/e.yaml": configMap("e"), "base/unused.yaml": configMap("f"),
	}},
	{name: "nothing", files: map[string]string{"README.md": "no YAML"}},
	{name: "components", spec: "{path: app, components: [../extra, ../missing], ignoreMissingComponents: true}", files: map[string]string{
		"app/kustomization.yaml": "resources: [a.yaml]\n", "app/a.yaml": configMap("a"),
		"extra/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [b.yaml]\nconfigMapGenerator: [{name: made, literals: [a=b]}]\n", "extra/b.yaml": configMap("b"),
	}},
	{name: "patches", spec: `{patches: [{patch: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {more: x}\n"},
		{patch: '[{"op": "add", "path": "/metadata/labels", "value": {"patched": "yes"}}]', target: {kind: ConfigMap, name: "b.*"}},
		{patch: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: gone}\n$patch: delete\n"}]}`, files: map[string]string{
		"a.yaml": configMap("a"), "b.yaml": configMap("bb"), "c.yaml": configMap("gone"),
	}},
	{name: "images", spec: "{images: [{name: nginx, newName: registry.example/nginx, newTag: v2}, {name: redis, digest: 'sha256:24a0c4b4a4c0eb97a1aabb8e29f18e917d05abfe1b7a7c07857230879ce7d3d3'}, {name: keep, newName: kept}]}", files: map[string]string{
		"kustomization.yaml": "resources: [d.yaml]\nimages:\n- {name: nginx, newTag: v1, digest: 'sha256:0000'}\n- {name: keep, newTag: v9}\n",
		"d.yaml":             deployment("nginx:0", "redis:1", "keep:2"),
	}},
	{name: "generators", files: map[string]string{
		"kustomization.yaml": "configMapGenerator: [{name: m, files: [k=a.txt, b.txt], envs: [c.env]}]\nsecretGenerator: [{name: s, literals: [x=y]}]\ngeneratorOptions: {disableNameSuffixHash: true}\n",
		"a.txt":              "1", "b.txt": "2", "c.env": "E=3\n",
	}},
	{name: "transformers", files: map[string]string{
		"kustomization.yaml": "resources: [a.yaml]\ntransformers: [t.yaml, \"apiVersion: builtin\\nkind: PrefixTransformer\\nmetadata: {name: x}\\nprefix: p-\\nfieldSpecs: [{path: metadata/name}]\\n\"]\n",
		"a.yaml":             configMap("a"),
		"t.yaml":             "apiVersion: builtin\nkind: AnnotationsTransformer\nmetadata: {name: x}\nannotations: {link: 'https://example.com'}\nfieldSpecs: [{path: metadata/annotations, create: true}]\n",
	}},
	{name: "old fields", files: map[string]string{
		"kustomization.yaml":      "bases: [base]\npatchesStrategicMerge: [p.yaml, \"apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: a}\\ndata: {q: r}\\n\"]\npatchesJson6902: [{target: {version: v1, kind: ConfigMap, name: a}, path: j.yaml}]\ncommonLabels: {l: m}\n",
		"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": configMap("a"),
		"p.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {p: q}\n", "j.yaml": "- {op: add, path: /data/j, value: k}\n",
	}},
	{name: "replacements", files: map[string]string{
		"kustomization.yaml": "resources: [a.yaml, b.yaml]\nreplacements:\n- path: r.yaml\n- source: {kind: ConfigMap, name: a, fieldPath: data.key}\n  targets: [{select: {kind: ConfigMap, name: b}, fieldPaths: [data.key]}]\n",
		"a.yaml":             configMap("a"), "b.yaml": configMap("b"), "r.yaml": "source: {kind: ConfigMap, name: a}\ntargets: [{select: {kind: ConfigMap, name: b}, fieldPaths: [data.from], options: {create: true}}]\n",
	}},
	{name: "variables", values: map[string]string{"name": "web", "lines": "one\ntwo"}, spec: "{}", files: map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '${name}'}\ndata: {a: '${other:=fallback}', b: '$${name}', c: '${name/w/m}', d: '${lines}'}\n",
		"b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, annotations: {kustomize.toolkit.fluxcd.io/substitute: disabled}}\ndata: {a: '${name}'}\n",
	}},
	{name: "list and several documents", files: map[string]string{
		"a.yaml": "apiVersion: v1\nkind: List\nitems:\n- " + indent(configMap("a")) + "\n---\n" + configMap("b") + "\n---\n# only a comment\n",
	}},
	{name: "order of files", files: map[string]string{
		"a/x.yaml": configMap("ax"), "a-b.yaml": configMap("ab"), "a.yaml": configMap("a"), "a/b/y.yaml": configMap("aby"), "A.yaml": configMap("upper"),
	}},
	{name: "unusual names", spec: "{path: 'my apps'}", files: map[string]string{
		"docs/My Notes.md": "", "ümlaut.txt": "", "a+b.txt": "", "x@1.tgz": "", "a(1).md": "", "x~": "", "#a#": "", "a,b": "", "a..b": "",
		"my apps/a@v1/kustomization.yaml": "resources: ['{d} e.yaml', f@2/g.yaml]\nconfigMapGenerator: [{name: m, files: [icons@2x/i.txt, github.com/k=v.txt]}]\n",
		"my apps/a@v1/{d} e.yaml":         configMap("d"), "my apps/a@v1/f@2/g.yaml": configMap("g"), "my apps/a@v1/icons@2x/i.txt": "i", "my apps/a@v1/v.txt": "v",
		"my apps/github.com/x/y.yaml": configMap("y"), "my apps/h.yml": configMap("h"),
	}},
	{name: "JSON, CRLF and a byte order mark", files: map[string]string{
		"a.yaml": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`, "b.yaml": strings.ReplaceAll(configMap("b"), "\n", "\r\n"), "c.yaml": "\ufeff" + configMap("c"), "d.yaml": "",
	}},
	{name: "objects for kustomize", files: map[string]string{
		"kustomization.yaml": "resources: [a.yaml]\ngenerators: [g]\n", "a.yaml": configMap("a"),
		"g/kustomization.yaml": "resources: [g.yaml]\n", "g/g.yaml": "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: made}\nliterals: [a=b]\n",
	}},
	{name: "anchors", files: map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  one: &x text\n  two: *x\n",
	}},
}

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\ndata:\n  key: value of " + name + "\n"
}

func indent(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") }

func deployment(images ...string) string {
	text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec:\n      containers:\n"
	for i, image := range images {
		text += "      - {name: c" + string(rune('0'+i)) + ", image: '" + image + "'}\n"
	}
	return text
}

// fluxFolder returns the folder of Flux's library.
func fluxFolder(tb testing.TB) string {
	tb.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/fluxcd/pkg/kustomize").Output()
	must.Succeed(tb, err)
	return strings.TrimSpace(string(out))
}

// TestLikeFlux compares the objects with those that Flux's library builds on a disk.
func TestLikeFlux(t *testing.T) {
	data := filepath.Join(fluxFolder(t), "testdata")
	for _, test := range judged {
		t.Run(test.name, func(t *testing.T) {
			files := test.files
			if test.folder != "" {
				files = read(t, filepath.Join(data, test.folder))
			}
			var spec kustomize.Spec
			must.Succeed(t, yaml.UnmarshalStrict([]byte(test.spec), &spec))
			if test.values != nil {
				spec.Substitute = &kustomize.Substitute{Values: test.values, Strict: true}
			}
			want, err := fluxBuild(t, files, test.spec, spec)
			must.Succeed(t, err)
			built, err := kustomize.BuildHere(t.Context(), pack(t, files), spec, limits)
			must.Succeed(t, err)
			got := make([]any, len(built))
			for i, object := range built {
				must.Succeed(t, json.Unmarshal(object, &got[i]))
			}
			if a, b := encode(t, got), encode(t, want); a != b {
				t.Errorf("got\n%s\nand Flux builds\n%s", a, b)
			}
		})
	}
}

// fluxBuild builds with Flux's library, as kustomize-controller does.
func fluxBuild(tb testing.TB, files map[string]string, specText string, spec kustomize.Spec) (objects []any, err error) {
	tb.Helper()
	root := tb.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		must.Succeed(tb, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Succeed(tb, os.WriteFile(path, []byte(content), 0o600))
	}
	object := unstructured.Unstructured{}
	must.Succeed(tb, yaml.Unmarshal([]byte("{spec: "+specText+"}"), &object.Object))
	if object.Object["spec"] == nil {
		object.Object["spec"] = map[string]any{}
	}
	folder := filepath.Join(root, spec.Path)
	if _, err := flux.NewGenerator(root, object).WriteFile(folder); err != nil {
		return nil, err
	}
	built, err := flux.SecureBuild(root, folder, false)
	if err != nil {
		return nil, err
	}
	if spec.Substitute != nil {
		values := map[string]any{}
		for name, value := range spec.Substitute.Values {
			values[name] = value
		}
		must.Succeed(tb, unstructured.SetNestedMap(object.Object, values, "spec", "postBuild", "substitute"))
	}
	for _, res := range built.Resources() {
		if spec.Substitute != nil {
			if _, err := flux.SubstituteVariables(tb.Context(), nil, object, res, flux.SubstituteWithStrict(spec.Substitute.Strict), flux.SubstituteWithAlways(spec.Substitute.Always)); err != nil {
				return nil, err
			}
			if _, err := built.Replace(res); err != nil {
				return nil, err
			}
		}
		text, err := res.MarshalJSON()
		must.Succeed(tb, err)
		var decoded any
		must.Succeed(tb, json.Unmarshal(text, &decoded))
		objects = append(objects, decoded)
	}
	return objects, nil
}

// encode returns objects as text, in a fixed order of their fields.
func encode(t *testing.T, objects []any) string {
	t.Helper()
	texts := make([]string, len(objects))
	for i, object := range objects {
		text, err := yaml.Marshal(object)
		must.Succeed(t, err)
		texts[i] = string(text)
	}
	return strings.Join(texts, "---\n")
}

// read returns the files of a folder.
func read(tb testing.TB, folder string) map[string]string {
	tb.Helper()
	files := map[string]string{}
	must.Succeed(tb, filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(folder, path)
		files[name] = string(content)
		return err
	}))
	if len(files) == 0 {
		tb.Fatalf("no files in %s", folder)
	}
	return files
}
