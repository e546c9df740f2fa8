package flags_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/tokenserver/flags"
)

// required returns the flags that have no default, followed by further flags.
func required(further ...string) []string {
	return append([]string{
		"--issuer=https://issuer.example.com", "--namespace=lanyard-system", "--host=lanyard-token-server.lanyard-system.svc",
	}, further...)
}

func TestHelpIsGolden(t *testing.T) {
	var help strings.Builder
	if _, done, err := flags.Parse([]string{"--help"}, "v1", &help); !done || err != nil {
		t.Fatal(done, err)
	}
	golden.Compare(t, "testdata/help.txt", []byte(help.String()))
}

func TestVersion(t *testing.T) {
	var out strings.Builder
	if _, done, err := flags.Parse([]string{"--version"}, "v1.2.3", &out); !done || err != nil || out.String() != "lanyard-token-server v1.2.3\n" {
		t.Errorf("%v, %v, %q", done, err, out.String())
	}
}

func TestDefaults(t *testing.T) {
	f, done, err := flags.Parse(required(), "", nil)
	if done || err != nil {
		t.Fatal(done, err)
	}
	if want := (issuer.Limits{Min: 10 * time.Minute, Default: time.Hour, Max: 48 * time.Hour}); f.Limits != want {
		t.Errorf("the limits are %+v", f.Limits)
	}
	if f.ProbeURL != f.Issuer || f.AcceptOtherAccounts || len(f.APIAudiences) > 0 || f.AuditLogPath != "-" || len(f.OtherAccounts) != 5 {
		t.Errorf("%+v", f)
	}
	policy := f.Policy()
	if policy.Issuer != f.Issuer || policy.MaxLife != f.Limits.Max || policy.PublishDelay != 24*time.Hour || policy.RotationPeriod != 90*24*time.Hour ||
		!reflect.DeepEqual(policy.Algorithms, []identityv1.Algorithm{identityv1.RS256, identityv1.ES256}) || len(policy.Revoked) > 0 {
		t.Errorf("%+v", policy)
	}
}

func TestValues(t *testing.T) {
	f, _, err := flags.Parse(required(
		"--cluster-id=prod", "--spoke-user-prefix=system:serviceaccount:lanyard-spokes:", "--token-min-duration=5m", "--token-default-duration=30m", "--token-max-duration=24h", "--api-audiences=a,b",
		"--spiffe-trust-domain=example.com", "--spiffe-issuer=https://spiffe.example.com", "--host=localhost", "--listen-address=127.0.0.1:0", "--audit-log-path=", "--key-algorithms=ES256",
		"--publish-delay=1h", "--rotation-period=24h", "--revoked-kids=a", "--confirm-manually", "--other-accounts=", "--accept-controller-reads-all-secrets",
	), "", nil)
	must.Succeed(t, err)
	if f.Clusters.ID != "prod" || f.Clusters.SpokeUserPrefix != "system:serviceaccount:lanyard-spokes:" || f.Limits.Min != 5*time.Minute || len(f.APIAudiences) != 2 || len(f.Hosts) != 2 || f.AuditLogPath != "" || f.ProbeURL != "" ||
		len(f.OtherAccounts) != 0 || !f.AcceptOtherAccounts || f.Policy().Revoked[0] != "a" || f.Policy().PublishDelay != time.Hour {
		t.Errorf("%+v", f)
	}
	if f.TrustDomain.Name() != "example.com" || f.SPIFFEProbeURL != "" {
		t.Errorf("%+v", f)
	}
	if f, _, err := flags.Parse(required("--probe-url=https://storage.example.com/bucket"), "", nil); err != nil || f.ProbeURL != "https://storage.example.com/bucket" {
		t.Errorf("%q, %v", f.ProbeURL, err)
	}
}

