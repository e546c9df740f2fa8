package keyservice_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"golang.org/x/oauth2"
	cloudkms "google.golang.org/api/cloudkms/v1"
	"google.golang.org/api/option"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	cloudazure "github.com/lanyard-dev/lanyard/cloudtest/azure"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/clouds/awsclient"
	"github.com/lanyard-dev/lanyard/internal/keyservice"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/sopsfile/masterkey"
)

const (
	issuerHost = "issuer.cluster.example"
	account    = "123456789123"
	region     = "eu-west-1"
	directory  = "72f988bf-86f1-41af-91ab-2d7cd011db47" // a tenant of Microsoft Entra
	stranger   = "11111111-86f1-41af-91ab-2d7cd011db47" // another one
	vaultURL   = "https://contoso-keys.vault.azure.net"
	project    = "my-org-project"
	pool       = "projects/123456789012/locations/global/workloadIdentityPools/clusters"
	keyRing    = "projects/" + project + "/locations/europe-west1/keyRings/tenants"

	tenantA = "tenant-a"
	tenantB = "tenant-b"
	sealer  = "sealer" // encrypts, and manages all keys
)

// clientOf returns the client ID of a namespace's application.
func clientOf(namespace string) string {
	return map[string]string{tenantA: "aaaaaaaa", tenantB: "bbbbbbbb", sealer: "cccccccc"}[namespace] + "-86f1-41af-91ab-2d7cd011db47"
}

func emailOf(namespace string) string {
	return namespace + "@" + project + ".iam.gserviceaccount.com"
}

func subjectOf(namespace string) string {
	return "system:serviceaccount:" + namespace + ":decryptor"
}

// world is a local cloud with key services, and a service that reaches it in memory. So it works in
// a bubble of synctest too. At each cloud, a tenant may decrypt with its own key only.
type world struct {
	t        *testing.T
	cloud    *cloudtest.Cloud
	service  *keyservice.Service
	accounts accounts
	cache    *cache.Cache
}

// sharedIssuer makes the cluster's issuer once, because RSA keys are slow to make.
var sharedIssuer = sync.OnceValues(func() (*oidc.Issuer, error) { //nolint:gochecknoglobals // no test changes it
	return oidc.NewIssuer("https://"+issuerHost, oidc.RS256)
})

func newWorld(t *testing.T) *world {
	t.Helper()
	issuer, err := sharedIssuer()
	must.Succeed(t, err)
	cloud, err := cloudtest.New(cloudtest.Config{AWS: awsConfig(), Azure: azureConfig(), GCP: gcpConfig()})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = cloud.Close() })
	must.Succeed(t, cloud.HandleIssuer(issuer))
	base := cloud.Transport()
	t.Cleanup(base.CloseIdleConnections)
	// A request waits until the cloud has made its RSA key. With the race detector this takes seconds.
	const patience = time.Minute
	set := &providers.Set{}
	set.AWS, err = aws.NewProvider(aws.Config{Transport: base, Timeout: patience})
	must.Succeed(t, err)
	set.Azure, err = azure.NewProvider(azure.Config{TenantID: directory, Transport: base, Timeout: patience})
	must.Succeed(t, err)
	set.GCP, err = gcp.NewProvider(gcp.Config{Transport: base, Timeout: patience})
	must.Succeed(t, err)
	t.Cleanup(set.Close)
	return &world{
		t: t, cloud: cloud, accounts: accounts{issuer, nil}, cache: cache.New(cache.Options{}),
		service: &keyservice.Service{Clouds: set, Transports: newPool(t, base)},
	}
}

// useProxy makes connections to key services through the cloud's proxy, as an administrator's proxy.
func (w *world) useProxy() {
	w.t.Helper()
	must.Succeed(w.t, w.cloud.Start(w.t.Context()))
	proxy, err := url.Parse(w.cloud.ProxyURL())
	must.Succeed(w.t, err)
	base := w.cloud.Transport()
	base.Proxy, base.DialContext = http.ProxyURL(proxy), (&net.Dialer{}).DialContext
	w.service.Transports = newPool(w.t, base)
}

