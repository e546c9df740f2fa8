package auth_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

func serviceAccount(tb testing.TB, namespace, name string) auth.Subject {
	tb.Helper()
	subject, err := auth.ServiceAccount(namespace, name)
	must.Succeed(tb, err)
	return subject
}

func clusterIdentity(tb testing.TB, kind auth.Kind, name string) auth.Subject {
	tb.Helper()
	subject, err := auth.ClusterIdentity(kind, name)
	must.Succeed(tb, err)
	return subject
}

func list(tb testing.TB, values ...string) auth.List {
	tb.Helper()
	l, err := auth.NewList(values...)
	must.Succeed(tb, err)
	return l
}

// TestKeyVectors checks that the text of keys never changes, because other programs and people
// compare the digests of keys.
func TestKeyVectors(t *testing.T) {
	sa := serviceAccount(t, "tenant-a", "puller")
	wi, err := auth.WorkloadIdentity("tenant-a", "puller")
	must.Succeed(t, err)
	object, err := auth.Object("OCIRepository", "tenant-a", "app")
	must.Succeed(t, err)
	for _, tt := range []struct {
		name   string
		key    auth.Key
		text   string
		digest string
	}{
		{
			"controller",
			auth.Key{Provider: "aws", Subject: auth.Controller()},
			"provider=aws", "81f19deba9f1fc37fc5378888af763067ba938bffedfbdfb767ac5283e5a970b",
		},
		{
			"controller's registry credentials",
			auth.Key{Provider: "aws", Subject: auth.Controller(), Target: auth.Target{Image: "eu-west-1", STSRegion: "us-east-1"}},
			"provider=aws,imageRepositoryKey=eu-west-1,stsRegion=us-east-1", "",
		},
		{
			"aws",
			auth.Key{
				Provider: "aws", Subject: sa, UID: "7b4e", Identity: "arn:aws:iam::123456789123:role/tenant-a",
				Target: auth.Target{Image: "eu-west-1", STSRegion: "eu-west-1"},
			},
			"provider=aws,serviceAccountName=puller,serviceAccountNamespace=tenant-a,cloudProviderIdentity=arn:aws:iam::123456789123:role/tenant-a," +
				"imageRepositoryKey=eu-west-1,serviceAccountUID=7b4e,stsRegion=eu-west-1", "",
		},
		{
			"everything",
			auth.Key{
				Provider: "p", Subject: wi, UID: "u", Identity: "i", ProxyURL: "http://proxy.example:8080", Target: auth.Target{
					Scopes: list(t, "s1", "s2"), Image: "r", STSEndpoint: "https://sts.example", Audiences: list(t, "a1", "a2"), STSRegion: "g",
					Issuance: auth.NewIssuance(auth.IssuanceTerms{
						CADigest: "0a", Signer: "k", CredentialType: "c", TrustDomain: "d", Issuer: "https://issuer.example",
						ContextObject: auth.ObjectReference{APIVersion: "g/v1", Kind: "K", Namespace: "ns", Name: "n", UID: "o"},
					}),
				},
			},
			"provider=p,serviceAccountName=puller,serviceAccountNamespace=tenant-a,cloudProviderIdentity=i,scopes=s1,s2,imageRepositoryKey=r," +
				"stsEndpoint=https://sts.example,proxyURL=http://proxy.example:8080,subjectKind=WorkloadIdentity,serviceAccountUID=u,audiences=a1,a2," +
				"stsRegion=g,caDigest=0a,signer=k,credentialType=c,trustDomain=d,issuer=https://issuer.example,contextObject=g/v1,K,ns,n,o", "",
		},
		{
			"ServiceAccountToken",
			auth.Key{Provider: "bearer", Subject: sa, UID: "7b4e", Target: auth.Target{Audiences: list(t, "oci://registry.example/app")}},
			"provider=bearer,serviceAccountName=puller,serviceAccountNamespace=tenant-a,serviceAccountUID=7b4e,audiences=oci://registry.example/app", "",
		},
		{
			"WorkloadIdentityToken",
			auth.Key{
				Provider: "bearer", Subject: wi, UID: "7b4e", Identity: "robot", Target: auth.Target{
					Audiences: list(t, "registry.example"),
					Issuance: auth.NewIssuance(auth.IssuanceTerms{
						ContextObject: auth.ObjectReference{APIVersion: "toolkit.lanyard.dev/v1alpha1", Kind: "OCIRepository", Namespace: "tenant-a", Name: "app", UID: "11aa"},
					}),
				},
			},
			"provider=bearer,serviceAccountName=puller,serviceAccountNamespace=tenant-a,cloudProviderIdentity=robot,subjectKind=WorkloadIdentity," +
				"serviceAccountUID=7b4e,audiences=registry.example,contextObject=toolkit.lanyard.dev/v1alpha1,OCIRepository,tenant-a,app,11aa", "",
		},
		{
			"SpiffeJWT",
			auth.Key{
				Provider: "svid", Subject: object, UID: "11aa", Identity: "spiffe://example.com/ocirepositories/tenant-a/app", Target: auth.Target{
					Audiences: list(t, "registry.example"),
					Issuance: auth.NewIssuance(auth.IssuanceTerms{
						Signer: "kid-1", CredentialType: "SpiffeJWT", TrustDomain: "example.com", Issuer: "https://spiffe.example",
					}),
				},
			},
			"provider=svid,serviceAccountName=app,serviceAccountNamespace=tenant-a,cloudProviderIdentity=spiffe://example.com/ocirepositories/tenant-a/app," +
				"subjectKind=OCIRepository,serviceAccountUID=11aa,audiences=registry.example,signer=kid-1,credentialType=SpiffeJWT,trustDomain=example.com," +
				"issuer=https://spiffe.example", "",
		},
		{
			"SpiffeCertificate",
			auth.Key{
				Provider: "svid", Subject: object, UID: "11aa", Identity: "spiffe://example.com/ocirepositories/tenant-a/app",
				Target: auth.Target{Issuance: auth.NewIssuance(auth.IssuanceTerms{CADigest: "ab12", CredentialType: "SpiffeCertificate", TrustDomain: "example.com"})},
			},
			"provider=svid,serviceAccountName=app,serviceAccountNamespace=tenant-a,cloudProviderIdentity=spiffe://example.com/ocirepositories/tenant-a/app," +
				"subjectKind=OCIRepository,serviceAccountUID=11aa,caDigest=ab12,credentialType=SpiffeCertificate,trustDomain=example.com", "",
		},
		{
			"a lent identity with a chain",
			auth.Key{
				Provider: "aws", Subject: clusterIdentity(t, "AWSClusterRoleIdentity", "test-account-role"), UID: "7b4e",
				Identity: "arn:aws:iam::123456789123:role/CAPARole", IdentityFingerprint: "x9Y_-w", Target: auth.Target{STSRegion: "eu-west-1"},
			},
			"provider=aws,serviceAccountName=test-account-role,cloudProviderIdentity=arn:aws:iam::123456789123:role/CAPARole," +
				"subjectKind=AWSClusterRoleIdentity,serviceAccountUID=7b4e,stsRegion=eu-west-1,identityFingerprint=x9Y_-w", "",
		},
		{
			"separators in values",
			auth.Key{Provider: "p", Subject: sa, Identity: "a,scopes=b%\n é", Target: auth.Target{Scopes: list(t, "x,y", "z=1")}},
			"provider=p,serviceAccountName=puller,serviceAccountNamespace=tenant-a,cloudProviderIdentity=a%2Cscopes%3Db%25%0A%20%C3%A9,scopes=x%2Cy,z%3D1", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.key.String(); got != tt.text {
				t.Errorf("text\n got %s\nwant %s", got, tt.text)
			}
			if got := tt.key.Digest(); tt.digest != "" && got != tt.digest {
				t.Errorf("digest %s, want %s", got, tt.digest)
			}
		})
	}
}

