package keyservice_test

import (
	"bytes"
	"crypto"
	"errors"
	"io"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
	"github.com/ProtonMail/go-crypto/openpgp"
	pgparmor "github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/keyservice"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// identity is a new identity of age.
func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	must.Succeed(t, err)
	return id
}

// forAge encrypts a data key for a recipient of age, as SOPS does.
func forAge(t *testing.T, recipient age.Recipient, dataKey []byte) masterkey.Key {
	t.Helper()
	var out bytes.Buffer
	armored := armor.NewWriter(&out)
	w, err := age.Encrypt(armored, recipient)
	must.Succeed(t, err)
	_, err = w.Write(dataKey)
	must.Succeed(t, errors.Join(err, w.Close(), armored.Close()))
	return masterkey.Key{Age: &masterkey.Age{Recipient: "age1x"}, Encrypted: out.String()}
}

// entity is a new OpenPGP key.
func entity(t *testing.T) *openpgp.Entity {
	t.Helper()
	e, err := openpgp.NewEntity("a", "", "a@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	must.Succeed(t, err)
	return e
}

// export returns a private key, armored.
func export(t *testing.T, e *openpgp.Entity, private bool) string {
	t.Helper()
	var out bytes.Buffer
	kind := openpgp.PublicKeyType
	if private {
		kind = openpgp.PrivateKeyType
	}
	w, err := pgparmor.Encode(&out, kind, nil)
	must.Succeed(t, err)
	if private {
		must.Succeed(t, e.SerializePrivateWithoutSigning(w, nil))
	} else {
		must.Succeed(t, e.Serialize(w))
	}
	must.Succeed(t, w.Close())
	return out.String()
}

// forOpenPGP encrypts a data key for an OpenPGP key.
func forOpenPGP(t *testing.T, e *openpgp.Entity, dataKey []byte, compression packet.CompressionAlgo) masterkey.Key {
	t.Helper()
	var out bytes.Buffer
	armored, err := pgparmor.Encode(&out, "PGP MESSAGE", nil)
	must.Succeed(t, err)
	w, err := openpgp.Encrypt(armored, []*openpgp.Entity{e}, nil, nil, &packet.Config{DefaultHash: crypto.SHA256, DefaultCompressionAlgo: compression})
	must.Succeed(t, err)
	_, err = io.Copy(w, bytes.NewReader(dataKey))
	must.Succeed(t, errors.Join(err, w.Close(), armored.Close()))
	return masterkey.Key{OpenPGP: &masterkey.OpenPGP{Fingerprint: "AB"}, Encrypted: out.String()}
}

// dataKey is the data key of the tests.
func dataKey() []byte { return bytes.Repeat([]byte("k"), masterkey.DataKeySize) }

// only returns a file with one key group.
func only(keys ...masterkey.Key) []masterkey.File {
	return []masterkey.File{{Name: "a.yaml", Groups: []masterkey.Group{keys}}}
}

// TestOwnKeys decrypts with the keys of a Secret.
func TestOwnKeys(t *testing.T) {
	id, pgp := identity(t), entity(t)
	hybrid, err := age.GenerateHybridIdentity()
	must.Succeed(t, err)
	keys, err := keyservice.ParseKeys(map[string][]byte{
		"a.agekey": []byte("# created: x\r\n# public key: y\r\n" + id.String() + " \r\n\r\n" + hybrid.String()),
		"b.asc":    []byte("\n\n" + strings.ReplaceAll(export(t, pgp, true), "\n", "\r\n") + "  \n"),
		"readme":   []byte("x"),
	})
	must.Succeed(t, err)
	for name, key := range map[string]masterkey.Key{
		"age": forAge(t, id.Recipient(), dataKey()), "age, post-quantum": forAge(t, hybrid.Recipient(), dataKey()),
		"OpenPGP": forOpenPGP(t, pgp, dataKey(), packet.CompressionNone), "OpenPGP, compressed": forOpenPGP(t, pgp, dataKey(), packet.CompressionZLIB),
	} {
		got, _, err := (&keyservice.Service{}).DataKeys(t.Context(), only(key), keyservice.Caller{Keys: keys})
		if err != nil || !bytes.Equal(got["a.yaml"], dataKey()) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestOracle tries to decrypt what is no data key. Nothing of it comes back.
func TestOracle(t *testing.T) {
	id, pgp := identity(t), entity(t)
	keys, err := keyservice.ParseKeys(map[string][]byte{"a.agekey": []byte(id.String()), "b.asc": []byte(export(t, pgp, true))})
	must.Succeed(t, err)
	for name, plain := range map[string][]byte{
		"a password": []byte("swordfish"), "one byte more": bytes.Repeat([]byte("s"), 33), "nothing": nil,
		"10 MiB": bytes.Repeat([]byte("s"), 10<<20), "64 bytes": bytes.Repeat([]byte("s"), 64),
	} {
		for _, key := range []masterkey.Key{forAge(t, id.Recipient(), plain), forOpenPGP(t, pgp, plain, packet.CompressionZLIB)} {
			got, _, err := (&keyservice.Service{}).DataKeys(t.Context(), only(key), keyservice.Caller{Keys: keys})
			if _, ok := errors.AsType[*keyservice.Error](err); !ok || len(got) > 0 || strings.Contains(err.Error(), "swordfish") {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
}

// TestLongDataKey refuses an encrypted data key that takes long to try.
func TestLongDataKey(t *testing.T) {
	id := identity(t)
	keys, err := keyservice.ParseKeys(map[string][]byte{"a.agekey": []byte(id.String())})
	must.Succeed(t, err)
	key := forAge(t, id.Recipient(), bytes.Repeat([]byte("k"), 32<<10))
	if _, _, err := (&keyservice.Service{}).DataKeys(t.Context(), only(key), keyservice.Caller{Keys: keys}); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("error %v", err)
	}
}

// TestParseKeysRefuses checks private keys that cannot be used. The errors name the key, and have
// nothing of it.
func TestParseKeysRefuses(t *testing.T) {
	id, pgp := identity(t), entity(t)
	locked := entity(t)
	must.Succeed(t, locked.EncryptPrivateKeys([]byte("passphrase"), nil))
	for name, c := range map[string]struct{ key, value, says string }{
		"a plugin":           {"a.agekey", "AGE-PLUGIN-YUBIKEY-1QQ", "plugin"},
		"a recipient":        {"a.agekey", id.Recipient().String(), "identity of age"},
		"a damaged identity": {"a.agekey", id.String()[:40], "identity of age"},
		"an SSH key":         {"a.agekey", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", "identity of age"},
		"a public key":       {"a.asc", export(t, pgp, false), "public key"},
		"a passphrase":       {"a.asc", export(t, locked, true), "passphrase"},
		"no armor":           {"a.asc", "AAAA", "no armored"},
		"no key":             {"identity.txt", id.String(), "no key that ends in"},
		"many keys":          {"a.agekey", strings.Repeat(id.String()+"\n", 33), "more than 32"},
	} {
		_, err := keyservice.ParseKeys(map[string][]byte{c.key: []byte(c.value)})
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), id.String()[:30]) || strings.Contains(err.Error(), "QQ") {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