// newPool returns connections that the transport's own dial function makes.
func newPool(t *testing.T, base *http.Transport) *transport.Pool {
	t.Helper()
	pool, err := transport.NewPool(transport.Options{Base: base, Dial: base.DialContext, CheckTarget: endpoint.Guard{}.CheckTarget})
	must.Succeed(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func awsConfig() cloudaws.Config {
	role := func(namespace, statement string) cloudaws.Role {
		trust := fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::%s:oidc-provider/%s"},
			"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{"%s:sub":%q,"%s:aud":"sts.amazonaws.com"}}}]}`,
			account, issuerHost, issuerHost, subjectOf(namespace), issuerHost)
		policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Resource":"*",` + statement + `}]}`
		return cloudaws.Role{Name: namespace, TrustPolicy: json.RawMessage(trust), Policies: map[string]json.RawMessage{"keys": json.RawMessage(policy)}}
	}
	own := `"Action":"kms:Decrypt","Condition":{"StringEquals":{"aws:ResourceTag/owner":"%s"}}`
	return cloudaws.Config{Accounts: []cloudaws.Account{{
		ID: account, OIDCProviders: []cloudaws.OIDCProvider{{URL: "https://" + issuerHost, ClientIDs: []string{"sts.amazonaws.com"}}},
		Roles: []cloudaws.Role{
			role(tenantA, fmt.Sprintf(own, tenantA)), role(tenantB, fmt.Sprintf(own, tenantB)), role(sealer, `"Action":"kms:*"`),
		},
	}}}
}

func azureConfig() cloudazure.Config {
	application := func(namespace string) cloudazure.Application {
		return cloudazure.Application{ClientID: clientOf(namespace), FederatedCredentials: []cloudazure.FederatedCredential{{
			Name: "cluster", Issuer: "https://" + issuerHost, Subject: subjectOf(namespace),
		}}}
	}
	return cloudazure.Config{Tenants: []cloudazure.Tenant{
		{
			ID: directory, Applications: []cloudazure.Application{application(tenantA), application(tenantB), application(sealer)},
			KeyVaults: []cloudazure.KeyVaultConfig{{Name: "contoso-keys", Keys: []string{tenantA, tenantB}, RoleAssignments: []cloudazure.KeyVaultRole{
				{ClientID: clientOf(tenantA), Role: "Key Vault Crypto User", Key: tenantA},
				{ClientID: clientOf(tenantB), Role: "Key Vault Crypto User", Key: tenantB},
				{ClientID: clientOf(sealer), Role: "Key Vault Crypto Officer"},
			}}},
		},
		{ID: stranger, KeyVaults: []cloudazure.KeyVaultConfig{{Name: "fabrikam-keys", Keys: []string{tenantA}}}},
	}}
}

// gcpConfig returns a project. Tenant A and the sealer impersonate service accounts. Tenant B's
// ServiceAccount is itself a principal.
func gcpConfig() cloudgcp.Config {
	principal := func(namespace string) string {
		return "principal://iam.googleapis.com/" + pool + "/subject/" + subjectOf(namespace)
	}
	bind := func(role, member string) cloudgcp.Binding {
		return cloudgcp.Binding{Role: role, Members: []string{member}}
	}
	serviceAccount := func(namespace string) cloudgcp.ServiceAccount {
		return cloudgcp.ServiceAccount{Email: emailOf(namespace), Bindings: []cloudgcp.Binding{bind("roles/iam.workloadIdentityUser", principal(namespace))}}
	}
	const decrypter = "roles/cloudkms.cryptoKeyDecrypter"
	return cloudgcp.Config{Projects: []cloudgcp.Project{{
		ID: project, Number: "123456789012",
		Pools: []cloudgcp.Pool{{ID: "clusters", Providers: []cloudgcp.Provider{{
			ID: "cluster", IssuerURI: "https://" + issuerHost, AttributeMapping: map[string]string{"google.subject": "assertion.sub"},
		}}}},
		ServiceAccounts: []cloudgcp.ServiceAccount{serviceAccount(tenantA), serviceAccount(sealer)},
		Bindings: []cloudgcp.Binding{
			bind("roles/cloudkms.admin", "serviceAccount:"+emailOf(sealer)), bind("roles/cloudkms.cryptoKeyEncrypter", "serviceAccount:"+emailOf(sealer)),
		},
		KeyRings: []cloudgcp.KeyRing{{Location: "europe-west1", Name: "tenants", Keys: []cloudgcp.CryptoKey{
			{Name: tenantA, Bindings: []cloudgcp.Binding{bind(decrypter, "serviceAccount:"+emailOf(tenantA))}},
			{Name: tenantB, Bindings: []cloudgcp.Binding{bind(decrypter, principal(tenantB))}},
		}}},
	}}}
}

// accounts has a ServiceAccount named decryptor in each namespace. Its proofs are tokens that the
// cluster's issuer signs.
type accounts struct {
	issuer *oidc.Issuer
	// posing says as which other namespace an account poses, in its annotations.
	posing map[string]string
}

func (a accounts) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	as := subject.Namespace()
	if other := a.posing[as]; other != "" {
		as = other
	}
	attributes := map[string]string{
		aws.RoleAnnotation: "arn:aws:iam::" + account + ":role/" + as, azure.ClientAnnotation: clientOf(as), gcp.ProviderAnnotation: pool + "/providers/cluster",
	}
	if as != tenantB {
		attributes[gcp.ServiceAccountAnnotation] = emailOf(as)
	}
	return auth.Account{Subject: subject, UID: "uid-of-" + subject.Namespace(), Attributes: attributes}, nil
}

