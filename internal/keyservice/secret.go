package keyservice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"
	"github.com/ProtonMail/go-crypto/openpgp"
	pgparmor "github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
)

// Keys are the private keys of a tenant's Secret.
type Keys struct {
	age     []age.Identity
	openPGP openpgp.EntityList
}

// Suffixes of the keys of a Secret. Source: Flux's Kustomization API, "Decryption".
const (
	ageSuffix     = ".agekey"
	openPGPSuffix = ".asc"
)

// maxOwnKeys bounds the keys of a Secret. Each is tried with each recipient of a file.
const maxOwnKeys = 32

// maxArmor bounds an encrypted data key of age and OpenPGP, in bytes. One recipient of age needs 400
// bytes, and a post-quantum one 2,500.
const maxArmor = 16 << 10

// KeyFileError says that a Secret has a private key that cannot be used. It has nothing of the key.
type KeyFileError struct {
	// Key is the key of the Secret's data.
	Key string
	// Message says what is wrong.
	Message string
}

// Error implements error.
func (e *KeyFileError) Error() string { return fmt.Sprintf("%.253q: %s", e.Key, e.Message) }

// ParseKeys reads the private keys in the data of a Secret: identities of age in keys that end in
// .agekey, and armored OpenPGP keys in keys that end in .asc. An error is a [*KeyFileError].
func ParseKeys(data map[string][]byte) (*Keys, error) {
	keys := &Keys{}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		var err error
		switch path.Ext(name) {
		case ageSuffix:
			err = keys.addAge(data[name])
		case openPGPSuffix:
			err = keys.addOpenPGP(data[name])
		}
		if err != nil {
			return nil, &KeyFileError{Key: name, Message: err.Error()}
		}
	}
	if len(keys.age) > maxOwnKeys || len(keys.openPGP) > maxOwnKeys {
		return nil, &KeyFileError{Key: "data", Message: fmt.Sprintf("the Secret has more than %d keys of a type", maxOwnKeys)}
	}
	if len(keys.age) == 0 && len(keys.openPGP) == 0 {
		return nil, &KeyFileError{Key: "data", Message: "the Secret has no key that ends in " + ageSuffix + " or " + openPGPSuffix}
	}
	return keys, nil
}

// addAge reads identities of age: one in each line. Plugins would be programs, so their identities
// are refused.
func (k *Keys) addAge(text []byte) error {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "AGE-PLUGIN-") {
			return errors.New("it has an identity of a plugin, and plugins are not run; use an identity that age-keygen makes")
		}
		identities, err := age.ParseIdentities(strings.NewReader(line))
		if err != nil {
			return errors.New("it has a line that is no identity of age (AGE-SECRET-KEY-1… or AGE-SECRET-KEY-PQ-1…)")
		}
		k.age = append(k.age, identities...)
	}
	return nil
}

// addOpenPGP reads armored OpenPGP keys.
func (k *Keys) addOpenPGP(text []byte) error {
	entities, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(bytes.TrimSpace(text)))
	if err != nil {
		return errors.New("it is no armored OpenPGP key; export the key with gpg --export-secret-keys --armor")
	}
	for _, entity := range entities {
		if entity.PrivateKey == nil {
			return errors.New("it is a public key; export the private key with gpg --export-secret-keys --armor")
		}
		if entity.PrivateKey.Encrypted {
			return errors.New("the key has a passphrase; remove the passphrase with gpg --edit-key, and export the key again")
		}
	}
	k.openPGP = append(k.openPGP, entities...)
	return nil
}

// maxPlain is how much is read of what a key decrypts, in bytes. A data key is shorter.
const maxPlain = 64

// decryptAge decrypts an encrypted data key with an identity of age.
func (k *Keys) decryptAge(key masterkey.Key) ([]byte, error) {
	if k == nil || len(k.age) == 0 {
		return nil, errors.New("spec.decryption.secretRef names no Secret with an identity of age (a key that ends in .agekey)")
	}
	if len(key.Encrypted) > maxArmor {
		return nil, errors.New("the encrypted data key is too long")
	}
	plain, err := age.Decrypt(armor.NewReader(strings.NewReader(key.Encrypted)), k.age...)
	if err != nil {
		return nil, errors.New("no identity in the Secret decrypts it: add the right one, or encrypt the file for one that the Secret has")
	}
	part, err := io.ReadAll(io.LimitReader(plain, maxPlain))
	if err != nil {
		return nil, errors.New("the encrypted data key is damaged")
	}
	return part, nil
}

// decryptOpenPGP decrypts an encrypted data key with an OpenPGP key.
func (k *Keys) decryptOpenPGP(key masterkey.Key) ([]byte, error) {
	if k == nil || len(k.openPGP) == 0 {
		return nil, errors.New("spec.decryption.secretRef names no Secret with an OpenPGP key (a key that ends in .asc)")
	}
	if len(key.Encrypted) > maxArmor {
		return nil, errors.New("the encrypted data key is too long")
	}
	block, err := pgparmor.Decode(strings.NewReader(key.Encrypted))
	if err != nil {
		return nil, errors.New("the encrypted data key is no armored OpenPGP message")
	}
	bound := int64(maxPlain)
	message, err := openpgp.ReadMessage(block.Body, k.openPGP, nil, &packet.Config{MaxDecompressedMessageSize: &bound})
	if err != nil {
		return nil, errors.New("no OpenPGP key in the Secret decrypts it: add the right one, or encrypt the file for one that the Secret has")
	}
	part, err := io.ReadAll(io.LimitReader(message.UnverifiedBody, maxPlain))
	if err != nil {
		return nil, errors.New("the encrypted data key is damaged")
	}
	return part, nil
}
