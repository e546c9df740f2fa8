package gcp

import (
	"crypto/aes"
	"crypto/cipher"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// keyRing, cryptoKey and keyVersion are objects of Cloud KMS. Unlike other objects of a project,
// they are changed in place, under the cloud's lock.
type keyRing struct {
	name    string // full
	policy  policy
	created time.Time
	keys    map[string]*cryptoKey // by ID
}

type cryptoKey struct {
	name     string // full
	policy   policy
	created  time.Time
	versions []*keyVersion // at least one; the first has the number 1
	primary  *keyVersion
}

type keyVersion struct {
	name      string // full
	created   time.Time
	status    enumValue // see state
	destroyed time.Time // set in the status versionScheduled
	head      []byte    // the beginning of each of the version's ciphertexts
	aead      cipher.AEAD
}

// The states of a version. Source: Cloud KMS REST reference, CryptoKeyVersionState.
const (
	versionEnabled   enumValue = "ENABLED"
	versionDisabled  enumValue = "DISABLED"
	versionScheduled enumValue = "DESTROY_SCHEDULED"
	versionDestroyed enumValue = "DESTROYED"
)

// The only sort of keys of the local cloud.
const (
	purposeEncrypt     enumValue = "ENCRYPT_DECRYPT"
	protectionSoftware enumValue = "SOFTWARE"
	algorithmSymmetric enumValue = "GOOGLE_SYMMETRIC_ENCRYPTION"
)

// destroyAfter is the time between a version's scheduled and its final destruction. Source: Cloud
// KMS REST reference, CryptoKey.destroyScheduledDuration.
const destroyAfter = 30 * 24 * time.Hour

// kmsPattern matches the ID of a key ring or a key. Source: Cloud KMS REST reference,
// keyRings.create.
var kmsPattern = regexp.MustCompile(`\A[a-zA-Z0-9_-]{1,63}\z`)

// kmsLocationPattern matches a region, a multi-region such as "eur4", or "global".
var kmsLocationPattern = regexp.MustCompile(`\A[a-z][a-z0-9-]{0,61}[a-z0-9]\z`)

// ringKey returns the key of a key ring in its project's map.
func ringKey(location, id string) string { return location + "/" + id }

func newKey(name string, own policy, now time.Time) *cryptoKey {
	k := &cryptoKey{name: name, policy: own, created: now}
	k.primary = k.addVersion(now)
	return k
}

// addVersion makes a version with a new AES key. A ciphertext begins like Google's: with a protocol
// buffer's field 1, an opaque ID of 36 bytes.
func (k *cryptoKey) addVersion(now time.Time) *keyVersion {
	v := &keyVersion{
		name:    k.name + "/cryptoKeyVersions/" + strconv.Itoa(len(k.versions)+1),
		created: now, status: versionEnabled,
		head: slices.Concat([]byte{0x0a, 36, 0}, wire.Random(35)),
		aead: wire.Must(cipher.NewGCMWithRandomNonce(wire.Must(aes.NewCipher(wire.Random(32))))),
	}
	k.versions = append(k.versions, v)
	return v
}

// version returns the version with a number, or nil.
func (k *cryptoKey) version(number string) *keyVersion {
	for i, v := range k.versions {
		if strconv.Itoa(i+1) == number {
			return v
		}
	}
	return nil
}

func (v *keyVersion) state(now time.Time) enumValue {
	if v.status == versionScheduled && !now.Before(v.destroyed) {
		return versionDestroyed
	}
	return v.status
}

// failedPrecondition refuses a call because of a version's state. Only KEY_DISABLED is known from
// Google's answers; the other states' types are made alike.
func (v *keyVersion) failedPrecondition(message string, now time.Time) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, codePrecondition, message).With(&preconditionFailure{
		Type:       "type.googleapis.com/google.rpc.PreconditionFailure",
		Violations: []violation{{Type: "KEY_" + string(v.state(now)), Subject: v.name}},
	})
}

// usable refuses a version that is not enabled.
func (v *keyVersion) usable(now time.Time) *service.Refusal {
	if state := v.state(now); state != versionEnabled {
		return v.failedPrecondition(v.name+" is not enabled, current state is: "+string(state)+".", now)
	}
	return nil
}

// changeable refuses a version that is destroyed, or will be.
func (v *keyVersion) changeable(now time.Time) *service.Refusal {
	if state := v.state(now); state == versionScheduled || state == versionDestroyed {
		return v.failedPrecondition(
			"The request cannot be fulfilled. Resource "+v.name+" has value "+string(state)+" in field crypto_key_version.state.", now)
	}
	return nil
}

