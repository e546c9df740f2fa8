package tokenserver

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestLargeIdentity checks that the cache keeps at most 1 KiB of each identity, even of an identity
// with megabytes of data. The issuer must accept the reduced identity if its providerConfig was
// small, and must refuse the reduced identity if its providerConfig was large.
func TestLargeIdentity(t *testing.T) {
	made := &issuer.Issuer{URL: "https://issuer.example.com", Limits: issuer.Limits{Min: time.Minute, Default: time.Hour, Max: time.Hour}}
	for _, tt := range []struct {
		name    string
		config  string
		refused bool
	}{
		{"a small config", `{"a":"b"}`, false},
		{"a megabyte in one field", `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, true},
		{"a megabyte of lists", `{"a":[` + strings.Repeat("[],", 1<<18) + `[]]}`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			large := strings.Repeat("x", 200<<10)
			identity := &identityv1.WorkloadIdentity{ObjectMeta: metav1.ObjectMeta{
				Namespace: "garden", Name: "banana", UID: "1", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": large},
				OwnerReferences: []metav1.OwnerReference{{Name: large}},
			}}
			identity.Spec = identityv1.WorkloadIdentitySpec{
				Audiences: []string{"foo"}, SubjectFormat: identityv1.SubjectFormatUID, SigningAlgorithm: identityv1.RS256,
				TargetSystem: identityv1.TargetSystem{Type: "foo", ProviderConfig: &runtime.RawExtension{Raw: []byte(tt.config)}},
			}
			identity.Status.Sub = large
			api := newClient(t, identity)
			watched := identity.DeepCopy()
			watched.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: large}}
			remembered, err := Remember(watched)
			must.Succeed(t, err)
			kept, err := json.Marshal(remembered)
			if err != nil || len(kept) > 1<<10 {
				t.Fatalf("memory keeps %d bytes, %v", len(kept), err)
			}
			for _, from := range []client.Reader{newClient(t, remembered.(*identityv1.WorkloadIdentity)), newClient(t)} {
				read, err := CachedIdentities{Memory: from, Live: api}.Get(t.Context(), "garden", "banana", "1")
				must.Succeed(t, err)
				if errs := made.Validate(read); (len(errs) > 0) != tt.refused || tt.refused && errs[0].Field != "spec.targetSystem.providerConfig" {
					t.Errorf("refused: %v", errs)
				}
				if !tt.refused && (string(read.Spec.TargetSystem.ProviderConfig.Raw) != tt.config || read.Annotations != nil || read.Labels["a"] != "b") {
					t.Errorf("kept: %.200v", read)
				}
			}
			if errs := made.Validate(identity); (len(errs) > 0) != tt.refused {
				t.Errorf("the whole identity: %v", errs)
			}
		})
	}
}

// TestFromOtherRings checks that FromOtherRings returns the issuer of an identity only if the
// identity's status has a KeyRing other than the given one. As in production, the cache has the
// reduced identities that [Remember] makes.
func TestFromOtherRings(t *testing.T) {
	var known []client.Object
	for name, status := range map[string]identityv1.WorkloadIdentityStatus{
		"new":    {Issuer: "https://new.example.com"},
		"served": {Issuer: "https://issuer.example.com", KeyRing: "old"},
		"too":    {Issuer: "https://issuer.example.com", KeyRing: "old"},
		"moved":  {Issuer: "https://other.example.com", KeyRing: "old"},
		"ours":   {Issuer: "https://ours.example.com", KeyRing: "ours"},
	} {
		remembered, err := Remember(&identityv1.WorkloadIdentity{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: name}, Status: status})
		must.Succeed(t, err)
		known = append(known, remembered.(client.Object))
	}
	issuers, err := CachedIdentities{Memory: newClient(t, known...)}.FromOtherRings(t.Context(), "ours")
	if want := []string{"https://issuer.example.com", "https://other.example.com"}; err != nil || !slices.Equal(issuers, want) {
		t.Errorf("%q, %v; want %q", issuers, err, want)
	}
}
