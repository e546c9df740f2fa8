package awskms_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign/awskms"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	account   = "123456789123"
	region    = "eu-west-1"
	cluster   = "https://cluster.example"
	issuer    = "https://issuer.example"
	namespace = "lanyard-system"
	subject   = "system:serviceaccount:lanyard-system:lanyard-token-server"
	roleName  = "token-server"
)

// page is the path of the documentation from which people copy the IAM policy of the token server's
// role.
var page = filepath.Join("..", "..", "..", "..", "docs", "aws-kms.md")

// world is a local AWS, an API server, and the token server's environment.
type world struct {
	t     *testing.T
	cloud *cloudtest.Cloud
	api   client.WithWatch
	vault *awskms.Vault
	trust json.RawMessage // the trust policy of the role
}

// documentedPolicy returns the role's policy from the documentation, for an issuer.
func documentedPolicy(t *testing.T, issuer string) json.RawMessage {
	t.Helper()
	text, err := os.ReadFile(page)
	must.Succeed(t, err)
	_, rest, found := strings.Cut(string(text), "```json\n")
	policy, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("%s has no policy", page)
	}
	return json.RawMessage(strings.ReplaceAll(policy, "https://issuer.example.com", issuer))
}

// newWorld returns a world in which the token server has a role with the given IAM policy. The
// token server assumes the role with a web identity token, as with IRSA.
func newWorld(t *testing.T, policy json.RawMessage) *world {
	t.Helper()
	host := strings.TrimPrefix(cluster, "https://")
	trust := fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::%s:oidc-provider/%s"},
		"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{"%s:sub":%q}}}]}`, account, host, host, subject)
	cloud, err := cloudtest.New(cloudtest.Config{AWS: aws.Config{Accounts: []aws.Account{{
		ID: account, OIDCProviders: []aws.OIDCProvider{{URL: cluster, ClientIDs: []string{"sts.amazonaws.com"}}},
		Roles: []aws.Role{{Name: roleName, TrustPolicy: trust, Policies: map[string]json.RawMessage{"keys": policy}}},
	}}}})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = cloud.Close() })
	tokens, err := oidc.NewIssuer(cluster, oidc.ES256)
	must.Succeed(t, err)
	must.Succeed(t, cloud.HandleIssuer(tokens))
	token, err := tokens.Mint(oidc.Claims{"sub": subject, "aud": "sts.amazonaws.com", "exp": time.Now().Add(240 * time.Hour).Unix()})
	must.Succeed(t, err)
	file := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(file, []byte(token), 0o600))
	for name, value := range map[string]string{
		"AWS_WEB_IDENTITY_TOKEN_FILE": file, "AWS_ROLE_ARN": "arn:aws:iam::" + account + ":role/" + roleName,
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "",
	} {
		t.Setenv(name, value)
	}
	w := &world{t: t, cloud: cloud, api: newAPI(t), trust: trust}
	w.vault = w.newVault(issuer)
	return w
}

func (w *world) newVault(issuer string) *awskms.Vault {
	w.t.Helper()
	transport := w.cloud.Transport()
	w.t.Cleanup(transport.CloseIdleConnections)
	vault, err := awskms.New(awskms.Config{Issuer: issuer, Region: region, Transport: transport})
	must.Succeed(w.t, err)
	return vault
}

func newAPI(t *testing.T) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		must.Succeed(t, add(scheme))
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.KeyRing{}).Build()
	return interceptor.NewClient(api, interceptor.Funcs{
		// An API server sets the UID and the creation time, but the fake client does not.
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetUID(uuid.NewUUID())
			o.SetCreationTimestamp(metav1.Now())
			return c.Create(ctx, o, opts...)
		},
	})
}

func (w *world) object() sign.Object {
	return sign.Object{Client: w.api, Namespace: namespace, Name: keyring.IssuerRing}
}

func (w *world) ring() *v1alpha1.KeyRing {
	w.t.Helper()
	ring := &v1alpha1.KeyRing{}
	must.Succeed(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: keyring.IssuerRing}, ring))
	return ring
}

// probe returns the ring's public document, which discovery serves to verifiers.
func (w *world) probe(context.Context) (*keyring.Document, error) {
	ring, err := keyring.Parse(&w.ring().Status)
	if err != nil {
		return nil, err
	}
	var set jose.JSONWebKeySet
	for _, k := range ring.Public() {
		set.Keys = append(set.Keys, k.JWK())
	}
	data, err := json.Marshal(set)
	if err != nil {
		return nil, err
	}
	return keyring.ParseDocument(data)
}

func (w *world) rotator(store sign.Store, algorithms ...v1alpha1.Algorithm) *sign.Rotator {
	return &sign.Rotator{
		Object: w.object(), Store: store, Probe: w.probe, Skew: noSkew, Log: slog.New(slog.DiscardHandler),
		Policy: keyring.Policy{
			Issuer: issuer, Algorithms: algorithms, PublishDelay: 20 * time.Minute, RotationPeriod: time.Hour, MaxLife: 30 * time.Minute,
		},
	}
}

// settle makes steps until nothing changes.
func (w *world) settle(r *sign.Rotator) {
	w.t.Helper()
	for range 10 {
		changed, err := r.Step(w.t.Context())
		must.Succeed(w.t, err)
		if !changed {
			return
		}
	}
	w.t.Fatal("the ring does not come to rest")
}

func noSkew() (time.Duration, error) { return 0, nil }

// calls returns the recorded calls of a KMS operation.
func (w *world) calls(operation string) []journal.Call {
	return w.cloud.Journal().Calls(journal.Filter{Service: aws.ServiceKMS, Operation: operation})
}

// allow replaces the role's policy.
func (w *world) allow(policy json.RawMessage) {
	w.t.Helper()
	role := aws.Role{Name: roleName, TrustPolicy: w.trust, Policies: map[string]json.RawMessage{"keys": policy}}
	must.Succeed(w.t, w.cloud.AWS().PutRole(account, role))
}
