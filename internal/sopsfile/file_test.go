package sopsfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/kms"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/sopsfile"
	"github.com/lanyard-dev/lanyard/internal/sopsfile/sopstest"
)

// TestFormats encrypts a file in each format, and decrypts it under other names, too.
func TestFormats(t *testing.T) {
	for _, c := range []struct{ encryptedAs, name, plain string }{
		{"a.yaml", "a.yaml", "password: swordfish\nnumber: 7\nlist:\n    - a\n    - true\n"},
		{"a.yaml", "realm.json", "password: swordfish\n"},
		{"a.json", "a.json", "{\n\t\"data\": \"swordfish\"\n}\n"},
		{"a.json", "a.txt", "{\n\t\"user\": \"a\",\n\t\"password\": \"swordfish\"\n}\n"},
		{"a.env", "a.env", "# comment\nPASSWORD=swordfish\nLINES=one\\ntwo\n"},
		{"a.env", "a.txt", "PASSWORD=swordfish\n"},
		{"a.ini", "a.ini", "[database]\npassword = swordfish\n"},
		{"a.ini", "my.cnf", "[database]\npassword = swordfish\n"},
		{"a.bin", "a.bin", "swordfish\x00\xff\xfe"},
		{"a.bin", "realm.properties", "{\"realm\": \"swordfish\"}"},
	} {
		t.Run(c.encryptedAs+" as "+c.name, func(t *testing.T) {
			encrypted, key := sopstest.Encrypt(t, c.encryptedAs, c.plain, sopstest.Options{})
			if !encryptedfile.Is(c.name, encrypted) {
				t.Fatalf("not encrypted: %s", encrypted)
			}
			got, err := decrypt(t, c.name, encrypted, key)
			must.Succeed(t, err)
			if string(got) != c.plain {
				t.Errorf("got %q, want %q", got, c.plain)
			}
		})
	}
}

// decrypt returns a whole decrypted file.
func decrypt(t *testing.T, name string, encrypted, key []byte) ([]byte, error) {
	t.Helper()
	file, err := sopsfile.Load(name, name, encrypted)
	if err != nil {
		return nil, err
	}
	plain, err := file.Decrypt(key)
	if err != nil {
		return nil, err
	}
	return plain.Content()
}

// TestNotEncrypted checks files that only look a little like encrypted files.
func TestNotEncrypted(t *testing.T) {
	for _, content := range []string{
		"", "{}", "a: b\n", "sops:\n    mac: none\n", "text: 'mac: ENC['\n", "{\"mac\": \"none\"}", "sops_mac=\n", "[sops]\nmac = x\n",
		"kind: ConfigMap\ndata:\n  howto: see ENC[AES256_GCM,data:…]\n",
	} {
		if encryptedfile.Is("a.yaml", []byte(content)) {
			t.Errorf("%q counts as encrypted", content)
		}
	}
}

const secret = `apiVersion: v1
kind: Secret
metadata:
    name: db
stringData:
    user: admin
    password: swordfish
    note: a
`

var data = sopstest.Options{EncryptedRegex: "^(data|stringData)$"}

// TestChangedFiles changes encrypted files without a key. Each change is refused, and the errors have
// nothing of the file.
func TestChangedFiles(t *testing.T) {
	encrypted, key := sopstest.Encrypt(t, "a.yaml", secret, data)
	other, _ := sopstest.Encrypt(t, "a.yaml", strings.Replace(secret, "swordfish", "herring", 1), sopstest.Options{EncryptedRegex: data.EncryptedRegex, DataKey: key})
	line := func(content []byte, key string) string {
		for line := range strings.Lines(string(content)) {
			if strings.HasPrefix(strings.TrimSpace(line), key+":") {
				return line
			}
		}
		t.Fatalf("no line %s", key)
		return ""
	}
	for name, change := range map[string]func(string) string{
		"another kind":            func(s string) string { return strings.Replace(s, "kind: Secret", "kind: ConfigMap", 1) },
		"another name":            func(s string) string { return strings.Replace(s, "name: db", "name: other", 1) },
		"an unencrypted value":    func(s string) string { return strings.Replace(s, line(encrypted, "user"), "    user: root\n", 1) },
		"one value less":          func(s string) string { return strings.Replace(s, line(encrypted, "note"), "", 1) },
		"values in another order": func(s string) string { return swap(s, line(encrypted, "user"), line(encrypted, "note")) },
		"a value elsewhere":       func(s string) string { return strings.Replace(s, "stringData:", "data:", 1) },
		"a MAC of other content":  func(s string) string { return strings.Replace(s, line(encrypted, "mac"), line(other, "mac"), 1) },
		"a value of another file": func(s string) string {
			return strings.Replace(s, line(encrypted, "password"), line(other, "password"), 1)
		},
		"an empty MAC": func(s string) string { return strings.Replace(s, line(encrypted, "mac"), "    mac: \"\"\n", 1) },
		"a MAC of another time": func(s string) string {
			return strings.Replace(s, "2026-11-25T12:00:00Z", "2026-11-25T12:00:01Z", 1)
		},
		"fewer encrypted keys": func(s string) string { return strings.Replace(s, "^(data|stringData)$", "^data$", 1) },
		"no data key":          func(s string) string { return s },
	} {
		t.Run(name, func(t *testing.T) {
			used := key
			if name == "no data key" {
				used = bytes.Repeat([]byte{1}, 32)
			}
			changed := change(string(encrypted))
			if name != "no data key" && changed == string(encrypted) {
				t.Fatal("the test changes nothing")
			}
			_, err := decrypt(t, "a.yaml", []byte(changed), used)
			if _, ok := errors.AsType[*encryptedfile.Error](err); !ok {
				t.Fatalf("error %v", err)
			}
			for _, text := range []string{"swordfish", "ENC[", "admin", "root"} {
				if strings.Contains(err.Error(), text) {
					t.Errorf("the error has content of the file: %v", err)
				}
			}
		})
	}
}

