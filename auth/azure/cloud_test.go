package azure_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	cloudazure "github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const controllerSubject = "system:serviceaccount:lanyard-system:lanyard-controller"

// tenantB returns the account of another tenant, which has its own application.
func tenantB(tb testing.TB) auth.Account {
	tb.Helper()
	subject, err := auth.ServiceAccount("tenant-b", "puller")
	rig.Must(tb, err)
	return auth.Account{Subject: subject, UID: "8c5f", Attributes: map[string]string{azure.ClientAnnotation: clientB, azure.TenantAnnotation: tenantID}}
}

// custom is an administrator's file that describes a cloud with the name Own.
const custom = `{"name":"Own","activeDirectoryEndpoint":"https://login.azure.example","resourceManagerEndpoint":"https://management.azure.example",
	"federatedCredentialAudience":"api://OwnTokenExchange","containerRegistryDNSSuffix":"registry.azure.example",
	"resourceIdentifiers":{"keyVault":"https://vault.azure.example","storage":"https://storage.azure.example"}}`

func TestEveryCloudEndToEnd(t *testing.T) {
	w := newWorld(t)
	own, err := endpoint.ParseAzureEnvironment([]byte(custom), "")
	rig.Must(t, err)
	clouds := append(endpoint.AzureClouds(), own)
	tenants := []string{tenantID, govTenantID, chinaTenantID, customTenantID}
	for i, cloud := range clouds {
		t.Run(cloud.Name, func(t *testing.T) {
			provider := w.provider(t, azure.Config{Cloud: cloud, TenantID: tenants[i]})
			account := accountA(t)
			delete(account.Attributes, azure.TenantAnnotation)
			for name, test := range map[string]struct {
				opts     []auth.Option
				audience string // the token's audience; empty for registry credentials
			}{
				"default":    {nil, cloud.ResourceManagerAudience},
				"ARM":        {[]auth.Option{auth.WithScopes(azure.ResourceManagerScope(cloud))}, cloud.ResourceManagerAudience},
				"Blob":       {[]auth.Option{auth.WithScopes(azure.BlobScope(cloud))}, cloud.StorageAudience},
				"Key Vault":  {[]auth.Option{auth.WithScopes(azure.KeyVaultScope(cloud))}, cloud.KeyVaultAudience},
				"Event Hubs": {[]auth.Option{auth.WithScopes(azure.EventHubsScope(cloud))}, cloud.EventHubsAudience},
				"image":      {[]auth.Option{auth.WithImageRepository("contoso." + cloud.RegistrySuffix + "/tenant-a/app")}, ""},
			} {
				token, err := auth.GetToken(t.Context(), provider, w.As(account, test.opts...)...)
				if err != nil || token.GetDuration() <= 0 {
					t.Errorf("%s: %v, %v", name, token, err)
					continue
				}
				if _, registry := token.(*auth.RegistryCredentials); registry != (test.audience == "") {
					t.Errorf("%s: a %T", name, token)
				} else if !registry && audienceOf(t, token) != test.audience {
					t.Errorf("%s: a token for %s, want %s", name, audienceOf(t, token), test.audience)
				}
			}
			// Azure DevOps exists only in the public cloud, so other clouds refuse its scope.
			devops, err := auth.GetToken(t.Context(), provider, w.As(account, auth.WithScopes(azure.DevOpsScope))...)
			switch {
			case cloud != endpoint.AzurePublic():
				if auth.CodeOf(err) != auth.CodeRefused || !strings.Contains(err.Error(), "AADSTS500011") {
					t.Errorf("Azure DevOps: %v, %v", devops, err)
				}
			case err != nil || audienceOf(t, devops)+"/.default" != azure.DevOpsScope:
				t.Errorf("Azure DevOps: %v, %v", devops, err)
			}
			// An Entra tenant of another cloud does not exist in this cloud. A proof with the
			// audience of another cloud is refused.
			account.Attributes[azure.TenantAnnotation] = tenants[(i+1)%len(tenants)]
			if _, err := auth.GetToken(t.Context(), provider, w.As(account)...); auth.CodeOf(err) != auth.CodeTrustRefused || !strings.Contains(err.Error(), "AADSTS90002") {
				t.Errorf("another cloud's tenant: %v", err)
			}
			account.Attributes[azure.TenantAnnotation] = tenants[i]
			subject := rig.Subject(account, func(account auth.Account, request auth.ProofRequest) (string, error) {
				request.Audiences = []string{clouds[(i+1)%len(clouds)].ProofAudience}
				return w.Sign(account, request)
			})
			_, err = auth.GetToken(t.Context(), provider, subject)
			if auth.CodeOf(err) != auth.CodeTrustRefused || !strings.Contains(err.Error(), "AADSTS700212") || !strings.Contains(err.Error(), "audience "+cloud.ProofAudience) {
				t.Errorf("another cloud's proof: %v", err)
			}
		})
	}
}

