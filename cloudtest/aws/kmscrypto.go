package aws

import (
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// maxMessage is the longest message to sign or to encrypt, in bytes. Source: KMS API Reference,
// Sign and Encrypt.
const maxMessage = 4096

// algorithmsOf returns the signing algorithms of a key spec. Source: KMS Developer Guide, "Key spec
// reference".
func algorithmsOf(spec string) []string {
	switch spec {
	case "RSA_2048":
		return []string{
			"RSASSA_PKCS1_V1_5_SHA_256", "RSASSA_PKCS1_V1_5_SHA_384", "RSASSA_PKCS1_V1_5_SHA_512",
			"RSASSA_PSS_SHA_256", "RSASSA_PSS_SHA_384", "RSASSA_PSS_SHA_512",
		}
	case "ECC_NIST_P256":
		return []string{"ECDSA_SHA_256"}
	case "ECC_NIST_P384":
		return []string{"ECDSA_SHA_384"}
	}
	return nil
}

// optionsOf returns the hash and the padding of a signing algorithm.
func optionsOf(algorithm string) crypto.SignerOpts {
	hash := crypto.SHA256
	switch {
	case strings.HasSuffix(algorithm, "384"):
		hash = crypto.SHA384
	case strings.HasSuffix(algorithm, "512"):
		hash = crypto.SHA512
	}
	if strings.HasPrefix(algorithm, "RSASSA_PSS") {
		return &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	return hash
}

// signInput is the input of Sign and of Verify.
type signInput struct {
	keyInput
	Message          []byte
	MessageType      string
	Signature        []byte // for Verify
	SigningAlgorithm string
}

// signOutput is the output of Sign and of Verify.
type signOutput struct {
	ARN              string `json:"KeyId"`
	Signature        []byte `json:"Signature,omitempty"`
	SignatureValid   bool   `json:"SignatureValid,omitempty"`
	SigningAlgorithm string `json:"SigningAlgorithm"`
}

// digest returns the digest to sign.
func (input signInput) digest() ([]byte, *service.Refusal) {
	hash := optionsOf(input.SigningAlgorithm).HashFunc()
	switch {
	case len(input.Message) == 0 || len(input.Message) > maxMessage:
		return nil, kmsRefusal("ValidationException",
			"1 validation error detected: Value at 'message' failed to satisfy constraint: Member must have length between 1 and 4096")
	case input.MessageType == "DIGEST" && len(input.Message) != hash.Size():
		return nil, kmsRefusal("ValidationException", "Digest is invalid length for algorithm "+input.SigningAlgorithm+".")
	case input.MessageType == "DIGEST":
		return input.Message, nil
	case input.MessageType != "" && input.MessageType != "RAW":
		return nil, kmsRefusal("ValidationException", "1 validation error detected: Value at 'messageType' failed to satisfy constraint: Member must satisfy enum value set: [DIGEST, RAW]")
	}
	h := hash.New()
	_, _ = h.Write(input.Message) // never fails; source: hash.Hash
	return h.Sum(nil), nil
}

// forSigning finds the key and the digest for a call of Sign or Verify.
func (c *Cloud) forSigning(call *apiCall, input signInput) (*kmsKey, []byte, *service.Refusal) {
	key, refusal := c.keyFor(call, input.KeyID, usageSign)
	if refusal != nil {
		return nil, nil, refusal
	}
	if !slices.Contains(algorithmsOf(key.spec), input.SigningAlgorithm) {
		return nil, nil, kmsRefusal("InvalidKeyUsageException",
			"Algorithm "+input.SigningAlgorithm+" is incompatible with key spec "+key.spec+".")
	}
	digest, refusal := input.digest()
	return key, digest, refusal
}

func (c *Cloud) sign(call *apiCall, input signInput) (any, *service.Refusal) {
	key, digest, refusal := c.forSigning(call, input)
	if refusal != nil {
		return nil, refusal
	}
	signature, err := key.private.Sign(rand.Reader, digest, optionsOf(input.SigningAlgorithm))
	if err != nil {
		return nil, kmsRefusal("KMSInternalException", unknownFailure).Because(err.Error())
	}
	return signOutput{ARN: key.arn, Signature: signature, SigningAlgorithm: input.SigningAlgorithm}, nil
}

func (c *Cloud) verify(call *apiCall, input signInput) (any, *service.Refusal) {
	key, digest, refusal := c.forSigning(call, input)
	if refusal != nil {
		return nil, refusal
	}
	if !validSignature(key.private.Public(), digest, input.Signature, optionsOf(input.SigningAlgorithm)) {
		return nil, kmsRefusal("KMSInvalidSignatureException", "")
	}
	return signOutput{ARN: key.arn, SignatureValid: true, SigningAlgorithm: input.SigningAlgorithm}, nil
}

func validSignature(public crypto.PublicKey, digest, signature []byte, options crypto.SignerOpts) bool {
	switch public := public.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(public, digest, signature)
	case *rsa.PublicKey:
		if pss, ok := options.(*rsa.PSSOptions); ok {
			return rsa.VerifyPSS(public, pss.Hash, digest, signature, pss) == nil
		}
		return rsa.VerifyPKCS1v15(public, options.HashFunc(), digest, signature) == nil
	}
	return false
}

// cryptInput is the input of Encrypt and of Decrypt.
type cryptInput struct {
	keyInput
	Plaintext           []byte
	CiphertextBlob      []byte
	EncryptionAlgorithm string
	EncryptionContext   map[string]string
}

// cryptOutput is the output of Encrypt and of Decrypt.
type cryptOutput struct {
	ARN                 string `json:"KeyId"`
	Plaintext           []byte `json:"Plaintext,omitempty"`
	CiphertextBlob      []byte `json:"CiphertextBlob,omitempty"`
	EncryptionAlgorithm string `json:"EncryptionAlgorithm"`
}

// check refuses all algorithms except that of symmetric keys.
func (input cryptInput) check() *service.Refusal {
	if input.EncryptionAlgorithm != "" && input.EncryptionAlgorithm != symmetricSpec {
		return kmsRefusal("InvalidKeyUsageException",
			"Algorithm "+input.EncryptionAlgorithm+" is incompatible with key spec "+symmetricSpec+".")
	}
	return nil
}

// context returns the encryption context as bytes, which are authenticated and not stored. A context
// without entries is the same as no context.
func (input cryptInput) context() []byte {
	if len(input.EncryptionContext) == 0 {
		return nil
	}
	return wire.Must(json.Marshal(input.EncryptionContext))
}

// newAEAD makes a symmetric key. It cannot fail, because 32 bytes are a valid AES key.
func newAEAD() cipher.AEAD {
	return wire.Must(cipher.NewGCMWithRandomNonce(wire.Must(aes.NewCipher(wire.Random(32)))))
}

// encrypt returns a ciphertext: the key's ARN, a zero byte and the sealed text.
func (c *Cloud) encrypt(call *apiCall, input cryptInput) (any, *service.Refusal) {
	if refusal := input.check(); refusal != nil {
		return nil, refusal
	}
	key, refusal := c.keyFor(call, input.KeyID, usageEncrypt)
	if refusal != nil {
		return nil, refusal
	}
	if len(input.Plaintext) == 0 || len(input.Plaintext) > maxMessage {
		return nil, kmsRefusal("ValidationException",
			"1 validation error detected: Value at 'plaintext' failed to satisfy constraint: Member must have length between 1 and 4096")
	}
	blob := key.aead.Seal(append([]byte(key.arn), 0), nil, input.Plaintext, input.context()) //nolint:gosec // the AEAD makes a nonce itself
	return cryptOutput{ARN: key.arn, CiphertextBlob: blob, EncryptionAlgorithm: symmetricSpec}, nil
}

// decrypt reads the key's ARN from the ciphertext. It refuses a call that names another key.
func (c *Cloud) decrypt(call *apiCall, input cryptInput) (any, *service.Refusal) {
	if refusal := input.check(); refusal != nil {
		return nil, refusal
	}
	arn, sealed, ok := bytes.Cut(input.CiphertextBlob, []byte{0})
	if !ok || len(arn) > maxMessage {
		return nil, kmsRefusal("InvalidCiphertextException", "")
	}
	if input.KeyID != "" {
		named, refusal := keyARN(call, input.KeyID)
		if refusal != nil {
			return nil, refusal
		}
		if named != string(arn) {
			return nil, kmsRefusal("IncorrectKeyException",
				"The key ID in the request does not identify a CMK that can perform this operation.")
		}
	}
	key, refusal := c.keyFor(call, string(arn), usageEncrypt)
	if refusal != nil {
		return nil, refusal
	}
	plain, err := key.aead.Open(nil, nil, sealed, input.context())
	if err != nil {
		return nil, kmsRefusal("InvalidCiphertextException", "").Because("the ciphertext or its encryption context was changed")
	}
	return cryptOutput{ARN: key.arn, Plaintext: plain, EncryptionAlgorithm: symmetricSpec}, nil
}
