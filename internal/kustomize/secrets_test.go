package kustomize_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/sopsfile/sopstest"
)

const plainSecret = "apiVersion: v1\nkind: Secret\nmetadata:\n    name: db\nstringData:\n    password: swordfish\n"

// onlyData encrypts as most users do.
var onlyData = sopstest.Options{EncryptedRegex: "^(data|stringData)$"}

// world has files of an archive, and the data keys of the encrypted ones.
type world struct {
	t     *testing.T
	files map[string]string
	keys  map[string][]byte
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, files: map[string]string{}, keys: map[string][]byte{}}
}

// encrypt adds an encrypted file. SOPS chooses the format by the name.
func (w *world) encrypt(name, plain string, options sopstest.Options) *world {
	content, key := sopstest.Encrypt(w.t, name, plain, options)
	w.files[name], w.keys[name] = string(content), key
	return w
}

// add adds a file that is not encrypted.
func (w *world) add(name, content string) *world {
	w.files[name] = content
	return w
}

// build builds with all data keys.
func (w *world) build(spec kustomize.Spec) (kustomize.Decrypted, error) {
	return kustomize.DecryptHere(w.t.Context(), pack(w.t, w.files), spec, w.keys, limits)
}

// objects builds, and returns the objects by kind and name.
func (w *world) objects(spec kustomize.Spec) map[string]map[string]any {
	w.t.Helper()
	built, err := w.build(spec)
	must.Succeed(w.t, err)
	if len(built.Missing) > 0 {
		w.t.Fatalf("missing %+v", built.Missing)
	}
	objects := map[string]map[string]any{}
	for _, text := range built.Objects {
		var object map[string]any
		must.Succeed(w.t, json.Unmarshal(text, &object))
		objects[object["kind"].(string)+" "+object["metadata"].(map[string]any)["name"].(string)] = object
	}
	return objects
}

// value returns a value of the data of an object, decoded.
func value(t *testing.T, object map[string]any, key string) string {
	t.Helper()
	if data, ok := object["stringData"].(map[string]any); ok && data[key] != nil {
		return data[key].(string)
	}
	data, _ := object["data"].(map[string]any)
	text, _ := data[key].(string)
	decoded, err := base64.StdEncoding.DecodeString(text)
	must.Succeed(t, err)
	return string(decoded)
}