// audienceOf returns the resource that a token of Microsoft Entra is for.
func audienceOf(t *testing.T, token auth.Token) string {
	t.Helper()
	read, err := oidc.Read(token.(*azure.Token).Secret.Reveal())
	rig.Must(t, err)
	audience, _ := read.Claims["aud"].(string)
	return audience
}

// allows reports whether the registry accepts a password for a scope.
func (w *world) allows(t *testing.T, credentials *auth.RegistryCredentials, host, scope string) bool {
	t.Helper()
	target := "https://" + host + "/oauth2/token?" + url.Values{"service": {host}, "scope": {scope}}.Encode()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	rig.Must(t, err)
	request.SetBasicAuth(credentials.Username, credentials.Password.Reveal())
	response, err := (&http.Client{Transport: w.Base}).Do(request)
	rig.Must(t, err)
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized {
		return false
	}
	var answer struct {
		Token string `json:"access_token"`
	}
	rig.Must(t, json.NewDecoder(response.Body).Decode(&answer))
	token, err := oidc.Read(answer.Token)
	rig.Must(t, err)
	granted, err := json.Marshal(token.Claims["access"])
	rig.Must(t, err)
	_, name, _ := strings.Cut(scope, ":")
	name, action, _ := strings.Cut(name, ":")
	return strings.Contains(string(granted), `"`+name+`"`) && strings.Contains(string(granted), `"`+action+`"`)
}

// TestCredentialsAreForOneRepository checks that the credentials can only pull, and only from one
// repository. The identity itself may write to all of tenant-a/.
func TestCredentialsAreForOneRepository(t *testing.T) {
	w := newWorld(t)
	token, err := auth.GetToken(t.Context(), w.azure, w.As(accountA(t), auth.WithImageRepository(imageA))...)
	rig.Must(t, err)
	credentials := token.(*auth.RegistryCredentials)
	for scope, want := range map[string]bool{
		"repository:tenant-a/app:pull":          true,
		"repository:tenant-a/app:metadata_read": true,
		"repository:tenant-a/app:push":          false,
		"repository:tenant-a/app:delete":        false,
		"repository:tenant-a/other:pull":        false,
		"repository:tenant-b/app:pull":          false,
		"registry:catalog:*":                    false,
	} {
		if got := w.allows(t, credentials, "contoso.azurecr.io", scope); got != want {
			t.Errorf("%s: %t, want %t", scope, got, want)
		}
	}
}

// TestCredentialsOfTheWholeRegistry checks credentials with [azure.Config].WholeRegistry. Such
// credentials can also push, and the call may omit the repository. The credentials allow no more
// than the identity may do.
func TestCredentialsOfTheWholeRegistry(t *testing.T) {
	w := newWorld(t)
	provider := w.provider(t, azure.Config{AllowedEndpointHosts: w.Allow, WholeRegistry: true})
	for _, image := range []string{"contoso.azurecr.io", imageA} {
		token, err := auth.GetToken(t.Context(), provider, w.As(accountA(t), auth.WithImageRepository(image))...)
		rig.Must(t, err)
		credentials := token.(*auth.RegistryCredentials)
		for scope, want := range map[string]bool{
			"repository:tenant-a/app:pull":   true,
			"repository:tenant-a/app:push":   true,
			"repository:tenant-a/other:push": true,
			"repository:tenant-b/app:pull":   false,
		} {
			if got := w.allows(t, credentials, "contoso.azurecr.io", scope); got != want {
				t.Errorf("%s: %s: %t, want %t", image, scope, got, want)
			}
		}
	}
}

