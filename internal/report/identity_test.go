package report_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// TestIdentities checks the rows of the AWS objects of one namespace, and of the whole cluster.
// Only the second list must have the identities that administrators lend.
func TestIdentities(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(identityv1.AddToScheme(scheme), infrav1.AddToScheme(scheme)))
	conditions := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: meta.ConditionReady, Status: status, Reason: reason, Message: "so it is"}}
	}
	role := &identityv1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}
	role.Status.Conditions, role.Status.ARN = conditions(metav1.ConditionTrue, meta.ReasonSucceeded), "arn:aws:sts::222233334444:assumed-role/reader/reader"
	role.Status.Chain = []string{"AWSClusterRoleIdentity/reader", "AWSClusterControllerIdentity/default"}
	own := &identityv1.AWSServiceAccountIdentity{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "own"}}
	refused := &infrav1.AWSCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "test"}, Spec: infrav1.AWSClusterSpec{
		Region: "eu-west-1", IdentityRef: &meta.AWSIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: "reader"},
	}}
	refused.Status.Conditions = conditions(metav1.ConditionFalse, meta.ReasonPrincipalUsageUnauthorized)
	known := fake.NewClientBuilder().WithScheme(scheme).WithObjects([]client.Object{role, own, refused}...).Build()

	rows, err := report.Identities(t.Context(), known, kinds.All(), "")
	if err != nil || len(rows) != 3 {
		t.Fatalf("%+v, %v", rows, err)
	}
	var shown bytes.Buffer
	must.Succeed(t, report.Table(&shown, rows, false))
	for i, want := range [][]string{
		{"-", "awsclusterroleidentity/reader", "assumed-role/reader/reader", "Ready", "Succeeded: so it is"},
		{"team-a", "awscluster/test", "none (awsclusterroleidentity/reader)", "Refused", "PrincipalUsageUnauthorized"},
		{"team-b", "awsserviceaccountidentity/own", "none (awsserviceaccountidentity/own)", "Pending"},
	} {
		line := strings.Split(shown.String(), "\n")[i+1]
		for _, word := range want {
			if !strings.Contains(line, word) {
				t.Errorf("line %d has no %q: %s", i, word, line)
			}
		}
		if rows[i].OK() != (i == 0) {
			t.Errorf("row %d is OK: %t", i, rows[i].OK())
		}
	}
	if rows, err := report.Identities(t.Context(), known, kinds.All(), "team-a"); err != nil || len(rows) != 1 || rows[0].Kind != infrav1.AWSClusterKind {
		t.Errorf("of one namespace: %+v, %v", rows, err)
	}
	// The row of an AWSCluster takes Subject from its spec, and Identity from its status.
	cluster := &infrav1.AWSCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "test"}}
	cluster.Spec.IdentityRef = &meta.AWSIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: "new"}
	cluster.Status.Identity = &meta.Identity{Subject: "lanyard.dev:awsclusterroleidentity:old", Provider: "aws", CloudIdentity: "arn:aws:iam::222233334444:role/old"}
	row := report.Of(report.Read(kinds.All(), cluster))
	if row.Subject != "lanyard.dev:awsclusterroleidentity:new" || row.Identity != cluster.Status.Identity.CloudIdentity {
		t.Errorf("%+v", row)
	}
	cluster.Status.Identity.CloudIdentity = ""
	if row := report.Of(report.Read(kinds.All(), cluster)); row.Identity != "" {
		t.Errorf("%+v", row)
	}
	// The row of the AWSClusterControllerIdentity also says which grants an object needs if it
	// fetches from AWS and names no identity. The row says so for every status of the condition
	// Ready.
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, ""} {
		lent := &identityv1.AWSClusterControllerIdentity{ObjectMeta: metav1.ObjectMeta{Name: identityv1.DefaultControllerIdentity}}
		if status != "" {
			lent.Status.Conditions = conditions(status, "Some")
		}
		rows, err := report.Identities(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(lent).Build(), kinds.All(), "")
		if err != nil || len(rows) != 1 || !strings.Contains(rows[0].Message, "that names no identity needs this grant") {
			t.Errorf("Ready %q: %+v, %v", status, rows, err)
		}
	}
	// Without objects of these kinds, there are no rows.
	if rows, err := report.Identities(t.Context(), fake.NewClientBuilder().WithScheme(scheme).Build(), kinds.All(), ""); err != nil || len(rows) != 0 {
		t.Errorf("%+v, %v", rows, err)
	}
}
