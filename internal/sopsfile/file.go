package sopsfile

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/getsops/sops/v3"
	sopsaes "github.com/getsops/sops/v3/aes"
	"github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/azkv"
	"github.com/getsops/sops/v3/gcpkms"
	"github.com/getsops/sops/v3/hckms"
	"github.com/getsops/sops/v3/hcvault"
	"github.com/getsops/sops/v3/keys"
	"github.com/getsops/sops/v3/kms"
	"github.com/getsops/sops/v3/logging"
	"github.com/getsops/sops/v3/pgp"
	"github.com/getsops/sops/v3/stores"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
)

// maxSize bounds an encrypted file, in bytes. Source: Flux's kustomize-controller has the same bound.
const maxSize = 5 << 20

// File is an encrypted file.
type File struct {
	label   string
	content []byte
	format  encryptedfile.Format
	tree    sops.Tree // still encrypted
}

// Load parses an encrypted file. The label is the file's name in [File.MasterKeys]. The name says which
// format the file may have had, where the content leaves it open. An error is an [*encryptedfile.Error].
func Load(label, name string, content []byte) (*File, error) {
	f := &File{label: label, content: content, format: encryptedfile.FormatOf(name, content)}
	switch {
	case f.format == "":
		return nil, &encryptedfile.Error{Message: "the file is not encrypted with SOPS", Fix: "encrypt the file with sops"}
	case len(content) > maxSize:
		return nil, &encryptedfile.Error{Message: fmt.Sprintf("the encrypted file has more than %d MiB", maxSize>>20), Fix: "split the file"}
	}
	silenceLibrary()
	var err error
	if f.tree, err = f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// Open is like [Load], for programs that know only package encryptedfile.
func Open(label, name string, content []byte) (encryptedfile.File, error) {
	f, err := Load(label, name, content)
	if err != nil {
		return nil, err
	}
	return opened{f}, nil
}

// opened is a File with the result type of encryptedfile.File.
type opened struct{ *File }

// Decrypt implements encryptedfile.File.
func (o opened) Decrypt(dataKey []byte) (encryptedfile.Plain, error) {
	plain, err := o.File.Decrypt(dataKey)
	if err != nil {
		return nil, err
	}
	return plain, nil
}

// load parses the file once more, because decryption changes the values of a tree.
func (f *File) load() (tree sops.Tree, err error) {
	err = guard("the file is no valid "+string(f.format)+" of SOPS", func() error {
		if f.format == encryptedfile.YAML {
			if err := checkDocuments(f.content); err != nil {
				return err
			}
		}
		tree, err = storeOf(f.format).LoadEncryptedFile(f.content)
		return err
	})
	return tree, err
}

// checkDocuments refuses a YAML file whose documents were not encrypted together. SOPS would use the
// metadata of the first document for all documents.
func checkDocuments(content []byte) error {
	branches, err := storeOf(encryptedfile.YAML).LoadPlainFile(content)
	if err != nil {
		return err
	}
	var first any
	for i, branch := range branches {
		if len(branch) == 0 {
			continue // nothing is between two separators
		}
		metadata, _ := valueOf(branch, stores.SopsMetadataKey).(sops.TreeBranch)
		mac := valueOf(metadata, "mac")
		if i == 0 {
			first = mac
		}
		if mac == nil || mac != first {
			return &encryptedfile.Error{Message: "the documents of the file were not encrypted together", Fix: fixSplit}
		}
	}
	return nil
}

// valueOf returns the first value with a key, or nil.
func valueOf(branch sops.TreeBranch, key string) any {
	for _, item := range branch {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

// MasterKeys returns the keys that can decrypt the file's data key. An error is an [*encryptedfile.Error].
func (f *File) MasterKeys() (masterkey.File, error) {
	file := masterkey.File{Name: f.label, Threshold: f.tree.Metadata.ShamirThreshold}
	if len(f.tree.Metadata.KeyGroups) == 1 {
		file.Threshold = 0 // has no meaning
	}
	for _, group := range f.tree.Metadata.KeyGroups {
		own := masterkey.Group{}
		for _, key := range group {
			own = append(own, convert(key))
		}
		file.Groups = append(file.Groups, own)
	}
	if err := file.Check(); err != nil {
		return masterkey.File{}, &encryptedfile.Error{Message: err.Error(), Fix: "encrypt the file for fewer keys, with sops"}
	}
	return file, nil
}

// convert returns a key of SOPS's library in our own form.
func convert(key keys.MasterKey) masterkey.Key {
	own := masterkey.Key{Encrypted: string(key.EncryptedDataKey())}
	switch key := key.(type) {
	case *kms.MasterKey:
		context := map[string]string{}
		for name, value := range key.EncryptionContext {
			if value != nil {
				context[name] = *value
			}
		}
		own.AWS = &masterkey.AWS{ARN: key.Arn, Role: key.Role, Profile: key.AwsProfile, Context: context}
	case *azkv.MasterKey:
		own.Azure = &masterkey.Azure{VaultURL: key.VaultURL, Name: key.Name, Version: key.Version}
	case *gcpkms.MasterKey:
		own.GCP = &masterkey.GCP{ResourceID: key.ResourceID}
	case *hcvault.MasterKey:
		own.Vault = &masterkey.Vault{Address: key.VaultAddress, EnginePath: key.EnginePath, KeyName: key.KeyName}
	case *age.MasterKey:
		own.Age = &masterkey.Age{Recipient: key.Recipient}
	case *pgp.MasterKey:
		own.OpenPGP = &masterkey.OpenPGP{Fingerprint: key.Fingerprint}
	case *hckms.MasterKey:
		own.HuaweiKMS = &masterkey.HuaweiKMS{ID: key.KeyID}
	}
	return own
}

// Plain is a decrypted file whose MAC was right.
type Plain struct {
	file    *File
	dataKey []byte
	tree    sops.Tree // decrypted
}

// Decrypt decrypts the file, and checks its MAC. An error is an [*encryptedfile.Error].
func (f *File) Decrypt(dataKey []byte) (*Plain, error) {
	tree, err := f.load()
	if err != nil {
		return nil, err
	}
	cipher := sopsaes.NewCipher()
	var computed string
	err = guard("a value cannot be decrypted with the file's data key: the file was changed without sops", func() (err error) {
		computed, err = tree.Decrypt(dataKey, cipher)
		return err
	})
	if err != nil {
		return nil, err
	}
	var stored any
	err = guard("its MAC cannot be decrypted: the file was changed without sops", func() (err error) {
		stored, err = cipher.Decrypt(tree.Metadata.MessageAuthenticationCode, dataKey, tree.Metadata.LastModified.Format(time.RFC3339))
		return err
	})
	if err != nil {
		return nil, err
	}
	if stored != computed {
		return nil, &encryptedfile.Error{Message: "its MAC does not match its values: the file was changed without sops", Fix: fixEncrypt}
	}
	return &Plain{file: f, dataKey: dataKey, tree: tree}, nil
}

// Content returns the whole decrypted file, as the command "sops decrypt" writes it. An error is an
// [*encryptedfile.Error].
func (p *Plain) Content() (content []byte, err error) {
	err = guard("the decrypted file cannot be written as "+string(p.file.format), func() error {
		content, err = storeOf(p.file.format).EmitPlainFile(p.tree.Branches)
		return err
	})
	return content, err
}

// silenceLibrary makes SOPS's library write no logs. Its logs have content of files.
func silenceLibrary() {
	for _, logger := range logging.Loggers {
		logger.SetOutput(io.Discard)
	}
}

// hidingCipher decrypts values, and gives a placeholder for each.
type hidingCipher struct {
	cipher sopsaes.Cipher
	hide   func(path string, value any) any
}

// Decrypt implements sops.Cipher. The path is the keys above the value, each with a colon at its end.
func (c *hidingCipher) Decrypt(encrypted string, key []byte, path string) (any, error) {
	value, err := c.cipher.Decrypt(encrypted, key, path)
	if err != nil {
		return nil, err
	}
	switch text := value.(type) {
	case sops.Comment:
		return sops.Comment{}, nil // comments are not part of an object
	case []byte:
		value = string(text)
	}
	if value == "" {
		return "", nil
	}
	return c.hide(strings.TrimSuffix(path, ":"), value), nil
}

// Encrypt implements sops.Cipher.
func (*hidingCipher) Encrypt(any, []byte, string) (string, error) {
	return "", errors.New("this cipher only decrypts")
}

// HasPlainKeys reports whether the keys of all values can be read in the encrypted file, line by line.
func (f *File) HasPlainKeys() bool { return f.format == encryptedfile.Dotenv }