// FuzzKey checks that two different keys never have the same text.
func FuzzKey(f *testing.F) {
	f.Add("aws", "a", "arn", "s", "t", "img", "https://sts", "http://p", "eu", "aws", "b", "arn", "s,t", "", "img", "https://sts", "http://p", "eu")
	f.Add("p,scopes=x", "", "", "y", "", "", "", "", "", "p", "", "", "x", "y", "", "", "", "")
	f.Add("p", "%2C", "", "", "", "", "", "", "", "p", ",", "", "", "", "", "", "", "")
	key := func(provider, uid, identity, scope1, scope2, image, endpoint, proxy, region string) (auth.Key, bool) {
		var scopes []string
		for _, s := range []string{scope1, scope2} {
			if s != "" {
				scopes = append(scopes, s)
			}
		}
		l, err := auth.NewList(scopes...)
		if err != nil {
			return auth.Key{}, false
		}
		// Audiences are left out, because the same code prints scopes and audiences.
		return auth.Key{
			Provider: provider, UID: uid, Identity: identity, ProxyURL: proxy, Subject: auth.Controller(),
			Target: auth.Target{Scopes: l, Image: image, STSEndpoint: endpoint, STSRegion: region},
		}, true
	}
	f.Fuzz(func(t *testing.T, p1, u1, i1, s1, t1, m1, e1, x1, r1, p2, u2, i2, s2, t2, m2, e2, x2, r2 string) {
		a, ok1 := key(p1, u1, i1, s1, t1, m1, e1, x1, r1)
		b, ok2 := key(p2, u2, i2, s2, t2, m2, e2, x2, r2)
		if !ok1 || !ok2 {
			t.Fatal("a list without empty values was refused")
		}
		if (a == b) != (a.String() == b.String()) {
			t.Errorf("keys equal: %t, texts equal: %t\n%s\n%s", a == b, a.String() == b.String(), a, b)
		}
		if strings.ContainsFunc(a.String(), func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q does not print", a.String())
		}
	})
}