// TestDecrypt decrypts each use of an encrypted file.
func TestDecrypt(t *testing.T) {
	inner := func(w *world, secret, name, plain string) string {
		content, key := sopstest.Encrypt(t, name, plain, sopstest.Options{})
		w.keys["a.yaml: Secret "+secret+": data."+name] = key
		return base64.StdEncoding.EncodeToString(content)
	}
	k := func(text string) string { return "generatorOptions: {disableNameSuffixHash: true}\n" + text }
	for name, c := range map[string]struct {
		make   func(w *world)
		spec   kustomize.Spec
		object string
		want   map[string]string
	}{
		"a resource": {make: func(w *world) { w.encrypt("a.yaml", plainSecret, onlyData) }, object: "Secret db", want: map[string]string{"password": "swordfish"}},
		"a JSON resource": {make: func(w *world) {
			w.add("kustomization.yaml", "resources: [a.json]").encrypt("a.json", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db"},"stringData":{"password":"swordfish"}}`, onlyData)
		}, object: "Secret db", want: map[string]string{"password": "swordfish"}},
		"base64": {make: func(w *world) {
			w.encrypt("a.yaml", strings.NewReplacer("stringData", "data", "swordfish", "c3dvcmRmaXNo").Replace(plainSecret), onlyData)
		}, object: "Secret db", want: map[string]string{"password": "swordfish"}},
		"a wholly encrypted resource": {make: func(w *world) { w.encrypt("a.yaml", plainSecret, sopstest.Options{}) }, spec: kustomize.Spec{NamePrefix: "p-"}, object: "Secret p-db", want: map[string]string{"password": "swordfish"}},
		"a List": {make: func(w *world) {
			w.encrypt("a.yaml", "apiVersion: v1\nkind: List\nitems:\n    - "+strings.ReplaceAll(strings.TrimSpace(plainSecret), "\n", "\n      "), onlyData)
		}, object: "Secret db", want: map[string]string{"password": "swordfish"}},
		"a patch": {make: func(w *world) {
			w.add("kustomization.yaml", "resources: [a.yaml]\npatches: [{path: p.yaml}]").add("a.yaml", strings.Replace(plainSecret, "password: swordfish", "user: admin", 1)).encrypt("p.yaml", plainSecret, onlyData)
		}, object: "Secret db", want: map[string]string{"password": "swordfish", "user": "admin"}},
		"a patch of an encrypted resource": {make: func(w *world) {
			w.add("kustomization.yaml", "resources: [a.yaml]\npatchesStrategicMerge: [p.yaml]").encrypt("a.yaml", plainSecret, onlyData).encrypt("p.yaml", strings.Replace(plainSecret, "swordfish", "herring", 1), onlyData)
		}, object: "Secret db", want: map[string]string{"password": "herring"}},
		"a file": {make: func(w *world) {
			w.add("kustomization.yaml", k("secretGenerator: [{name: g, files: [key.txt, other=key.txt]}]")).encrypt("key.txt", "swordfish\x00\xff", sopstest.Options{})
		}, object: "Secret g", want: map[string]string{"key.txt": "swordfish\x00\xff", "other": "swordfish\x00\xff"}},
		"a file in a component": {make: func(w *world) {
			w.add("kustomization.yaml", "components: [c]").add("c/kustomization.yaml", "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\n"+k("secretGenerator: [{name: g, files: [key.txt]}]")).encrypt("c/key.txt", "swordfish", sopstest.Options{})
		}, object: "Secret g", want: map[string]string{"key.txt": "swordfish"}},
		"variables": {make: func(w *world) {
			w.add("kustomization.yaml", k("secretGenerator: [{name: g, envs: [a.env]}]")).encrypt("a.env", "# comment\nA=sword fish\nB=x=y\nC=\n", sopstest.Options{})
		}, object: "Secret g", want: map[string]string{"A": "sword fish", "B": "x=y", "C": ""}},
		"INI": {make: func(w *world) {
			w.add("kustomization.yaml", k("secretGenerator: [{name: g, files: [a.ini]}]")).encrypt("a.ini", "[a]\nb = swordfish\n", sopstest.Options{})
		}, object: "Secret g", want: map[string]string{"a.ini": "[a]\nb = swordfish\n"}},
		"values that are files": {make: func(w *world) {
			w.add("a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\ndata:\n  a.env: "+inner(w, "db", "a.env", "A=swordfish\n")+"\n  plain: YQ==\n---\n"+
				"apiVersion: v1\nkind: Secret\nmetadata: {name: other}\ndata:\n  a.env: "+inner(w, "other", "a.env", "A=herring\n")+"\n")
		}, object: "Secret db", want: map[string]string{"a.env": "A=swordfish\n", "plain": "a"}},
		"a variable in a decrypted text": {make: func(w *world) {
			w.encrypt("a.yaml", strings.Replace(plainSecret, "swordfish", "swordfish@${HOST}", 1), onlyData)
		}, spec: kustomize.Spec{Substitute: &kustomize.Substitute{Values: map[string]string{"HOST": "db"}, Strict: true}}, object: "Secret db", want: map[string]string{"password": "swordfish@db"}},
		"a text that is no variable": {make: func(w *world) {
			w.encrypt("a.yaml", strings.NewReplacer("swordfish", "sword${fish}", "name: db", "name: db\n    annotations:\n        kustomize.toolkit.fluxcd.io/substitute: disabled").Replace(plainSecret), sopstest.Options{})
		}, spec: kustomize.Spec{Substitute: &kustomize.Substitute{Values: map[string]string{"HOST": "db"}, Strict: true}}, object: "Secret db", want: map[string]string{"password": "sword${fish}"}},
		"a replacement between Secrets": {make: func(w *world) {
			w.add("kustomization.yaml", "resources: [a.yaml, b.yaml]\nreplacements: [{source: {kind: Secret, name: db, fieldPath: stringData.password}, targets: [{select: {kind: Secret, name: b}, fieldPaths: [stringData.copy], options: {create: true}}]}]").
				encrypt("a.yaml", plainSecret, onlyData).add("b.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: b}\nstringData: {x: y}\n")
		}, object: "Secret b", want: map[string]string{"copy": "swordfish"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.make(w)
			object := w.objects(c.spec)[c.object]
			if object == nil {
				t.Fatalf("no %s in %v", c.object, w.objects(c.spec))
			}
			for key, want := range c.want {
				if got := value(t, object, key); got != want {
					t.Errorf("%s: got %q, want %q", key, got, want)
				}
			}
			if object["sops"] != nil {
				t.Error("the object has the metadata of SOPS")
			}
		})
	}
}

// TestDecryptOtherKinds decrypts a file of another kind: each value is where the file has it.
func TestDecryptOtherKinds(t *testing.T) {
	w := newWorld(t).encrypt("a.yaml", "apiVersion: helm.example/v1\nkind: Release\nmetadata:\n    name: web\nspec:\n    values:\n        - password: swordfish\n          port: 5432\n          on: true\n", sopstest.Options{})
	spec := w.objects(kustomize.Spec{})["Release web"]["spec"].(map[string]any)
	got, err := json.Marshal(spec)
	must.Succeed(t, err)
	if string(got) != `{"values":[{"on":true,"password":"swordfish","port":5432}]}` {
		t.Errorf("spec %s", got)
	}
}

// TestDecryptTwice decrypts a file that has the same value twice at the same path.
func TestDecryptTwice(t *testing.T) {
	w := newWorld(t).encrypt("a.yaml", plainSecret+"type: Opaque\n---\n"+strings.Replace(plainSecret, "name: db", "name: other", 1)+"type: Opaque\n", sopstest.Options{}).
		encrypt("b.yaml", "apiVersion: v1\nkind: Service\nmetadata:\n    name: s\nspec:\n    ports:\n        - protocol: TCP\n          port: 1\n        - protocol: TCP\n          port: 2\n", sopstest.Options{})
	objects := w.objects(kustomize.Spec{})
	if objects["Secret db"]["type"] != "Opaque" || objects["Secret other"]["type"] != "Opaque" || len(objects) != 3 {
		t.Errorf("objects %v", objects)
	}
}

// TestDecryptTypes decrypts values that differ only in their type.
func TestDecryptTypes(t *testing.T) {
	w := newWorld(t).encrypt("a.yaml", "apiVersion: a.example/v1\nkind: Thing\nmetadata:\n    name: a\nspec:\n    - 1\n    - \"1\"\n    - true\n    - \"true\"\n", sopstest.Options{})
	got, err := json.Marshal(w.objects(kustomize.Spec{})["Thing a"]["spec"])
	must.Succeed(t, err)
	if string(got) != `[1,"1",true,"true"]` {
		t.Errorf("spec %s", got)
	}
}

// TestDecryptMissing checks that a build names the encrypted files that it uses, and no others.
func TestDecryptMissing(t *testing.T) {
	w := newWorld(t).encrypt("apps/a.yaml", plainSecret, onlyData).encrypt("other/b.yaml", plainSecret, onlyData).encrypt("apps/x.env", "A=b\n", sopstest.Options{}).
		add("apps/kustomization.yaml", "resources: [a.yaml]\nsecretGenerator: [{name: g, envs: [x.env]}]")
	clear(w.keys)
	built, err := w.build(kustomize.Spec{Path: "./apps"})
	must.Succeed(t, err)
	if len(built.Objects) > 0 || len(built.Missing) != 2 || built.Missing[0].Name != "apps/a.yaml" || built.Missing[1].Name != "apps/x.env" {
		t.Errorf("built %+v", built)
	}
}

// TestDecryptNothing checks what happens with encrypted files that nobody decrypts.
func TestDecryptNothing(t *testing.T) {
	off := strings.Replace(plainSecret, "    name: db\n", "    name: db\n    annotations:\n        kustomize.toolkit.fluxcd.io/decrypt: disabled\n", 1)
	w := newWorld(t).encrypt("a.yaml", plainSecret, onlyData)
	if _, err := kustomize.BuildHere(t.Context(), pack(t, w.files), kustomize.Spec{}, limits); err == nil || !strings.Contains(err.Error(), "spec.decryption") {
		t.Errorf("without spec.decryption: %v", err)
	}
	w = newWorld(t).encrypt("a.yaml", off, onlyData)
	clear(w.keys)
	for decrypting, build := range map[bool]func() ([][]byte, error){
		false: func() ([][]byte, error) {
			return kustomize.BuildHere(t.Context(), pack(t, w.files), kustomize.Spec{}, limits)
		},
		true: func() ([][]byte, error) { built, err := w.build(kustomize.Spec{}); return built.Objects, err },
	} {
		objects, err := build()
		must.Succeed(t, err)
		if len(objects) != 1 || !strings.Contains(string(objects[0]), "ENC[") {
			t.Errorf("decrypting %v: %s", decrypting, objects)
		}
	}
}

// TestUnencryptedSecrets checks that a build names Secrets of which nothing was encrypted.
func TestUnencryptedSecrets(t *testing.T) {
	w := newWorld(t).encrypt("a.yaml", plainSecret, onlyData).add("b.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: b, namespace: n}\nstringData: {x: y}\n").
		add("c.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: empty}\n")
	built, err := w.build(kustomize.Spec{})
	must.Succeed(t, err)
	if len(built.Unencrypted) != 1 || built.Unencrypted[0] != "Secret n/b" {
		t.Errorf("unencrypted %v", built.Unencrypted)
	}
}

// TestStablePlaceholders checks that a generated Secret has the same name in each build, and another
// name after its content changed.
func TestStablePlaceholders(t *testing.T) {
	key := make([]byte, 32)
	name := func(content string) string {
		w := newWorld(t).add("kustomization.yaml", "secretGenerator: [{name: g, files: [k]}]").encrypt("k", content, sopstest.Options{DataKey: key})
		for name := range w.objects(kustomize.Spec{}) {
			return name
		}
		return ""
	}
	if first, again, other := name("a"), name("a"), name("b"); first != again || first == other || !strings.HasPrefix(first, "Secret g-") {
		t.Errorf("names %q, %q, %q", first, again, other)
	}
}

// TestHostileWriter is somebody who may write to the repository, and has no key. Nothing that the
// writer adds brings a decrypted value, or a part of it, out of the data of Secrets.
func TestHostileWriter(t *testing.T) {
	const target = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: target, annotations: {a: x}}\ndata: {x: y}\n"
	replacement := func(from, options, to string) string {
		return "{source: {kind: Secret, name: db, fieldPath: " + from + options + "}, targets: [{select: {kind: ConfigMap, name: target}, fieldPaths: [" + to + "], options: {create: true}}]}"
	}
	generated := "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: x}\n"
	for name, c := range map[string]struct {
		files map[string]string
		spec  kustomize.Spec
		dead  bool // the build may succeed, with a part of a placeholder
	}{
		"a configMapGenerator":                       {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\nconfigMapGenerator: [{name: c, files: [a.yaml]}]"}},
		"variables of a configMapGenerator":          {files: map[string]string{"kustomization.yaml": "configMapGenerator: [{name: c, envs: [a.env]}]"}},
		"a configMapGenerator and a secretGenerator": {files: map[string]string{"kustomization.yaml": "secretGenerator: [{name: s, envs: [a.env]}]\nconfigMapGenerator: [{name: c, envs: [a.env]}]"}},
		"a generator in a file":                      {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\nsecretGenerator: [{name: s, envs: [a.env]}]\ngenerators: [g.yaml]", "g.yaml": generated + "envs: [a.env]\n"}},
		"a generator of a manifest":                  {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\ngenerators: [g.yaml]", "g.yaml": generated + "files: [a.yaml]\n"}},
		"a generator of all files":                   {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\ngenerators: [g]", "g/kustomization.yaml": "resources: [g.yaml]", "g/g.yaml": generated + "files: [x=a.yaml]\n"}},
		"a replacement":                              {files: map[string]string{"kustomization.yaml": "resources: [a.yaml, t.yaml]\nreplacements: [" + replacement("stringData.password", "", "data.copy") + "]"}},
		"a replacement of metadata":                  {files: map[string]string{"kustomization.yaml": "resources: [a.yaml, t.yaml]\nreplacements: [" + replacement("stringData.password", "", "metadata.annotations.a") + "]"}},
		"a replacement in a file":                    {files: map[string]string{"kustomization.yaml": "resources: [a.yaml, t.yaml]\nreplacements: [{path: r.yaml}]", "r.yaml": replacement("stringData.password", "", "data.copy")}},
		"a replacement with a delimiter":             {files: map[string]string{"kustomization.yaml": "resources: [a.yaml, t.yaml]\nreplacements: [" + replacement("stringData.password", ", options: {delimiter: o, index: 0}", "data.copy") + "]"}, dead: true},
		"a replacement with a part":                  {files: map[string]string{"kustomization.yaml": "resources: [a.yaml, t.yaml]\nreplacements: [" + replacement("stringData.password", ", options: {delimiter: d, index: 0}", "data.copy") + "]"}, dead: true},
		"a replacement in base64":                    {files: map[string]string{"kustomization.yaml": "resources: [a.yaml, t.yaml]\nreplacements: [" + replacement("stringData.password", ", options: {encoding: base64}", "data.copy") + "]"}},
		"a replacement by a transformer":             {files: map[string]string{"kustomization.yaml": "resources: [a.yaml, t.yaml]\ntransformers: [r.yaml]", "r.yaml": "apiVersion: builtin\nkind: ReplacementTransformer\nmetadata: {name: r}\nreplacements: [" + replacement("stringData.password", "", "data.copy") + "]"}},
		"a replacement from the generated":           {files: map[string]string{"kustomization.yaml": "resources: [t.yaml]\nsecretGenerator: [{name: db, envs: [a.env]}]\nreplacements: [" + replacement("data.A", "", "data.copy") + "]"}},
		"vars": {files: map[string]string{
			"kustomization.yaml": "resources: [a.yaml, d.yaml]\nvars: [{name: V, objref: {apiVersion: v1, kind: Secret, name: db}, fieldref: {fieldpath: stringData.password}}]",
			"d.yaml":             "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, args: ['$(V)']}]}\n",
		}},
		"a patch that changes the kind":      {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\npatches: [{target: {kind: Secret}, options: {allowKindChange: true}, patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: db}}'}]"}},
		"a JSON patch of the kind":           {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\npatches: [{target: {kind: Secret}, patch: '[{\"op\": \"replace\", \"path\": \"/kind\", \"value\": \"ConfigMap\"}]'}]"}},
		"a JSON patch that copies":           {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\npatches: [{target: {kind: Secret}, patch: '[{\"op\": \"add\", \"path\": \"/metadata/annotations\", \"value\": {}}, {\"op\": \"copy\", \"from\": \"/stringData/password\", \"path\": \"/metadata/annotations/a\"}]'}]"}},
		"a JSON patch that nests":            {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\npatches: [{target: {kind: Secret}, patch: '[{\"op\": \"add\", \"path\": \"/stringData/a\", \"value\": {}}, {\"op\": \"move\", \"from\": \"/stringData/password\", \"path\": \"/stringData/a/b\"}]'}]"}},
		"a patch of the spec":                {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]"}, spec: kustomize.Spec{Patches: []kustomize.Patch{{Patch: `[{"op": "replace", "path": "/apiVersion", "value": "x.example/v1"}]`, Target: &kustomize.Target{Kind: "Secret"}}}}},
		"an encrypted patch of another kind": {files: map[string]string{"kustomization.yaml": "resources: [t.yaml]\npatches: [{path: a.yaml, target: {kind: ConfigMap}}]"}},
		"an encrypted schema":                {files: map[string]string{"kustomization.yaml": "resources: [t.yaml]\nopenapi: {path: a.yaml}"}},
		"an encrypted configuration":         {files: map[string]string{"kustomization.yaml": "resources: [t.yaml]\nconfigurations: [a.yaml]"}},
		"an encrypted transformer":           {files: map[string]string{"kustomization.yaml": "resources: [t.yaml]\ntransformers: [a.yaml]"}},
		"an encrypted file with variables":   {files: map[string]string{"kustomization.yaml": "secretGenerator: [{name: s, envs: [a.yaml]}]"}},
		"variables of a binary file":         {files: map[string]string{"kustomization.yaml": "secretGenerator: [{name: s, envs: [token]}]"}},
		"a generator of a plugin":            {files: map[string]string{"kustomization.yaml": "generators: [g.yaml]", "g.yaml": "apiVersion: builtin\nkind: SecretGenerator\nmetadata: {name: x}\nfiles: [token]\n"}},
		"two uses of a file":                 {files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\nsecretGenerator: [{name: s, files: [a.yaml]}]"}},
		"an encrypted kustomization file":    {files: map[string]string{"kustomization.yaml": "resources: [sub]", "sub/kustomization.yaml": "ENCRYPTED"}},
		"a name of a variable":               {files: map[string]string{"kustomization.yaml": "resources: [t.yaml]\nreplacements: [{source: {kind: Secret, name: db, fieldPath: stringData.password}, targets: [{select: {kind: ConfigMap}, fieldPaths: [data.x]}]}]\nsecretGenerator: [{name: db, type: Opaque, literals: [password=x]}]\npatches: [{path: a.yaml}]"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).add("t.yaml", target).encrypt("a.yaml", plainSecret, onlyData).encrypt("a.env", "A=swordfish\n", sopstest.Options{}).
				encrypt("token", base64.StdEncoding.EncodeToString([]byte("swordfish"))+"=\n", sopstest.Options{})
			maps.Copy(w.files, c.files)
			if w.files["sub/kustomization.yaml"] == "ENCRYPTED" {
				w.files["sub/kustomization.yaml"] = w.files["a.yaml"]
			}
			built, err := w.build(c.spec)
			if err != nil {
				if failure, ok := errors.AsType[*kustomize.Error](err); !ok || strings.Contains(failure.Error(), "swordfish") {
					t.Errorf("error %v", err)
				}
				if !strings.Contains(err.Error(), "crypted") {
					t.Errorf("the error has another cause: %v", err)
				}
				return
			}
			if !c.dead {
				t.Errorf("built:\n%s", built.Objects)
			}
			for _, text := range built.Objects {
				if leaks(t, text) {
					t.Errorf("a value is outside a Secret's data:\n%s", text)
				}
			}
		})
	}
}

// leaks reports whether an object has the secret value outside the data of a Secret.
func leaks(t *testing.T, text []byte) bool {
	t.Helper()
	var object map[string]any
	must.Succeed(t, json.Unmarshal(text, &object))
	if object["apiVersion"] == "v1" && object["kind"] == "Secret" {
		delete(object, "data")
		delete(object, "stringData")
	}
	rest, err := json.Marshal(object)
	must.Succeed(t, err)
	for _, form := range []string{"swordfish", "wordfis", base64.StdEncoding.EncodeToString([]byte("swordfish")), base64.StdEncoding.EncodeToString([]byte("A=swordfish"))} {
		if strings.Contains(string(rest), form) {
			return true
		}
	}
	return false
}

// TestTestingPatch checks that no patch can compare a decrypted value with a guess.
func TestTestingPatch(t *testing.T) {
	for _, guess := range []string{"swordfish", "herring"} {
		w := newWorld(t).encrypt("a.yaml", plainSecret, onlyData).add("kustomization.yaml", "resources: [a.yaml]\npatches: [{target: {kind: Secret}, patch: '[{\"op\": \"test\", \"path\": \"/stringData/password\", \"value\": \"+guess+\"}]'}]")
		if _, err := w.build(kustomize.Spec{}); err == nil || !strings.Contains(err.Error(), "testing value /stringData/password failed") {
			t.Errorf("the guess %s: %v", guess, err)
		}
	}
}

// TestDecryptedErrors checks errors about decrypted values: they name the place and no value.
func TestDecryptedErrors(t *testing.T) {
	for name, c := range map[string]struct {
		plain, file, kustomization string
		spec                       kustomize.Spec
		place                      string
	}{
		"a number":              {plain: strings.Replace(plainSecret, "swordfish", "4711", 1), place: "stringData.password"},
		"no base64":             {plain: strings.NewReplacer("stringData", "data", "swordfish", "sword fish").Replace(plainSecret), place: "data.password"},
		"a variable":            {plain: strings.Replace(plainSecret, "swordfish", "${swordfish}", 1), spec: kustomize.Spec{Substitute: &kustomize.Substitute{Values: map[string]string{"A": "b"}, Strict: true}}, place: "stringData.password"},
		"no line of a variable": {plain: "swordfish", file: "k", kustomization: "secretGenerator: [{name: s, envs: [k]}]", place: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			file := c.file
			if file == "" {
				file = "a.yaml"
			}
			w := newWorld(t).encrypt(file, c.plain, sopstest.Options{EncryptedRegex: map[bool]string{true: onlyData.EncryptedRegex}[file == "a.yaml"]})
			if c.kustomization != "" {
				w.add("kustomization.yaml", c.kustomization)
			}
			_, err := w.build(c.spec)
			failure, ok := errors.AsType[*kustomize.Error](err)
			if !ok || !strings.Contains(failure.Place, c.place) || strings.Contains(err.Error(), "swordfish") || strings.Contains(err.Error(), "4711") || strings.Contains(err.Error(), "sword fish") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestBuilderDecrypts builds in children: the first finds the files, and the second decrypts them.
func TestBuilderDecrypts(t *testing.T) {
	builder := newBuilder(t)
	w := newWorld(t).encrypt("a.yaml", plainSecret, onlyData)
	var asked []string
	request := kustomize.Request{Tenant: "a", Archive: pack(t, w.files), DataKeys: func(_ context.Context, files []masterkey.File) (map[string][]byte, error) {
		for _, file := range files {
			asked = append(asked, file.Name)
		}
		return w.keys, nil
	}}
	built, err := builder.Build(t.Context(), request)
	must.Succeed(t, err)
	if got, _, _ := unstructured.NestedString(built.Objects[0].Object, "stringData", "password"); got != "swordfish" || len(asked) != 1 {
		t.Errorf("built %+v, asked for %v", built, asked)
	}
	refused := errors.New("refused")
	request.DataKeys = func(context.Context, []masterkey.File) (map[string][]byte, error) { return nil, refused }
	if _, err := builder.Build(t.Context(), request); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	request.DataKeys = func(context.Context, []masterkey.File) (map[string][]byte, error) { return nil, nil }
	if _, err := builder.Build(t.Context(), request); err == nil {
		t.Error("built without data keys")
	}
}
