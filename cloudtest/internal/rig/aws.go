package rig

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// Names in the cloud of [AWSConfig].
const (
	Account      = "123456789123"
	OtherAccount = "210987654321"
	Region       = "eu-west-1"
	IssuerURL    = "https://oidc.eks.eu-west-1.amazonaws.com/id/LANYARD0000000000000000000000DE"
	Audience     = "sts.amazonaws.com"
	RegistryHost = Account + ".dkr.ecr." + Region + ".amazonaws.com"

	SubjectA = "system:serviceaccount:tenant-a:tenant-a-ecr-sa"
	SubjectB = "system:serviceaccount:tenant-b:tenant-b-ecr-sa"
	RoleA    = "arn:aws:iam::" + Account + ":role/tenant-a-ecr"
	RoleB    = "arn:aws:iam::" + Account + ":role/tenant-b-ecr"

	PusherKey    = "AKIAPUSHERPUSHERPUSH"
	PusherSecret = "pusher-secret-pusher-secret"
)

// World is the cloud of [AWSConfig].
type World struct {
	*cloudtest.Cloud

	Issuer *oidc.Issuer // trusted by the account
	Rogue  *oidc.Issuer // not trusted by the account
}

// TrustPolicy returns a policy that lets a ServiceAccount of the trusted issuer assume a role.
func TrustPolicy(subject string) json.RawMessage {
	host := strings.TrimPrefix(IssuerURL, "https://")
	return fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[{
		"Effect":"Allow",
		"Principal":{"Federated":"arn:aws:iam::%s:oidc-provider/%s"},
		"Action":"sts:AssumeRoleWithWebIdentity",
		"Condition":{"StringEquals":{"%s:sub":%q,"%s:aud":%q}}}]}`, Account, host, host, subject, host, Audience)
}

// PullPolicy returns a policy that lets a role read a repository.
func PullPolicy(repository string) json.RawMessage {
	return fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Action":"ecr:GetAuthorizationToken","Resource":"*"},
		{"Effect":"Allow","Action":["ecr:BatchGetImage","ecr:GetDownloadUrlForLayer","ecr:BatchCheckLayerAvailability","ecr:ListImages"],
		 "Resource":"arn:aws:ecr:%s:%s:repository/%s"}]}`, Region, Account, repository)
}

// TenantRole returns the role <tenant>-ecr of a tenant.
func TenantRole(tenant, subject string) aws.Role {
	return aws.Role{
		Name: tenant + "-ecr", TrustPolicy: TrustPolicy(subject),
		Policies: map[string]json.RawMessage{"pull": PullPolicy(tenant + "/*")},
	}
}

// AWSConfig returns a configuration like that of Lanyard's demonstration. It has two tenants, a
// user who may do everything, a public registry, and a second account.
func AWSConfig() cloudtest.Config {
	const everything = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`
	return cloudtest.Config{AWS: aws.Config{Accounts: []aws.Account{
		{
			ID:            Account,
			OIDCProviders: []aws.OIDCProvider{{URL: IssuerURL, ClientIDs: []string{Audience}}},
			Roles:         []aws.Role{TenantRole("tenant-a", SubjectA), TenantRole("tenant-b", SubjectB)},
			Users: []aws.User{{
				Name: "pusher", AccessKeys: []aws.AccessKey{{ID: PusherKey, Secret: PusherSecret}},
				Policies: map[string]json.RawMessage{"all": json.RawMessage(everything)},
			}},
			Repositories: []aws.Repository{{Region: Region, Name: "tenant-a/app"}, {Region: Region, Name: "tenant-b/app"}},
			PublicRegistry: &aws.PublicRegistry{
				Alias: "lanyard", Repositories: []string{"tools"},
			},
		},
		{ID: OtherAccount, Repositories: []aws.Repository{{Region: Region, Name: "tenant-a/app"}}},
	}}}
}

// NewWorld makes the cloud with its issuers. Each registry stores its content in memory.
func NewWorld(t *testing.T) *World {
	t.Helper()
	c, err := cloudtest.New(AWSConfig())
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close() })
	w := &World{Cloud: c}
	for issuer, to := range map[string]**oidc.Issuer{IssuerURL: &w.Issuer, "https://issuer.tenant-b.example": &w.Rogue} {
		*to, err = oidc.NewIssuer(issuer, oidc.ES256)
		must.Succeed(t, err)
		must.Succeed(t, c.HandleIssuer(*to))
	}
	var mu sync.Mutex
	planes := map[aws.Registry]http.Handler{}
	c.AWS().ServeRegistry(func(r aws.Registry) http.Handler {
		mu.Lock()
		defer mu.Unlock()
		if planes[r] == nil {
			planes[r] = NewPlane()
		}
		return planes[r]
	})
	c.AWS().ServePublicRegistry(NewPlane())
	return w
}

// Mint returns a token of the trusted issuer.
func (w *World) Mint(t *testing.T, subject string) string {
	t.Helper()
	raw, err := w.Issuer.Mint(oidc.Claims{"sub": subject, "aud": []string{Audience}})
	must.Succeed(t, err)
	return raw
}

// Client returns a client that calls the cloud in process.
func (w *World) Client() *http.Client {
	return &http.Client{Transport: w.Transport(), Timeout: 30 * time.Second}
}

// Assume calls STS for a session of a role, without an SDK. It returns the code of the refusal, or
// an empty string.
func (w *World) Assume(t *testing.T, way http.RoundTripper, role, token string) string {
	t.Helper()
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
		"RoleArn": {role}, "RoleSessionName": {"test"}, "WebIdentityToken": {token},
	}
	res, err := way.RoundTrip(NewRequest(t, http.MethodPost,
		"https://sts."+Region+".amazonaws.com/", "application/x-www-form-urlencoded", form.Encode()))
	must.Succeed(t, err)
	defer func() { _ = res.Body.Close() }()
	var refusal struct {
		Code string `xml:"Error>Code"`
	}
	if body := ReadAll(t, res); res.StatusCode != http.StatusOK {
		if err := xml.Unmarshal([]byte(body), &refusal); err != nil || refusal.Code == "" {
			t.Fatalf("HTTP %d %s", res.StatusCode, body)
		}
	}
	return refusal.Code
}
