package sopsfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/sopsfile"
	"github.com/lanyard-dev/lanyard/internal/sopsfile/sopstest"
)

// manifests decrypts a file, and replaces each value by its path.
func manifests(t *testing.T, name string, encrypted, key []byte) (string, error) {
	t.Helper()
	file, err := sopsfile.Load(name, name, encrypted)
	must.Succeed(t, err)
	plain, err := file.Decrypt(key)
	must.Succeed(t, err)
	content, err := plain.Manifests(func(v encryptedfile.Value) string {
		return fmt.Sprintf("<%s %s %v>", v.Kind, v.Path, v.Plain)
	})
	return string(content), err
}

// TestManifests checks which values are hidden: all but those that identify an object.
func TestManifests(t *testing.T) {
	const release = "apiVersion: helm.example/v1\nkind: Release\nmetadata:\n    name: web\nspec:\n    values:\n        - password: swordfish\n          port: 5432\n"
	for _, c := range []struct {
		name, plain string
		options     sopstest.Options
		want        []string
	}{
		{"a Secret", secret, data, []string{"kind: Secret", "name: db", "password: <Secret stringData:password swordfish>"}},
		{"a wholly encrypted Secret", secret, sopstest.Options{}, []string{"kind: Secret", "name: db", "password: <Secret stringData:password swordfish>"}},
		{"another kind", release, sopstest.Options{EncryptedRegex: "^(password|port)$"}, []string{"password: <Release spec:values:password swordfish>", "port: <Release spec:values:port 5432>"}},
		{"a wholly encrypted object", release, sopstest.Options{}, []string{"kind: Release", "name: web", "port: <Release spec:values:port 5432>"}},
		{"a list", "apiVersion: v1\nkind: List\nitems:\n    - " + strings.ReplaceAll(strings.TrimSpace(secret), "\n", "\n      "), data, []string{"name: db", "password: <List items:stringData:password swordfish>"}},
		{"two documents", secret + "---\n" + strings.Replace(secret, "db", "web", 1), data, []string{"name: db", "name: web"}},
		{"a separator at the end", secret + "---\n", data, []string{"name: db"}},
		{"another kind, and a separator", release + "---\n", sopstest.Options{}, []string{"name: web"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			encrypted, key := sopstest.Encrypt(t, "a.yaml", c.plain, c.options)
			got, err := manifests(t, "a.yaml", encrypted, key)
			must.Succeed(t, err)
			for _, want := range c.want {
				if !strings.Contains(strings.ReplaceAll(got, "'", ""), want) {
					t.Errorf("%q is not in:\n%s", want, got)
				}
			}
		})
	}
}