func TestListRefusesEmptyValues(t *testing.T) {
	if l, err := auth.NewList("a", ""); err == nil || !l.IsZero() {
		t.Errorf("NewList = %v, %v", l, err)
	}
}

func TestProxyPasswordEntersOnlyAsHash(t *testing.T) {
	w := newWorld(t)
	keyWith := func(proxy string) auth.Key {
		u, err := url.Parse(proxy)
		must.Succeed(t, err)
		key, err := auth.Resolve(t.Context(), w, append(w.options(), auth.WithProxyURL(u), auth.WithSTSEndpoint("https://sts.example"))...)
		must.Succeed(t, err)
		return key
	}
	one, same, other := keyWith("http://u:hunter2@p:1"), keyWith("http://u:hunter2@p:1"), keyWith("http://u:hunter3@p:1")
	if one != same {
		t.Error("equal proxies make different keys")
	}
	if one == other {
		t.Error("proxies that differ in their password make one key")
	}
	if strings.Contains(one.String(), "hunter2") {
		t.Errorf("the password is in %s", one)
	}
}

func FuzzListValues(f *testing.F) {
	f.Add("a", "b,c=%2C")
	f.Add("\x00", "\xff %")
	f.Fuzz(func(t *testing.T, a, b string) {
		list, err := auth.NewList(a, b)
		if (err != nil) != (a == "" || b == "") {
			t.Fatalf("%q, %q: %v", a, b, err)
		}
		if got := list.Values(); err == nil && !slices.Equal(got, []string{a, b}) {
			t.Errorf("%q, %q became %q", a, b, got)
		}
	})
}

func TestListValues(t *testing.T) {
	if got := (auth.List{}).Values(); got != nil {
		t.Errorf("the empty list has %q", got)
	}
}
