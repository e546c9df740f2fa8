package e2e

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// TestLockdown runs controllers with flags that restrict the ServiceAccounts of objects. Some flags
// decide which identity an object without a ServiceAccount in its spec gets. Another decides
// whether the spec may set a ServiceAccount. A refused object must not be retried, and the message
// must contain the flag.
func TestLockdown(t *testing.T) {
	beside(t)
	const fallback = "fallback"
	stalled := func(words ...string) func(o *v1alpha1.OCIRepository) error {
		return func(o *v1alpha1.OCIRepository) error {
			if err := failing("NotGranted", words...)(o); err != nil {
				return err
			}
			return wantf(apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionStalled), "it is not stalled: %+v", o.Status.Conditions)
		}
	}
	// objects has three objects:
	//   - bare has no ServiceAccount in its spec
	//   - named has one in its spec
	//   - defaulted has none in its spec; only its namespace has the ServiceAccount "fallback"
	type objects struct{ bare, named, defaulted *v1alpha1.OCIRepository }
	tests := []struct {
		name   string
		values map[string]any
		await  func(t *testing.T, o objects)
	}{
		{"required", map[string]any{"identity": map[string]any{"requireServiceAccount": true}}, func(t *testing.T, o objects) {
			t.Helper()
			await(t, o.bare, "the refusal", stalled("--require-service-account-for-provider-auth", "spec.serviceAccountName"))
			await(t, o.named, "the artifact", pulled)
		}},
		{"gate-off", map[string]any{"featureGates": map[string]any{"ObjectLevelWorkloadIdentity": false}}, func(t *testing.T, o objects) {
			t.Helper()
			await(t, o.named, "the refusal", stalled("ObjectLevelWorkloadIdentity", "spec.serviceAccountName"))
			await(t, o.bare, "the refusal", stalled("--controller-identity-namespaces"))
		}},
		{"default", map[string]any{"identity": map[string]any{"defaultServiceAccount": fallback}}, func(t *testing.T, o objects) {
			t.Helper()
			await(t, o.bare, "the refusal", failing("SubjectNotFound", o.bare.Namespace+"/"+fallback))
			await(t, o.named, "the artifact", pulled)
			await(t, o.defaulted, "the artifact", pulled)
			if id := o.defaulted.Status.Identity; id == nil || id.Subject != "system:serviceaccount:"+o.defaulted.Namespace+":"+fallback {
				t.Errorf("it was pulled as %+v; want its namespace's account %s", id, fallback)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := takeShard(t)
			s.start(t, "lockdown-"+tt.name, tt.values)
			tn, with := s.newTenant(t, "lockdown-"+tt.name), s.newTenant(t, "lockdown-with-"+tt.name)
			putRole(t, with.namespace+"-"+fallback, "system:serviceaccount:"+with.namespace+":"+fallback, with.namespace+"/app")
			with.putAccount(t, fallback, roleARN(with.namespace+"-"+fallback))
			object := func(tn *tenant, name, account string) *v1alpha1.OCIRepository {
				o := tn.object(name)
				o.Spec.ServiceAccountName = account
				create(t, o)
				return o
			}
			tn.pushFile(t, "1.0.0", "app")
			with.pushFile(t, "1.0.0", "app")
			tt.await(t, objects{object(tn, "bare", ""), object(tn, "named", puller), object(with, "defaulted", "")})
		})
	}
}