func (a accounts) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return a.Lookup(ctx, subject)
}

func (accounts) Subscribe(func(auth.Subject)) {}

func (a accounts) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	expiry := time.Now().Add(request.Lifetime)
	token, err := a.issuer.Mint(oidc.Claims{"sub": account.Subject.String(), "aud": request.Audiences, "exp": expiry.Unix()})
	return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: expiry}, err
}

// options returns the options of [auth.GetToken] for a namespace, as the reconciler makes them.
func (w *world) options(namespace string) []auth.Option {
	return []auth.Option{
		auth.WithServiceAccount(namespace, "decryptor", w.accounts), auth.WithTenant(namespace),
		auth.WithCache(w.cache, auth.InvolvedObject{Kind: "Kustomization", Namespace: namespace, Name: "app", Operation: "decrypt"}),
	}
}

// caller returns a tenant without keys of its own.
func (w *world) caller(namespace string) keyservice.Caller {
	return keyservice.Caller{At: func(context.Context, string) ([]auth.Option, string, error) {
		return w.options(namespace), subjectOf(namespace), nil
	}}
}

// decrypt decrypts files as a tenant. The calls are those of the clouds in the meantime, and of no
// other time.
func (w *world) decrypt(ctx context.Context, namespace string, files []masterkey.File) (keys map[string][]byte, calls calls, err error) {
	after := w.cloud.Journal().Last()
	keys, err = w.service.DataKeys(ctx, files, w.caller(namespace))
	return keys, w.since(after), err
}

// since returns the calls after the one with the number after.
func (w *world) since(after uint64) calls {
	return w.cloud.Journal().Calls(journal.Filter{After: after})
}

// impersonate makes a server answer for all key services. The function returns how often another
// host was dialled. Tokens still come from the local cloud.
func (w *world) impersonate(t *testing.T, handler http.Handler) (others func() int64) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	var count atomic.Int64
	base := &http.Transport{TLSClientConfig: server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()} //nolint:forcetypeassert // see httptest
	base.TLSClientConfig.ServerName = "example.com"                                                               // the name in the server's certificate
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !slices.Contains([]string{"kms." + region + ".amazonaws.com:443", "contoso-keys.vault.azure.net:443", "cloudkms.googleapis.com:443"}, address) {
			count.Add(1)
		}
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	w.service.Transports = newPool(t, base)
	return count.Load
}

// calls are calls of the local cloud.
type calls []journal.Call

// at returns the decryptions at a key service of an authenticated caller, with their verdicts.
// Azure's client first sends a request without a token, which is left out.
func (c calls) at(service string) (granted, refused int) {
	for _, call := range c {
		switch {
		case call.Service != service || call.Operation != "Decrypt" || call.Principal == "":
		case call.Granted():
			granted++
		default:
			refused++
		}
	}
	return granted, refused
}

// place is a cloud with the name of its key service.
type place struct {
	name, service string
	// seal encrypts for a tenant's key.
	seal func(w *world, tenant string, plain []byte) masterkey.Key
	// principal is tenant A's name in the journal.
	principal string
}

