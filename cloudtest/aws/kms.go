package aws

import (
	"crypto"
	"crypto/cipher"
	"net/http"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// kmsAPI is the part of Key Management Service that makes keys, and that signs and encrypts with
// them. Source: KMS API Reference.
func kmsAPI() jsonAPI {
	return jsonAPI{
		target: "TrentService.", protocol: kmsJSON(),
		operations: map[string]operation{
			"CreateKey":           withInput((*Cloud).createKey),
			"DescribeKey":         withInput((*Cloud).describeKey),
			"GetPublicKey":        withInput((*Cloud).getPublicKey),
			"ListResourceTags":    withInput((*Cloud).listResourceTags),
			"EnableKey":           withInput(setKeyState(keyEnabled)),
			"DisableKey":          withInput(setKeyState(keyDisabled)),
			"ScheduleKeyDeletion": withInput((*Cloud).scheduleKeyDeletion),
			"Sign":                withInput((*Cloud).sign),
			"Verify":              withInput((*Cloud).verify),
			"Encrypt":             withInput((*Cloud).encrypt),
			"Decrypt":             withInput((*Cloud).decrypt),
		},
	}
}

// The states of a key. Source: KMS Developer Guide, "Key states of AWS KMS keys".
const (
	keyEnabled         = "Enabled"
	keyDisabled        = "Disabled"
	keyPendingDeletion = "PendingDeletion"
)

// Usages of a key.
const (
	usageSign    = "SIGN_VERIFY"
	usageEncrypt = "ENCRYPT_DECRYPT"
)

// kmsKey is a key of KMS. It is immutable once stored; a change replaces it.
type kmsKey struct {
	account, arn, id, description string
	spec, usage                   string
	created                       time.Time
	tags                          []kmsTag
	policy                        policy.Document

	state    string
	deletion time.Time // set in the state keyPendingDeletion

	private crypto.Signer // of an asymmetric key
	aead    cipher.AEAD   // of a symmetric key
}

type kmsTag struct {
	Key   string `json:"TagKey"`
	Value string `json:"TagValue"`
}

func kmsRefusal(code, message string) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, code, message)
}

// keyInput has the ID or the ARN of a key. The local cloud has no aliases.
type keyInput struct {
	KeyID string `json:"KeyId"`
}

// keyARN returns the ARN of a key that a call names by ID or ARN.
func keyARN(call *apiCall, name string) (string, *service.Refusal) {
	own := "arn:" + call.ep.partition + ":kms:" + call.ep.region + ":" + call.who.account + ":"
	switch parts := strings.Split(name, ":"); {
	case name == "":
		return "", kmsRefusal("ValidationException",
			"1 validation error detected: Value at 'keyId' failed to satisfy constraint: Member must not be null")
	case strings.Contains(name, "alias/"):
		return "", kmsRefusal("NotFoundException", "Alias "+name+" is not found.")
	case !strings.HasPrefix(name, "arn:"):
		return own + "key/" + name, nil
	case len(parts) != 6 || parts[1] != call.ep.partition || parts[2] != "kms" || !strings.HasPrefix(parts[5], "key/"):
		return "", kmsRefusal("InvalidArnException", "Invalid arn "+name)
	case parts[3] != call.ep.region:
		return "", kmsRefusal("NotFoundException", "Invalid arn "+parts[3])
	}
	return name, nil
}

// onKey returns a key, if the policies allow the call's operation. The key's policy must always
// allow the operation. If it allows the operation only for the caller's account, the caller's
// policies must allow the operation too. Source: KMS Developer Guide, "Determining access to AWS
// KMS keys".
func (c *Cloud) onKey(call *apiCall, name string) (*kmsKey, *service.Refusal) {
	arn, refusal := keyARN(call, name)
	if refusal != nil {
		return nil, refusal
	}
	call.Call.Resource = arn
	key := c.keyByARN(arn, call.Now)
	action := "kms:" + call.Call.Operation
	if key == nil && strings.Split(arn, ":")[4] == call.who.account {
		return nil, kmsRefusal("NotFoundException", "Key '"+arn+"' does not exist")
	}
	if key == nil {
		return nil, service.Refuse(http.StatusForbidden, "AccessDenied", "User: "+call.who.arn()+" is not authorized to perform: "+action+
			" on this resource because the resource does not exist in this Region, no resource-based policies allow access, or a resource-based policy explicitly denies access",
		).Because("there is no such key")
	}
	context := requestContext(call.ep, call.Now)
	context.Set("kms:KeySpec", key.spec)
	context.Set("kms:KeyUsage", key.usage)
	for _, t := range key.tags {
		context.Set("aws:ResourceTag/"+t.Key, t.Value)
	}
	if refusal := c.permit(call.who, ask{
		action: action, resource: arn, owner: key.account, policy: key.policy, mustName: true, context: context,
	}, "AccessDenied"); refusal != nil {
		return nil, refusal
	}
	return key, nil
}

// keyByARN returns a key, or nil if the key does not exist or its deletion date has passed.
func (c *Cloud) keyByARN(arn string, now time.Time) *kmsKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	key := c.kmsKeys[arn]
	if key != nil && key.state == keyPendingDeletion && !now.Before(key.deletion) {
		return nil
	}
	return key
}

// enabledKey is like onKey, but refuses a key that is disabled or pending deletion.
func (c *Cloud) enabledKey(call *apiCall, name string) (*kmsKey, *service.Refusal) {
	key, refusal := c.onKey(call, name)
	switch {
	case refusal != nil:
		return nil, refusal
	case key.state == keyDisabled:
		return nil, kmsRefusal("DisabledException", key.arn+" is disabled.")
	case key.state == keyPendingDeletion:
		return nil, pendingDeletion(key)
	}
	return key, nil
}

func pendingDeletion(key *kmsKey) *service.Refusal {
	return kmsRefusal("KMSInvalidStateException", key.arn+" is pending deletion.")
}

// keyFor is like enabledKey, but also refuses a key whose usage differs from the given one.
func (c *Cloud) keyFor(call *apiCall, name, usage string) (*kmsKey, *service.Refusal) {
	key, refusal := c.enabledKey(call, name)
	if refusal == nil && key.usage != usage {
		return nil, kmsRefusal("InvalidKeyUsageException",
			key.arn+" key usage is "+key.usage+" which is not valid for "+call.Call.Operation+".")
	}
	return key, refusal
}

// kmsTime formats a time as KMS does: seconds since 1970.
func kmsTime(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
