package gcp

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// kmsMethods returns the methods of Cloud KMS for symmetric keys: those that make keys, change
// their versions and policies, encrypt and decrypt. Source: Cloud KMS REST reference, v1.
func kmsMethods() []managementMethod {
	const (
		location = "projects/*/locations/*"
		ring     = location + "/keyRings/*"
		key      = ring + "/cryptoKeys/*"
		version  = key + "/cryptoKeyVersions/*"
		get      = http.MethodGet
		post     = http.MethodPost
	)
	method := func(name, verb, path string, do func(*Cloud, *managementCall) (any, *service.Refusal), query ...string) managementMethod {
		api := "google.cloud.kms.v1.KeyManagementService"
		if strings.HasSuffix(name, "IamPolicy") {
			api = "google.iam.v1.IAMPolicy"
		}
		return managementMethod{name: name, api: api, verb: verb, path: path, query: query, do: do}
	}
	return []managementMethod{
		// The first two come before the methods whose paths would match theirs.
		method("GetIamPolicy", get, ring+":getIamPolicy", onKeys(permRingGetPolicy, (*Cloud).getKeyPolicy), paramPolicyVersion),
		method("GetIamPolicy", get, key+":getIamPolicy", onKeys(permKeyGetPolicy, (*Cloud).getKeyPolicy), paramPolicyVersion),
		method("SetIamPolicy", post, ring+":setIamPolicy", onKeys(permRingSetPolicy, (*Cloud).setKeyPolicy)),
		method("SetIamPolicy", post, key+":setIamPolicy", onKeys(permKeySetPolicy, (*Cloud).setKeyPolicy)),

		method("CreateKeyRing", post, location+"/keyRings", onKeys(permRingCreate, (*Cloud).createKeyRing), paramRing),
		method("GetKeyRing", get, ring, onKeys(permRingGet, (*Cloud).getKeyRing)),
		method("CreateCryptoKey", post, ring+"/cryptoKeys", onKeys(permKeyCreate, (*Cloud).createCryptoKey), paramKey),
		method("GetCryptoKey", get, key, onKeys(permKeyGet, (*Cloud).getCryptoKey)),
		method("UpdateCryptoKeyPrimaryVersion", post, key+":updatePrimaryVersion", onKeys(permKeyUpdate, (*Cloud).updatePrimaryVersion)),
		method("CreateCryptoKeyVersion", post, key+"/cryptoKeyVersions", onKeys(permVersionCreate, (*Cloud).createKeyVersion)),
		method("GetCryptoKeyVersion", get, version, onKeys(permVersionGet, (*Cloud).getKeyVersion)),
		method("UpdateCryptoKeyVersion", http.MethodPatch, version, onKeys(permVersionUpdate, (*Cloud).updateKeyVersion), paramMask),
		method("DestroyCryptoKeyVersion", post, version+":destroy", onKeys(permVersionDestroy, (*Cloud).destroyKeyVersion)),

		method("Encrypt", post, key+":encrypt", onKeys(permEncrypt, (*Cloud).encrypt)),
		method("Encrypt", post, version+":encrypt", onKeys(permEncrypt, (*Cloud).encrypt)),
		method("Decrypt", post, key+":decrypt", onKeys(permDecrypt, (*Cloud).decrypt)),
	}
}

const (
	paramRing = "keyRingId"
	paramKey  = "cryptoKeyId"
	paramMask = "updateMask"
)

// kmsCall is a call of Cloud KMS with the objects that its path names. Others are nil.
type kmsCall struct {
	*managementCall

	project *project
	ring    *keyRing
	key     *cryptoKey
	version *keyVersion
}

// onKeys returns the handler of a method of Cloud KMS. The handler decodes the call's body, and
// finds the objects that the path names. The caller must have the permission on the last of them.
// Then the handler calls do, with the lock held.
func onKeys[B any](
	permission string, do func(*Cloud, *kmsCall, B) (any, *service.Refusal),
) func(*Cloud, *managementCall) (any, *service.Refusal) {
	return func(c *Cloud, call *managementCall) (any, *service.Refusal) {
		var body B
		if call.Method != http.MethodGet {
			if refusal := call.readJSON(&body); refusal != nil {
				return nil, refusal
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		found, refusal := c.findKeys(call, permission)
		if refusal != nil {
			return nil, refusal
		}
		return do(c, found, body)
	}
}

// kmsName returns the full name of an object. The parts are the IDs of its project, location, key
// ring, key and version, as far as it has them.
func kmsName(parts ...string) string {
	var name strings.Builder
	for i, kind := range []string{"projects/", "/locations/", "/keyRings/", "/cryptoKeys/", "/cryptoKeyVersions/"} {
		if i < len(parts) {
			name.WriteString(kind + parts[i])
		}
	}
	return name.String()
}

// findKeys finds the objects that a call's path names. The policies of the key, the key ring and
// the project decide about the permission. A caller without the permission does not learn whether
// the objects exist. The lock must be held. Source: Cloud KMS, "Permissions and roles".
func (c *Cloud) findKeys(call *managementCall, permission string) (*kmsCall, *service.Refusal) {
	found := &kmsCall{managementCall: call, project: c.findProject(call.names[0], call.who.universe)}
	ids := append(slices.Clone(call.names), "", "", "")
	found.ring = cmp.Or(found.project, &project{}).keyRings[ringKey(ids[1], ids[2])]
	found.key = cmp.Or(found.ring, &keyRing{}).keys[ids[3]]
	found.version = cmp.Or(found.key, &cryptoKey{}).version(ids[4])
	own := slices.Concat(cmp.Or(found.ring, &keyRing{}).policy, cmp.Or(found.key, &cryptoKey{}).policy)

	name := kmsName(call.names...)
	if found.project == nil || !c.allowed(call.who, permission, found.project.id, own) {
		return nil, service.Refuse(http.StatusForbidden, codeDenied,
			"Permission '"+permission+"' denied on resource '"+name+"' (or it may not exist).").
			With(info(infoDenied, "permission", permission, "resource", name)).
			Because("no binding on the key, its key ring or its project gives " + permission + " to " + call.who.name())
	}
	exists := []bool{true, true, found.ring != nil, found.key != nil, found.version != nil}
	if last := len(call.names) - 1; !exists[last] {
		kind := []string{"", "", "KeyRing", "CryptoKey", "CryptoKeyVersion"}[last]
		return nil, service.Refuse(http.StatusNotFound, codeNotFound, kind+" "+name+" not found.")
	}
	return found, nil
}

// policy returns the policy of the key or key ring that the call names.
func (call *kmsCall) policy() *policy {
	if call.key != nil {
		return &call.key.policy
	}
	return &call.ring.policy
}

func (*Cloud) getKeyPolicy(call *kmsCall, _ struct{}) (any, *service.Refusal) {
	if refusal := call.checkPolicyVersion(); refusal != nil {
		return nil, refusal
	}
	return call.policy().answer(), nil
}

func (c *Cloud) setKeyPolicy(call *kmsCall, _ json.RawMessage) (any, *service.Refusal) {
	q, refusal := call.readPolicy()
	if refusal != nil {
		return nil, refusal
	}
	changed, refusal := c.replacePolicy(call.managementCall, *call.policy(), q, "roles/cloudkms.")
	if refusal != nil {
		return nil, refusal
	}
	*call.policy() = changed
	return changed.answer(), nil
}