func TestAnotherTenantsRepository(t *testing.T) {
	w := newWorld(t)
	_, err := auth.GetToken(t.Context(), w.azure, w.As(tenantB(t), auth.WithImageRepository(imageA))...)
	e, ok := errors.AsType[*auth.Error](err)
	if !ok || e.Stage != auth.StageRegistry || e.Code != auth.CodePermissionDenied || !strings.Contains(e.Fix, "application "+clientB) || !strings.Contains(e.Fix, "repository tenant-a/app") {
		t.Errorf("%v", err)
	}
	// A tenant's own account cannot use another tenant's identity.
	thief := tenantB(t)
	thief.Attributes[azure.ClientAnnotation] = clientA
	_, err = auth.GetToken(t.Context(), w.azure, w.As(thief, auth.WithImageRepository(imageA))...)
	if auth.CodeOf(err) != auth.CodeTrustRefused || !strings.Contains(err.Error(), "subject system:serviceaccount:tenant-b:puller and audience api://AzureADTokenExchange to application "+clientA) {
		t.Errorf("%v", err)
	}
}

func TestProofsThatEntraDoesNotTake(t *testing.T) {
	w := newWorld(t)
	curves, err := oidc.NewIssuer("https://curves.example", oidc.ES256)
	rig.Must(t, err)
	rig.Must(t, w.Cloud.HandleIssuer(curves))
	account := accountA(t)
	for name, test := range map[string]struct {
		claims oidc.Claims
		mint   func(oidc.Claims) (string, error)
		code   auth.Code
		fix    string
	}{
		"elliptic curves": {oidc.Claims{}, curves.Mint, auth.CodeProofInvalid, "RS256"},
		"letters":         {oidc.Claims{"sub": "system:serviceaccount:Tenant-A:puller"}, w.Issuer.Mint, auth.CodeTrustRefused, "letter by letter"},
		"no such issuer":  {oidc.Claims{"iss": issuerURL + "/"}, w.Issuer.Mint, auth.CodeTrustRefused, "issuer " + issuerURL + "/,"},
	} {
		t.Run(name, func(t *testing.T) {
			subject := rig.Subject(account, func(account auth.Account, request auth.ProofRequest) (string, error) {
				claims := oidc.Claims{"sub": rig.SubjectClaim(account), "aud": request.Audiences}
				maps.Copy(claims, test.claims)
				return test.mint(claims)
			})
			_, err := auth.GetToken(t.Context(), w.azure, subject)
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Code != test.code || !strings.Contains(e.Fix, test.fix) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestTwentyCredentials checks the error if the application already has 20 federated credentials,
// the maximum, and none of them is for the account.
func TestTwentyCredentials(t *testing.T) {
	w := newWorld(t)
	full := cloudazure.Application{ClientID: clientA}
	for i := range 20 {
		name := "other-" + string(rune('a'+i))
		full.FederatedCredentials = append(full.FederatedCredentials, cloudazure.FederatedCredential{Name: name, Issuer: issuerURL, Subject: "system:serviceaccount:" + name + ":sa"})
	}
	rig.Must(t, w.Cloud.Azure().PutApplication(tenantID, full))
	_, err := auth.GetToken(t.Context(), w.azure, w.As(accountA(t))...)
	if auth.CodeOf(err) != auth.CodeTrustRefused || !strings.Contains(err.Error(), "an application has at most 20") {
		t.Errorf("%v", err)
	}
}

// TestClockSkew checks that the clocks of the proof's issuer and of Microsoft Entra may differ by
// five minutes. A larger difference is an error that names both clocks.
func TestClockSkew(t *testing.T) {
	w := newWorld(t)
	for _, skew := range []time.Duration{-270 * time.Second, 270 * time.Second} {
		end := w.Fault(t, fault.Fault{Service: "entra", Kind: fault.Skew, Skew: skew})
		if token, err := auth.GetToken(t.Context(), w.azure, w.As(accountA(t))...); err != nil || token.GetDuration().Minutes() < 59 {
			t.Errorf("%s: %v, %v", skew, token, err)
		}
		end()
	}
	defer w.Fault(t, fault.Fault{Service: "entra", Kind: fault.Skew, Skew: 30 * time.Minute})()
	_, err := auth.GetToken(t.Context(), w.azure, w.As(accountA(t))...)
	if auth.CodeOf(err) != auth.CodeProofInvalid || !strings.Contains(err.Error(), "the clock of the cluster's API server, which dates the proof, with that of Microsoft Entra") {
		t.Errorf("%v", err)
	}
}

func TestRegistryTroubles(t *testing.T) {
	w := newWorld(t)
	for kind, want := range map[fault.Kind]auth.Code{
		fault.Throttle: auth.CodeThrottled, fault.Unavailable: auth.CodeUnavailable, fault.InternalFailure: auth.CodeUnavailable,
		fault.Malformed: auth.CodeResponseInvalid, fault.Drop: auth.CodeUnreachable,
	} {
		end := w.Fault(t, fault.Fault{Service: "acr", Kind: kind})
		_, err := auth.GetToken(t.Context(), w.azure, w.As(accountA(t), auth.WithImageRepository(imageA))...)
		e, ok := errors.AsType[*auth.Error](err)
		if !ok || e.Code != want || e.Stage != auth.StageRegistry || e.Fix == "" {
			t.Errorf("%s: %v, want %s", kind, err, want)
		}
		end()
	}
}

func TestTenantProxies(t *testing.T) {
	w := newWorld(t)
	w.TenantProxies(t, func(t *testing.T, allow endpoint.Allowed, deny endpoint.CIDRs, opts ...auth.Option) error {
		t.Helper()
		provider := w.provider(t, azure.Config{AllowedEndpointHosts: allow, DenyCIDRs: deny})
		_, err := auth.GetToken(t.Context(), provider, w.As(accountA(t), append(opts, auth.WithImageRepository(imageA))...)...)
		return err
	})
}

func TestControllerAtTheCloud(t *testing.T) {
	w := newWorld(t)
	proof, err := w.Issuer.Mint(oidc.Claims{"sub": controllerSubject, "aud": []string{"api://AzureADTokenExchange"}})
	rig.Must(t, err)
	environment(t, map[string]string{"AZURE_CLIENT_ID": clientC, "AZURE_TENANT_ID": tenantID, "AZURE_FEDERATED_TOKEN_FILE": file(t, proof)})
	provider := w.provider(t, azure.Config{TenantID: tenantID})
	token, err := auth.GetToken(t.Context(), provider, auth.WithController())
	rig.Must(t, err)
	if whose, err := w.caller(t.Context(), token); err != nil || whose != tenantID+"/"+clientC {
		t.Errorf("%s, %v", whose, err)
	}
	credentials, err := auth.GetToken(t.Context(), provider, auth.WithController(), auth.WithImageRepository(imageA))
	if err != nil || credentials.(*auth.RegistryCredentials).Password.IsZero() {
		t.Errorf("registry: %v, %v", credentials, err)
	}
	rig.Must(t, w.Cloud.Azure().PutApplication(tenantID, application(clientC, "nobody")))
	_, err = auth.GetToken(t.Context(), provider, auth.WithController())
	e, ok := errors.AsType[*auth.Error](err)
	if !ok || e.Code != auth.CodeTrustRefused || !strings.Contains(e.Fix, "AZURE_FEDERATED_TOKEN_FILE") {
		t.Errorf("%v", err)
	}
}

func TestJournalTellsWho(t *testing.T) {
	w := newWorld(t)
	_, err := auth.GetToken(t.Context(), w.azure, w.As(accountA(t), auth.WithImageRepository(imageA))...)
	rig.Must(t, err)
	calls := w.Cloud.Journal().Calls(journal.Filter{})
	var operations []string
	for _, call := range calls {
		if call.Service == "entra" || call.Service == "acr" {
			operations = append(operations, call.Operation)
			if call.Principal != clientA+"@"+tenantID {
				t.Errorf("%+v", call)
			}
		}
	}
	// There is one exchange at Microsoft Entra, and no discovery of hosts, because package endpoint
	// has tables of the hosts.
	if got := strings.Join(operations, " "); got != "Token Exchange GetAccessToken" {
		t.Errorf("%s", got)
	}
}
