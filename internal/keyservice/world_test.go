package keyservice_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
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
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/clouds/awsclient"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/keyservice"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	issuerURL = "https://issuer.cluster.example"
	account   = "123456789123"
	region    = "eu-west-1"
	directory = "72f988bf-86f1-41af-91ab-2d7cd011db47" // a tenant of Microsoft Entra
	stranger  = "11111111-86f1-41af-91ab-2d7cd011db47" // another one
	vaultURL  = "https://contoso-keys.vault.azure.net"
	project   = "my-org-project"
	pool      = "projects/123456789012/locations/global/workloadIdentityPools/clusters"
	keyRing   = "projects/" + project + "/locations/europe-west1/keyRings/tenants"

	tenantA = "tenant-a"
	tenantB = "tenant-b"
	sealer  = "sealer-c" // encrypts, and manages all keys
)

// config describes the local cloud. At each cloud, a tenant may decrypt with its own key only.
func config() string {
	var roles, applications, emails []string
	for namespace, rights := range map[string]string{
		tenantA: `"kms:Decrypt","Condition":{"StringEquals":{"aws:ResourceTag/owner":"tenant-a"}}`,
		tenantB: `"kms:Decrypt","Condition":{"StringEquals":{"aws:ResourceTag/owner":"tenant-b"}}`,
		sealer:  `"kms:*"`,
	} {
		roles = append(roles, fmt.Sprintf(`{"name":%q,"trustPolicy":{"Version":"2012-10-17","Statement":[{
			"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::%s:oidc-provider/issuer.cluster.example"},
			"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{"issuer.cluster.example:sub":%q}}}]},
			"policies":{"keys":{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Resource":"*","Action":%s}]}}}`,
			namespace, account, subjectOf(namespace), rights))
		applications = append(applications, fmt.Sprintf(`{"clientID":%q,"federatedCredentials":[{"name":"cluster","issuer":%q,"subject":%q}]}`,
			clientOf(namespace), issuerURL, subjectOf(namespace)))
		emails = append(emails, fmt.Sprintf(`{"email":%q,"bindings":[{"role":"roles/iam.workloadIdentityUser","members":[%q]}]}`,
			emailOf(namespace), principalOf(namespace)))
	}
	list := func(items []string) string { return "[" + strings.Join(items, ",") + "]" }
	assign := func(namespace, role, key string) string {
		return fmt.Sprintf(`{"clientID":%q,"role":"Key Vault Crypto %s","key":%q}`, clientOf(namespace), role, key)
	}
	bind := func(role, member string) string {
		return fmt.Sprintf(`{"role":"roles/cloudkms.%s","members":[%q]}`, role, member)
	}
	return `{"aws":{"accounts":[{"id":"` + account + `","oidcProviders":[{"url":"` + issuerURL + `","clientIDs":["sts.amazonaws.com"]}],"roles":` + list(roles) + `}]},
	"azure":{"tenants":[{"id":"` + directory + `","applications":` + list(applications) + `,"keyVaults":[{"name":"contoso-keys","keys":["tenant-a","tenant-b"],
		"roleAssignments":[` + assign(tenantA, "User", tenantA) + `,` + assign(tenantB, "User", tenantB) + `,` + assign(sealer, "Officer", "") + `]}]},
		{"id":"` + stranger + `","keyVaults":[{"name":"fabrikam-keys","keys":["tenant-a"]}]}]},
	"gcp":{"projects":[{"id":"` + project + `","number":"123456789012","serviceAccounts":` + list(emails) + `,
		"pools":[{"id":"clusters","providers":[{"id":"cluster","issuerURI":"` + issuerURL + `","attributeMapping":{"google.subject":"assertion.sub"}}]}],
		"bindings":[` + bind("admin", "serviceAccount:"+emailOf(sealer)) + `,` + bind("cryptoKeyEncrypter", "serviceAccount:"+emailOf(sealer)) + `],
		"keyRings":[{"location":"europe-west1","name":"tenants","keys":[
			{"name":"tenant-a","bindings":[` + bind("cryptoKeyDecrypter", "serviceAccount:"+emailOf(tenantA)) + `]},
			{"name":"tenant-b","bindings":[` + bind("cryptoKeyDecrypter", principalOf(tenantB)) + `]}]}]}]}}`
}

