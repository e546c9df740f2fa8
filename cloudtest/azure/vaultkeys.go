package azure

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // RSA-OAEP is defined with SHA-1
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// minKeySize is the size of the smallest RSA key, in bits. Larger keys have 3072 or 4096 bits.
// Source: Microsoft Learn, "About keys".
const minKeySize = 2048

// recoverable is the number of days that a deleted key can be recovered.
const recoverable = 90

// The cryptographic operations of the local cloud, as a key's key_ops name them.
const (
	opEncrypt = "encrypt"
	opDecrypt = "decrypt"
)

// rsaOperations returns what an RSA key may be used for by default. The local cloud has no
// operations for signing and wrapping.
func rsaOperations() []string {
	return []string{opEncrypt, opDecrypt, "sign", "verify", "wrapKey", "unwrapKey"}
}

// vaultKey is immutable once stored; a change replaces it.
type vaultKey struct {
	name     string       // as the client wrote it that created the key
	versions []keyVersion // at least one, the current version last
	deleted  bool
}

// keyVersion is a version of a key. Its private key is made when it is first used.
type keyVersion struct {
	id         string
	private    func() *rsa.PrivateKey
	operations []string
	attributes keyAttributes
}

// keyAttributes are attributes of a version. Times are in seconds since 1970. Clients may set the
// first three. Source: Microsoft Learn, "Key types, algorithms, and operations", key attributes.
type keyAttributes struct {
	Enabled         *bool  `json:"enabled,omitempty"`
	NotBefore       *int64 `json:"nbf,omitempty"`
	Expires         *int64 `json:"exp,omitempty"`
	Created         int64  `json:"created,omitempty"`
	Updated         int64  `json:"updated,omitempty"`
	RecoveryLevel   string `json:"recoveryLevel,omitempty"`
	RecoverableDays int    `json:"recoverableDays,omitempty"`
}

// set returns the attributes after a client changed some of them.
func (a keyAttributes) set(sent keyAttributes, now time.Time) keyAttributes {
	a.Enabled, a.NotBefore, a.Expires = cmp.Or(sent.Enabled, a.Enabled), cmp.Or(sent.NotBefore, a.NotBefore), cmp.Or(sent.Expires, a.Expires)
	a.Updated = now.Unix()
	return a
}

func newKeyVersion(size int, operations []string, now time.Time) keyVersion {
	return keyVersion{
		id:         hex.EncodeToString(wire.Random(16)),
		private:    sync.OnceValue(func() *rsa.PrivateKey { return wire.Must(rsa.GenerateKey(rand.Reader, size)) }),
		operations: operations,
		attributes: keyAttributes{
			Enabled: new(true), Created: now.Unix(), Updated: now.Unix(),
			RecoveryLevel: "Recoverable+Purgeable", RecoverableDays: recoverable,
		},
	}
}

// version returns the index of a version, or -1. An empty ID means the current version.
func (k *vaultKey) version(id string) int {
	if id == "" {
		return len(k.versions) - 1
	}
	return slices.IndexFunc(k.versions, func(v keyVersion) bool { return v.id == strings.ToLower(id) })
}

// findKey returns the key of a call, and the index of its version. The caller holds the lock.
// Source: recorded answers in Azure/azure-sdk-for-js.
func (c *Cloud) findKey(call *keyCall) (*vaultKey, int, *service.Refusal) {
	key, i := c.keys[call.vault.keyID(call.name)], -1
	if key != nil && !key.deleted {
		i = key.version(call.version)
	}
	if i >= 0 {
		return key, i, nil
	}
	name := call.name
	if call.version != "" {
		name += "/" + printable(call.version)
	}
	return nil, 0, service.Refuse(http.StatusNotFound, "KeyNotFound", "A key with (name/id) "+name+" was not found in this key vault. "+
		"If you recently deleted this key you may be able to recover it using the correct recovery command. "+
		"For help resolving this issue, please see https://go.microsoft.com/fwlink/?linkid=2125182")
}

// keyBundle is the public part of a version of a key. Source: Azure REST API, "Keys", KeyBundle and
// DeletedKeyBundle.
type keyBundle struct {
	RecoveryID  string        `json:"recoveryId,omitempty"` // this and the next two: of a deleted key
	DeletedDate int64         `json:"deletedDate,omitempty"`
	PurgeDate   int64         `json:"scheduledPurgeDate,omitempty"`
	Key         jsonWebKey    `json:"key"`
	Attributes  keyAttributes `json:"attributes"`
}

type jsonWebKey struct {
	ID         string   `json:"kid"`
	Type       string   `json:"kty"`
	Operations []string `json:"key_ops"`
	N          string   `json:"n"`
	E          string   `json:"e"`
}

