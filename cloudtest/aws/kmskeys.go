package aws

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Limits of KMS's parameters. Source: KMS API Reference, ScheduleKeyDeletion.
const (
	minDeletionDays = 7
	maxDeletionDays = 30
)

const symmetricSpec = "SYMMETRIC_DEFAULT"

// generateKey makes the private key of an asymmetric key. It returns nil for specs that are
// symmetric or that the local cloud does not have.
func generateKey(spec string) (crypto.Signer, error) {
	switch spec {
	case "RSA_2048":
		return rsa.GenerateKey(rand.Reader, 2048)
	case "ECC_NIST_P256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECC_NIST_P384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	}
	return nil, nil
}

// keyMetadata is a key in the answers of CreateKey and DescribeKey.
type keyMetadata struct {
	Account              string   `json:"AWSAccountId"`
	ARN                  string   `json:"Arn"`
	ID                   string   `json:"KeyId"`
	CreationDate         float64  `json:"CreationDate"`
	DeletionDate         float64  `json:"DeletionDate,omitempty"`
	Description          string   `json:"Description"`
	Enabled              bool     `json:"Enabled"`
	Spec                 string   `json:"KeySpec"`
	MasterKeySpec        string   `json:"CustomerMasterKeySpec"`
	Usage                string   `json:"KeyUsage"`
	State                string   `json:"KeyState"`
	Origin               string   `json:"Origin"`
	Manager              string   `json:"KeyManager"`
	MultiRegion          bool     `json:"MultiRegion"`
	SigningAlgorithms    []string `json:"SigningAlgorithms,omitempty"`
	EncryptionAlgorithms []string `json:"EncryptionAlgorithms,omitempty"`
}

func (k *kmsKey) metadata() map[string]keyMetadata {
	m := keyMetadata{
		Account: k.account, ARN: k.arn, ID: k.id, CreationDate: kmsTime(k.created), Description: k.description,
		Enabled: k.state == keyEnabled, Spec: k.spec, MasterKeySpec: k.spec,
		Usage: k.usage, State: k.state, Origin: "AWS_KMS", Manager: "CUSTOMER",
		SigningAlgorithms: algorithmsOf(k.spec),
	}
	if k.spec == symmetricSpec {
		m.EncryptionAlgorithms = []string{symmetricSpec}
	}
	if k.state == keyPendingDeletion {
		m.DeletionDate = kmsTime(k.deletion)
	}
	return map[string]keyMetadata{"KeyMetadata": m}
}

type createKeyInput struct {
	Description string
	KeySpec     string
	KeyUsage    string
	Origin      string
	MultiRegion bool
	Policy      string
	Tags        []kmsTag
}

// createKey makes a key with tags in the caller's account. If anything is refused, it makes no key.
func (c *Cloud) createKey(call *apiCall, input createKeyInput) (any, *service.Refusal) {
	input.KeySpec = cmp.Or(input.KeySpec, symmetricSpec)
	input.KeyUsage = cmp.Or(input.KeyUsage, usageEncrypt)
	if refusal := c.allowCreation(call, input); refusal != nil {
		return nil, refusal
	}
	key, refusal := input.key(call)
	if refusal != nil {
		return nil, refusal
	}
	call.Call.Resource = key.arn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kmsKeys[key.arn] = key
	return key.metadata(), nil
}

// allowCreation checks that the caller's policies allow a new key. For a key with tags, the
// policies must allow kms:TagResource too.
func (c *Cloud) allowCreation(call *apiCall, input createKeyInput) *service.Refusal {
	actions := []string{"kms:CreateKey"}
	if len(input.Tags) > 0 {
		actions = append(actions, "kms:TagResource")
	}
	for _, action := range actions {
		context := requestContext(call.ep, call.Now)
		context.Set("kms:KeySpec", input.KeySpec)
		context.Set("kms:KeyUsage", input.KeyUsage)
		var names []string
		for _, t := range input.Tags {
			context.Set("aws:RequestTag/"+t.Key, t.Value)
			names = append(names, t.Key)
		}
		context.Set("aws:TagKeys", names...)
		if refusal := c.requireIn(call, "*", action, context); refusal != nil {
			return refusal
		}
	}
	return nil
}

// key checks the input, and makes the key that the input describes.
func (input createKeyInput) key(call *apiCall) (*kmsKey, *service.Refusal) {
	if input.MultiRegion || (input.Origin != "" && input.Origin != "AWS_KMS") {
		return nil, kmsRefusal("UnsupportedOperationException", "the local cloud has keys of one region and of the origin AWS_KMS only")
	}
	if refusal := checkTags(input.Tags); refusal != nil {
		return nil, refusal
	}
	private, err := generateKey(input.KeySpec)
	switch {
	case err != nil:
		return nil, kmsRefusal("KMSInternalException", unknownFailure).Because(err.Error())
	case private == nil && input.KeySpec != symmetricSpec:
		return nil, kmsRefusal("UnsupportedOperationException", "the local cloud has no keys of the spec "+input.KeySpec)
	case (private != nil) != (input.KeyUsage == usageSign) || (private == nil) != (input.KeyUsage == usageEncrypt):
		return nil, kmsRefusal("ValidationException",
			"The operation failed because the KeyUsage value "+input.KeyUsage+" is not valid for the KeySpec value "+input.KeySpec+".")
	}
	id := wire.UUID()
	key := &kmsKey{
		account: call.who.account, id: id, arn: "arn:" + call.ep.partition +
			":kms:" + call.ep.region + ":" + call.who.account + ":key/" + id,
		description: input.Description, spec: input.KeySpec, usage: input.KeyUsage,
		created: call.Now, tags: input.Tags, state: keyEnabled, private: private,
	}
	if private == nil {
		key.aead = newAEAD()
	}
	if input.Policy == "" { // KMS's default policy: the account's policies decide
		input.Policy = `{"Version":"2012-10-17","Id":"key-default-1","Statement":[{"Sid":"Enable IAM User Permissions","Effect":"Allow",` +
			`"Principal":{"AWS":"arn:` + call.ep.partition + `:iam::` + key.account + `:root"},"Action":"kms:*","Resource":"*"}]}`
	}
	if key.policy, err = parsePolicy(policy.Key, call.ep.partition, []byte(input.Policy)); err != nil {
		return nil, kmsRefusal("MalformedPolicyDocumentException", err.Error())
	}
	return key, nil
}

func checkTags(tags []kmsTag) *service.Refusal {
	seen := map[string]bool{}
	for _, t := range tags {
		if t.Key == "" || len(t.Key) > maxTagKey || len(t.Value) > maxTagValue || seen[t.Key] || strings.HasPrefix(t.Key, "aws:") {
			return kmsRefusal("TagException", "The tag "+strconv.Quote(t.Key)+" is empty, too long, reserved or used twice")
		}
		seen[t.Key] = true
	}
	if len(tags) > maxTags {
		return kmsRefusal("TagException", "Too many tags")
	}
	return nil
}

func (c *Cloud) describeKey(call *apiCall, input keyInput) (any, *service.Refusal) {
	key, refusal := c.onKey(call, input.KeyID)
	if refusal != nil {
		return nil, refusal
	}
	return key.metadata(), nil
}

type publicKeyOutput struct {
	ARN               string   `json:"KeyId"`
	PublicKey         []byte   `json:"PublicKey"` // SubjectPublicKeyInfo
	Spec              string   `json:"KeySpec"`
	MasterKeySpec     string   `json:"CustomerMasterKeySpec"`
	Usage             string   `json:"KeyUsage"`
	SigningAlgorithms []string `json:"SigningAlgorithms"`
}

func (c *Cloud) getPublicKey(call *apiCall, input keyInput) (any, *service.Refusal) {
	key, refusal := c.enabledKey(call, input.KeyID)
	switch {
	case refusal != nil:
		return nil, refusal
	case key.private == nil:
		return nil, kmsRefusal("UnsupportedOperationException", key.arn+" is a symmetric key, which has no public key.")
	}
	der := wire.Must(x509.MarshalPKIXPublicKey(key.private.Public()))
	return publicKeyOutput{
		ARN: key.arn, PublicKey: der, Spec: key.spec, MasterKeySpec: key.spec, Usage: key.usage, SigningAlgorithms: algorithmsOf(key.spec),
	}, nil
}

func (c *Cloud) listResourceTags(call *apiCall, input keyInput) (any, *service.Refusal) {
	key, refusal := c.onKey(call, input.KeyID)
	if refusal != nil {
		return nil, refusal
	}
	return struct {
		Tags      []kmsTag
		Truncated bool
	}{append([]kmsTag{}, key.tags...), false}, nil
}

// setKeyState returns the operation that sets a key's state.
func setKeyState(state string) func(*Cloud, *apiCall, keyInput) (any, *service.Refusal) {
	return func(c *Cloud, call *apiCall, input keyInput) (any, *service.Refusal) {
		_, refusal := c.changeKey(call, input.KeyID, func(k *kmsKey) { k.state = state })
		return struct{}{}, refusal
	}
}

// deletionInput is the input of ScheduleKeyDeletion.
type deletionInput struct {
	keyInput

	PendingWindowInDays *int
}

// scheduleKeyDeletion makes a key unusable at once, and deletes it after 7 to 30 days.
func (c *Cloud) scheduleKeyDeletion(call *apiCall, input deletionInput) (any, *service.Refusal) {
	days := maxDeletionDays
	if input.PendingWindowInDays != nil {
		days = *input.PendingWindowInDays
	}
	if days < minDeletionDays || days > maxDeletionDays {
		return nil, kmsRefusal("ValidationException", "PendingWindowInDays must be between 7 and 30")
	}
	key, refusal := c.changeKey(call, input.KeyID, func(k *kmsKey) {
		k.state, k.deletion = keyPendingDeletion, call.Now.Add(time.Duration(days)*24*time.Hour)
	})
	if refusal != nil {
		return nil, refusal
	}
	return struct {
		KeyID               string `json:"KeyId"`
		DeletionDate        float64
		KeyState            string
		PendingWindowInDays int
	}{key.arn, kmsTime(key.deletion), key.state, days}, nil
}

// changeKey stores a changed copy of a key. It refuses a key that is pending deletion.
func (c *Cloud) changeKey(call *apiCall, name string, change func(*kmsKey)) (*kmsKey, *service.Refusal) {
	found, refusal := c.onKey(call, name)
	if refusal != nil {
		return nil, refusal
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := *c.kmsKeys[found.arn]
	if changed.state == keyPendingDeletion {
		return nil, pendingDeletion(&changed)
	}
	change(&changed)
	c.kmsKeys[found.arn] = &changed
	return &changed, nil
}