// TestManifestsRefuses checks documents whose kind somebody without keys may have written.
func TestManifestsRefuses(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n    name: a\ndata:\n    password: swordfish\n"
	macOnly := sopstest.Options{EncryptedRegex: data.EncryptedRegex, MACOnlyEncrypted: true}
	for _, c := range []struct {
		name, plain string
		options     sopstest.Options
		change      [2]string
		says        string
	}{
		{name: "the MAC does not cover the kind", plain: secret, options: macOnly, change: [2]string{"kind: Secret", "kind: ConfigMap"}},
		{name: "another kind with mac_only_encrypted", plain: object, options: macOnly},
		{name: "the second document", plain: secret + "---\n" + object, options: data},
		{name: "the kind is not among the first values", plain: "metadata:\n    name: a\n" + strings.Replace(object, "metadata:\n    name: a\n", "", 1), options: data},
		{name: "the kind comes first", plain: "kind: ConfigMap\napiVersion: v1\ndata:\n    password: x\n", options: data},
		{
			name: "values with other borders", plain: "apiVersion: v1\nkind: Secret\nmetadata:\n    name: x\nstringData:\n    password: x\n", options: data,
			change: [2]string{"apiVersion: v1\nkind: Secret\n", "apiVersion: v1S\nkind: ecret\n"},
		},
		{
			name: "a kind in the value before", plain: "apiVersion: apps/v1beta1\nkind: Thing\nmetadata:\n    name: x\ndata:\n    password: x\n", options: data,
			change: [2]string{"apiVersion: apps/v1beta1\nkind: Thing\n", "apiVersion: apps/v1\nkind: beta1Thing\n"},
		},
		{name: "a List with another kind", plain: "apiVersion: v1\nkind: List\nitems:\n    - apiVersion: v1\n      kind: ConfigMap\n      data:\n        a: b\n", options: data},
		{name: "another kind, and a Secret", plain: "apiVersion: helm.example/v1\nkind: Release\nspec:\n    password: x\n---\n" + secret},
		{name: "a ConfigMap", plain: object, options: data, says: "only Secrets may"},
		{
			name: "a configuration that becomes a Secret", plain: "spec:\n    password: swordfish\n", options: sopstest.Options{EncryptedRegex: "^password$", MACOnlyEncrypted: true},
			change: [2]string{"spec:\n", "apiVersion: v1\nkind: Secret\nmetadata:\n    name: x\nspec:\n"}, says: "outside data and stringData",
		},
		{name: "a wholly encrypted ConfigMap", plain: object},
		{name: "items that are no List", plain: "apiVersion: a.example/v1\nkind: Thing\nitems:\n    data:\n        password: swordfish\n"},
		{name: "no kind", plain: "password: swordfish\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			encrypted, key := sopstest.Encrypt(t, "a.yaml", c.plain, c.options)
			changed := strings.Replace(string(encrypted), c.change[0], c.change[1], 1)
			if c.change[0] != "" && changed == string(encrypted) {
				t.Fatalf("the test changes nothing in:\n%s", encrypted)
			}
			if got, err := manifests(t, "a.yaml", []byte(changed), key); err == nil {
				t.Errorf("allowed:\n%s", got)
			} else if strings.Contains(err.Error(), "swordfish") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error has a value, or does not say %q: %v", c.says, err)
			}
		})
	}
}

// TestMergedDocuments makes one document of two, without a key. The MAC is still right, because it does
// not cover where a document ends. But no value of the Secret gets into the other object.
func TestMergedDocuments(t *testing.T) {
	encrypted, key := sopstest.Encrypt(t, "a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n    name: x\n---\n"+secret, data)
	first, second, _ := strings.Cut(string(encrypted), "---\n")
	first, _, _ = strings.Cut(first, "sops:")
	_, second, _ = strings.Cut(second, "name: db\n")
	merged := first + "    labels:\n        a: v1Secretdb\n" + second
	got, err := manifests(t, "a.yaml", []byte(merged), key) // its Decrypt succeeds
	if err == nil {
		t.Errorf("allowed:\n%s", got)
	}
}

// TestLeftEncrypted checks the annotation that leaves an object encrypted.
func TestLeftEncrypted(t *testing.T) {
	off := strings.Replace(secret, "    name: db\n", "    name: db\n    annotations:\n        kustomize.toolkit.fluxcd.io/decrypt: disabled\n", 1)
	for _, c := range []struct {
		name, plain string
		left, fails bool
	}{
		{"no annotation", secret, false, false},
		{"the annotation", off, true, false},
		{"the label of Lanyard", strings.NewReplacer("annotations", "labels", "fluxcd.io", "lanyard.dev").Replace(off), true, false},
		{"a separator at the end", off + "---\n", true, false},
		{"one of two", off + "---\n" + secret, false, true},
	} {
		encrypted, _ := sopstest.Encrypt(t, "a.yaml", c.plain, data)
		file, err := sopsfile.Load("a.yaml", "a.yaml", encrypted)
		must.Succeed(t, err)
		if left, err := file.LeftEncrypted(); left != c.left || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v", c.name, left, err)
		}
	}
}
