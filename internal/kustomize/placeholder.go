package kustomize

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile"
)

// placeholders stand for decrypted values while kustomize runs. So nothing that kustomize does can
// bring a decrypted value, or a part of it, to another place: no replacement, patch, variable, error
// message, or comparison of a patch. After the build, each placeholder must stand whole where its
// value may be. There, [placeholders.resolve] replaces it.
type placeholders struct {
	known map[string]*hidden
}

// hidden is a decrypted value.
type hidden struct {
	plain any
	// content says that the value is a file, or a line of a file, which becomes a value in the data
	// of a Secret.
	content bool
	// path, apiVersion and kind say where a value of another manifest may be. They are empty for the
	// data of Secrets.
	path, apiVersion, kind string
	// left is how often the placeholder may stand in an object of this kind: as often as the file
	// has it.
	left int
}

const (
	// tokenPrefix begins each placeholder. A placeholder has only lower-case letters and digits: the
	// usual delimiters of replacements do not split it, and it is a valid label.
	tokenPrefix = "lanyardplaceholder"
	tokenLength = len(tokenPrefix) + 40
)

func newPlaceholders() *placeholders { return &placeholders{known: map[string]*hidden{}} }

// add remembers a value, and returns its placeholder. The same value and type at the same place have the
// same placeholder in each build, because kustomize computes names of Secrets from their content. The
// placeholder says nothing about the value to somebody who does not have the data key.
func (p *placeholders) add(dataKey []byte, value hidden, place ...string) string {
	sum := hmac.New(sha256.New, dataKey)
	for _, text := range append([]string{"placeholder", fmt.Sprintf("%T:%v", value.plain, value.plain)}, place...) {
		_, _ = fmt.Fprintf(sum, "%d:%s", len(text), text) // never fails; source: hash.Hash
	}
	token := tokenPrefix + hex.EncodeToString(sum.Sum(nil))[:tokenLength-len(tokenPrefix)]
	if known := p.known[token]; known != nil {
		known.left++
		return token
	}
	value.left = 1
	p.known[token] = &value
	return token
}

// addContent remembers the content of a file or a line.
func (p *placeholders) addContent(dataKey []byte, place string, content []byte) string {
	return p.add(dataKey, hidden{plain: string(content), content: true}, place)
}

// addManifest remembers a value of a manifest.
func (p *placeholders) addManifest(dataKey []byte, v encryptedfile.Value) string {
	value := hidden{plain: v.Plain}
	place := []string{v.APIVersion, v.Kind, v.Path}
	list := v.Kind == "List" || v.Kind == "SecretList"
	if list {
		v.APIVersion, v.Kind, v.Path = "v1", "Secret", strings.TrimPrefix(v.Path, "items:")
	}
	isData := strings.HasPrefix(v.Path, "data:") || strings.HasPrefix(v.Path, "stringData:")
	if v.APIVersion != "v1" || v.Kind != "Secret" || !isData {
		value.path, value.apiVersion, value.kind = v.Path, v.APIVersion, v.Kind
	}
	return p.add(dataKey, value, place...)
}

// groupOf returns the API group of an apiVersion.
func groupOf(apiVersion string) string {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		return ""
	}
	return group
}

// resolver replaces the placeholders of one object.
type resolver struct {
	*placeholders

	place            string
	apiVersion, kind string
	// substitute replaces variables in a decrypted text.
	substitute func(text string) (string, *Error)
	found      bool // the object has a decrypted value
}

