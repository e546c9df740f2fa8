package cloudtest_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/alibaba"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// TestSlashedIssuer uses an issuer that ends in a slash, as an AKS cluster's does. It checks that
// each cloud accepts only tokens of exactly the configured issuer. It must refuse tokens of an
// issuer that differs only in the slash.
func TestSlashedIssuer(t *testing.T) {
	const (
		slashed   = "https://westeurope.oic.prod-aks.azure.com/tenant/cluster/"
		directory = "72f988bf-86f1-41af-91ab-2d7cd011db47"
		client    = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
		aliyun    = "acs:ram::1234567890123456"
	)
	name := strings.TrimPrefix(slashed, "https://")
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRoleWithWebIdentity",
		"Principal":{"Federated":"arn:aws:iam::` + account + `:oidc-provider/` + name + `"},
		"Condition":{"StringEquals":{"` + name + `:sub":"` + subjectA + `","` + name + `:aud":"` + audience + `"}}}]}`
	c, err := cloudtest.New(cloudtest.Config{
		AWS: aws.Config{Accounts: []aws.Account{{
			ID: account, OIDCProviders: []aws.OIDCProvider{{URL: slashed, ClientIDs: []string{audience}}},
			Roles: []aws.Role{{Name: "tenant-a-ecr", TrustPolicy: json.RawMessage(trust)}},
		}}},
		Alibaba: alibaba.Config{Accounts: []alibaba.Account{{
			ID: "1234567890123456", OIDCProviders: []alibaba.OIDCProvider{{Name: "cluster", IssuerURL: slashed, ClientIDs: []string{"sts.aliyuncs.com"}}},
			Roles: []alibaba.Role{{Name: "tenant-a", TrustPolicy: json.RawMessage(`{"Version":"1","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole",
				"Principal":{"Federated":"` + aliyun + `:oidc-provider/cluster"},"Condition":{"StringEquals":{"oidc:sub":"` + subjectA + `"}}}]}`)}},
		}}},
		Azure: azure.Config{Tenants: []azure.Tenant{{ID: directory, Applications: []azure.Application{{
			ClientID: client, FederatedCredentials: []azure.FederatedCredential{{Name: "cluster", Issuer: slashed, Subject: subjectA}},
		}}}}},
		GCP: gcp.Config{Projects: []gcp.Project{{ID: projectID, Number: projectNumber, Pools: []gcp.Pool{{ID: "tenants", Providers: []gcp.Provider{{
			ID: "kubernetes", IssuerURI: slashed, AttributeMapping: map[string]string{"google.subject": "assertion.sub"},
		}}}}}}},
	})
	must.Succeed(t, err)
	defer func() { _ = c.Close() }()
	issuer, err := oidc.NewIssuer(slashed, oidc.RS256)
	must.Succeed(t, err)
	must.Succeed(t, c.HandleIssuer(issuer))
	httpClient := &http.Client{Transport: c.Transport(), Timeout: 30 * time.Second}
	post := func(target string, form url.Values) int {
		res, err := httpClient.Do(rig.NewRequest(t, http.MethodPost, target, "application/x-www-form-urlencoded", form.Encode()))
		must.Succeed(t, err)
		_ = rig.ReadAll(t, res)
		return res.StatusCode
	}
	for cloud, ask := range map[string]func(mint func(audience string) string) int{
		"AWS": func(mint func(string) string) int {
			return post("https://sts.amazonaws.com/", url.Values{
				"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {roleA}, "RoleSessionName": {"session"}, "WebIdentityToken": {mint(audience)},
			})
		},
		"Azure": func(mint func(string) string) int {
			return post("https://login.microsoftonline.com/"+directory+"/oauth2/v2.0/token", url.Values{
				"grant_type": {"client_credentials"}, "client_id": {client}, "scope": {"https://storage.azure.com/.default"},
				"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {mint("api://AzureADTokenExchange")},
			})
		},
		"Alibaba Cloud": func(mint func(string) string) int {
			return post("https://sts.aliyuncs.com/", url.Values{
				"Action": {"AssumeRoleWithOIDC"}, "Version": {"2015-04-01"}, "Format": {"JSON"}, "OIDCProviderArn": {aliyun + ":oidc-provider/cluster"},
				"RoleArn": {aliyun + ":role/tenant-a"}, "RoleSessionName": {"session"}, "OIDCToken": {mint("sts.aliyuncs.com")},
			})
		},
		"Google Cloud": func(mint func(string) string) int {
			return post("https://sts.googleapis.com/v1/token", exchangeForm(poolAudience, mint("https:"+poolAudience)))
		},
	} {
		for iss, granted := range map[string]bool{slashed: true, slashed[:len(slashed)-1]: false, slashed + "/": false} {
			status := ask(func(audience string) string {
				raw, err := issuer.Mint(oidc.Claims{"iss": iss, "sub": subjectA, "aud": audience})
				must.Succeed(t, err)
				return raw
			})
			if (status == http.StatusOK) != granted {
				t.Errorf("%s, issuer %s: HTTP %d", cloud, iss, status)
			}
		}
	}
}
