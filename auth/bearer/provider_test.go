package bearer_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/bearer"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/auth/providertest"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const receiver = "registry.example.com"

func provider(t *testing.T, config bearer.Config) *bearer.Provider {
	t.Helper()
	p, err := bearer.NewProvider(config)
	rig.Must(t, err)
	return p
}

func TestConformance(t *testing.T) {
	for name, subject := range map[string]func(namespace, name string) (auth.Subject, error){
		"ServiceAccount": auth.ServiceAccount, "WorkloadIdentity": auth.WorkloadIdentity,
	} {
		for _, user := range []string{"", "robot"} {
			t.Run(name+" "+user, func(t *testing.T) {
				providertest.Run(t, func(t *testing.T) *providertest.Harness {
					t.Helper()
					return harness(t, subject, user)
				})
			})
		}
	}
}

func harness(t *testing.T, subjectOf func(namespace, name string) (auth.Subject, error), user string) *providertest.Harness {
	t.Helper()
	issuer, err := oidc.NewIssuer("https://issuer.example.com", oidc.ES256)
	rig.Must(t, err)
	maker := &rig.Maker{Make: func(account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
		ends := time.Now().Add(request.Lifetime)
		token, err := issuer.Mint(oidc.Claims{"sub": rig.SubjectClaim(account), "aud": request.Audiences, "exp": ends.Unix()})
		return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: ends}, err
	}}
	account := func(tenant string) auth.Account {
		subject, err := subjectOf(tenant, "puller")
		rig.Must(t, err)
		return rig.WithAttribute(auth.Account{Subject: subject, UID: "uid-" + tenant}, bearer.UsernameAnnotation, user)
	}
	variations := map[string][]auth.Option{"other receivers": {auth.WithAudiences("elsewhere.example.com")}}
	if account("tenant-a").Subject.Kind() == auth.KindWorkloadIdentity {
		object := auth.ObjectReference{APIVersion: "toolkit.lanyard.dev/v1alpha1", Kind: "OCIRepository", Name: "app", UID: "1"}
		variations["for an object"] = []auth.Option{auth.WithContextObject(object)}
		object.UID = "2"
		variations["for the object, created again"] = []auth.Option{auth.WithContextObject(object)}
	}
	return &providertest.Harness{
		Provider: provider(t, bearer.Config{}),
		Options:  []auth.Option{auth.WithAudiences(receiver, "mirror.example.com")},
		A:        account("tenant-a"), B: account("tenant-b"),
		WithIdentity: func(account auth.Account, identity string) auth.Account {
			return rig.WithAttribute(account, bearer.UsernameAnnotation, identity)
		},
		MalformedIdentity: "a:b",
		Prove:             maker.Prove,
		NewCache:          func(*testing.T) providertest.Cache { return cache.New(cache.Options{MaxSize: 100}) },
		Cloud:             maker,
		Credential:        true, Direct: true, IdentityOptional: true,
		Secrets:   func(token auth.Token) []string { return []string{shown(token)} },
		Principal: func(account auth.Account) (string, error) { return rig.SubjectClaim(account), nil },
		Whose:     func(_ context.Context, token auth.Token) (string, error) { return judge(issuer, shown(token)) },
		Unsupported: map[string]auth.Option{
			"STS region": auth.WithSTSRegion("eu-west-1"), "STS endpoint": auth.WithSTSEndpoint("https://sts.eu-west-1.amazonaws.com"),
			"proxy": auth.WithProxyURL(&url.URL{Scheme: "http", Host: "proxy.example:3128"}), "scopes": auth.WithScopes("everything"),
		},
		Variations: variations,
	}
}

// shown returns the JWT that a registry gets, as a bearer token or as a password.
func shown(token auth.Token) string {
	if credentials, ok := token.(*auth.RegistryCredentials); ok {
		return credentials.Password.Reveal()
	}
	return token.(*auth.JWT).Token.Reveal()
}

// judge verifies a token as the receiving registry does, and returns its subject.
func judge(issuer *oidc.Issuer, raw string) (string, error) {
	token, err := oidc.Read(raw)
	if err != nil {
		return "", err
	}
	if err := issuer.CheckSignature(token); err != nil {
		return "", err
	}
	if !slices.Contains(token.Audience, receiver) {
		return "", errors.New("the token is for others")
	}
	return token.Subject, nil
}

