package kustomize

import (
	"bytes"
	"encoding/base64"
	"errors"
	"maps"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/kio"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
)

// maxEncryptedFiles bounds the encrypted files of a build. Each costs a call of a key service.
const maxEncryptedFiles = 1_000

// secrets are the encrypted files of a build. A nil *secrets decrypts nothing.
//
// kustomize never sees what was decrypted. It gets placeholders, which are replaced after the build,
// and only where a decrypted value may be.
type secrets struct {
	open     Open
	dataKeys map[string][]byte // by the names of files
	values   *placeholders
	uses     []use
	byName   map[string]target
	missing  []masterkey.File // files whose data keys are missing
}

// use is an encrypted file that the build uses, or a manifest that may have encrypted values.
type use struct {
	name string
	as   target
}

func newSecrets(d *decryption, open Open) *secrets {
	if d == nil {
		return nil
	}
	return &secrets{open: open, dataKeys: d.DataKeys, values: newPlaceholders(), byName: map[string]target{}}
}

// fixUse is the next step after a wrong use of an encrypted file.
const fixUse = "a decrypted file may be a resource, a patch of a Secret, or an input of a secretGenerator"

// refuse refuses a kustomization file that is encrypted.
func (s *secrets) refuse(name string, content []byte) error {
	if s == nil || !encryptedfile.Is(name, content) {
		return nil
	}
	return refused(name, "the kustomization file is encrypted", fixUse)
}

// use records that an entry of a kustomization file uses a file. It refuses an encrypted file if the
// entry would bring what was decrypted into an object other than a Secret.
func (s *secrets) use(place, name string, content []byte, as target) error {
	if s == nil {
		return nil
	}
	encrypted := encryptedfile.Is(name, content)
	switch as {
	case manifest, patch, patchFile:
		as = manifest
		if !encrypted && !bytes.Contains(content, []byte("Secret")) {
			return nil
		}
	case secretFile, secretEnv:
		if !encrypted {
			return nil
		}
	case plainFile, keyedFile, plugin, component:
		if encrypted {
			return refused(place, quote(name)+" is encrypted, and "+fieldOf(place)+" is not only for Secrets", fixUse)
		}
		return nil
	}
	before, known := s.byName[name]
	if known && before != as {
		return refused(place, quote(name)+" is encrypted, and is used in two ways: as manifests, as a file, or as variables",
			"use the file in one way, or copy the file")
	}
	if !known {
		s.byName[name] = as
		s.uses = append(s.uses, use{name, as})
	}
	return nil
}

// fieldOf returns the field of a place such as "apps/kustomization.yaml: configMapGenerator.files[0]".
func fieldOf(place string) string {
	_, field, _ := strings.Cut(place, ": ")
	field, _, _ = strings.Cut(field, "[")
	return field
}

// decrypt replaces the content of all encrypted files that the build uses. If data keys are missing,
// decrypt changes nothing, and records the files in the field missing.
func (s *secrets) decrypt(files *files) error {
	if s == nil {
		return nil
	}
	decrypted := map[string][]byte{}
	for _, use := range s.uses {
		content, err := s.replace(use, files.content[use.name])
		if err != nil {
			return err
		}
		if content != nil {
			decrypted[use.name] = content
		}
	}
	if len(s.missing) > 0 {
		return nil
	}
	maps.Copy(files.content, decrypted)
	return nil
}

// read parses an encrypted file.
func (s *secrets) read(label, name string, content []byte) (encryptedfile.File, error) {
	if s.open == nil {
		return nil, &encryptedfile.Error{Message: "the file is encrypted, and this program decrypts nothing", Fix: "leave the file out"}
	}
	return s.open(label, name, content)
}

