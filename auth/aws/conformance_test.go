package aws_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/auth/providertest"
)

func TestConformance(t *testing.T) {
	for name, subject := range map[string]func(namespace, name string) (auth.Subject, error){
		"ServiceAccount": auth.ServiceAccount,
		// The suite also runs with a WorkloadIdentity. The issuer of the proofs and the attribute
		// that names the role differ from those of a ServiceAccount. Nothing else may differ.
		"WorkloadIdentity": auth.WorkloadIdentity,
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, func(t *testing.T) *providertest.Harness {
				t.Helper()
				return harness(t, subject)
			})
		})
	}
}

// anyOf returns a subject made by subjectOf, for callers that need only the subject's kind.
func anyOf(t *testing.T, subjectOf func(namespace, name string) (auth.Subject, error)) auth.Subject {
	t.Helper()
	subject, err := subjectOf("tenant-a", "any")
	rig.Must(t, err)
	return subject
}

func harness(t *testing.T, subjectOf func(namespace, name string) (auth.Subject, error)) *providertest.Harness {
	t.Helper()
	w := newWorldOf(t, rig.IssuerOf(anyOf(t, subjectOf), issuerURL))
	attribute := aws.RoleAnnotation
	account := func(tenant string) auth.Account {
		subject, err := subjectOf(tenant, tenant+"-ecr-sa")
		rig.Must(t, err)
		if subject.Kind() != auth.KindServiceAccount {
			attribute = aws.RoleField
		}
		a := auth.Account{Subject: subject, UID: "7c1f4d0e-" + tenant}
		a.Attributes = map[string]string{attribute: w.roleFor(t, tenant, rig.SubjectClaim(a))}
		return a
	}
	a, b := account("tenant-a"), account("tenant-b")
	proxy := func(user string) auth.Option {
		u := *w.Proxy
		if user != "" {
			u.User = url.UserPassword("tenant", user)
		}
		return auth.WithProxyURL(&u)
	}
	endpoint := auth.WithSTSEndpoint("https://sts.eu-west-1.amazonaws.com")
	return &providertest.Harness{
		Provider: w.aws,
		A:        a, B: b,
		WithIdentity: func(account auth.Account, identity string) auth.Account {
			return rig.WithAttribute(account, attribute, identity)
		},
		MalformedIdentity: "arn:aws:iam::123456789123:user/tenant-a",
		Prove:             providertest.Signed(w.SignBadly),
		NewCache: func(t *testing.T) providertest.Cache {
			t.Helper()
			return cache.New(cache.Options{MaxSize: 100})
		},
		Cloud: knobs{w},
		Whose: w.caller,
		Secrets: func(token auth.Token) []string {
			c := token.(*aws.Token).Credentials()
			return []string{c.AccessKeyID, c.SecretAccessKey, c.SessionToken}
		},
		ImageRepository: imageA,
		Unsupported:     map[string]auth.Option{"scopes": auth.WithScopes("read")},
		Variations: map[string][]auth.Option{
			"image":                       {auth.WithImageRepository(imageA)},
			"image in another region":     {auth.WithImageRepository(strings.Replace(imageA, region, "us-west-2", 1))},
			"image where public's API is": {auth.WithImageRepository(strings.Replace(imageA, region, "us-east-1", 1))},
			"public image":                {auth.WithImageRepository("public.ecr.aws/lanyard/app")},
			"STS region":                  {auth.WithSTSRegion("eu-central-1")},
			"STS endpoint":                {endpoint},
			"STS endpoint elsewhere":      {auth.WithSTSEndpoint("https://sts.us-west-2.amazonaws.com")},
			"STS endpoint and proxy":      {endpoint, proxy("")},
			"STS endpoint, proxy, user":   {endpoint, proxy("password-1")},
			"other password":              {endpoint, proxy("password-2")},
		},
	}
}

// knobs implements [providertest.Cloud] with the local cloud.
type knobs struct{ *world }

func (k knobs) Exchanges() int { return k.exchanges() }

func (k knobs) Trouble(t *testing.T, trouble providertest.Trouble) (end func()) {
	t.Helper()
	if trouble == providertest.Unreachable {
		// Close open connections, because the fault affects new connections only.
		k.aws.Close()
	}
	return k.Rig.Trouble(t, trouble, "sts", opSTS, "sts.eu-west-1.amazonaws.com")
}

func (k knobs) Revoke(t *testing.T, account auth.Account) (restore func()) {
	t.Helper()
	tenant := account.Subject.Namespace()
	rig.Must(t, k.Cloud.AWS().PutTrustPolicy(accountID, tenant+"-ecr", trustIn(k.Issuer.URL(), "nobody")))
	return func() {
		rig.Must(t, k.Cloud.AWS().PutTrustPolicy(accountID, tenant+"-ecr", trustIn(k.Issuer.URL(), rig.SubjectClaim(account))))
	}
}
