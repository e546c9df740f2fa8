package identity_test

import (
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/internal/identity/identitytest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// BenchmarkResolveAndHit gets the cached credential of a chain of three identities, and checks all
// grants of the chain. This is the cost of a reconciliation if nothing has changed.
func BenchmarkResolveAndHit(b *testing.B) {
	w := identitytest.New(b)
	w.Static("root", identitytest.Admits("team-a"))
	landing := w.CloudRole(identitytest.Management, "landing", identitytest.Root, nil)
	w.Role("landing", identitytest.RoleSpec(landing, "root", identitytest.Admits("team-a")))
	subject := w.Role("target", identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", landing, nil), "role/landing", identitytest.Admits("team-a")))
	w.MustGet("team-a", subject)
	calls := w.Count("AssumeRole")
	b.ReportAllocs()
	for b.Loop() {
		// Do not use must.Succeed or MustGet: they call b.Helper, which takes longer than the code
		// under test.
		if err := w.Identities.Admits(b.Context(), "team-a", subject); err != nil {
			b.Fatal(err)
		}
		if _, _, err := w.Get("team-a", subject); err != nil {
			b.Fatal(err)
		}
	}
	if w.Count("AssumeRole") != calls {
		b.Error("AWS was asked")
	}
}

// BenchmarkFingerprint hashes the values that decide the session of one role. Lanyard pays this
// cost only when the role changes, and not at each reconciliation.
func BenchmarkFingerprint(b *testing.B) {
	attributes, err := aws.SessionRequest{
		Source: "AWSClusterControllerIdentity default", RoleARN: "arn:aws:iam::222233334444:role/ClusterAPI-Participant", Name: "test-account-role",
		ExternalID: "7a5b816a-7743-4377-a382-2d695bf1f172", Duration: time.Hour, Tags: map[string]string{"company": "acme industries", "product": "cluster-api"},
		PolicyARNs: []string{"arn:aws:iam::222233334444:policy/restricted"}, TransitiveTags: []string{"company"},
	}.Attributes()
	must.Succeed(b, err)
	b.ReportAllocs()
	for b.Loop() {
		auth.Fingerprint(attributes, "lanyard.dev:awsclusterroleidentity:test-account-role", "0f8e2f6e-4a4e-4c35-9c1f-5e9a55b7a2cd", "jO6bT8cR2m4r0kQy5m1Lxw")
	}
}