// replace returns what kustomize reads instead of a file; nil for the file itself.
func (s *secrets) replace(use use, content []byte) ([]byte, error) {
	if !encryptedfile.Is(use.name, content) {
		return s.openValues(use.name, content)
	}
	file, err := s.read(use.name, use.name, content)
	if err != nil {
		return nil, decryptionError(use.name, err)
	}
	if use.as == manifest {
		if left, err := file.LeftEncrypted(); left || err != nil {
			return nil, decryptionError(use.name, err)
		}
	}
	if use.as == secretEnv && !file.HasPlainKeys() {
		// Otherwise a part of a secret file could become a name.
		return nil, decryptionFault(use.name, "the file has variables, and is not encrypted as dotenv", "encrypt the file as dotenv: sops encrypt --input-type dotenv --output-type dotenv")
	}
	plain, err := s.plain(use.name, file)
	if plain == nil || err != nil {
		return nil, err
	}
	if use.as == manifest {
		manifests, err := plain.Manifests(func(v encryptedfile.Value) string { return s.values.addManifest(s.dataKeys[use.name], v) })
		return manifests, decryptionError(use.name, err)
	}
	whole, err := plain.Content()
	if err != nil {
		return nil, decryptionError(use.name, err)
	}
	if use.as == secretEnv {
		return s.lines(use.name, whole)
	}
	return []byte(s.values.addContent(s.dataKeys[use.name], use.name, whole)), nil
}

// plain decrypts a file, and returns nil if its data key is missing.
func (s *secrets) plain(name string, file encryptedfile.File) (encryptedfile.Plain, error) {
	if key, found := s.dataKeys[name]; found {
		plain, err := file.Decrypt(key)
		if err != nil {
			return nil, decryptionError(name, err)
		}
		return plain, nil
	}
	keys, err := file.MasterKeys()
	if err != nil {
		return nil, decryptionError(name, err)
	}
	if len(s.missing) == maxEncryptedFiles {
		return nil, tooLarge("split the manifests between several Kustomizations", "the build uses more than %d encrypted files", maxEncryptedFiles)
	}
	s.missing = append(s.missing, keys)
	return nil, nil //nolint:nilnil // the caller asks for the data key
}

// lines replaces the values of a decrypted file with variables. kustomize reads such a file line by
// line: name, equals sign, value. Source: kustomize, package kv.
func (s *secrets) lines(name string, content []byte) ([]byte, error) {
	const fix = "write a line for each variable: name, equals sign, value; and encrypt the file with sops again"
	if !utf8.Valid(content) {
		return nil, decryptionFault(name, "the decrypted file is no text, so it has no variables", fix)
	}
	var hidden strings.Builder
	for line := range strings.Lines(strings.TrimPrefix(string(content), "\ufeff")) {
		line = strings.TrimLeftFunc(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), unicode.IsSpace)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		if !found || len(validation.IsConfigMapKey(key)) > 0 {
			return nil, decryptionFault(name, "the decrypted file has a line that is no variable", fix)
		}
		if value != "" {
			value = s.values.addContent(s.dataKeys[name], name+"\x00"+key, []byte(value))
		}
		hidden.WriteString(key + "=" + value + "\n")
	}
	return []byte(hidden.String()), nil
}

// openValues replaces values in the data of Secrets that are encrypted files themselves. It returns
// nil if there are none.
func (s *secrets) openValues(name string, content []byte) ([]byte, error) {
	if ext := path.Ext(name); ext != ".yaml" && ext != ".yml" && ext != ".json" {
		return nil, nil
	}
	nodes, err := kio.FromBytes(content)
	if err != nil {
		return nil, nil //nolint:nilerr // kustomize says what is wrong with the file
	}
	changed := false
	for _, node := range nodes {
		if node.GetApiVersion() != "v1" || node.GetKind() != "Secret" {
			continue
		}
		data, err := node.Pipe(yaml.Get("data"))
		if err != nil || data == nil || data.YNode().Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i+1 < len(data.Content()); i += 2 {
			key, value := data.Content()[i], data.Content()[i+1]
			hidden, err := s.openValue(clip(name+": Secret "+path.Join(node.GetNamespace(), node.GetName())+": data."+key.Value), key.Value, value.Value)
			if err != nil {
				return nil, err
			}
			if hidden != "" {
				value.SetString(hidden)
				changed = true
			}
		}
	}
	if !changed {
		return nil, nil
	}
	text, err := kio.StringAll(nodes)
	if err != nil {
		return nil, invalid(name, "the file cannot be written as YAML", "check the manifest with kustomize build")
	}
	return []byte(text), nil
}