func (k *vaultKey) url(host string, version int) string {
	return "https://" + host + "/keys/" + k.name + "/" + k.versions[version].id
}

func (k *vaultKey) bundle(host string, version int) keyBundle {
	v, encode := k.versions[version], base64.RawURLEncoding.EncodeToString
	public := v.private().PublicKey
	return keyBundle{
		Key: jsonWebKey{
			ID: k.url(host, version), Type: "RSA", Operations: v.operations,
			N: encode(public.N.Bytes()), E: encode(big.NewInt(int64(public.E)).Bytes()),
		},
		Attributes: v.attributes,
	}
}

func checkKeyOperations(operations []string) *service.Refusal {
	for i, op := range operations {
		if !slices.Contains(rsaOperations(), op) || slices.Contains(operations[:i], op) {
			return badProperty("key_ops has an unknown operation, or one twice: " + printable(op))
		}
	}
	return nil
}

// createKey makes a key, or a new version of a key. Source: Azure REST API, "Create Key".
func (c *Cloud) createKey(call *keyCall) (any, *service.Refusal) {
	var sent struct {
		Type       string        `json:"kty"`
		Size       int           `json:"key_size"`
		Operations []string      `json:"key_ops"`
		Attributes keyAttributes `json:"attributes"`
	}
	if err := readJSON(call.Request, &sent); err != nil {
		return nil, badProperty(printable(err.Error()))
	}
	size := cmp.Or(sent.Size, minKeySize)
	if sent.Type != "RSA" || !slices.Contains([]int{minKeySize, 3072, 4096}, size) {
		return nil, badProperty("the local cloud has only RSA keys of 2048, 3072 and 4096 bits")
	}
	if no := checkKeyOperations(sent.Operations); no != nil {
		return nil, no
	}
	if len(sent.Operations) == 0 {
		sent.Operations = rsaOperations()
	}
	made := newKeyVersion(size, sent.Operations, call.Now)
	made.attributes = made.attributes.set(sent.Attributes, call.Now)
	_ = made.private() // takes long, so not under the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	id := call.vault.keyID(call.name)
	key := &vaultKey{name: call.name}
	if old := c.keys[id]; old != nil {
		if old.deleted {
			return nil, service.Refuse(http.StatusConflict, "Conflict", "Key "+old.name+" is currently in a deleted but recoverable state, "+
				"and its name cannot be reused; in this state, the key can only be recovered or purged.").With("ObjectIsDeletedButRecoverable")
		}
		key.name, key.versions = old.name, slices.Clone(old.versions)
	}
	key.versions = append(key.versions, made)
	c.keys[id] = key
	return key.bundle(call.vault.host, len(key.versions)-1), nil
}

// getKey returns a key's public part, even if the key is disabled. Source: Azure REST API, "Get
// Key"; notaryproject/ratify#1474 (disabled keys).
func (c *Cloud) getKey(call *keyCall) (any, *service.Refusal) {
	c.mu.RLock()
	key, i, no := c.findKey(call)
	c.mu.RUnlock()
	if no != nil {
		return nil, no
	}
	return key.bundle(call.vault.host, i), nil
}

// updateKey changes the attributes or the operations of a version. Source: Azure REST API, "Update
// Key".
func (c *Cloud) updateKey(call *keyCall) (any, *service.Refusal) {
	var sent struct {
		Operations []string      `json:"key_ops"`
		Attributes keyAttributes `json:"attributes"`
	}
	if err := readJSON(call.Request, &sent); err != nil {
		return nil, badProperty(printable(err.Error()))
	}
	if no := checkKeyOperations(sent.Operations); no != nil {
		return nil, no
	}
	key, i, no := c.changeKey(call, func(key *vaultKey, i int) {
		version := &key.versions[i]
		version.attributes = version.attributes.set(sent.Attributes, call.Now)
		if sent.Operations != nil {
			version.operations = sent.Operations
		}
	})
	if no != nil {
		return nil, no
	}
	return key.bundle(call.vault.host, i), nil
}

// deleteKey makes all versions of a key unusable. Source: Azure REST API, "Delete Key".
func (c *Cloud) deleteKey(call *keyCall) (any, *service.Refusal) {
	key, i, no := c.changeKey(call, func(key *vaultKey, _ int) { key.deleted = true })
	if no != nil {
		return nil, no
	}
	out := key.bundle(call.vault.host, i)
	out.RecoveryID = "https://" + call.vault.host + "/deletedkeys/" + key.name
	out.DeletedDate, out.PurgeDate = call.Now.Unix(), call.Now.AddDate(0, 0, recoverable).Unix()
	return out, nil
}

