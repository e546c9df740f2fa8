//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package crd_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/config/crd/crdtest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const keyringFile = "identity.lanyard.dev_keyrings.yaml"

// kid returns a string in the form of a thumbprint. Different letters give different kids.
func kid(letter string) string { return strings.Repeat(letter, 43) }

// ringOf returns a KeyRing of revision 7. Each argument describes one key, such as "a Active": a
// letter, from which [kid] makes the key's kid, and the key's state.
func ringOf(t *testing.T, keys ...string) map[string]any {
	t.Helper()
	ring := v1alpha1.KeyRing{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.KeyRingKind},
		ObjectMeta: metav1.ObjectMeta{Name: "issuer", Namespace: "lanyard-system"},
		Status:     v1alpha1.KeyRingStatus{Revision: 7},
	}
	for _, text := range keys {
		letter, state, _ := strings.Cut(text, " ")
		ring.Status.Keys = append(ring.Status.Keys, v1alpha1.RingKey{
			KID: kid(letter), Algorithm: v1alpha1.RS256, PublicKey: letter,
			KeyLife: v1alpha1.KeyLife{State: v1alpha1.KeyState(state), CreatedAt: metav1.Unix(1, 0)},
		})
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&ring)
	must.Succeed(t, err)
	return object
}

// set returns a function that sets a field of an object.
func set(value any, path ...string) func(map[string]any) {
	return func(object map[string]any) {
		for _, name := range path[:len(path)-1] {
			if object[name] == nil {
				object[name] = map[string]any{}
			}
			object = object[name].(map[string]any)
		}
		object[path[len(path)-1]] = value
	}
}

// setKey sets a field of the first key.
func setKey(field string, value any) func(map[string]any) {
	return func(object map[string]any) {
		object["status"].(map[string]any)["keys"].([]any)[0].(map[string]any)[field] = value
	}
}

// TestKeyRingSpec checks which values of the spec are accepted. An administrator writes the spec to
// request a change of the keys, such as a rotation.
func TestKeyRingSpec(t *testing.T) {
	a := crdtest.New(t, keyringFile)
	for _, tt := range []struct {
		name string
		edit func(map[string]any)
		want string // part of the refusal; empty if the spec is accepted
	}{
		{"nothing", set(nil, "spec"), ""},
		{"a rotation", set("2026-03-01T12:00:00Z", "spec", "rotate"), ""},
		{"a long rotation", set(strings.Repeat("x", 65), "spec", "rotate"), "Too long"},
		{"a confirmation", set([]any{map[string]any{"kid": kid("a")}}, "spec", "confirm"), ""},
		{"a confirmation without kid", set([]any{map[string]any{"skipDelay": true}}, "spec", "confirm"), "Required"},
		{"a confirmation of a short kid", set([]any{map[string]any{"kid": "a"}}, "spec", "confirm"), "kid must be 43"},
		{"a revocation", set([]any{kid("a"), kid("-"), kid("_")}, "spec", "revoke"), ""},
		{"a revocation of everything", set([]any{"*"}, "spec", "revoke"), "revoke must contain kids"},
		{"a revocation with a newline", set([]any{kid("a")[1:] + "\n"}, "spec", "revoke"), "revoke must contain kids"},
		{"a revocation of an authority", set([]any{strings.Repeat("0a", 32)}, "spec", "revoke"), ""},
		{"two revocations of one key", set([]any{kid("a"), kid("a")}, "spec", "revoke"), "Duplicate"},
	} {
		object := ringOf(t)
		tt.edit(object)
		judge(t, tt.name, a.Admit(t.Context(), object).ToAggregate(), tt.want)
	}
}

// TestKeyRingTransitions checks which changes of a ring's status are accepted, whoever writes them.
func TestKeyRingTransitions(t *testing.T) {
	a := crdtest.New(t, keyringFile)
	const forward = "a key's state only moves forward"
	for _, tt := range []struct {
		name        string
		old, object map[string]any
		edit        func(map[string]any)
		want        string
	}{
		{"a new ring", ringOf(t), ringOf(t, "a Pending", "b Pending"), nil, ""},
		{"a first key that is confirmed", ringOf(t, "a Pending"), ringOf(t, "a Active"), nil, ""},
		{"a rotation", ringOf(t, "a Active", "b Published"), ringOf(t, "a Retiring", "b Active", "c Pending"), nil, ""},
		{"a document that has lost a key", ringOf(t, "a Active", "b Published"), ringOf(t, "a Active", "b Pending"), nil, ""},
		{"a revocation", ringOf(t, "a Active", "b Published"), ringOf(t, "a Revoked", "b Active"), nil, ""},
		{"a key that is forgotten", ringOf(t, "a Removed", "b Active"), ringOf(t, "b Active"), nil, ""},
		{"an active key that is forgotten", ringOf(t, "a Active"), ringOf(t), nil, "a key leaves the ring only after"},
		{"a status that is forgotten", ringOf(t, "a Active"), ringOf(t), func(o map[string]any) { delete(o, "status") }, "status must stay"},
		{"two active keys", ringOf(t, "a Active", "b Published"), ringOf(t, "a Active", "b Active"), nil, "at most one active key"},
		{"a retiring key that signs again", ringOf(t, "a Retiring"), ringOf(t, "a Active"), nil, forward},
		{"an active key that is removed at once", ringOf(t, "a Active"), ringOf(t, "a Removed"), nil, forward},
		{"a removed key that comes back", ringOf(t, "a Removed"), ringOf(t, "a Retiring"), nil, forward},
		{"a revoked key that comes back", ringOf(t, "a Revoked"), ringOf(t, "a Active"), nil, "a key's state only moves forward"},
		{"a revoked key that is only removed", ringOf(t, "a Revoked"), ringOf(t, "a Removed"), nil, "a key's state only moves forward"},
		{"another public key under a kid", ringOf(t, "a Active"), ringOf(t, "a Active"), setKey("publicKey", "x"), "a key never changes"},
		{"another algorithm", ringOf(t, "a Active"), ringOf(t, "a Active"), setKey("algorithm", "ES256"), "a key never changes"},
		{"an unknown algorithm", ringOf(t), ringOf(t, "a Pending"), setKey("algorithm", "HS256"), "Unsupported value"},
		{"an unknown state", ringOf(t), ringOf(t, "a Pending"), setKey("state", "Trusted"), "Unsupported value"},
		{"a kid that is no thumbprint", ringOf(t), ringOf(t, "a Pending"), setKey("kid", "a"), "thumbprint"},
		{"a status of yesterday", ringOf(t, "a Active"), ringOf(t, "a Active"), set(int64(6), "status", "revision"), "revision must not go back"},
		{"a status without revision", ringOf(t, "a Active"), ringOf(t, "a Active"), func(o map[string]any) { delete(o["status"].(map[string]any), "revision") }, "revision must not go back"},
	} {
		if tt.edit != nil {
			tt.edit(tt.object)
		}
		if errs := a.Admit(t.Context(), tt.old); len(errs) > 0 {
			t.Errorf("%s: the ring before: %v", tt.name, errs)
		}
		judge(t, tt.name, a.AdmitUpdate(t.Context(), tt.object, tt.old).ToAggregate(), tt.want)
	}
}

