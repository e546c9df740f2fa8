// Package sopstest encrypts files for tests, with SOPS's own library.
package sopstest

import (
	"crypto/rand"
	"path"
	"testing"
	"time"

	"github.com/getsops/sops/v3"
	sopsaes "github.com/getsops/sops/v3/aes"
	"github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/stores/dotenv"
	"github.com/getsops/sops/v3/stores/ini"
	"github.com/getsops/sops/v3/stores/json"
	"github.com/getsops/sops/v3/stores/yaml"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// Recipient is the age recipient in the files of [Encrypt]. Nobody has its identity.
const Recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

// Options say how to encrypt a file. The zero value is how SOPS encrypts without options.
type Options struct {
	// EncryptedRegex says which keys have encrypted values.
	EncryptedRegex string
	// MACOnlyEncrypted leaves unencrypted values out of the MAC.
	MACOnlyEncrypted bool
	// DataKey is used instead of a new one.
	DataKey []byte
	// KeyGroups are used instead of one group with the Recipient.
	KeyGroups []sops.KeyGroup
	// Threshold is the number of needed key groups.
	Threshold int
}

// Encrypt encrypts a file, in the format that SOPS chooses for the file's name. It returns the file
// and its data key. The file's encrypted data key is no valid one, unless there are KeyGroups.
func Encrypt(tb testing.TB, name, plain string, options Options) (encrypted, dataKey []byte) {
	tb.Helper()
	store := storeFor(name)
	branches, err := store.LoadPlainFile([]byte(plain))
	must.Succeed(tb, err)
	tree := sops.Tree{Branches: branches, Metadata: sops.Metadata{
		KeyGroups: options.KeyGroups, ShamirThreshold: options.Threshold, Version: "3.13.3",
		EncryptedRegex: options.EncryptedRegex, MACOnlyEncrypted: options.MACOnlyEncrypted, LastModified: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC),
	}}
	if options.EncryptedRegex == "" {
		tree.Metadata.UnencryptedSuffix = sops.DefaultUnencryptedSuffix
	}
	dataKey = options.DataKey
	if dataKey == nil {
		dataKey = make([]byte, 32)
		_, _ = rand.Read(dataKey) // never fails
	}
	if tree.Metadata.KeyGroups == nil {
		tree.Metadata.KeyGroups = []sops.KeyGroup{{&age.MasterKey{Recipient: Recipient, EncryptedKey: "-----BEGIN AGE ENCRYPTED FILE-----\n"}}}
	}
	cipher := sopsaes.NewCipher()
	mac, err := tree.Encrypt(dataKey, cipher)
	must.Succeed(tb, err)
	tree.Metadata.MessageAuthenticationCode, err = cipher.Encrypt(mac, dataKey, tree.Metadata.LastModified.Format(time.RFC3339))
	must.Succeed(tb, err)
	encrypted, err = store.EmitEncryptedFile(tree)
	must.Succeed(tb, err)
	return encrypted, dataKey
}

// storeFor returns the format that SOPS chooses for a file's name.
func storeFor(name string) sops.Store {
	switch path.Ext(name) {
	case ".yaml", ".yml":
		return yaml.NewStore(&config.YAMLStoreConfig{})
	case ".json":
		return json.NewStore(&config.JSONStoreConfig{Indent: -1})
	case ".env":
		return dotenv.NewStore(&config.DotenvStoreConfig{})
	case ".ini":
		return ini.NewStore(&config.INIStoreConfig{})
	default:
		return json.NewBinaryStore(&config.JSONBinaryStoreConfig{})
	}
}