// enumValue is a value of an enumeration: its name, or its number in decimal. Requests have either.
// Source: Protocol Buffers, "ProtoJSON format".
type enumValue string

// UnmarshalJSON reads a name or a number.
func (e *enumValue) UnmarshalJSON(text []byte) error {
	*e = enumValue(strings.Trim(string(text), `"`))
	return nil
}

// ringMessage is a key ring in the API's JSON.
type ringMessage struct {
	Name       string `json:"name,omitempty"`
	CreateTime string `json:"createTime,omitempty"`
}

// keyMessage is a key in the API's JSON.
type keyMessage struct {
	Name                     string           `json:"name,omitempty"`
	Primary                  *versionMessage  `json:"primary,omitempty"`
	Purpose                  enumValue        `json:"purpose,omitempty"`
	CreateTime               string           `json:"createTime,omitempty"`
	VersionTemplate          *versionTemplate `json:"versionTemplate,omitempty"`
	DestroyScheduledDuration string           `json:"destroyScheduledDuration,omitempty"`
}

type versionTemplate struct {
	ProtectionLevel enumValue `json:"protectionLevel,omitempty"`
	Algorithm       enumValue `json:"algorithm,omitempty"`
}

// versionMessage is a version in the API's JSON.
type versionMessage struct {
	Name  string    `json:"name,omitempty"`
	State enumValue `json:"state,omitempty"`
	versionTemplate

	CreateTime   string `json:"createTime,omitempty"`
	GenerateTime string `json:"generateTime,omitempty"`
	DestroyTime  string `json:"destroyTime,omitempty"`
}

func kmsTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func (r *keyRing) answer() ringMessage { return ringMessage{r.name, kmsTime(r.created)} }

func (k *cryptoKey) answer(now time.Time) keyMessage {
	return keyMessage{
		Name: k.name, Primary: k.primary.answer(now), Purpose: purposeEncrypt, CreateTime: kmsTime(k.created),
		VersionTemplate:          &versionTemplate{protectionSoftware, algorithmSymmetric},
		DestroyScheduledDuration: strconv.Itoa(int(destroyAfter/time.Second)) + "s",
	}
}

func (v *keyVersion) answer(now time.Time) *versionMessage {
	m := &versionMessage{
		Name: v.name, State: v.state(now), versionTemplate: versionTemplate{protectionSoftware, algorithmSymmetric},
		CreateTime: kmsTime(v.created), GenerateTime: kmsTime(v.created),
	}
	if v.status == versionScheduled {
		m.DestroyTime = kmsTime(v.destroyed)
	}
	return m
}

func (*Cloud) createKeyRing(call *kmsCall, _ ringMessage) (any, *service.Refusal) {
	config := KeyRing{Location: call.names[1], Name: call.query.Get(paramRing)}
	if old := call.project.keyRings[ringKey(config.Location, config.Name)]; old != nil {
		return nil, alreadyExists("KeyRing " + old.name + " already exists.")
	}
	made, err := config.parse(call.project.id, call.Now)
	if err != nil {
		return nil, invalidSetting(err, map[string]string{"name": "key_ring_id"})
	}
	call.project.keyRings[ringKey(config.Location, config.Name)] = made
	return made.answer(), nil
}

func (*Cloud) getKeyRing(call *kmsCall, _ struct{}) (any, *service.Refusal) {
	return call.ring.answer(), nil
}

// createCryptoKey makes a key with one version, which is the primary one.
func (*Cloud) createCryptoKey(call *kmsCall, q keyMessage) (any, *service.Refusal) {
	id := call.query.Get(paramKey)
	var template versionTemplate
	if q.VersionTemplate != nil {
		template = *q.VersionTemplate
	}
	switch {
	case !kmsPattern.MatchString(id):
		return nil, invalidArgument("Invalid value for crypto_key_id: give 1 to 63 letters, digits, hyphens and underscores")
	case call.ring.keys[id] != nil:
		return nil, alreadyExists("CryptoKey " + call.ring.keys[id].name + " already exists.")
	case q.Purpose != purposeEncrypt && q.Purpose != "1",
		!slices.Contains([]enumValue{"", protectionSoftware, "0", "1"}, template.ProtectionLevel),
		!slices.Contains([]enumValue{"", algorithmSymmetric, "0", "1"}, template.Algorithm):
		return nil, invalidArgument("Request contains an invalid argument.").
			Because("the local cloud has keys of the purpose ENCRYPT_DECRYPT in software only")
	}
	key := newKey(call.ring.name+"/cryptoKeys/"+id, nil, call.Now)
	call.ring.keys[id] = key
	return key.answer(call.Now), nil
}

