package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
)

const (
	// roleAnnotation maps a ServiceAccount to an IAM role. Source: Amazon EKS User Guide, "IAM
	// roles for service accounts".
	roleAnnotation = "eks.amazonaws.com/role-arn"
	// stsAudience is the audience of tokens for AWS STS.
	stsAudience = "sts.amazonaws.com"
	// registryHost is the demonstration's registry.
	registryHost = local.Account + ".dkr.ecr." + local.Region + ".amazonaws.com"
	// puller is the ServiceAccount of each tenant.
	puller = "puller"
	// interval of the objects of the tests.
	interval = time.Second
)

// tenant is a namespace with a ServiceAccount, a role that trusts it, and a repository that the
// role may read.
type tenant struct {
	namespace string
	subject   string // of the ServiceAccount's tokens
	role      string // ARN
	url       string // of the repository
	shard     *shard // of its objects; nil for the first controller's
}

// newTenant makes a tenant for a test. The name is of letters and dashes and unique in the run.
func newTenant(t *testing.T, name string) *tenant {
	t.Helper()
	tn := &tenant{
		namespace: name,
		subject:   "system:serviceaccount:" + name + ":" + puller,
		role:      roleARN(name),
		url:       "oci://" + registryHost + "/" + name + "/app",
	}
	tn.putRole(t)
	must(t, "make a repository", world.Cloud().AWS().PutRepository(local.Account, aws.Repository{Region: local.Region, Name: name + "/app"}))
	must(t, "make a namespace", objects.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	t.Cleanup(func() { tn.clear(t) })
	tn.putAccount(t, puller, tn.role)
	return tn
}

func roleARN(role string) string { return "arn:aws:iam::" + local.Account + ":role/" + role }

// putRole makes the tenant's role as it should be, or makes it so again.
func (tn *tenant) putRole(t *testing.T) {
	t.Helper()
	putRole(t, tn.namespace, tn.subject, tn.namespace+"/app")
}

func putRole(t *testing.T, role, subject, repository string) {
	t.Helper()
	err := world.Cloud().AWS().PutRole(local.Account, aws.Role{
		Name: role, TrustPolicy: trust(subject),
		Policies: policies(fmt.Sprintf(`{"Version":"2012-10-17","Statement":[
			{"Effect":"Allow","Action":"ecr:GetAuthorizationToken","Resource":"*"},
			{"Effect":"Allow","Action":["ecr:BatchGetImage","ecr:GetDownloadUrlForLayer","ecr:BatchCheckLayerAvailability","ecr:ListImages"],
			 "Resource":"arn:aws:ecr:%s:%s:repository/%s"}]}`, local.Region, local.Account, repository)),
	})
	must(t, "make a role", err)
}

func policies(document string) map[string]json.RawMessage {
	return map[string]json.RawMessage{"inline": json.RawMessage(document)}
}

// trust is the trust policy of a role that a subject of the cluster may assume.
func trust(subject string) json.RawMessage { return trustIn(local.Issuer, subject) }

// trustIn is the trust policy of a role that a subject of an issuer may assume.
func trustIn(issuerURL, subject string) json.RawMessage {
	return trustAt(local.Account, issuerURL, subject)
}

// trustAt is trustIn for a role of an account.
func trustAt(account, issuerURL, subject string) json.RawMessage {
	issuer := strings.TrimPrefix(issuerURL, "https://")
	return fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[{
		"Effect":"Allow",
		"Principal":{"Federated":"arn:aws:iam::%s:oidc-provider/%s"},
		"Action":"sts:AssumeRoleWithWebIdentity",
		"Condition":{"StringEquals":{"%s:sub":%q,"%s:aud":%q}}}]}`,
		account, issuer, issuer, subject, issuer, stsAudience)
}

// putAccount makes a ServiceAccount that is mapped to a role; an empty ARN maps it to none.
func (tn *tenant) putAccount(t *testing.T, name, role string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: name}}
	if role != "" {
		account.Annotations = map[string]string{roleAnnotation: role}
	}
	must(t, "make a ServiceAccount", objects.Create(t.Context(), account))
}

// clear looks for secrets in the tenant's objects and removes the objects. It waits until the
// controller has released them, so that they disturb no other test. The namespace stays: to delete
// one, Kubernetes makes more requests than most tests do.
func (tn *tenant) clear(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	wantNoSecretsIn(ctx, t, world, tn.namespace)
	for _, kind := range []client.Object{
		&v1alpha1.OCIRepository{}, &v1alpha1.Bucket{}, &v1alpha1.ImageRepository{},
		&identityv1.WorkloadIdentityBinding{}, &identityv1.WorkloadIdentity{}, &infrav1.AWSCluster{},
	} {
		must(t, "remove the objects", objects.DeleteAllOf(ctx, kind, client.InNamespace(tn.namespace)))
	}
	for {
		left, err := report.List(ctx, objects, kinds.All(), tn.namespace)
		must(t, "list the objects", err)
		if len(left) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("%d objects of namespace %s are still there: their finalizer was not removed", len(left), tn.namespace)
			return
		case <-time.After(pollEvery):
		}
	}
}

// remove clears the tenant's namespace and deletes it, for the next test that makes it.
func (tn *tenant) remove(t *testing.T) {
	t.Helper()
	tn.clear(t)
	err := objects.Delete(context.WithoutCancel(t.Context()), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tn.namespace}})
	must(t, "remove the namespace", client.IgnoreNotFound(err))
}

// object is an OCIRepository of the tenant that pulls its repository as its ServiceAccount.
func (tn *tenant) object(name string) *v1alpha1.OCIRepository {
	return &v1alpha1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: name, Labels: tn.shard.labels()},
		Spec: v1alpha1.OCIRepositorySpec{
			URL:            tn.url,
			Ref:            &v1alpha1.OCIRepositoryRef{Tag: "1.0.0"},
			Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: interval}},
			RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: v1alpha1.ProviderAWS, ServiceAccountName: puller}},
		},
	}
}

// generic is an OCIRepository of the tenant that pulls from elsewhere, without credentials.
func (tn *tenant) generic(name, url string) *v1alpha1.OCIRepository {
	o := tn.object(name)
	o.Spec.URL, o.Spec.Provider, o.Spec.ServiceAccountName = url, v1alpha1.ProviderGeneric, ""
	return o
}

func create(t *testing.T, o client.Object) {
	t.Helper()
	must(t, "create an object", objects.Create(t.Context(), o))
}

// patch changes an object as it is now.
func patch[T client.Object](t *testing.T, o T, change func(o T)) {
	t.Helper()
	patchIn(t, objects, o, change)
}

// patchIn is patch for an object of another cluster. A patch does not fail if a controller writes the
// object at the same time, as an update would.
func patchIn[T client.Object](t *testing.T, cluster client.Client, o T, change func(o T)) {
	t.Helper()
	must(t, "read an object", cluster.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	before := o.DeepCopyObject().(client.Object)
	change(o)
	must(t, "change an object", cluster.Patch(t.Context(), o, client.MergeFrom(before)))
}

// await waits until an object is as a test wants it, and reads it into o.
func await[T client.Object](t *testing.T, o T, what string, want func(o T) error) {
	t.Helper()
	awaitWithin(t, patience, o, what, want)
}

// awaitWithin is await for what takes longer.
func awaitWithin[T client.Object](t *testing.T, limit time.Duration, o T, what string, want func(o T) error) {
	t.Helper()
	awaitIn(t, objects, limit, o, what, want)
}

// awaitIn is awaitWithin for an object of another cluster.
func awaitIn[T client.Object](t *testing.T, cluster client.Client, limit time.Duration, o T, what string, want func(o T) error) {
	t.Helper()
	within(t, limit, fmt.Sprintf("%s/%s: %s", o.GetNamespace(), o.GetName(), what), func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return want(o)
	})
}

func ready(o *v1alpha1.OCIRepository) metav1.Condition {
	if c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// pulled wants the artifact of the present spec.
func pulled(o *v1alpha1.OCIRepository) error {
	c := ready(o)
	return wantf(c.Status == metav1.ConditionTrue && o.Status.ObservedGeneration == o.Generation && o.Status.Artifact != nil,
		"it is not pulled: Ready=%s %s: %s", c.Status, c.Reason, c.Message)
}

// revision wants the artifact of a certain manifest.
func revision(digest string) func(o *v1alpha1.OCIRepository) error {
	return func(o *v1alpha1.OCIRepository) error {
		if err := pulled(o); err != nil {
			return err
		}
		return wantf(strings.HasSuffix(o.Status.Artifact.Revision, "@"+digest), "its revision is %s, not %s", o.Status.Artifact.Revision, digest)
	}
}

// failing wants Ready=False with a reason, and a message that holds all of the words.
func failing(reason string, words ...string) func(o *v1alpha1.OCIRepository) error {
	return func(o *v1alpha1.OCIRepository) error { return failed(ready(o), reason, words...) }
}

// failed wants a condition to be False with a reason, and a message that holds all of the words.
func failed(c metav1.Condition, reason string, words ...string) error {
	if c.Status != metav1.ConditionFalse || c.Reason != reason {
		return fmt.Errorf("%s=%s %s: %s; want False %s", c.Type, c.Status, c.Reason, c.Message, reason)
	}
	for _, w := range words {
		if !strings.Contains(c.Message, w) {
			return fmt.Errorf("the message of %s does not say %q: %s", reason, w, c.Message)
		}
	}
	return nil
}

// request asks for a reconciliation now and returns the request's name.
func request(t *testing.T, o client.Object) string {
	t.Helper()
	at := time.Now().UTC().Format(time.RFC3339Nano)
	patch(t, o, func(o client.Object) {
		annotations := maps.Clone(o.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[meta.ReconcileRequestedAnnotation] = at
		o.SetAnnotations(annotations)
	})
	return at
}

// handled wants a request to have been honoured.
func handled(at string) func(o *v1alpha1.OCIRepository) error {
	return func(o *v1alpha1.OCIRepository) error {
		return wantf(o.Status.LastHandledReconcileAt == at, "lastHandledReconcileAt is %q, not %q", o.Status.LastHandledReconcileAt, at)
	}
}

// entry is what stands in a tar.
type entry struct {
	tar.Header

	content string
}

func file(name, content string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, content}
}

// layer packs entries without judging them.
func layer(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for _, e := range entries {
		e.Size = int64(len(e.content))
		must(t, "pack "+e.Name, archive.WriteHeader(&e.Header))
		_, err := archive.Write([]byte(e.content))
		must(t, "pack "+e.Name, err)
	}
	must(t, "pack", archive.Close())
	must(t, "pack", zip.Close())
	return out.Bytes()
}

// image is a Flux artifact of one layer.
func image(t *testing.T, content []byte) v1.Image {
	t.Helper()
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), oci.ConfigMediaType)
	made, err := mutate.AppendLayers(base, static.NewLayer(content, oci.LayerMediaType))
	must(t, "make an image", err)
	return made
}

func digestOf(t *testing.T, i v1.Image) string {
	t.Helper()
	digest, err := i.Digest()
	must(t, "digest an image", err)
	return digest.String()
}

// publish publishes a layer at a repository, whatever is in it, and returns the manifest's digest.
func publish(t *testing.T, url, tag string, content []byte, login authn.Authenticator) string {
	t.Helper()
	reference, err := name.ParseReference(strings.TrimPrefix(url, "oci://") + ":" + tag)
	must(t, "name a reference", err)
	made := image(t, content)
	must(t, "push", remote.Write(reference, made, remote.WithContext(t.Context()), remote.WithAuth(login), remote.WithTransport(world.Cloud().Transport())))
	return digestOf(t, made)
}

// push publishes a layer at the tenant's repository, whatever is in it, and returns the manifest's
// digest.
func (tn *tenant) push(t *testing.T, tag string, content []byte) string {
	t.Helper()
	return publish(t, tn.url, tag, content, publisher(t))
}

// pushFile publishes one file with some content.
func (tn *tenant) pushFile(t *testing.T, tag, content string) string {
	t.Helper()
	return tn.push(t, tag, layer(t, file("app.yaml", content)))
}

// ecrClient is the AWS SDK's client of ECR, as the publisher.
func ecrClient() *ecr.Client {
	return ecr.New(ecr.Options{
		Region:      local.Region,
		Credentials: credentials.NewStaticCredentialsProvider(publisherKey, publisherSecret, ""),
		HTTPClient:  &http.Client{Transport: world.Cloud().Transport()},
	})
}

// publisher logs in to ECR with the AWS SDK.
func publisher(t *testing.T) authn.Authenticator {
	t.Helper()
	answer, err := ecrClient().GetAuthorizationToken(t.Context(), &ecr.GetAuthorizationTokenInput{})
	must(t, "log in to ECR", err)
	decoded, err := base64.StdEncoding.DecodeString(awssdk.ToString(answer.AuthorizationData[0].AuthorizationToken))
	must(t, "decode ECR's token", err)
	user, password, _ := strings.Cut(string(decoded), ":")
	return &authn.Basic{Username: user, Password: password}
}