func TestRefusalsNameTheFlag(t *testing.T) {
	for _, arg := range []string{
		"--issuer=", "--issuer=http://issuer.example.com", "--issuer=https://issuer.example.com/", "--issuer=https://issuer.example.com?a",
		"--issuer=https://issuer.example.com#a", "--issuer=https://user@issuer.example.com", "--issuer=issuer.example.com",
		"--spiffe-trust-domain=spiffe://example.com", "--spiffe-trust-domain=Example.com", "--spiffe-trust-domain=example.com/a", "--spiffe-trust-domain=a..b",
		"--spiffe-issuer=https://spiffe.example.com", "--spiffe-secret-name=ca", "--spiffe-probe-url=https://spiffe.example.com",
		"--spiffe-kms-key=arn:aws:kms:eu-west-1:123456789123:key/a",
		"--token-min-duration=0s", "--token-min-duration=10m1s", "--token-min-duration=long", "--token-default-duration=9m", "--token-default-duration=49h",
		"--token-max-duration=30m", "--api-audiences=a,,b",
		"--namespace=", "--namespace=Lanyard", "--host=Lanyard", "--host=10.0.0.1:443",
		"--key-algorithms=", "--key-algorithms=HS256", "--key-algorithms=none", "--publish-delay=0s", "--rotation-period=47h",
		"--probe-url=http://issuer.example.com", "--probe-url=issuer.example.com", "--other-accounts=lanyard-system/lanyard-controller",
		"--spoke-user-prefix=spoke", "--spoke-user-prefix=system:serviceaccount:", "--spoke-user-prefix=system:serviceaccount:lanyard-system:",
		"--log-level=loud", "--log-level=debug-1", "--log-format=xml",
	} {
		_, done, err := flags.Parse(required(arg), "", nil)
		name, _, _ := strings.Cut(arg, "=")
		if done || err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	for _, arg := range []string{
		"--spiffe-issuer=https://issuer.example.com", "--spiffe-issuer=http://spiffe.example.com", "--spiffe-issuer=https://spiffe.example.com/",
		"--spiffe-secret-name=A", "--spiffe-secret-name=lanyard-system/ca", "--spiffe-jwt-algorithm=EdDSA", "--spiffe-jwt-algorithm=", "--spiffe-jwt-algorithm=none",
		"--spiffe-probe-url=http://spiffe.example.com", "--spiffe-kms-key=arn:aws:kms:eu-west-1:123456789123:key/a",
	} {
		args := required("--spiffe-trust-domain=example.com", "--spiffe-issuer=https://spiffe.example.com", arg)
		name, _, _ := strings.Cut(arg, "=")
		if _, done, err := flags.Parse(args, "", nil); done || err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	for name, args := range map[string][]string{
		"--spiffe-probe-url": required("--spiffe-trust-domain=example.com", "--spiffe-probe-url=https://a.example.com"),
		"--host":             {"--issuer=https://issuer.example.com", "--namespace=lanyard-system"},
		"--namespace":        {"--issuer=https://issuer.example.com", "--host=a.b.svc"},
		"--issuer":           {"--namespace=lanyard-system", "--host=a.b.svc"},
		"--confirm-manually": required("--confirm-manually", "--probe-url=https://a.example.com"),
		`"extra"`:            required("extra"),
		"--no-such-flag":     required("--no-such-flag"),
	} {
		if _, _, err := flags.Parse(args, "", nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestTrustDomainAlone checks the flags of a token server that has a trust domain, but no issuer of
// tokens for WorkloadIdentities.
func TestTrustDomainAlone(t *testing.T) {
	base := []string{"--namespace=lanyard-system", "--host=a.b.svc", "--spiffe-trust-domain=example.com", "--revoked-kids=a"}
	f, _, err := flags.Parse(base, "", nil)
	must.Succeed(t, err)
	policy := f.SPIFFEPolicy()
	if f.Issuer != "" || policy.TrustDomain.Name() != "example.com" || policy.Issuer != "" || len(policy.Algorithms) > 0 || policy.Import || policy.MaxLife != time.Hour ||
		policy.Revoked[0] != "a" || f.SPIFFEProbeURL != "" {
		t.Errorf("%+v, %+v", f, policy)
	}
	f, _, err = flags.Parse(append(base, "--spiffe-issuer=https://spiffe.example.com", "--spiffe-secret-name=spiffe-ca", "--spiffe-jwt-algorithm=ES384"), "", nil)
	must.Succeed(t, err)
	policy = f.SPIFFEPolicy()
	if policy.Issuer != "https://spiffe.example.com" || !policy.Import || !reflect.DeepEqual(policy.Algorithms, []identityv1.Algorithm{identityv1.ES384}) ||
		f.SPIFFEProbeURL != "https://spiffe.example.com" {
		t.Errorf("%+v, %+v", f, policy)
	}
}