// resolve replaces the placeholders of an object in JSON. It refuses an object that has a placeholder
// where its value may not be. It reports whether the object has decrypted values.
func (p *placeholders) resolve(place string, object []byte, substitute func(string) (string, *Error)) (resolved []byte, found bool, failure *Error) {
	if len(p.known) == 0 {
		return object, false, nil
	}
	var content map[string]any
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	if decoder.Decode(&content) != nil {
		return nil, false, invalid(place, "the object cannot be read as JSON", "check the manifest with kustomize build")
	}
	r := &resolver{placeholders: p, place: place, substitute: substitute}
	r.apiVersion, _ = content["apiVersion"].(string)
	r.kind, _ = content["kind"].(string)
	if failure := r.object(nil, content); failure != nil || !r.found {
		return object, r.found, failure
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(content) != nil {
		return nil, false, invalid(place, "the object cannot be written as JSON", "check the manifest with kustomize build")
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), true, nil
}

// object replaces the placeholders below a map. The path are the keys above it.
func (r *resolver) object(path []string, content map[string]any) *Error {
	for _, key := range slices.Sorted(maps.Keys(content)) {
		if strings.Contains(key, tokenPrefix) {
			return r.misplaced(path, "a name of a field")
		}
		value, failure := r.value(append(slices.Clip(path), key), content[key])
		if failure != nil {
			return failure
		}
		content[key] = value
	}
	return nil
}

// value returns a value with its placeholders replaced.
func (r *resolver) value(path []string, value any) (any, *Error) {
	switch value := value.(type) {
	case map[string]any:
		return value, r.object(path, value)
	case []any:
		for i := range value {
			replaced, failure := r.value(path, value[i])
			if failure != nil {
				return nil, failure
			}
			value[i] = replaced
		}
		return value, nil
	case string:
		return r.text(path, value)
	default:
		return value, nil
	}
}

// text returns a text, or the value for which the text stands.
func (r *resolver) text(path []string, text string) (any, *Error) {
	inSecret := r.apiVersion == "v1" && r.kind == "Secret" && len(path) == 2
	inData, inStringData := inSecret && path[0] == "data", inSecret && path[0] == "stringData"
	if value := r.known[text]; value != nil && !value.content {
		switch {
		case value.path == "" && inData, value.path == "" && inStringData:
			return r.ofSecret(path, value, inStringData)
		case value.path != "" && value.left > 0 && r.kind == value.kind && groupOf(r.apiVersion) == groupOf(value.apiVersion) && strings.Join(path, ":") == value.path:
			value.left--
			return r.plain(path, value.plain, true)
		}
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err == nil && inData {
		if value := r.known[string(decoded)]; value != nil && value.content {
			r.found = true
			return base64.StdEncoding.EncodeToString([]byte(value.plain.(string))), nil //nolint:forcetypeassert // addContent
		}
	}
	if strings.Contains(text, tokenPrefix) || err == nil && bytes.Contains(decoded, []byte(tokenPrefix)) {
		return nil, r.misplaced(path, "a value")
	}
	return text, nil
}

// ofSecret returns a value for data or stringData of a Secret, which have only texts.
func (r *resolver) ofSecret(path []string, value *hidden, inStringData bool) (any, *Error) {
	text, isText := value.plain.(string)
	if !isText {
		return nil, r.fault(path, "the decrypted value is no text", "put the value in quotation marks, and encrypt the file with sops again")
	}
	if _, err := base64.StdEncoding.DecodeString(text); err != nil && !inStringData {
		return nil, r.fault(path, "the decrypted value is not base64", "move the value to stringData, or encode it, and encrypt the file with sops again")
	}
	return r.plain(path, text, inStringData)
}

// plain returns a decrypted value as a value of JSON.
func (r *resolver) plain(path []string, value any, substitute bool) (any, *Error) {
	r.found = true
	if when, ok := value.(time.Time); ok {
		return when.Format(time.RFC3339Nano), nil
	}
	text, isText := value.(string)
	switch {
	case !isText:
		return value, nil
	case !utf8.ValidString(text):
		return nil, r.fault(path, "the decrypted value is no text in UTF-8", "encode the value in base64, write it to data, and encrypt the file with sops again")
	case !substitute:
		return text, nil
	}
	replaced, failure := r.substitute(text)
	if failure != nil {
		failure.Place = r.at(path)
		return nil, failure
	}
	return replaced, nil
}

// misplaced is the error about a decrypted value at a place where it may not be.
func (r *resolver) misplaced(path []string, what string) *Error {
	return refused(r.at(path), "it has "+what+" that was decrypted, and a decrypted value may only be in data or stringData of a Secret, or where the encrypted file has it",
		"remove the generator, patch, replacement or variable that brings the value here")
}

func (r *resolver) fault(path []string, message, fix string) *Error {
	return decryptionFault(r.at(path), message, fix)
}

// at returns the place of a field.
func (r *resolver) at(path []string) string {
	return clip(r.place + ": " + strings.Join(path, "."))
}
