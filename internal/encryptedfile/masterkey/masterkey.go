// Package masterkey has the master keys of SOPS files: which keys can decrypt a file's data key.
//
// A file is read in a confined process, and its data key is decrypted elsewhere. The types of this
// package go from the first to the second as JSON. Source of all fields: SOPS, package stores.
package masterkey

import (
	"fmt"
	"strings"
)

// File has the master keys of one encrypted file.
type File struct {
	// Name is the file's path in the archive. If the file is a value in the data of a Secret, the
	// key of the value follows. Example: "apps/secret.yaml: data.tls.key".
	Name string `json:"name"`
	// Groups are the key groups. Each group decrypts a part of the data key. A single group
	// decrypts the whole data key.
	Groups []Group `json:"groups"`
	// Threshold is how many groups are needed, if there are several.
	Threshold int `json:"threshold,omitempty"`
}

// Group are master keys of which each decrypts the same part of a data key.
type Group []Key

// Key is a master key, with the data key that it encrypted. Exactly one of the pointers is set.
type Key struct {
	// Encrypted is the encrypted data key, as text: base64, or the armor of age and OpenPGP.
	Encrypted string `json:"enc"`

	AWS       *AWS       `json:"kms,omitempty"`
	Azure     *Azure     `json:"azure_kv,omitempty"`
	GCP       *GCP       `json:"gcp_kms,omitempty"`
	Vault     *Vault     `json:"hc_vault,omitempty"`
	Age       *Age       `json:"age,omitempty"`
	OpenPGP   *OpenPGP   `json:"pgp,omitempty"`
	HuaweiKMS *HuaweiKMS `json:"hckms,omitempty"`
}

// AWS is a key of AWS KMS.
type AWS struct {
	// ARN is the key's or the alias's ARN.
	ARN string `json:"arn"`
	// Role and Profile say whose identity SOPS's own program would use.
	Role    string `json:"role,omitempty"`
	Profile string `json:"aws_profile,omitempty"`
	// Context is the encryption context.
	Context map[string]string `json:"context,omitempty"`
}

