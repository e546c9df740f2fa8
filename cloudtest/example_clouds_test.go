package cloudtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/alibaba"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// A federated credential lets a ServiceAccount of an AKS cluster get tokens of an Entra ID
// application. The issuer ends in a slash, as AKS's issuers do.
func ExampleCloud_Azure() {
	issuer, err := oidc.NewIssuer("https://westeurope.oic.prod-aks.azure.com/tenant/cluster/", oidc.RS256)
	if err != nil {
		panic(err)
	}
	const tenant, client = "72f988bf-86f1-41af-91ab-2d7cd011db47", "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	cloud, err := cloudtest.New(cloudtest.Config{Azure: azure.Config{Tenants: []azure.Tenant{{
		ID: tenant,
		Applications: []azure.Application{{ClientID: client, FederatedCredentials: []azure.FederatedCredential{
			{Name: "tenant-a", Issuer: issuer.URL(), Subject: "system:serviceaccount:tenant-a:default"},
		}}},
	}}}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = cloud.Close() }()
	if err := cloud.HandleIssuer(issuer); err != nil {
		panic(err)
	}
	httpClient := &http.Client{Transport: cloud.Transport()}
	for _, namespace := range []string{"tenant-a", "tenant-b"} {
		token, err := issuer.Mint(oidc.Claims{"sub": "system:serviceaccount:" + namespace + ":default", "aud": "api://AzureADTokenExchange"})
		if err != nil {
			panic(err)
		}
		res, err := httpClient.PostForm("https://login.microsoftonline.com/"+tenant+"/oauth2/v2.0/token", url.Values{
			"grant_type": {"client_credentials"}, "client_id": {client}, "scope": {"https://storage.azure.com/.default"},
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {token},
		})
		if err != nil {
			panic(err)
		}
		_ = res.Body.Close()
	}
	for _, call := range cloud.Journal().Calls(journal.Filter{Service: azure.ServiceEntra}) {
		fmt.Printf("%s: HTTP %d %q\n", call.Subject, call.Status, call.Code)
	}
	// Output:
	// system:serviceaccount:tenant-a:default: HTTP 200 ""
	// system:serviceaccount:tenant-b:default: HTTP 401 "AADSTS700213"
}

// A provider of a workload identity pool can trust the issuer of any cluster. Only ServiceAccounts
// that meet the provider's attribute condition become principals of the pool.
func ExampleCloud_GCP() {
	issuer, err := oidc.NewIssuer("https://issuer.example", oidc.ES256)
	if err != nil {
		panic(err)
	}
	const provider = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/tenants/providers/kubernetes"
	cloud, err := cloudtest.New(cloudtest.Config{GCP: gcp.Config{Projects: []gcp.Project{{
		ID: "my-org-project", Number: "123456789012",
		Pools: []gcp.Pool{{ID: "tenants", Providers: []gcp.Provider{{
			ID: "kubernetes", IssuerURI: issuer.URL(),
			AttributeMapping:   map[string]string{"google.subject": "assertion.sub"},
			AttributeCondition: "google.subject.startsWith('system:serviceaccount:tenant-a:')",
		}}}},
	}}}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = cloud.Close() }()
	if err := cloud.HandleIssuer(issuer); err != nil {
		panic(err)
	}
	httpClient := &http.Client{Transport: cloud.Transport()}
	for _, namespace := range []string{"tenant-a", "tenant-b"} {
		token, err := issuer.Mint(oidc.Claims{"sub": "system:serviceaccount:" + namespace + ":default", "aud": "https:" + provider})
		if err != nil {
			panic(err)
		}
		res, err := httpClient.PostForm("https://sts.googleapis.com/v1/token", url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {provider}, "scope": {"https://www.googleapis.com/auth/cloud-platform"},
			"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
			"subject_token_type":   {"urn:ietf:params:oauth:token-type:jwt"}, "subject_token": {token},
		})
		if err != nil {
			panic(err)
		}
		_ = res.Body.Close()
	}
	for _, call := range cloud.Journal().Calls(journal.Filter{Service: gcp.ServiceSTS}) {
		fmt.Printf("%s: HTTP %d %q\n", call.Subject, call.Status, call.Code)
	}
	// Output:
	// system:serviceaccount:tenant-a:default: HTTP 200 ""
	// system:serviceaccount:tenant-b:default: HTTP 400 "unauthorized_client"
}

// A WorkloadIdentity of Lanyard's issuer assumes a role of Alibaba Cloud through an OIDC provider.
func ExampleCloud_Alibaba() {
	issuer, err := oidc.NewIssuer("https://issuer.example", oidc.RS256)
	if err != nil {
		panic(err)
	}
	const account, provider = "1234567890123456", "acs:ram::1234567890123456:oidc-provider/lanyard"
	const subject = "lanyard.dev:workloadidentity:tenant-a:dns"
	cloud, err := cloudtest.New(cloudtest.Config{Alibaba: alibaba.Config{Accounts: []alibaba.Account{{
		ID: account, OIDCProviders: []alibaba.OIDCProvider{{Name: "lanyard", IssuerURL: issuer.URL(), ClientIDs: []string{"sts.aliyuncs.com"}}},
		Roles: []alibaba.Role{{Name: "dns", TrustPolicy: json.RawMessage(`{"Version":"1","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole",
			"Principal":{"Federated":"` + provider + `"},"Condition":{"StringEquals":{"oidc:sub":"` + subject + `"}}}]}`)}},
	}}}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = cloud.Close() }()
	if err := cloud.HandleIssuer(issuer); err != nil {
		panic(err)
	}
	httpClient := &http.Client{Transport: cloud.Transport()}
	for _, sub := range []string{subject, "lanyard.dev:workloadidentity:tenant-b:dns"} {
		token, err := issuer.Mint(oidc.Claims{"sub": sub, "aud": "sts.aliyuncs.com"})
		if err != nil {
			panic(err)
		}
		res, err := httpClient.PostForm("https://sts.aliyuncs.com/", url.Values{
			"Action": {"AssumeRoleWithOIDC"}, "Version": {"2015-04-01"}, "Format": {"JSON"}, "RoleSessionName": {"example"},
			"RoleArn": {"acs:ram::" + account + ":role/dns"}, "OIDCProviderArn": {provider}, "OIDCToken": {token},
		})
		if err != nil {
			panic(err)
		}
		_ = res.Body.Close()
	}
	for _, call := range cloud.Journal().Calls(journal.Filter{Service: alibaba.ServiceSTS}) {
		fmt.Printf("%s: HTTP %d %q\n", call.Subject, call.Status, call.Code)
	}
	// Output:
	// lanyard.dev:workloadidentity:tenant-a:dns: HTTP 200 ""
	// lanyard.dev:workloadidentity:tenant-b:dns: HTTP 401 "AuthenticationFail.NoPermission"
}