func (*Cloud) getCryptoKey(call *kmsCall, _ struct{}) (any, *service.Refusal) {
	return call.key.answer(call.Now), nil
}

// primaryRequest is the request body of cryptoKeys.updatePrimaryVersion.
type primaryRequest struct {
	Name    string `json:"name"`
	Version string `json:"cryptoKeyVersionId"`
}

func (*Cloud) updatePrimaryVersion(call *kmsCall, q primaryRequest) (any, *service.Refusal) {
	version := call.key.version(q.Version)
	if version == nil {
		return nil, service.Refuse(http.StatusNotFound, codeNotFound,
			"CryptoKeyVersion "+call.key.name+"/cryptoKeyVersions/"+q.Version+" not found.")
	}
	if refusal := version.usable(call.Now); refusal != nil {
		return nil, refusal
	}
	call.key.primary = version
	return call.key.answer(call.Now), nil
}

// createKeyVersion makes a version, which does not become the primary one.
func (*Cloud) createKeyVersion(call *kmsCall, _ versionMessage) (any, *service.Refusal) {
	return call.key.addVersion(call.Now).answer(call.Now), nil
}

func (*Cloud) getKeyVersion(call *kmsCall, _ struct{}) (any, *service.Refusal) {
	return call.version.answer(call.Now), nil
}

// updateKeyVersion enables or disables a version.
func (*Cloud) updateKeyVersion(call *kmsCall, q versionMessage) (any, *service.Refusal) {
	state, known := map[enumValue]enumValue{
		versionEnabled: versionEnabled, "1": versionEnabled, versionDisabled: versionDisabled, "2": versionDisabled,
	}[q.State]
	if !known || call.query.Get(paramMask) != "state" {
		return nil, invalidArgument("Request contains an invalid argument.").
			Because("updateMask must be state, and the state must be ENABLED or DISABLED")
	}
	if refusal := call.version.changeable(call.Now); refusal != nil {
		return nil, refusal
	}
	call.version.status = state
	return call.version.answer(call.Now), nil
}

// nameRequest is a request body that only repeats the name in the path, or is empty.
type nameRequest struct {
	Name string `json:"name"`
}

// destroyKeyVersion makes a version unusable at once, and destroys it after 30 days.
func (*Cloud) destroyKeyVersion(call *kmsCall, _ nameRequest) (any, *service.Refusal) {
	if refusal := call.version.changeable(call.Now); refusal != nil {
		return nil, refusal
	}
	call.version.status, call.version.destroyed = versionScheduled, call.Now.Add(destroyAfter)
	return call.version.answer(call.Now), nil
}

// parse checks a key ring, and makes it with new keys.
func (r KeyRing) parse(projectID string, now time.Time) (*keyRing, error) {
	switch {
	case !kmsLocationPattern.MatchString(r.Location):
		return nil, setting.Invalid("location", "%q is not a location", r.Location)
	case !kmsPattern.MatchString(r.Name):
		return nil, setting.Invalid("name", "%q is not the name of a key ring: give 1 to 63 letters, digits, hyphens and underscores", r.Name)
	}
	bindings, err := parseBindings(r.Bindings, ofOther)
	if err != nil {
		return nil, err
	}
	made := &keyRing{name: kmsName(projectID, r.Location, r.Name), policy: bindings, created: now, keys: map[string]*cryptoKey{}}
	return made, setting.Fill("keys", "key", r.Keys, func(k CryptoKey) string { return k.Name }, func(k CryptoKey) error {
		if !kmsPattern.MatchString(k.Name) {
			return setting.Invalid("name", "%q is not the name of a key: give 1 to 63 letters, digits, hyphens and underscores", k.Name)
		}
		bindings, err := parseBindings(k.Bindings, ofOther)
		made.keys[k.Name] = newKey(made.name+"/cryptoKeys/"+k.Name, bindings, now)
		return err
	})
}

// putKeyRing adds a key ring with its keys. Of keys that exist already, it replaces the policies
// only, so that old ciphertexts stay readable. Existing keys that the configuration does not name
// stay too.
func (p *project) putKeyRing(config KeyRing) error {
	made, err := config.parse(p.id, time.Now())
	if err != nil {
		return err
	}
	at := ringKey(config.Location, config.Name)
	if old := p.keyRings[at]; old != nil {
		made.created = old.created
		for id, key := range old.keys {
			if changed := made.keys[id]; changed != nil {
				key.policy = changed.policy
			}
			made.keys[id] = key
		}
	}
	p.keyRings[at] = made
	return nil
}
