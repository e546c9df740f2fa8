package cloudtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// A tenant tries to assume another tenant's role. AWS refuses the call without a reason. The
// journal has the reason.
func Example() {
	issuer, err := oidc.NewIssuer("https://issuer.example", oidc.ES256)
	if err != nil {
		panic(err)
	}
	trust := json.RawMessage(`{"Version": "2012-10-17", "Statement": [{
		"Effect": "Allow",
		"Principal": {"Federated": "arn:aws:iam::123456789123:oidc-provider/issuer.example"},
		"Action": "sts:AssumeRoleWithWebIdentity",
		"Condition": {"StringEquals": {"issuer.example:sub": "system:serviceaccount:tenant-a:default"}}
	}]}`)
	cloud, err := cloudtest.New(cloudtest.Config{AWS: aws.Config{Accounts: []aws.Account{{
		ID:            "123456789123",
		OIDCProviders: []aws.OIDCProvider{{URL: issuer.URL(), ClientIDs: []string{"sts.amazonaws.com"}}},
		Roles:         []aws.Role{{Name: "tenant-a", TrustPolicy: trust}},
	}}}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = cloud.Close() }()
	if err := cloud.HandleIssuer(issuer); err != nil {
		panic(err)
	}

	token, err := issuer.Mint(oidc.Claims{"sub": "system:serviceaccount:tenant-b:default", "aud": "sts.amazonaws.com"})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: cloud.Transport()}
	res, err := client.PostForm("https://sts.eu-west-1.amazonaws.com/", url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleSessionName": {"example"},
		"RoleArn": {"arn:aws:iam::123456789123:role/tenant-a"}, "WebIdentityToken": {token},
	})
	if err != nil {
		panic(err)
	}
	_ = res.Body.Close()

	for _, call := range cloud.Journal().Calls(journal.Filter{Service: aws.ServiceSTS}) {
		fmt.Println(call.Status, call.Code)
		fmt.Println(call.Reason)
	}
	// Output:
	// 403 AccessDenied
	// trust policy: statement 0: condition StringEquals issuer.example:sub wants ["system:serviceaccount:tenant-a:default"], the request has ["system:serviceaccount:tenant-b:default"]
}
