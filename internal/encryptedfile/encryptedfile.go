// Package encryptedfile has what programs know of files that SOPS encrypted, without SOPS's library:
// how such a file looks, and what can be done with it. Package sopsfile does it. SOPS's library is
// large, because it links its key sources. A program that decrypts nothing does not link it.
package encryptedfile

import (
	"bytes"
	"encoding/json"
	"path"
	"regexp"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
)

// File is an encrypted file. The errors of its methods are an [*Error].
type File interface {
	// MasterKeys returns the keys that can decrypt the file's data key.
	MasterKeys() (masterkey.File, error)
	// LeftEncrypted reports whether the file's objects say that they stay encrypted.
	LeftEncrypted() (bool, error)
	// HasPlainKeys reports whether the keys of all values can be read in the encrypted file, line by
	// line.
	HasPlainKeys() bool
	// Decrypt decrypts the file, and checks its MAC.
	Decrypt(dataKey []byte) (Plain, error)
}

// Plain is a decrypted file whose MAC was right. The errors of its methods are an [*Error].
type Plain interface {
	// Content returns the whole decrypted file, as the command "sops decrypt" writes it.
	Content() ([]byte, error)
	// Manifests returns the decrypted file as manifests. Each decrypted value is replaced by what
	// the function hide returns for it.
	Manifests(hide func(Value) string) ([]byte, error)
}

// Value is a decrypted value of a manifest.
type Value struct {
	// Plain is a text, an int, a float64, a bool, or a time.Time.
	Plain any
	// Path are the keys above the value, joined by colons. SOPS binds the encrypted value to this
	// path. Indexes of lists are not part of the path.
	Path string
	// APIVersion and Kind are those of the manifest. If Kind is "List", Path begins with "items".
	APIVersion, Kind string
}

// Error says why a file cannot be read or decrypted. It has nothing of the file's content.
type Error struct {
	// Message says what is wrong with the file.
	Message string
	// Fix is the next step for the user, as a sentence without a full stop.
	Fix string
}

// Error implements error.
func (e *Error) Error() string { return e.Message + "; " + e.Fix }

// Format is a format of encrypted files.
type Format string

// The formats of SOPS.
const (
	YAML   Format = "YAML"
	JSON   Format = "JSON"
	Dotenv Format = "dotenv"
	INI    Format = "INI"
	Binary Format = "binary"
)

// What SOPS writes into each encrypted file of a format: its metadata with a MAC.
var (
	markerOfJSON   = regexp.MustCompile(`\A\s*\{[\s\S]*"mac"\s*:\s*"ENC\[`)
	markerOfDotenv = regexp.MustCompile(`(?m)^sops_mac=ENC\[`)
	markerOfYAML   = regexp.MustCompile(`(?m)^\s+["']?mac["']?:\s+(["']|[|>][0-9+-]*\s+)?ENC\[`)
	markerOfINI    = regexp.MustCompile(`(?m)^\[sops\]\s*$[\s\S]*^mac\s*=\s*ENC\[`)
)

// FormatOf returns the format of an encrypted file, or "" if the file is not encrypted. SOPS chooses
// the format by the name of a file. But a file can have another name than when it was encrypted, so
// the content decides, where it can.
func FormatOf(name string, content []byte) Format {
	if !bytes.Contains(content, []byte("ENC[")) {
		return ""
	}
	// YAML comes before INI, because an indented line of YAML can look like a line of INI.
	switch {
	case markerOfJSON.Match(content) && path.Ext(name) != ".json" && isBinary(content):
		return Binary
	case markerOfJSON.Match(content):
		return JSON
	case markerOfDotenv.Match(content):
		return Dotenv
	case markerOfYAML.Match(content):
		return YAML
	case markerOfINI.Match(content):
		return INI
	default:
		return ""
	}
}

// isBinary reports whether a file in JSON has what SOPS writes for a binary file: one text with the
// key "data", and the metadata.
func isBinary(content []byte) bool {
	var file map[string]json.RawMessage
	if json.Unmarshal(content, &file) != nil {
		return false
	}
	var text string
	return len(file) == 2 && file["sops"] != nil && json.Unmarshal(file["data"], &text) == nil
}

// Is reports whether SOPS encrypted a file.
func Is(name string, content []byte) bool { return FormatOf(name, content) != "" }

// Labels and annotations with these names, and the value "disabled", leave an object encrypted.
const (
	OwnDecrypt  = "kustomize.toolkit.lanyard.dev/decrypt"
	FluxDecrypt = "kustomize.toolkit.fluxcd.io/decrypt"
	Disabled    = "disabled"
)

// StaysEncrypted reports whether labels or annotations say that their object stays encrypted.
func StaysEncrypted(texts map[string]string) bool {
	return texts[OwnDecrypt] == Disabled || texts[FluxDecrypt] == Disabled
}
