package azure_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const (
	issuerURL = "https://westeurope.oic.cluster.example/tenant/cluster"
	audience  = "api://AzureADTokenExchange"

	directory      = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	otherDirectory = "11111111-86f1-41af-91ab-2d7cd011db47"
	usDirectory    = "22222222-86f1-41af-91ab-2d7cd011db47"
	chinaDirectory = "33333333-86f1-41af-91ab-2d7cd011db47"
	ownDirectory   = "44444444-86f1-41af-91ab-2d7cd011db47"

	clientA = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	clientB = "4a7272f9-f186-41af-9f84-6a92e32d7cd0"
	pusher  = "5b5b5b5b-c5b2-4a72-9f84-6a92e3f06b08"
	bare    = "6c6c6c6c-c5b2-4a72-9f84-6a92e3f06b08" // without federated credentials

	subjectA      = "system:serviceaccount:tenant-a:tenant-a-azure-sa"
	subjectB      = "system:serviceaccount:tenant-b:tenant-b-azure-sa"
	subjectPusher = "system:serviceaccount:ci:pusher"
)

// world is a cloud with two tenants of a cluster, each with an application.
type world struct {
	*cloudtest.Cloud

	issuer *oidc.Issuer // that the applications know
	rogue  *oidc.Issuer // that they do not
}

// application is one that a ServiceAccount may be.
func application(clientID, subject string) azure.Application {
	return azure.Application{ClientID: clientID, FederatedCredentials: []azure.FederatedCredential{{Name: "cluster", Issuer: issuerURL, Subject: subject}}}
}

func worldConfig() azure.Config {
	return azure.Config{
		Environments: []azure.Environment{{
			Name: "Own", AuthorityHosts: []string{"login.azure.example"}, IssuerHost: "sts.azure.example", ExchangeAudience: "api://OwnTokenExchange",
			ResourceManagers: []string{"https://management.azure.example"}, Resources: []string{"https://containerregistry.azure.net", "https://storage.azure.com"},
			RegistrySuffix: "registry.azure.example", StorageSuffix: "storage.azure.example",
		}},
		Tenants: []azure.Tenant{
			{
				ID: directory, Domains: []string{"contoso.onmicrosoft.com"},
				Applications: []azure.Application{application(clientA, subjectA), application(clientB, subjectB), application(pusher, subjectPusher), {ClientID: bare}},
			},
			{ID: otherDirectory, Applications: []azure.Application{application(clientA, subjectA)}},
			{ID: usDirectory, Environment: azure.AzureUSGovernment, Applications: []azure.Application{application(clientA, subjectA)}},
			{ID: chinaDirectory, Environment: azure.AzureChinaCloud, Applications: []azure.Application{application(clientA, subjectA)}},
			{ID: ownDirectory, Environment: "Own", Applications: []azure.Application{application(clientA, subjectA)}},
		},
		ManagedIdentity: &azure.ManagedIdentity{Tenant: directory, ClientIDs: []string{clientA, clientB}},
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := cloudtest.New(cloudtest.Config{Azure: worldConfig()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	w := &world{Cloud: c}
	for _, i := range []struct {
		url string
		to  **oidc.Issuer
	}{{issuerURL, &w.issuer}, {"https://issuer.tenant-b.example", &w.rogue}} {
		issuer, err := oidc.NewIssuer(i.url, oidc.RS256)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.HandleIssuer(issuer); err != nil {
			t.Fatal(err)
		}
		*i.to = issuer
	}
	return w
}

func (w *world) mint(t *testing.T, subject, audience string) string {
	t.Helper()
	raw, err := w.issuer.Mint(oidc.Claims{"sub": subject, "aud": []string{audience}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func (w *world) client() *http.Client {
	return &http.Client{
		Transport: w.Transport(), Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// verifyWith checks a token's signature against published keys.
func verifyWith(keys []byte, raw string) error {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(keys, &set); err != nil {
		return err
	}
	signed, err := jose.ParseSigned(raw, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return err
	}
	_, err = signed.Verify(&set)
	return err
}

func newRequest(t *testing.T, method, target, contentType, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

func readAll(t *testing.T, res *http.Response) string {
	t.Helper()
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
