package sopsfile_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/sopsfile"
	"github.com/lanyard-dev/lanyard/internal/sopsfile/sopstest"
)

// FuzzLoad reads files that strangers wrote. The seeds are encrypted with one data key. No file makes
// the reader panic, and neither an error nor a manifest has the secret value. The reading of most
// changed files ends at the MAC.
func FuzzLoad(f *testing.F) {
	const secret = "swordfish"
	key := bytes.Repeat([]byte{7}, masterkey.DataKeySize)
	for name, plain := range map[string]string{
		"a.yaml": "apiVersion: v1\nkind: Secret\nmetadata:\n    name: a\nstringData:\n    password: " + secret + "\n    list:\n        - 1\n        - true\n---\nkind: Secret\n",
		"a.json": `{"apiVersion":"v1","kind":"Secret","stringData":{"password":"` + secret + `"}}`,
		"a.env":  "# comment\nPASSWORD=" + secret + "\n",
		"a.ini":  "[a]\npassword = " + secret + "\n",
		"a.bin":  secret + "\x00",
	} {
		for _, regex := range []string{"", "^(data|stringData)$"} {
			content, _ := sopstest.Encrypt(f, name, plain, sopstest.Options{DataKey: key, EncryptedRegex: regex})
			f.Add(name, content)
		}
	}
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		wantHidden := func(err error) {
			t.Helper()
			if _, ok := errors.AsType[*encryptedfile.Error](err); err != nil && !ok || err != nil && bytes.Contains([]byte(err.Error()), []byte(secret)) {
				t.Errorf("error %v", err)
			}
		}
		file, err := sopsfile.Open(name, name, content)
		if wantHidden(err); err != nil {
			return
		}
		keys, err := file.MasterKeys()
		if wantHidden(err); err == nil && keys.Check() != nil {
			t.Errorf("the keys are out of bounds: %+v", keys)
		}
		_, err = file.LeftEncrypted()
		wantHidden(err)
		file.HasPlainKeys()
		plain, err := file.Decrypt(key)
		if wantHidden(err); err != nil {
			return
		}
		_, err = plain.Content()
		wantHidden(err)
		manifests, err := plain.Manifests(func(encryptedfile.Value) string { return "hidden" })
		wantHidden(err)
		if bytes.Contains(manifests, []byte(secret)) && !bytes.Contains(content, []byte(secret)) {
			t.Errorf("the manifests have the secret value:\n%s", manifests)
		}
	})
}
