package cloudtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/lanyard-dev/lanyard/cloudtest/alibaba"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// Config describes a local cloud. Its zero value is a cloud in which nobody may do anything.
type Config struct {
	// AWS describes the local AWS.
	AWS aws.Config `json:"aws"`
	// Azure describes the local Azure.
	Azure azure.Config `json:"azure"`
	// GCP describes the local Google Cloud.
	GCP gcp.Config `json:"gcp"`
	// Alibaba describes the local Alibaba Cloud.
	Alibaba alibaba.Config `json:"alibaba"`
	// Issuers are OIDC issuers with fixed keys. Register an issuer that runs in this process with
	// [Cloud.Handle] instead.
	Issuers []oidc.Static `json:"issuers,omitempty"`
	// Quotas limit the rates of calls to services.
	Quotas []fault.Quota `json:"quotas,omitempty"`
	// Faults are in force from the start.
	Faults []fault.Fault `json:"faults,omitempty"`
	// JournalSize is the number of calls that the journal keeps; default [journal.DefaultSize].
	JournalSize int `json:"journalSize,omitempty"`
}

// ParseConfig reads a configuration from JSON. An unknown or repeated field is an error, which
// names the field. Convert a YAML file to JSON first.
func ParseConfig(data []byte) (Config, error) {
	var cfg Config
	if err := decodeStrict(data, &cfg); err != nil {
		return Config{}, fmt.Errorf("cloudtest: config: %w", err)
	}
	return cfg, nil
}

// decodeStrict decodes one JSON value and refuses unknown fields, duplicate keys and anything after
// the value.
func decodeStrict(data []byte, into any) error {
	if err := checkDuplicates(json.NewDecoder(bytes.NewReader(data)), ""); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err // unwrapped: encoding/json's error names the field
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the end of the JSON value")
	}
	return nil
}

func checkDuplicates(dec *json.Decoder, path string) error {
	token, err := dec.Token()
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for n := 0; dec.More(); n++ {
		inner := fmt.Sprintf("%s[%d]", path, n)
		if delim == '{' {
			key, err := dec.Token()
			if err != nil {
				return fmt.Errorf("not JSON: %w", err)
			}
			inner = path + "." + fmt.Sprint(key)
			if seen[inner] {
				return fmt.Errorf("%s stands there twice", inner[1:])
			}
			seen[inner] = true
		}
		if err := checkDuplicates(dec, inner); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return nil
}
