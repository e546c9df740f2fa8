package kube

import (
	"fmt"
	"iter"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// keyState is the state of a key in a KeyRing's status.
type keyState string

const (
	// keyActive is the state of a key that signs.
	keyActive keyState = "Active"
	// keyRemoved is the state of a key after everything that it signed has expired.
	keyRemoved keyState = "Removed"
)

// accepted is true for the states in which a key's signatures are valid. Keys in these states
// belong in the issuer's public document.
func (s keyState) accepted() bool {
	switch s {
	case "Pending", "Published", keyActive, "Retiring":
		return true
	default: // Removed, Revoked, and states that this version does not know
		return false
	}
}

// ringState is the status of a KeyRing in memory.
type ringState struct {
	known       bool                // the ring exists
	kept        bool                // the token server has written the ring's status
	keys        map[string]keyState // by kid
	authorities map[string]authority
	trustDomain string
	issuer      string
}

// authority is a certificate authority in a ring's status.
type authority struct {
	state       keyState
	certificate string // PEM
}

// lost is true if a key or an authority is valid in s but invalid in next, although its signatures
// may not have expired yet.
func (s ringState) lost(next ringState) bool {
	for kid, state := range s.keys {
		if now := next.keys[kid]; state.accepted() && !now.accepted() && now != keyRemoved {
			return true
		}
	}
	for id, authority := range s.authorities {
		if now := next.authorities[id].state; authority.state.accepted() && !now.accepted() && now != keyRemoved {
			return true
		}
	}
	return false
}

// ring stores the state of one KeyRing in memory. It is the event handler of the KeyRing's
// informer.
type ring struct {
	name    types.NamespacedName
	changed func(last, next ringState) // called after each change

	state atomic.Pointer[ringState] // nil before the first event
}

var _ toolscache.ResourceEventHandler = (*ring)(nil)

func ringObject() *unstructured.Unstructured { return identityKind("KeyRing") }

// load returns the state, or the zero value before the first event.
func (r *ring) load() ringState {
	if state := r.state.Load(); state != nil {
		return *state
	}
	return ringState{}
}

// check refuses a token that was signed with an unknown or invalid key. Without a ring in memory,
// all keys are unknown.
func (r *ring) check(kid string) error {
	state := r.load()
	switch {
	case !state.known:
		return fmt.Errorf("the KeyRing %s is not known yet, or does not exist", r.name)
	case !state.keys[kid].accepted():
		return fmt.Errorf("it was signed with a key that the KeyRing %s does not have, or has revoked", r.name)
	}
	return nil
}

// OnAdd implements the event handler of an informer. The informer calls the handler's methods one
// at a time.
func (r *ring) OnAdd(object any, _ bool) { r.set(object) }

// OnUpdate implements the event handler of an informer.
func (r *ring) OnUpdate(_, object any) { r.set(object) }

// OnDelete implements the event handler of an informer. Without a ring no key is valid.
func (r *ring) OnDelete(object any) {
	if gone, err := toolscache.DeletionHandlingObjectToName(object); err == nil && gone.AsNamespacedName() == r.name {
		r.replace(ringState{})
	}
}

func (r *ring) set(object any) {
	if current, ok := object.(*unstructured.Unstructured); ok && toolscache.MetaObjectToName(current).AsNamespacedName() == r.name {
		r.replace(readRing(current))
	}
}

// replace stores the next state and then calls r.changed. The order matters: a proof made after the
// call of r.changed is checked against the next state.
func (r *ring) replace(next ringState) {
	last := r.load()
	r.state.Store(&next)
	r.changed(last, next)
}

// readRing reads the status of a KeyRing.
func readRing(object *unstructured.Unstructured) ringState {
	state := ringState{known: true, keys: map[string]keyState{}, authorities: map[string]authority{}}
	revision, _, _ := unstructured.NestedInt64(object.Object, "status", "revision")
	state.kept = revision > 0
	state.trustDomain, _, _ = unstructured.NestedString(object.Object, "status", "trustDomain")
	state.issuer, _, _ = unstructured.NestedString(object.Object, "status", "issuer")
	for key := range entries(object, "keys") {
		state.keys[textOf(key, "kid")] = keyState(textOf(key, "state"))
	}
	for entry := range entries(object, "authorities") {
		state.authorities[textOf(entry, "id")] = authority{keyState(textOf(entry, "state")), textOf(entry, "certificate")}
	}
	return state
}

// entries yields the entries of a list in a ring's status.
func entries(ring *unstructured.Unstructured, list string) iter.Seq[map[string]any] {
	return func(yield func(map[string]any) bool) {
		values, _, _ := unstructured.NestedSlice(ring.Object, "status", list)
		for _, value := range values {
			if entry, ok := value.(map[string]any); ok && !yield(entry) {
				return
			}
		}
	}
}

func textOf(entry map[string]any, field string) string {
	text, _ := entry[field].(string)
	return text
}