// changeKey stores a copy of a call's key that a function changed. It returns the copy and the
// index of the call's version.
func (c *Cloud) changeKey(call *keyCall, change func(*vaultKey, int)) (*vaultKey, int, *service.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, i, no := c.findKey(call)
	if no != nil {
		return nil, 0, no
	}
	changed := *key
	changed.versions = slices.Clone(key.versions)
	change(&changed, i)
	c.keys[call.vault.keyID(call.name)] = &changed
	return &changed, i, nil
}

// keyResult is the answer of encrypt and decrypt.
type keyResult struct {
	ID    string `json:"kid"`
	Value string `json:"value"` // base64url without padding
}

// encrypt encrypts a text with the public key. Source: Azure REST API, "Encrypt".
func (c *Cloud) encrypt(call *keyCall) (any, *service.Refusal) {
	return c.crypt(call, opEncrypt, func(private *rsa.PrivateKey, h hash.Hash, plain []byte) ([]byte, *service.Refusal) {
		sealed, err := rsa.EncryptOAEP(h, rand.Reader, &private.PublicKey, plain, nil)
		if err != nil {
			return nil, badProperty(err.Error())
		}
		return sealed, nil
	})
}

// decrypt decrypts a text with the private key. Sources: Azure REST API, "Decrypt"; issue
// MicrosoftDocs/azure-docs#39976 (the message).
func (c *Cloud) decrypt(call *keyCall) (any, *service.Refusal) {
	return c.crypt(call, opDecrypt, func(private *rsa.PrivateKey, h hash.Hash, sealed []byte) ([]byte, *service.Refusal) {
		plain, err := rsa.DecryptOAEP(h, nil, private, sealed, nil)
		if err != nil {
			return nil, service.Refuse(http.StatusBadRequest, "BadParameter", "Error occurred while decoding OAEP padding.")
		}
		return plain, nil
	})
}

// crypt does a cryptographic operation. Source for the message about base64url: issue
// bruj0/vault-recovery-key#20.
func (c *Cloud) crypt(
	call *keyCall, op string, do func(*rsa.PrivateKey, hash.Hash, []byte) ([]byte, *service.Refusal),
) (any, *service.Refusal) {
	var sent struct {
		Algorithm string `json:"alg"`
		Value     string `json:"value"`
	}
	if err := readJSON(call.Request, &sent); err != nil {
		return nil, badProperty(printable(err.Error()))
	}
	var h hash.Hash
	switch sent.Algorithm {
	case "RSA-OAEP":
		h = sha1.New() //nolint:gosec // RSA-OAEP is defined with SHA-1
	case "RSA-OAEP-256":
		h = sha256.New()
	default:
		return nil, badProperty("the local cloud has no algorithm " + printable(sent.Algorithm))
	}
	value, err := base64.RawURLEncoding.DecodeString(sent.Value)
	switch {
	case sent.Value == "":
		return nil, service.Refuse(http.StatusBadRequest, "BadParameter", "Property 'value' is required.\r\n")
	case err != nil:
		return nil, service.Refuse(http.StatusBadRequest, "BadParameter",
			"Content of 'value' is not base64url.\r\nProperty 'value' is required.\r\n")
	}
	c.mu.RLock()
	key, i, no := c.findKey(call)
	c.mu.RUnlock()
	if no != nil {
		return nil, no
	}
	version := key.versions[i]
	if no := version.usable(op, call.Now.Unix()); no != nil {
		return nil, no
	}
	result, no := do(version.private(), h, value)
	if no != nil {
		return nil, no
	}
	return keyResult{key.url(call.vault.host, i), base64.RawURLEncoding.EncodeToString(result)}, nil
}

// usable refuses an operation for which a version must not be used now. A version outside its time
// still decrypts. Sources: Microsoft Learn, "Key types, algorithms, and operations", date-time
// controlled operations; Azure/azure-sdk-for-python#45342 (disabled keys) and
// Azure/azure-sdk-for-net#11518 (forbidden operations). The texts about time are not documented.
func (v keyVersion) usable(op string, now int64) *service.Refusal {
	a := v.attributes
	refuse := func(rest, inner string) *service.Refusal {
		return service.Refuse(http.StatusForbidden, "Forbidden", "Operation "+op+" is not "+rest).With(inner)
	}
	switch {
	case !*a.Enabled:
		return refuse("allowed on a disabled key.", "KeyDisabled")
	case !slices.Contains(v.operations, op):
		return refuse("permitted on this key.", "KeyOperationForbidden")
	case op == opDecrypt:
		return nil
	case a.NotBefore != nil && now < *a.NotBefore:
		return refuse("allowed on a key that is not yet valid.", "KeyNotYetValid")
	case a.Expires != nil && now >= *a.Expires:
		return refuse("allowed on an expired key.", "KeyExpired")
	}
	return nil
}
