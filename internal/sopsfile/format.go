package sopsfile

import (
	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/stores/dotenv"
	"github.com/getsops/sops/v3/stores/ini"
	storejson "github.com/getsops/sops/v3/stores/json"
	storeyaml "github.com/getsops/sops/v3/stores/yaml"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile"
)

// storeOf returns SOPS's reader and writer of a format.
func storeOf(f encryptedfile.Format) sops.Store {
	switch f {
	case encryptedfile.JSON:
		return storejson.NewStore(&config.JSONStoreConfig{Indent: -1})
	case encryptedfile.Dotenv:
		return dotenv.NewStore(&config.DotenvStoreConfig{})
	case encryptedfile.INI:
		return ini.NewStore(&config.INIStoreConfig{})
	case encryptedfile.Binary:
		return storejson.NewBinaryStore(&config.JSONBinaryStoreConfig{})
	case encryptedfile.YAML:
	}
	return storeyaml.NewStore(&config.YAMLStoreConfig{})
}