func subjectOf(namespace string) string { return "system:serviceaccount:" + namespace + ":decryptor" }

func clientOf(namespace string) string {
	return strings.Repeat(namespace[len(namespace)-1:], 8) + "-86f1-41af-91ab-2d7cd011db47"
}

func emailOf(namespace string) string { return namespace + "@" + project + ".iam.gserviceaccount.com" }

func principalOf(namespace string) string {
	return "principal://iam.googleapis.com/" + pool + "/subject/" + subjectOf(namespace)
}

// world is a local cloud, and a service that reaches it in memory. So it works in a bubble too.
type world struct {
	t        *testing.T
	cloud    *cloudtest.Cloud
	service  *keyservice.Service
	accounts *accounts
	cache    *cache.Cache
	keys     *keyservice.Keys // of the tenants' Secret
}

// clusterIssuer makes the cluster's issuer once, because RSA keys are slow to make.
var clusterIssuer = sync.OnceValues(func() (*oidc.Issuer, error) {
	return oidc.NewIssuer(issuerURL, oidc.RS256)
})

func newWorld(t *testing.T) *world {
	t.Helper()
	issuer, err := clusterIssuer()
	must.Succeed(t, err)
	parsed, err := cloudtest.ParseConfig([]byte(config()))
	must.Succeed(t, err)
	cloud, err := cloudtest.New(parsed)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = cloud.Close() })
	must.Succeed(t, cloud.HandleIssuer(issuer))
	// A request waits until the cloud has made its RSA key. With the race detector this takes seconds.
	const patience = time.Minute
	base, set := cloud.Transport(), &providers.Set{}
	set.AWS, err = aws.NewProvider(aws.Config{Transport: base, Timeout: patience})
	must.Succeed(t, err)
	set.Azure, err = azure.NewProvider(azure.Config{TenantID: directory, Transport: base, Timeout: patience})
	must.Succeed(t, err)
	set.GCP, err = gcp.NewProvider(gcp.Config{Transport: base, Timeout: patience})
	must.Succeed(t, err)
	t.Cleanup(set.Close)
	service := &keyservice.Service{Clouds: set, Transports: newPool(t, base)}
	return &world{t: t, cloud: cloud, service: service, accounts: &accounts{issuer: issuer}, cache: cache.New(cache.Options{})}
}

func newPool(t *testing.T, base *http.Transport) *transport.Pool {
	t.Helper()
	pool, err := transport.NewPool(transport.Options{Base: base, Dial: base.DialContext, CheckTarget: endpoint.Guard{}.CheckTarget})
	must.Succeed(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// impersonate makes a server answer for all key services. The function returns how often a host
// was dialled that is none. Tokens still come from the local cloud.
func (w *world) impersonate(handler http.HandlerFunc) (others func() int64) {
	w.t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	w.t.Cleanup(server.Close)
	var count atomic.Int64
	base := server.Client().Transport.(*http.Transport).Clone() //nolint:forcetypeassert // see httptest
	base.TLSClientConfig.ServerName = "example.com"             // the name in the server's certificate
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasSuffix(address, ".example:443") {
			count.Add(1)
		}
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	w.service.Transports = newPool(w.t, base)
	return count.Load
}

// accounts has a ServiceAccount named decryptor in each namespace. Tenant B's has no service
// account of Google Cloud, and is itself a principal.
type accounts struct {
	issuer *oidc.Issuer
	// posing is a namespace whose annotations are those of tenant A.
	posing string
}

func (a *accounts) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	as := subject.Namespace()
	if as == a.posing {
		as = tenantA
	}
	attributes := map[string]string{
		aws.RoleAnnotation: "arn:aws:iam::" + account + ":role/" + as, azure.ClientAnnotation: clientOf(as), gcp.ProviderAnnotation: pool + "/providers/cluster",
	}
	if as != tenantB {
		attributes[gcp.ServiceAccountAnnotation] = emailOf(as)
	}
	return auth.Account{Subject: subject, UID: "uid-of-" + subject.Namespace(), Attributes: attributes}, nil
}

func (a *accounts) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return a.Lookup(ctx, subject)
}