// swap exchanges two lines.
func swap(s, a, b string) string {
	s = strings.Replace(s, a, "\x00", 1)
	s = strings.Replace(s, b, a, 1)
	return strings.Replace(s, "\x00", b, 1)
}

// TestMasterKeys checks the keys of a file, and the bounds.
func TestMasterKeys(t *testing.T) {
	value := "a"
	group := func(keys int) (group sops.KeyGroup) {
		for i := range keys {
			group = append(group, &kms.MasterKey{Arn: fmt.Sprintf("arn:%d", i), Role: "role", AwsProfile: "profile", EncryptionContext: map[string]*string{"k": &value}, EncryptedKey: "AQ=="})
		}
		return group
	}
	encrypted, _ := sopstest.Encrypt(t, "a.yaml", secret, sopstest.Options{KeyGroups: []sops.KeyGroup{group(2), {&age.MasterKey{Recipient: sopstest.Recipient, EncryptedKey: "x"}}}, Threshold: 2})
	file, err := sopsfile.Load("a.yaml", "a.yaml", encrypted)
	must.Succeed(t, err)
	keys, err := file.MasterKeys()
	must.Succeed(t, err)
	if keys.Name != "a.yaml" || keys.Threshold != 2 || len(keys.Groups) != 2 || keys.PartSize() != 33 {
		t.Errorf("keys %+v", keys)
	}
	first := keys.Groups[0][0]
	if first.AWS == nil || first.AWS.ARN != "arn:0" || first.AWS.Role != "role" || first.AWS.Profile != "profile" || first.AWS.Context["k"] != "a" || first.Encrypted != "AQ==" {
		t.Errorf("key %+v", first)
	}
	for name, groups := range map[string][]sops.KeyGroup{
		"too many groups": slicesRepeat(group(1), 17),
		"too many keys":   {group(65)},
		"a long data key": {{&age.MasterKey{Recipient: sopstest.Recipient, EncryptedKey: strings.Repeat("x", 65<<10)}}},
		"a long name":     {{&age.MasterKey{Recipient: strings.Repeat("x", 3<<10), EncryptedKey: "x"}}},
	} {
		encrypted, _ := sopstest.Encrypt(t, "a.yaml", secret, sopstest.Options{KeyGroups: groups, Threshold: 2})
		file, err := sopsfile.Load("a.yaml", "a.yaml", encrypted)
		must.Succeed(t, err)
		if _, err := file.MasterKeys(); err == nil {
			t.Errorf("%s: allowed", name)
		}
	}
}

func slicesRepeat(group sops.KeyGroup, times int) (groups []sops.KeyGroup) {
	for range times {
		groups = append(groups, group)
	}
	return groups
}

// TestLoadRefuses checks files that SOPS's library cannot read, or reads otherwise than one expects.
func TestLoadRefuses(t *testing.T) {
	encrypted, _ := sopstest.Encrypt(t, "a.yaml", secret, data)
	again, _ := sopstest.Encrypt(t, "a.yaml", secret, data)
	for name, content := range map[string]string{
		"not encrypted":       secret,
		"no metadata":         "a: b\nx:\n    mac: ENC[AES256_GCM,data:x,iv:x,tag:x,type:str]\n",
		"no YAML":             "a: [\nsops:\n    mac: ENC[x\n",
		"separate documents":  string(encrypted) + "---\n" + string(again),
		"a plain document":    string(encrypted) + "---\n" + secret,
		"a list":              "- sops:\n    mac: ENC[\n",
		"a wrong time":        strings.Replace(string(encrypted), "2026-11-25T12:00:00Z", "yesterday", 1),
		"a second rule":       strings.Replace(string(encrypted), "    encrypted_regex:", "    encrypted_suffix: x\n    encrypted_regex:", 1),
		"metadata of numbers": "a: b\nsops:\n    age: 7\n    mac: ENC[AES256_GCM,data:x,iv:x,tag:x,type:str]\n",
		"a Huawei key":        strings.Replace(string(encrypted), "    age:", "    hckms:\n        - key_id: x\n          created_at: \"2026-11-25T12:00:00Z\"\n          enc: x\n    age:", 1),
	} {
		if _, err := sopsfile.Load("a.yaml", "a.yaml", []byte(content)); err == nil {
			t.Errorf("%s: allowed", name)
		} else if _, ok := errors.AsType[*encryptedfile.Error](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
