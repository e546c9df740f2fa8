package apply

import (
	"crypto/sha256"
	"maps"

	"github.com/fluxcd/cli-utils/pkg/object"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Versions remembers in which version each object was as wanted. It keeps 16 bytes for an object.
// A nil Versions remembers nothing.
type Versions struct{ seen map[fingerprint]struct{} }

// fingerprint is the begin of the SHA-256 of an object's key, UID and resourceVersion.
type fingerprint [16]byte

// Len returns the number of remembered objects.
func (v *Versions) Len() int {
	if v == nil {
		return 0
	}
	return len(v.seen)
}

// Keep forgets all versions that are not among others.
func (v *Versions) Keep(others *Versions) {
	maps.DeleteFunc(v.seen, func(f fingerprint, _ struct{}) bool {
		_, ok := others.seen[f]
		return !ok
	})
}

// add remembers that an object with this UID and resourceVersion is as wanted.
func (v *Versions) add(key object.ObjMetadata, uid types.UID, version string) {
	if uid == "" || version == "" {
		return
	}
	if v.seen == nil {
		v.seen = map[fingerprint]struct{}{}
	}
	v.seen[fingerprintOf(key, uid, version)] = struct{}{}
}

// Add remembers that an object is as wanted in its present version.
func (v *Versions) Add(o *unstructured.Unstructured) {
	v.add(keyOf(o), o.GetUID(), o.GetResourceVersion())
}

// has reports whether the object was as wanted in this version.
func (v *Versions) has(key object.ObjMetadata, uid types.UID, version string) bool {
	if v == nil {
		return false
	}
	_, ok := v.seen[fingerprintOf(key, uid, version)]
	return ok
}

func fingerprintOf(key object.ObjMetadata, uid types.UID, version string) fingerprint {
	sum := sha256.Sum256([]byte(key.String() + "\x00" + string(uid) + "\x00" + version))
	return fingerprint(sum[:len(fingerprint{})])
}