func (*accounts) Subscribe(func(auth.Subject)) {}

func (a *accounts) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
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

// decrypt decrypts files as a tenant, and returns the calls that the local cloud got.
func (w *world) decrypt(ctx context.Context, tenant string, files ...masterkey.File) (map[string][]byte, calls, error) {
	after := w.cloud.Journal().Last()
	at := func(context.Context, string) ([]auth.Option, string, error) {
		return w.options(tenant), subjectOf(tenant), nil
	}
	keys, uses, err := w.service.DataKeys(ctx, files, keyservice.Caller{Keys: w.keys, At: at})
	for _, use := range uses {
		if _, ok := keys[use.File]; !ok || use.Key == "" || use.Subject != subjectOf(tenant) && use.Subject != "" {
			w.t.Errorf("a key was used like this: %+v", use)
		}
	}
	if len(keys) > len(uses) {
		w.t.Errorf("%d keys, and %d uses", len(keys), len(uses))
	}
	return keys, w.cloud.Journal().Calls(journal.Filter{After: after}), err
}

// ask decrypts one file as a tenant, and compares the result: a refusal for good with a text, or
// the data key if the text is empty.
func (w *world) ask(name, tenant, says, decryptions string, groups ...masterkey.Group) (calls, *keyservice.Error) {
	w.t.Helper()
	got, calls, err := w.decrypt(w.t.Context(), tenant, masterkey.File{Name: "a.yaml", Groups: groups, Threshold: 2})
	refusal, refused := errors.AsType[*keyservice.Error](err)
	switch {
	case says == "" && (err != nil || !bytes.Equal(got["a.yaml"], dataKey())):
		w.t.Errorf("%s: %q, %v", name, got, err)
	case says != "" && (!refused || refusal.Temporary() || len(got) > 0 || !strings.HasPrefix(err.Error(), "a.yaml: ") || !strings.Contains(err.Error(), says)):
		w.t.Errorf("%s: %q, %v, want %q", name, got, err, says)
	}
	if calls.decryptions() != decryptions {
		w.t.Errorf("%s: %q, want %q", name, calls.decryptions(), decryptions)
	}
	return calls, refusal
}

// calls are calls that the local cloud got.
type calls []journal.Call

// decryptions returns the key services that were asked, in order, with a minus for a refusal. It
// leaves out the first request of Azure's client, which has no token.
func (c calls) decryptions() string {
	var out []string
	for _, call := range c {
		switch {
		case call.Operation != "Decrypt" || call.Principal == "":
		case call.Granted():
			out = append(out, call.Service)
		default:
			out = append(out, "-"+call.Service)
		}
	}
	return strings.Join(out, " ")
}

// kms returns the sealer's client of AWS KMS.
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

// vault returns the sealer's client of the vault.
func (w *world) vault() *azkeys.Client {
	w.t.Helper()
	options := azcore.ClientOptions{Transport: &http.Client{Transport: w.service.Transports.Via(nil)}}
	credential := azure.NewTokenCredential(w.service.Clouds.Azure, w.options(sealer)...)
	client, err := azkeys.NewClient(vaultURL, credential, &azkeys.ClientOptions{ClientOptions: options})
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

// cloudKMS returns the sealer's client of Google Cloud KMS.
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
