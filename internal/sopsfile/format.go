package sopsfile

import (
	"bytes"
	"encoding/json"
	"path"
	"regexp"

	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/stores/dotenv"
	"github.com/getsops/sops/v3/stores/ini"
	storejson "github.com/getsops/sops/v3/stores/json"
	storeyaml "github.com/getsops/sops/v3/stores/yaml"
)

// format is a format of encrypted files.
type format string

// The formats of SOPS.
const (
	formatYAML   format = "YAML"
	formatJSON   format = "JSON"
	formatDotenv format = "dotenv"
	formatINI    format = "INI"
	formatBinary format = "binary"
)

// markers match what SOPS writes into each encrypted file: its metadata with a MAC. The formats are
// tried in this order. An indented line of YAML can look like a line of INI.
func markers() []marker {
	return []marker{
		{formatJSON, regexp.MustCompile(`\A\s*\{[\s\S]*"mac"\s*:\s*"ENC\[`)},
		{formatDotenv, regexp.MustCompile(`(?m)^sops_mac=ENC\[`)},
		{formatYAML, regexp.MustCompile(`(?m)^\s+["']?mac["']?:\s+(["']|[|>][0-9+-]*\s+)?ENC\[`)},
		{formatINI, regexp.MustCompile(`(?m)^\[sops\]\s*$[\s\S]*^mac\s*=\s*ENC\[`)},
	}
}

type marker struct {
	format  format
	pattern *regexp.Regexp
}

// formatOf returns the format of an encrypted file, or "" if the file is not encrypted. SOPS chooses
// the format by the name of a file. But a file can have another name than when it was encrypted, so
// the content decides, where it can.
func formatOf(name string, content []byte) format {
	if !bytes.Contains(content, []byte("ENC[")) {
		return ""
	}
	for _, m := range markers() {
		if !m.pattern.Match(content) {
			continue
		}
		if m.format == formatJSON && path.Ext(name) != ".json" && isBinary(content) {
			return formatBinary
		}
		return m.format
	}
	return ""
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

// IsEncrypted reports whether SOPS encrypted a file.
func IsEncrypted(name string, content []byte) bool { return formatOf(name, content) != "" }

// store returns SOPS's reader and writer of a format.
func (f format) store() sops.Store {
	switch f {
	case formatJSON:
		return storejson.NewStore(&config.JSONStoreConfig{Indent: -1})
	case formatDotenv:
		return dotenv.NewStore(&config.DotenvStoreConfig{})
	case formatINI:
		return ini.NewStore(&config.INIStoreConfig{})
	case formatBinary:
		return storejson.NewBinaryStore(&config.JSONBinaryStoreConfig{})
	case formatYAML:
	}
	return storeyaml.NewStore(&config.YAMLStoreConfig{})
}