// Azure is a key of Azure Key Vault.
type Azure struct {
	// VaultURL is the vault's address, such as "https://tenant-a.vault.azure.net".
	VaultURL string `json:"vault_url"`
	// Name and Version are those of the key. An old file may have no version.
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// GCP is a key of Google Cloud KMS.
type GCP struct {
	// ResourceID is the key's name: "projects/…/locations/…/keyRings/…/cryptoKeys/…".
	ResourceID string `json:"resource_id"`
}

// Vault is a key of the transit engine of Vault or OpenBao.
type Vault struct {
	Address    string `json:"vault_address"`
	EnginePath string `json:"engine_path"`
	KeyName    string `json:"key_name"`
}

// Age is a recipient of age.
type Age struct {
	Recipient string `json:"recipient"`
}

// OpenPGP is the fingerprint of an OpenPGP key.
type OpenPGP struct {
	Fingerprint string `json:"fp"`
}

// HuaweiKMS is a key of Huawei Cloud KMS.
type HuaweiKMS struct {
	ID string `json:"key_id"`
}

// Bounds of the keys of one file. An honest file has a few keys.
const (
	maxGroups = 16
	maxKeys   = 64
	// maxEncrypted is in bytes. A data key that AWS KMS encrypted has 250 bytes in base64. One for a
	// post-quantum recipient of age has 3 KB.
	maxEncrypted = 64 << 10
	maxReference = 2 << 10
	// maxName is longer than the names of files in an archive.
	maxName    = 8 << 10
	maxContext = 32
)

// Check refuses a file that has no keys, too many keys, or keys that are too long. The error names
// the part that is wrong, and has nothing of the file's content.
func (f File) Check() error {
	keys := 0
	switch {
	case f.Name == "" || len(f.Name) > maxName:
		return fmt.Errorf("it has no name, or a name with more than %d bytes", maxName)
	case len(f.Groups) == 0:
		return fmt.Errorf("it has no keys")
	case len(f.Groups) > maxGroups:
		return fmt.Errorf("it has %d key groups, and %d are allowed", len(f.Groups), maxGroups)
	case len(f.Groups) > 1 && (f.Threshold < 2 || f.Threshold > len(f.Groups)):
		return fmt.Errorf("its shamir_threshold is %d, which is not between 2 and its %d key groups", f.Threshold, len(f.Groups))
	}
	for i, group := range f.Groups {
		if len(group) == 0 {
			return fmt.Errorf("its key group %d has no keys", i+1)
		}
		if keys += len(group); keys > maxKeys {
			return fmt.Errorf("it has more than %d keys", maxKeys)
		}
		for _, key := range group {
			if err := key.check(); err != nil {
				return fmt.Errorf("key group %d: %w", i+1, err)
			}
		}
	}
	return nil
}

// check refuses a key with a field that is too long.
func (k Key) check() error {
	length, kinds := 0, 0
	add := func(texts ...string) {
		kinds++
		length = len(strings.Join(texts, ""))
	}
	if k.AWS != nil {
		add(k.AWS.ARN, k.AWS.Role, k.AWS.Profile)
		for name, value := range k.AWS.Context {
			length += len(name) + len(value)
		}
		if len(k.AWS.Context) > maxContext {
			return fmt.Errorf("the encryption context of a key has more than %d entries", maxContext)
		}
	}
	if k.Azure != nil {
		add(k.Azure.VaultURL, k.Azure.Name, k.Azure.Version)
	}
	if k.GCP != nil {
		add(k.GCP.ResourceID)
	}
	if k.Vault != nil {
		add(k.Vault.Address, k.Vault.EnginePath, k.Vault.KeyName)
	}
	if k.Age != nil {
		add(k.Age.Recipient)
	}
	if k.OpenPGP != nil {
		add(k.OpenPGP.Fingerprint)
	}
	if k.HuaweiKMS != nil {
		add(k.HuaweiKMS.ID)
	}
	switch {
	case kinds != 1:
		return fmt.Errorf("a key has %d types", kinds)
	case length > maxReference:
		return fmt.Errorf("the name of a key has more than %d bytes", maxReference)
	case len(k.Encrypted) > maxEncrypted:
		return fmt.Errorf("the encrypted data key has more than %d bytes", maxEncrypted)
	}
	return nil
}

// Lengths of a data key, and of a part of a data key, in bytes. A part has one byte more: its x
// coordinate. Source: SOPS, packages sops and shamir.
const (
	DataKeySize = 32
	partSize    = DataKeySize + 1
)

// PartSize returns the length of what each key of the file decrypts, in bytes.
func (f File) PartSize() int {
	if len(f.Groups) > 1 {
		return partSize
	}
	return DataKeySize
}

// String returns the key's type and name, for messages.
func (k Key) String() string {
	switch {
	case k.AWS != nil:
		return "AWS KMS key " + printable(k.AWS.ARN)
	case k.Azure != nil:
		return "Azure Key Vault key " + printable(strings.TrimSuffix(k.Azure.VaultURL, "/")+"/keys/"+k.Azure.Name+"/"+k.Azure.Version)
	case k.GCP != nil:
		return "Google Cloud KMS key " + printable(k.GCP.ResourceID)
	case k.Vault != nil:
		return "Vault key " + printable(k.Vault.Address+"/v1/"+k.Vault.EnginePath+"/keys/"+k.Vault.KeyName)
	case k.Age != nil:
		return "age recipient " + printable(k.Age.Recipient)
	case k.OpenPGP != nil:
		return "OpenPGP key " + printable(k.OpenPGP.Fingerprint)
	case k.HuaweiKMS != nil:
		return "Huawei Cloud KMS key " + printable(k.HuaweiKMS.ID)
	default:
		return "unknown key"
	}
}

// maxPrinted bounds a key's name in messages. Post-quantum recipients of age have 2,000 characters.
const maxPrinted = 160

// printable returns a text of one line, shortened.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if runes := []rune(text); len(runes) > maxPrinted {
		return string(runes[:maxPrinted]) + "…"
	}
	return text
}
