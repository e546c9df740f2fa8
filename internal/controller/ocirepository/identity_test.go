package ocirepository

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
)

const identityOfA = "lanyard.dev:workloadidentity:tenant-a:puller"

// identity gives tenant A a WorkloadIdentity. The tenant's role trusts the WorkloadIdentity instead
// of the ServiceAccount of the same name.
func (w *world) identity() {
	w.T.Helper()
	w.tenant("tenant-a", roleA)
	subject, err := auth.WorkloadIdentity("tenant-a", "puller")
	if err != nil {
		w.T.Fatal(err)
	}
	w.Accounts.PutSubject(subject, "uid-wi", map[string]string{"role": roleA})
	w.Cloud.Trust(roleA, identityOfA)
}

func named(o *v1alpha1.OCIRepository) {
	o.Spec.ServiceAccountName, o.Spec.WorkloadIdentityName = "", "puller"
}

// renew adds the annotation that requests new tokens, and an annotation that belongs to somebody
// else.
func (w *world) renew(o *v1alpha1.OCIRepository) {
	w.T.Helper()
	o = w.Get(o)
	o.Annotations = map[string]string{"note": "mine", meta.OperationAnnotation: meta.OperationRenewToken}
	if err := w.Kube.Update(w.T.Context(), o); err != nil {
		w.T.Fatal(err)
	}
}

func TestWorkloadIdentity(t *testing.T) {
	w := newWorld(t)
	w.identity()
	o, _ := w.Reconcile(w.create("tenant-a", "app", named))
	if controllertest.Ready(o).Status != metav1.ConditionTrue || w.Served(o)["hello.txt"] != "hello tenant-a" {
		t.Fatalf("%+v", controllertest.Ready(o))
	}
	if o.Status.Identity == nil || o.Status.Identity.Subject != identityOfA || o.Status.Identity.CloudIdentity != roleA {
		t.Errorf("%+v", o.Status.Identity)
	}

	// The ServiceAccount of the same name is another subject.
	account, _ := w.Reconcile(w.create("tenant-a", "account", nil))
	if got := controllertest.Ready(account).Reason; got != string(auth.CodeTrustRefused) {
		t.Errorf("the ServiceAccount of the same name: %s", got)
	}
	// Another tenant cannot use the WorkloadIdentity.
	other, _ := w.Reconcile(w.create("tenant-b", "app", named))
	if got := controllertest.Ready(other); got.Reason != string(auth.CodeSubjectNotFound) || controllertest.Condition(other, meta.ConditionStalled).Status != metav1.ConditionTrue {
		t.Errorf("another tenant's object: %+v", got)
	}
}

// TestWorkloadIdentityWithoutIssuer checks an object that names a WorkloadIdentity in a cluster
// without a token server. The object must be stalled. The message must name the value issuer.url of
// the Helm chart.
func TestWorkloadIdentityWithoutIssuer(t *testing.T) {
	w := newWorld(t)
	w.identity()
	w.Shared.Rules.TokenServer = false
	o, _ := w.Reconcile(w.create("tenant-a", "app", named))
	got := controllertest.Ready(o)
	if got.Reason != string(auth.CodeNotGranted) || !strings.Contains(got.Message, "issuer.url") || controllertest.Condition(o, meta.ConditionStalled).Status != metav1.ConditionTrue {
		t.Errorf("%+v", got)
	}
}

// TestWorkloadIdentityAtHub checks an object that names a WorkloadIdentity in a cluster whose
// WorkloadIdentities are in another cluster, its hub. The object must be stalled. The message must
// name the alternative, a WorkloadIdentityBinding.
func TestWorkloadIdentityAtHub(t *testing.T) {
	w := newWorld(t)
	w.identity()
	w.Shared.Rules.IdentitiesAtHub = true
	o, _ := w.Reconcile(w.create("tenant-a", "app", named))
	got := controllertest.Ready(o)
	if got.Reason != string(auth.CodeNotGranted) || !strings.Contains(got.Message, "hub") || !strings.Contains(got.Message, "WorkloadIdentityBinding") ||
		controllertest.Condition(o, meta.ConditionStalled).Status != metav1.ConditionTrue {
		t.Errorf("%+v", got)
	}
	if len(w.Cloud.Exchanges()) != 0 {
		t.Error("a token was exchanged")
	}
}

// TestRenewal checks that a request for new tokens causes one exchange, and that the request is
// removed after a success.
func TestRenewal(t *testing.T) {
	w := newWorld(t)
	w.identity()
	o, _ := w.Reconcile(w.create("tenant-a", "app", named))
	w.renew(o)
	w.Cloud.Trust(roleA, "somebody else")
	o, _ = w.Reconcile(o)
	if got := controllertest.Ready(o).Reason; got != string(auth.CodeTrustRefused) || o.Annotations[meta.OperationAnnotation] == "" || len(w.Cloud.Exchanges()) != 2 {
		t.Errorf("a renewal that fails: %s, %d exchanges, annotations %q", got, len(w.Cloud.Exchanges()), o.Annotations)
	}
	w.Cloud.Trust(roleA, identityOfA)
	w.Request(o, "1")
	o, _ = w.Reconcile(o)
	if controllertest.Ready(o).Status != metav1.ConditionTrue || o.Annotations[meta.OperationAnnotation] != "" {
		t.Errorf("%+v, annotations %q", controllertest.Ready(o), o.Annotations)
	}
	// Repeated requests of a tenant must not cause more exchanges.
	exchanges := len(w.Cloud.Exchanges())
	for range 5 {
		w.renew(o)
		if o, _ = w.Reconcile(o); o.Annotations[meta.OperationAnnotation] != "" || o.Annotations["note"] != "mine" {
			t.Errorf("annotations %q", o.Annotations)
		}
	}
	if got := len(w.Cloud.Exchanges()); got != exchanges {
		t.Errorf("%d exchanges more", got-exchanges)
	}
}

// TestNoRenewalOfServiceAccounts checks that the request for new tokens is ignored on an object
// without a WorkloadIdentity.
func TestNoRenewalOfServiceAccounts(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", roleA)
	o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
	w.renew(o)
	o, _ = w.Reconcile(o)
	if o.Annotations[meta.OperationAnnotation] == "" || len(w.Cloud.Exchanges()) != 1 {
		t.Errorf("annotations %q, %d exchanges", o.Annotations, len(w.Cloud.Exchanges()))
	}
}