// trusting returns a ring with authorities. Each argument describes one authority, such as
// "a Active": a letter, and the authority's state. The authority's id is the letter repeated.
func trusting(t *testing.T, authorities ...string) map[string]any {
	t.Helper()
	object := ringOf(t, "a Active")
	var all []any
	for _, text := range authorities {
		letter, state, _ := strings.Cut(text, " ")
		all = append(all, map[string]any{
			"id": strings.Repeat(letter, 64), "certificate": letter, "kid": kid(letter), "state": state, "createdAt": "2026-03-01T12:00:00Z",
		})
	}
	object["status"].(map[string]any)["authorities"] = all
	return object
}

// setAuthority sets a field of the first authority.
func setAuthority(field string, value any) func(map[string]any) {
	return func(object map[string]any) {
		object["status"].(map[string]any)["authorities"].([]any)[0].(map[string]any)[field] = value
	}
}

// TestAuthorityTransitions checks which changes of authorities are accepted.
func TestAuthorityTransitions(t *testing.T) {
	a := crdtest.New(t, keyringFile)
	const forward = "a key's state only moves forward"
	for _, tt := range []struct {
		name        string
		old, object map[string]any
		edit        func(map[string]any)
		want        string
	}{
		{"a new ring", ringOf(t, "a Active"), trusting(t, "a Pending", "b Pending"), nil, ""},
		{"a rotation", trusting(t, "a Active", "b Published"), trusting(t, "a Retiring", "b Active"), nil, ""},
		{"a renewed intermediate", trusting(t, "a Active"), trusting(t, "a Active"), setAuthority("intermediate", "x"), ""},
		{"an authority that is forgotten", trusting(t, "a Revoked", "b Active"), trusting(t, "b Active"), nil, ""},
		{"an active authority that is forgotten", trusting(t, "a Active"), ringOf(t, "a Active"), nil, "an authority leaves the ring only after"},
		{"two active authorities", trusting(t, "a Active", "b Published"), trusting(t, "a Active", "b Active"), nil, "at most one active authority"},
		{"a retiring authority that signs again", trusting(t, "a Retiring"), trusting(t, "a Active"), nil, forward},
		{"a revoked authority that comes back", trusting(t, "a Revoked"), trusting(t, "a Active"), nil, forward},
		{"another certificate", trusting(t, "a Active"), trusting(t, "a Active"), setAuthority("certificate", "x"), "an authority never changes"},
		{"another key", trusting(t, "a Active"), trusting(t, "a Active"), setAuthority("kid", kid("c")), "an authority never changes"},
		{"an own authority that becomes an imported one", trusting(t, "a Active"), trusting(t, "a Active"), setAuthority("imported", true), "an authority never changes"},
		{"an ID that is no digest", ringOf(t, "a Active"), trusting(t, "a Pending"), setAuthority("id", "a"), "SHA-256"},
	} {
		if tt.edit != nil {
			tt.edit(tt.object)
		}
		if errs := a.Admit(t.Context(), tt.old); len(errs) > 0 {
			t.Errorf("%s: the ring before: %v", tt.name, errs)
		}
		judge(t, tt.name, a.AdmitUpdate(t.Context(), tt.object, tt.old).ToAggregate(), tt.want)
	}
}

// judge compares an error with the expected part of its text.
func judge(t *testing.T, name string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: refused: %v", name, err)
	case want != "" && err == nil:
		t.Errorf("%s: accepted", name)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("%s: refused otherwise than %s: %v", name, want, err)
	}
}

// TestIdentityKindsAreRegistered checks that the scheme has a Go type for each kind of the CRD.
func TestIdentityKindsAreRegistered(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	spec := crdtest.Read(t, keyringFile).Spec
	if spec.Group != v1alpha1.Group || spec.Versions[0].Name != v1alpha1.Version {
		t.Errorf("%s is of %s/%s", keyringFile, spec.Group, spec.Versions[0].Name)
	}
	for _, kind := range []string{spec.Names.Kind, spec.Names.ListKind} {
		if !scheme.Recognizes(v1alpha1.GroupVersion().WithKind(kind)) {
			t.Errorf("the scheme does not know %s", kind)
		}
	}
}