// TestIdentity checks which user name the subject's attributes give, and which attributes are
// refused.
func TestIdentity(t *testing.T) {
	account := func(subjectOf func(namespace, name string) (auth.Subject, error), attributes map[string]string) auth.Account {
		subject, err := subjectOf("tenant-a", "puller")
		rig.Must(t, err)
		return auth.Account{Subject: subject, UID: "u", Attributes: attributes}
	}
	for name, test := range map[string]struct {
		account auth.Account
		want    string // expected user name
		refused string // part of the error
	}{
		"nobody is named":        {account(auth.ServiceAccount, nil), "", ""},
		"a user":                 {account(auth.ServiceAccount, map[string]string{bearer.UsernameAnnotation: "oauth2 robot$a"}), "oauth2 robot$a", ""},
		"another annotation":     {account(auth.ServiceAccount, map[string]string{"eks.amazonaws.com/role-arn": "arn"}), "", ""},
		"an empty user":          {account(auth.ServiceAccount, map[string]string{bearer.UsernameAnnotation: ""}), "", bearer.UsernameAnnotation},
		"a colon":                {account(auth.ServiceAccount, map[string]string{bearer.UsernameAnnotation: "a:b"}), "", "ServiceAccount tenant-a/puller"},
		"a line":                 {account(auth.ServiceAccount, map[string]string{bearer.UsernameAnnotation: "a\r\nb"}), "", bearer.UsernameAnnotation},
		"another script":         {account(auth.ServiceAccount, map[string]string{bearer.UsernameAnnotation: "röbot"}), "", bearer.UsernameAnnotation},
		"a long user":            {account(auth.ServiceAccount, map[string]string{bearer.UsernameAnnotation: strings.Repeat("a", 255)}), strings.Repeat("a", 255), ""},
		"too long a user":        {account(auth.ServiceAccount, map[string]string{bearer.UsernameAnnotation: strings.Repeat("a", 256)}), "", bearer.UsernameAnnotation},
		"an identity":            {account(auth.WorkloadIdentity, map[string]string{bearer.TargetAttribute: "registry", bearer.UsernameAnnotation: "robot"}), "robot", ""},
		"an identity for AWS":    {account(auth.WorkloadIdentity, map[string]string{bearer.TargetAttribute: "aws"}), "", "targetSystem.type"},
		"an identity at Alibaba": {account(auth.WorkloadIdentity, map[string]string{bearer.TargetAttribute: "alibaba"}), "", "targetSystem.type"},
		"an identity for GCP":    {account(auth.WorkloadIdentity, map[string]string{bearer.TargetAttribute: "gcp"}), "", "targetSystem.type"},
		"an identity at Azure":   {account(auth.WorkloadIdentity, map[string]string{bearer.TargetAttribute: "azure"}), "", "targetSystem.type"},
	} {
		user, err := provider(t, bearer.Config{}).GetIdentity(test.account)
		if user != test.want || (err != nil) != (test.refused != "") {
			t.Errorf("%s: %q, %v", name, user, err)
		}
		if err != nil && (auth.CodeOf(err) != auth.CodeIdentityInvalid || !strings.Contains(err.Error(), test.refused)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTarget checks that GetToken refuses a call without an audience. If the subject is a
// ServiceAccount, GetToken must also refuse the option [auth.WithContextObject].
func TestTarget(t *testing.T) {
	account := rig.ServiceAccount("tenant-a", "puller", nil)
	as := rig.Subject(account, rig.Proof("never"))
	_, err := auth.GetToken(t.Context(), provider(t, bearer.Config{}), as)
	if auth.CodeOf(err) != auth.CodeAudienceRefused {
		t.Errorf("no audience: %v", err)
	}
	_, err = auth.GetToken(t.Context(), provider(t, bearer.Config{}), as, auth.WithAudiences(receiver), auth.WithContextObject(auth.ObjectReference{Name: "app"}))
	if auth.CodeOf(err) != auth.CodeOptionUnsupported {
		t.Errorf("a context object of a ServiceAccount: %v", err)
	}
}

// TestProofRequest checks that the proof request has a lifetime of an hour. Its audiences must be
// exactly those in the Key of the [auth.Request].
func TestProofRequest(t *testing.T) {
	list, err := auth.NewList("b", "a")
	rig.Must(t, err)
	object := auth.ObjectReference{Kind: "OCIRepository", Name: "app"}
	request := &auth.Request{Key: auth.Key{Target: auth.Target{Audiences: list, Issuance: auth.NewIssuance(auth.IssuanceTerms{ContextObject: object})}}}
	asked, err := provider(t, bearer.Config{}).GetProofRequest(t.Context(), request)
	if err != nil || asked.Form != auth.FormJWT || asked.Lifetime != time.Hour || !slices.Equal(asked.Audiences, []string{"b", "a"}) || asked.ContextObject != object {
		t.Errorf("%+v, %v", asked, err)
	}
}

// TestController checks that the controller's token is a token of Config.Self, the program's own
// ServiceAccount.
func TestController(t *testing.T) {
	own := rig.ServiceAccount("lanyard-system", "lanyard-controller", nil)
	var asked []auth.ProofRequest
	accounts := rig.Accounts{All: []auth.Account{own}, Sign: func(account auth.Account, request auth.ProofRequest) (string, error) {
		asked = append(asked, request)
		return "token of " + account.Subject.String(), nil
	}}
	p := provider(t, bearer.Config{Self: own.Subject, Prover: accounts})
	tokens := cache.New(cache.Options{MaxSize: 10})
	for range 2 {
		token, err := auth.GetToken(t.Context(), p, auth.WithController(), auth.WithAudiences(receiver), auth.WithCache(tokens, auth.InvolvedObject{}))
		if err != nil || shown(token) != "token of system:serviceaccount:lanyard-system:lanyard-controller" {
			t.Fatalf("%v, %v", token, err)
		}
	}
	if len(asked) != 1 || !slices.Equal(asked[0].Audiences, []string{receiver}) || asked[0].Lifetime != time.Hour {
		t.Errorf("%+v", asked)
	}

	_, err := auth.GetToken(t.Context(), provider(t, bearer.Config{}), auth.WithController(), auth.WithAudiences(receiver))
	if auth.CodeOf(err) != auth.CodeSubjectInvalid {
		t.Errorf("a program that is nobody: %v", err)
	}
	gone := provider(t, bearer.Config{Self: own.Subject, Prover: rig.Accounts{}})
	if _, err := auth.GetToken(t.Context(), gone, auth.WithController(), auth.WithAudiences(receiver)); auth.CodeOf(err) != auth.CodeSubjectNotFound {
		t.Errorf("an account that is gone: %v", err)
	}
	for name, config := range map[string]bearer.Config{
		"no prover": {Self: own.Subject}, "no account": {Self: auth.Controller(), Prover: accounts},
	} {
		if _, err := bearer.NewProvider(config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
