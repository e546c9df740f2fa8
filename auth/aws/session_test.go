package aws_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
)

func sessionNameOf(tb testing.TB, subject auth.Subject, err error) string {
	tb.Helper()
	rig.Must(tb, err)
	return aws.SessionName(subject)
}

func TestSessionName(t *testing.T) {
	account := func(namespace, name string) string {
		t.Helper()
		subject, err := auth.ServiceAccount(namespace, name)
		return sessionNameOf(t, subject, err)
	}
	workload := func(namespace, name string) string {
		t.Helper()
		subject, err := auth.WorkloadIdentity(namespace, name)
		return sessionNameOf(t, subject, err)
	}
	long := strings.Repeat("n", 63)
	for got, want := range map[string]string{
		account("tenant-a", "tenant-a-ecr-sa"):  "tenant-a-ecr-sa.tenant-a",
		account("b", "a.b"):                     "a.b.b",
		account("n", long[:62]):                 long[:62] + ".n", // 64 characters, the limit
		workload("tenant-a", "tenant-a-ecr-sa"): "tenant-a-ecr-sa.tenant-a@WorkloadIdentity",
		// This name must not change: queries in CloudTrail must still find it.
		account("source-controller-tenants", "a-service-account-with-a-rather-long-name"): "5ttb4bjkyspiitfsv5tvp2btae=r-long-name.source-controller-tenants",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	// A shortened name still ends with the tenant.
	if got := aws.FitSessionName(strings.Repeat("role", 15) + "@session-keys.tenant-a"); len(got) != 64 || !strings.HasSuffix(got, "@session-keys.tenant-a") {
		t.Errorf("a long name became %s", got)
	}
	names := map[string]bool{}
	for _, name := range []string{
		account("n", long), account("n", long+"a"), account("n", long+"b"), account(long, "n"), account(long, "m"), workload("n", long), workload("n", long+"a"),
		account("a", "b.c"), account("c", "a.b"), workload("a", "b.c"),
	} {
		if names[name] {
			t.Errorf("two subjects share %s", name)
		}
		names[name] = true
	}
}

// TestNamedSession checks that a program may set the session name of a WorkloadIdentity. The
// annotations of a ServiceAccount cannot set the name, because a tenant writes them.
func TestNamedSession(t *testing.T) {
	attributes := map[string]string{aws.SessionNameAttribute: "cloudidentity.tenant-a@WorkloadIdentityBinding"}
	workload, err := auth.WorkloadIdentity("tenant-a", "app")
	rig.Must(t, err)
	account, err := auth.ServiceAccount("tenant-a", "app")
	rig.Must(t, err)
	for subject, want := range map[auth.Subject]string{workload: attributes[aws.SessionNameAttribute], account: ""} {
		request, err := aws.SessionRequestOf(auth.Account{Subject: subject, Attributes: attributes})
		if err != nil || request.Name != want {
			t.Errorf("%s: %q %v, want %q", subject, request.Name, err, want)
		}
	}
}

// FuzzSessionName checks that STS accepts the name of any subject. The name must be the same each
// time, and two subjects must never share a name.
func FuzzSessionName(f *testing.F) {
	f.Add("tenant-a", "tenant-a-ecr-sa", "tenant-b", "tenant-a-ecr-sa", false)
	f.Add("a", "b.c", "c", "a.b", false)
	f.Add("b", "a", "b", "a", true)
	f.Add("n", strings.Repeat("n", 253), "n", strings.Repeat("n", 252)+"m", false)
	f.Add(strings.Repeat("n", 63), "x", "x", strings.Repeat("n", 63), true)
	valid := regexp.MustCompile(`\A[\w+=,.@-]{2,64}\z`)
	f.Fuzz(func(t *testing.T, namespace1, name1, namespace2, name2 string, other bool) {
		first, err1 := auth.ServiceAccount(namespace1, name1)
		make2 := auth.ServiceAccount
		if other {
			make2 = auth.WorkloadIdentity
		}
		second, err2 := make2(namespace2, name2)
		if err1 != nil || err2 != nil {
			return // the names are not valid
		}
		a, b := aws.SessionName(first), aws.SessionName(second)
		for _, name := range []string{a, b} {
			if !valid.MatchString(name) {
				t.Errorf("%q is no session name", name)
			}
		}
		if (a == b) != (first == second) {
			t.Errorf("%s and %s are called %q and %q", first, second, a, b)
		}
		if a != aws.SessionName(first) {
			t.Errorf("%s has two names", first)
		}
	})
}