func places() []place {
	return []place{
		{"aws", cloudaws.ServiceKMS, func(w *world, tenant string, plain []byte) masterkey.Key {
			return w.sealAWS(w.awsKey(tenant), nil, plain)
		}, "arn:aws:sts::" + account + ":assumed-role/tenant-a/"},
		{"azure", cloudazure.ServiceKeyVault, (*world).sealAzure, clientOf(tenantA) + "@" + directory},
		{"gcp", cloudgcp.ServiceKMS, (*world).sealGCP, "serviceAccount:" + emailOf(tenantA)},
	}
}

// kms returns a client of AWS KMS with which the sealer manages keys.
func (w *world) kms() *kms.Client {
	w.t.Helper()
	region, err := endpoint.ParseAWSRegion(region)
	must.Succeed(w.t, err)
	return kms.NewFromConfig(awsclient.Scope{
		Provider: w.service.Clouds.AWS, Options: append(w.options(sealer), auth.WithSTSRegion(region.Name)), Region: region,
		HTTPClient: &http.Client{Transport: w.service.Transports.Via(nil)},
	}.Config())
}

// awsKey makes a key that its owner may use to decrypt.
func (w *world) awsKey(owner string) (arn string) {
	w.t.Helper()
	tag := "owner"
	made, err := w.kms().CreateKey(w.t.Context(), &kms.CreateKeyInput{Tags: []kmstypes.Tag{{TagKey: &tag, TagValue: &owner}}})
	must.Succeed(w.t, err)
	return *made.KeyMetadata.Arn
}

func (w *world) sealAWS(arn string, context map[string]string, plain []byte) masterkey.Key {
	w.t.Helper()
	sealed, err := w.kms().Encrypt(w.t.Context(), &kms.EncryptInput{KeyId: &arn, Plaintext: plain, EncryptionContext: context})
	must.Succeed(w.t, err)
	return masterkey.Key{AWS: &masterkey.AWS{ARN: arn, Context: context}, Encrypted: base64.StdEncoding.EncodeToString(sealed.CiphertextBlob)}
}

// vault returns a client of the vault with which the sealer manages keys.
func (w *world) vault() *azkeys.Client {
	w.t.Helper()
	client, err := azkeys.NewClient(vaultURL, azure.NewTokenCredential(w.service.Clouds.Azure, w.options(sealer)...), &azkeys.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: w.service.Transports.Via(nil)}, Telemetry: policy.TelemetryOptions{Disabled: true}},
	})
	must.Succeed(w.t, err)
	return client
}

func (w *world) sealAzure(tenant string, plain []byte) masterkey.Key {
	w.t.Helper()
	algorithm := azkeys.EncryptionAlgorithmRSAOAEP256
	sealed, err := w.vault().Encrypt(w.t.Context(), tenant, "", azkeys.KeyOperationParameters{Algorithm: &algorithm, Value: plain}, nil)
	must.Succeed(w.t, err)
	key := &masterkey.Azure{VaultURL: vaultURL, Name: tenant, Version: sealed.KID.Version()}
	return masterkey.Key{Azure: key, Encrypted: base64.RawURLEncoding.EncodeToString(sealed.Result)}
}

// cloudKMS returns a client of Google Cloud KMS with which the sealer manages keys.
func (w *world) cloudKMS() *cloudkms.ProjectsLocationsKeyRingsCryptoKeysService {
	w.t.Helper()
	source := gcp.NewTokenSource(w.t.Context(), w.service.Clouds.GCP, w.options(sealer)...)
	client := &http.Client{Transport: &oauth2.Transport{Source: source, Base: w.service.Transports.Via(nil)}}
	service, err := cloudkms.NewService(w.t.Context(), option.WithHTTPClient(client), option.WithEndpoint("https://cloudkms.googleapis.com/"))
	must.Succeed(w.t, err)
	return service.Projects.Locations.KeyRings.CryptoKeys
}

func (w *world) sealGCP(tenant string, plain []byte) masterkey.Key {
	w.t.Helper()
	name := keyRing + "/cryptoKeys/" + tenant
	sealed, err := w.cloudKMS().Encrypt(name, &cloudkms.EncryptRequest{Plaintext: base64.StdEncoding.EncodeToString(plain)}).Do()
	must.Succeed(w.t, err)
	return masterkey.Key{GCP: &masterkey.GCP{ResourceID: name}, Encrypted: sealed.Ciphertext}
}

// says reports whether an error has all these texts.
func says(err error, texts ...string) bool {
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			return false
		}
	}
	return true
}
