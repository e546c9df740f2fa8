package gcp

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// maxPlaintext is the maximum length of a plaintext, and of additional authenticated data, in
// bytes. Source: Cloud KMS REST reference, cryptoKeys.encrypt.
const maxPlaintext = 64 << 10

// encryptRequest is the request body of cryptoKeys.encrypt. SDKs repeat the name in the path.
type encryptRequest struct {
	Name         string      `json:"name"`
	Plaintext    string      `json:"plaintext"`
	PlaintextSum json.Number `json:"plaintextCrc32c"`
	authenticatedData
}

// authenticatedData is the part of a request body that cryptoKeys.encrypt and .decrypt share.
type authenticatedData struct {
	Data    string      `json:"additionalAuthenticatedData"`
	DataSum json.Number `json:"additionalAuthenticatedDataCrc32c"`
}

type encryptAnswer struct {
	Name         string    `json:"name"`
	Ciphertext   []byte    `json:"ciphertext"`
	Sum          string    `json:"ciphertextCrc32c"`
	Verified     bool      `json:"verifiedPlaintextCrc32c,omitempty"`
	VerifiedData bool      `json:"verifiedAdditionalAuthenticatedDataCrc32c,omitempty"`
	Protection   enumValue `json:"protectionLevel"`
}

// encrypt uses the version that the path names, or the key's primary version.
func (*Cloud) encrypt(call *kmsCall, q encryptRequest) (any, *service.Refusal) {
	plain, refusal := readBytes("plaintext", q.Plaintext, q.PlaintextSum, maxPlaintext)
	if refusal != nil {
		return nil, refusal
	}
	data, refusal := q.read()
	if refusal != nil {
		return nil, refusal
	}
	version := cmp.Or(call.version, call.key.primary)
	if refusal := version.usable(call.Now); refusal != nil {
		return nil, refusal
	}
	sealed := version.aead.Seal(bytes.Clone(version.head), nil, plain, data) //nolint:gosec // the AEAD makes a nonce itself
	return encryptAnswer{
		Name: version.name, Ciphertext: sealed, Sum: checksum(sealed), Protection: protectionSoftware,
		Verified: q.PlaintextSum != "", VerifiedData: q.DataSum != "",
	}, nil
}

// decryptRequest is the request body of cryptoKeys.decrypt. SDKs repeat the name in the path.
type decryptRequest struct {
	Name          string      `json:"name"`
	Ciphertext    string      `json:"ciphertext"`
	CiphertextSum json.Number `json:"ciphertextCrc32c"`
	authenticatedData
}

type decryptAnswer struct {
	Plaintext   []byte    `json:"plaintext,omitempty"`
	Sum         string    `json:"plaintextCrc32c"`
	UsedPrimary bool      `json:"usedPrimary,omitempty"`
	Protection  enumValue `json:"protectionLevel"`
}

// decrypt uses the version of the key that the ciphertext names.
func (*Cloud) decrypt(call *kmsCall, q decryptRequest) (any, *service.Refusal) {
	ciphertext, refusal := readBytes("ciphertext", q.Ciphertext, q.CiphertextSum, maxAPIBody)
	if refusal != nil {
		return nil, refusal
	}
	data, refusal := q.read()
	if refusal != nil {
		return nil, refusal
	}
	for _, version := range call.key.versions {
		sealed, ok := bytes.CutPrefix(ciphertext, version.head)
		if !ok {
			continue
		}
		if refusal := version.usable(call.Now); refusal != nil {
			return nil, refusal
		}
		plain, err := version.aead.Open(nil, nil, sealed, data)
		if err != nil {
			return nil, invalidArgument("Decryption failed: the ciphertext is invalid.").
				Because("the ciphertext or its additional authenticated data was changed")
		}
		return decryptAnswer{
			Plaintext: plain, Sum: checksum(plain), UsedPrimary: version == call.key.primary, Protection: protectionSoftware,
		}, nil
	}
	return nil, invalidArgument("Decryption failed: verify that 'name' refers to the correct CryptoKey.").
		Because("the ciphertext names no version of this key")
}

func (d authenticatedData) read() ([]byte, *service.Refusal) {
	return readBytes("additional_authenticated_data", d.Data, d.DataSum, maxPlaintext)
}

// readBytes decodes a field in base64, and compares it with its checksum if there is one. Sources:
// Cloud KMS, "Verify end-to-end data integrity"; Protocol Buffers, "ProtoJSON format".
func readBytes(field, text string, sum json.Number, limit int) ([]byte, *service.Refusal) {
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(plainBase64(text), "="))
	switch {
	case err != nil:
		return nil, invalidArgument("Invalid value at '" + field + "' (TYPE_BYTES), Base64 decoding failed for " + strconv.Quote(text)).
			Because(field + " is not in base64") // the journal must not have the text
	case len(data) > limit:
		return nil, invalidArgument("Request field " + field + " must have length of at least 0, but not more than " +
			strconv.Itoa(limit) + ". Provided value had length " + strconv.Itoa(len(data)) + ".")
	case sum != "" && sum.String() != checksum(data):
		return nil, invalidArgument("The checksum in field " + field + "_crc32c did not match the data in field " + field + ".")
	}
	return data, nil
}

// checksum returns the CRC32C of data in decimal.
func checksum(data []byte) string {
	return strconv.FormatUint(uint64(crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))), 10)
}
