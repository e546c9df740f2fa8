package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// atMinIO returns a Bucket at MinIO. The tenant's Secret ca has the CA of MinIO's certificate.
func (tn *tenant) atMinIO(t *testing.T, m *minio, name, bucketName string) *v1alpha1.Bucket {
	t.Helper()
	o := tn.bucket(name, v1alpha1.ProviderGeneric, bucketName)
	o.Spec.ServiceAccountName = ""
	o.Spec.Endpoint = m.host(t)
	o.Spec.CertSecretRef = tn.ca()
	return o
}

// exchanging sets o's STS to MinIO's own, so that the controller exchanges a token of the
// ServiceAccount for a session at MinIO. It returns o.
func exchanging(o *v1alpha1.Bucket, account string) *v1alpha1.Bucket {
	o.Spec.ServiceAccountName = account
	o.Spec.STS = &v1alpha1.BucketSTS{Provider: v1alpha1.ProviderAWS, Endpoint: "https://" + o.Spec.Endpoint}
	return o
}

// TestBucketAtMinIO reads buckets of a real MinIO over TLS. MinIO's STS accepts the tenants' own
// tokens: the claim sub of a token is the name of the tenant's policy. The cluster stores no
// credential, and AWS gets no request.
func TestBucketAtMinIO(t *testing.T) {
	beside(t)
	ours := newAuthority(t)
	m := startMinIO(t, minioConfig{claim: "sub", authority: ours})
	allowed := map[string]any{"allowedEndpointHosts": []any{m.host(t)}}
	a, b, c := newTenant(t, "minio-a"), newTenant(t, "minio-b"), newTenant(t, "minio-c")
	for _, tn := range []*tenant{a, b, c} {
		tn.annotate(t, roleAnnotation, "") // MinIO uses policies in place of roles
		tn.secret(t, "ca", map[string]string{"ca.crt": string(ours.pem)})
	}
	for _, tn := range []*tenant{a, b} {
		m.putBucket(t, tn.namespace, some(tn.namespace))
		m.putPolicy(t, tn.subject, statements(
			fmt.Sprintf(`{"Effect":"Allow","Action":["s3:ListBucket"],"Resource":["arn:aws:s3:::%s"]}`, tn.namespace),
			fmt.Sprintf(`{"Effect":"Allow","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::%s/*"]}`, tn.namespace),
		))
	}
	m.putBucket(t, "minio-public", some("minio-public"))
	name, public := "minio-public", statements(
		`{"Effect":"Allow","Principal":"*","Action":["s3:ListBucket"],"Resource":["arn:aws:s3:::minio-public"]}`,
		`{"Effect":"Allow","Principal":"*","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::minio-public/*"]}`)
	_, err := m.root().PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &name, Policy: &public})
	must(t, "make a bucket public", err)

	t.Run("its own STS judges", func(t *testing.T) {
		good := token(t, a.namespace, puller, m.host(t))
		for name, tt := range map[string]struct {
			token   string
			granted bool
		}{
			"good":           {good, true},
			"wrong audience": {token(t, a.namespace, puller, stsAudience), false},
			"without port":   {token(t, a.namespace, puller, "127.0.0.1"), false},
			"expired":        {sign(t, good, readKey(t, world), map[string]any{"exp": time.Now().Add(-time.Hour).Unix(), "iat": time.Now().Add(-2 * time.Hour).Unix()}), false},
			"forged":         {sign(t, good, newKey(t), nil), false},
			"no policy":      {token(t, c.namespace, puller, m.host(t)), false},
		} {
			if got := assume(t, m.client, m.url, a.role, tt.token); got.granted() != tt.granted {
				t.Errorf("%s: MinIO says %s: %s", name, got, got.message)
			}
		}
	})
	// The controller that all tests share reconciles these objects. It runs without
	// --allowed-endpoint-hosts, so it must refuse MinIO.
	t.Run("nobody is trusted for being asked", func(t *testing.T) {
		before := proofs(t, a.namespace)
		unlisted := exchanging(a.atMinIO(t, m, "unlisted", a.namespace), puller)
		create(t, unlisted)
		await(t, unlisted, "the refusal", unfetched("EndpointRefused", "STS endpoint", "127.0.0.1", "--allowed-endpoint-hosts"))
		if n := proofs(t, a.namespace) - before; n != 0 {
			t.Errorf("%d tokens were made for a host that is not listed", n)
		}
		inside := a.atMinIO(t, m, "inside", "minio-public")
		create(t, inside)
		await(t, inside, "the refusal", unfetched("EndpointRefused", "127.0.0.1"))
	})
	s := takeShard(t)
	for _, tn := range []*tenant{a, b, c} {
		tn.shard = s
		defer tn.clear(t) // needs a running controller, to remove finalizers
	}
	t.Run("a tenant's authority vouches for no exchange", func(t *testing.T) {
		s.start(t, "minio-untrusted", map[string]any{"identity": allowed})
		o := exchanging(a.atMinIO(t, m, "untrusted", a.namespace), puller)
		public := a.atMinIO(t, m, "trusted", "minio-public")
		stranger := a.atMinIO(t, m, "stranger", "minio-public")
		stranger.Spec.CertSecretRef = nil
		judge(t, []bucketCase{
			{"data", public, holding(t, some("minio-public"))},
			{"data without it", stranger, unfetched("BucketUnreachable", "certificate", "spec.certSecretRef")},
			{"exchange", o, unfetched("Unreachable", "certificate")},
		})
		for _, o := range []*v1alpha1.Bucket{o, public, stranger} {
			must(t, "remove an object", objects.Delete(t.Context(), o))
		}
	})

	s.start(t, "minio", map[string]any{"extraEnv": ours.trusted(t), "identity": allowed})
	keys := func(o *v1alpha1.Bucket, secret string) *v1alpha1.Bucket {
		o.Spec.SecretRef = a.secret(t, o.Name, map[string]string{"accesskey": minioUser, "secretkey": secret})
		return o
	}
	incomplete := a.atMinIO(t, m, "incomplete", a.namespace)
	incomplete.Spec.SecretRef = a.secret(t, "incomplete", map[string]string{"accesskey": minioUser})
	judge(t, []bucketCase{
		{"own bucket of a", exchanging(a.atMinIO(t, m, "own", a.namespace), puller), holding(t, some(a.namespace))},
		{"own bucket of b", exchanging(b.atMinIO(t, m, "own", b.namespace), puller), holding(t, some(b.namespace))},
		{"bucket of a", exchanging(b.atMinIO(t, m, "foreign", a.namespace), puller), unfetched("BucketRefused", b.subject, "AccessDenied")},
		{"no policy", exchanging(c.atMinIO(t, m, "own", a.namespace), puller), unfetched("TrustRefused", "audience (client ID) "+m.host(t), c.subject)},
		{"no account", exchanging(b.atMinIO(t, m, "missing", b.namespace), "nobody"), unfetched("SubjectNotFound", "nobody")},
		{"static keys", keys(a.atMinIO(t, m, "keys", a.namespace), minioPassword), holding(t, some(a.namespace))},
		{"wrong static keys", keys(a.atMinIO(t, m, "wrong-keys", a.namespace), secretMark+"wrong"), unfetched("BucketRefused", "SignatureDoesNotMatch")},
		{"half of static keys", incomplete, unfetched("SecretRefused", "spec.secretRef", "secretkey")},
		{"a public bucket, as nobody", a.atMinIO(t, m, "public", "minio-public"), holding(t, some("minio-public"))},
		{"a private bucket, as nobody", a.atMinIO(t, m, "private", a.namespace), unfetched("BucketRefused", "AccessDenied")},
	})
	t.Run("identity", func(t *testing.T) {
		for _, tt := range []struct{ name, subject string }{{"own", a.subject}, {"keys", "secret:minio-a:keys"}, {"public", ""}} {
			o := a.atMinIO(t, m, tt.name, "")
			await(t, o, "the identity", func(o *v1alpha1.Bucket) error {
				id := o.Status.Identity
				return wantf((id == nil) == (tt.subject == "") && (id == nil || id.Subject == tt.subject), "it is %+v", id)
			})
		}
	})
	t.Run("a policy is withdrawn", func(t *testing.T) {
		o := exchanging(b.atMinIO(t, m, "own", b.namespace), puller)
		m.putPolicy(t, b.subject, statements(`{"Effect":"Deny","Action":["s3:*"],"Resource":["arn:aws:s3:::*"]}`))
		await(t, o, "the refusal", unfetched("BucketRefused", b.subject, "AccessDenied"))
		must(t, "the artifact stays", fetch(t.Context(), o.Status.Artifact, o.Status.Artifact.URL))
	})
	t.Run("an account without an STS", func(t *testing.T) {
		o := exchanging(a.atMinIO(t, m, "refused", a.namespace), puller)
		o.Spec.STS = nil
		if err := objects.Create(t.Context(), o); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "serviceAccountName with provider generic needs sts") {
			t.Errorf("the API server says %v", err)
		}
	})
}

// proofs returns how many token requests for ServiceAccounts of a namespace are in the API server's
// audit log.
func proofs(t *testing.T, namespace string) int {
	t.Helper()
	n := 0
	for _, e := range auditLog(t) {
		if ref := e.ObjectRef; ref != nil && ref.Resource == "serviceaccounts" && ref.Subresource == "token" && ref.Namespace == namespace {
			n++
		}
	}
	return n
}
