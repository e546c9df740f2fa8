package gcp_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
)

// lendTo makes a service account with this name, and lets member impersonate it. It returns the
// address of the new service account. If member is empty, nobody may impersonate the service
// account.
func (w *world) lendTo(t *testing.T, name, member string) string {
	t.Helper()
	account := cloudgcp.ServiceAccount{Email: name + "@" + projectID + ".iam.gserviceaccount.com"}
	if member != "" {
		account.Bindings = []cloudgcp.Binding{{Role: "roles/iam.serviceAccountTokenCreator", Members: []string{"serviceAccount:" + member}}}
	}
	rig.Must(t, w.Cloud.GCP().PutServiceAccount(projectID, account))
	return account.Email
}

// TestImpersonation checks that a ServiceAccount can get a token through a chain of Google service
// accounts. It impersonates the first account, which its ServiceAccountAnnotation names. The first
// account impersonates either the second one directly, or the third one with the second as
// delegate. The Identity in the token's [auth.Key] must name all accounts of the chain.
func TestImpersonation(t *testing.T) {
	w := newWorld(t)
	account := w.tenantA(t)
	first := account.Attributes[gcp.ServiceAccountAnnotation]
	second := w.lendTo(t, "second", first)
	third := w.lendTo(t, "third-one", second)
	nobodys := w.lendTo(t, "nobodys", "")
	for chain, want := range map[string]string{second: second, second + "," + third: third} {
		token, key, err := auth.GetTokenAndKey(t.Context(), w.gcp, rig.Subject(rig.WithAttribute(account, gcp.ImpersonateAnnotation, chain), w.Sign))
		rig.Must(t, err)
		if key.Identity != first+"+"+chain {
			t.Errorf("%s: the key has the identity %s", chain, key.Identity)
		}
		if whose, err := w.whose(t.Context(), token); err != nil || !strings.Contains(whose, want) {
			t.Errorf("%s: the token is %s's, %v", chain, whose, err)
		}
	}
	if n := w.Count("iamcredentials", opImpersonate); n != 4 {
		t.Errorf("%d impersonations for two chains, want one of the first service account and one of the last for each", n)
	}
	for chain, says := range map[string]string{
		third:                 "serviceAccountTokenCreator",
		nobodys:               "serviceAccountTokenCreator",
		second + "," + first:  "serviceAccountTokenCreator",
		second + ", " + third: "annotation " + gcp.ImpersonateAnnotation,
		second + ",":          "annotation " + gcp.ImpersonateAnnotation,
		"nobody":              "annotation " + gcp.ImpersonateAnnotation,
	} {
		token, err := auth.GetToken(t.Context(), w.gcp, rig.Subject(rig.WithAttribute(account, gcp.ImpersonateAnnotation, chain), w.Sign))
		if token != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", chain, err, says)
		}
	}
	// Without ServiceAccountAnnotation, the impersonation starts from the ServiceAccount itself.
	self := rig.WithAttribute(rig.WithAttribute(account, gcp.ServiceAccountAnnotation, ""), gcp.ImpersonateAnnotation, second)
	_, err := auth.GetToken(t.Context(), w.gcp, rig.Subject(self, w.Sign))
	if auth.CodeOf(err) != auth.CodeTrustRefused || !strings.Contains(err.Error(), "roles/iam.workloadIdentityUser on "+second+" to "+principal(account, false)) {
		t.Error(err)
	}
	rig.Must(t, w.Cloud.GCP().PutServiceAccount(projectID, cloudgcp.ServiceAccount{
		Email: second, Bindings: []cloudgcp.Binding{{Role: "roles/iam.workloadIdentityUser", Members: []string{principal(account, false)}}},
	}))
	token, err := auth.GetToken(t.Context(), w.gcp, rig.Subject(self, w.Sign), auth.WithRetryNow())
	rig.Must(t, err)
	if whose, err := w.whose(t.Context(), token); err != nil || !strings.Contains(whose, second) {
		t.Errorf("the token is %s's, %v", whose, err)
	}
	// A list of addresses is only allowed in ImpersonateAnnotation.
	_, err = auth.GetToken(t.Context(), w.gcp, rig.Subject(rig.WithAttribute(account, gcp.ServiceAccountAnnotation, first+","+second), w.Sign))
	if auth.CodeOf(err) != auth.CodeIdentityInvalid || !strings.Contains(err.Error(), gcp.ServiceAccountAnnotation) {
		t.Error(err)
	}
	empty := rig.WithAttribute(account, gcp.ImpersonateAnnotation, "x")
	empty.Attributes[gcp.ImpersonateAnnotation] = ""
	if _, err := auth.GetToken(t.Context(), w.gcp, rig.Subject(empty, w.Sign)); auth.CodeOf(err) != auth.CodeIdentityInvalid {
		t.Error(err)
	}
}