// openValue returns what replaces a value in the data of a Secret; "" for the value itself.
func (s *secrets) openValue(name, key, value string) (string, error) {
	content, err := base64.StdEncoding.DecodeString(value)
	if err != nil || !encryptedfile.Is(key, content) {
		return "", nil //nolint:nilerr // not every value is an encrypted file
	}
	file, err := s.read(name, key, content)
	if err != nil {
		return "", decryptionError(name, err)
	}
	plain, err := s.plain(name, file)
	if plain == nil || err != nil {
		return "", err
	}
	whole, err := plain.Content()
	if err != nil {
		return "", decryptionError(name, err)
	}
	token := s.values.addContent(s.dataKeys[name], name, whole)
	return base64.StdEncoding.EncodeToString([]byte(token)), nil
}

// decryptionError converts an error of package encryptedfile; nil for nil.
func decryptionError(name string, err error) error {
	if err == nil {
		return nil
	}
	if failure, ok := errors.AsType[*encryptedfile.Error](err); ok {
		return decryptionFault(name, failure.Message, failure.Fix)
	}
	return decryptionFault(name, "the file cannot be decrypted", "encrypt the file again with sops")
}

// decryptionFault returns an error about an encrypted file.
func decryptionFault(name, message, fix string) *Error {
	return &Error{Reason: ReasonDecryption, Place: name, Message: message, Fix: fix}
}

// finish returns an object with its decrypted values. It refuses an object that is still encrypted.
// The report gets the names of Secrets of which no value was encrypted.
func (s *secrets) finish(place string, object *resource.Resource, content []byte, substitute *Substitute, report *report) ([]byte, error) {
	if isStillEncrypted(object) || s != nil && hasEncryptedValue(object) {
		message, fix := "the Secret is encrypted with SOPS, and spec.decryption is not set", "set spec.decryption"
		if s != nil {
			message, fix = "the Secret is still encrypted", "use the encrypted file as a resource, a patch, or an input of a secretGenerator in a kustomization file"
		}
		return nil, decryptionFault(place, message, fix)
	}
	if s == nil {
		return content, nil
	}
	text := func(text string) (string, *Error) { return text, nil }
	if substitute.applies(object) {
		text = substitute.text
	}
	content, found, failure := s.values.resolve(place, content, text)
	if failure != nil {
		return nil, failure
	}
	if !found && isSecret(object) && (len(object.GetDataMap()) > 0 || object.Field("stringData") != nil) {
		report.UnencryptedCount++
		if len(report.Unencrypted) < maxUnencrypted {
			report.Unencrypted = append(report.Unencrypted, place)
		}
	}
	return content, nil
}

func isSecret(object *resource.Resource) bool {
	return object.GetApiVersion() == "v1" && object.GetKind() == "Secret"
}

// hasEncryptedValue reports whether a value in the data of a Secret is an encrypted file.
func hasEncryptedValue(object *resource.Resource) bool {
	if !isSecret(object) || staysEncrypted(object) {
		return false
	}
	for key, value := range object.GetDataMap() {
		content, err := base64.StdEncoding.DecodeString(value)
		if err == nil && encryptedfile.Is(key, content) {
			return true
		}
	}
	return false
}

// staysEncrypted reports whether an object says that it stays encrypted.
func staysEncrypted(object *resource.Resource) bool {
	return encryptedfile.StaysEncrypted(object.GetLabels()) || encryptedfile.StaysEncrypted(object.GetAnnotations())
}

// isStillEncrypted reports whether a Secret has the metadata of SOPS, and does not say that it stays
// encrypted.
func isStillEncrypted(object *resource.Resource) bool {
	return isSecret(object) && object.Field("sops") != nil && !staysEncrypted(object)
}
