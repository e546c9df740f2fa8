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
	// registryHost is the host of the demonstration's registry.
	registryHost = local.Account + ".dkr.ecr." + local.Region + ".amazonaws.com"
	// puller is the name of each tenant's ServiceAccount.
	puller = "puller"
	// interval is the value of spec.interval in the tests' objects: the time between two
	// reconciliations.
	interval = time.Second
)

// tenant has a namespace, a ServiceAccount, an AWS role, and an ECR repository. The role trusts the
// ServiceAccount, and may read the repository.
type tenant struct {
	namespace string
	subject   string // subject of the ServiceAccount's tokens
	role      string // ARN of the role
	url       string // URL of the repository
	// shard is the shard of the tenant's objects; nil for the controller that all tests share.
	shard *shard
}

// newTenant creates a tenant for a test. The name must consist of letters and dashes, and must be
// unique in the run.
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

// putRole creates or restores the tenant's role.
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

// trust returns the trust policy of a role that a subject of the cluster may assume.
func trust(subject string) json.RawMessage { return trustIn(local.Issuer, subject) }

// trustIn returns the trust policy of a role that a subject of an issuer may assume.
func trustIn(issuerURL, subject string) json.RawMessage {
	return trustAt(local.Account, issuerURL, subject)
}

// trustAt is like trustIn, for a role of this account.
func trustAt(account, issuerURL, subject string) json.RawMessage {
	issuer := strings.TrimPrefix(issuerURL, "https://")
	return fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[{
		"Effect":"Allow",
		"Principal":{"Federated":"arn:aws:iam::%s:oidc-provider/%s"},
		"Action":"sts:AssumeRoleWithWebIdentity",
		"Condition":{"StringEquals":{"%s:sub":%q,"%s:aud":%q}}}]}`,
		account, issuer, issuer, subject, issuer, stsAudience)
}

// putAccount creates a ServiceAccount with the annotation for a role. An empty ARN means no
// annotation.
func (tn *tenant) putAccount(t *testing.T, name, role string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: name}}
	if role != "" {
		account.Annotations = map[string]string{roleAnnotation: role}
	}
	must(t, "make a ServiceAccount", objects.Create(t.Context(), account))
}

// clear searches for secrets in the tenant's objects, and deletes the objects. It waits until they
// are gone, so that they disturb no other test. The namespace stays: its deletion would cost
// Kubernetes more requests than most tests need.
func (tn *tenant) clear(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	wantNoSecretsIn(ctx, t, world, tn.namespace)
	for _, kind := range kinds.All().Where(func(k kinds.Kind) bool { return !k.ClusterScoped }) {
		must(t, "remove the objects", objects.DeleteAllOf(ctx, kind.New(), client.InNamespace(tn.namespace)))
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

// remove clears the tenant's namespace and deletes it, so that another test can create it again.
func (tn *tenant) remove(t *testing.T) {
	t.Helper()
	tn.clear(t)
	err := objects.Delete(context.WithoutCancel(t.Context()), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tn.namespace}})
	must(t, "remove the namespace", client.IgnoreNotFound(err))
}

// object returns an OCIRepository that pulls the tenant's repository with the tenant's
// ServiceAccount.
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

// generic returns an OCIRepository of the tenant that pulls from another URL, without credentials.
func (tn *tenant) generic(name, url string) *v1alpha1.OCIRepository {
	o := tn.object(name)
	o.Spec.URL, o.Spec.Provider, o.Spec.ServiceAccountName = url, v1alpha1.ProviderGeneric, ""
	return o
}

func create(t *testing.T, o client.Object) {
	t.Helper()
	must(t, "create an object", objects.Create(t.Context(), o))
}

// patch reads the current object and changes it.
func patch[T client.Object](t *testing.T, o T, change func(o T)) {
	t.Helper()
	patchIn(t, objects, o, change)
}

// patchIn is like patch, for an object of another cluster. Unlike an update, a patch does not
// fail if a controller writes the object at the same time.
func patchIn[T client.Object](t *testing.T, cluster client.Client, o T, change func(o T)) {
	t.Helper()
	must(t, "read an object", cluster.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	before := o.DeepCopyObject().(client.Object)
	change(o)
	must(t, "change an object", cluster.Patch(t.Context(), o, client.MergeFrom(before)))
}

// await reads the object into o again and again, until the function want returns nil.
func await[T client.Object](t *testing.T, o T, what string, want func(o T) error) {
	t.Helper()
	awaitWithin(t, patience, o, what, want)
}

// awaitWithin is like await, with another time limit.
func awaitWithin[T client.Object](t *testing.T, limit time.Duration, o T, what string, want func(o T) error) {
	t.Helper()
	awaitIn(t, objects, limit, o, what, want)
}

// awaitIn is like awaitWithin, for an object of another cluster.
func awaitIn[T client.Object](t *testing.T, cluster client.Client, limit time.Duration, o T, what string, want func(o T) error) {
	t.Helper()
	within(t, limit, fmt.Sprintf("%s/%s: %s", o.GetNamespace(), o.GetName(), what), func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return want(o)
	})
}

func ready(o kinds.Object) metav1.Condition {
	if c := apimeta.FindStatusCondition(o.GetStatus().Conditions, meta.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// pulled asserts that an object has the artifact of its current spec.
func pulled(o *v1alpha1.OCIRepository) error {
	c := ready(o)
	return wantf(c.Status == metav1.ConditionTrue && o.Status.ObservedGeneration == o.Generation && o.Status.Artifact != nil,
		"it is not pulled: Ready=%s %s: %s", c.Status, c.Reason, c.Message)
}

// revision returns a check that an object has the artifact of this manifest.
func revision(digest string) func(o *v1alpha1.OCIRepository) error {
	return func(o *v1alpha1.OCIRepository) error {
		if err := pulled(o); err != nil {
			return err
		}
		return wantf(strings.HasSuffix(o.Status.Artifact.Revision, "@"+digest), "its revision is %s, not %s", o.Status.Artifact.Revision, digest)
	}
}

// failing returns a check for Ready=False with this reason, and a message that contains all words.
func failing(reason string, words ...string) func(o *v1alpha1.OCIRepository) error {
	return func(o *v1alpha1.OCIRepository) error { return failed(ready(o), reason, words...) }
}

// failed asserts that a condition is False with this reason, and a message that contains all words.
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

// request requests a reconciliation by an annotation, and returns the annotation's value.
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

// handled returns a check that the request with this annotation value was handled.
func handled(at string) func(o *v1alpha1.OCIRepository) error {
	return func(o *v1alpha1.OCIRepository) error {
		return wantf(o.Status.LastHandledReconcileAt == at, "lastHandledReconcileAt is %q, not %q", o.Status.LastHandledReconcileAt, at)
	}
}

// entry is an entry of a tar archive.
type entry struct {
	tar.Header

	content string
}

func file(name, content string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, content}
}

// layer packs entries without checking them.
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

// image returns a Flux artifact with one layer.
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

// publish publishes an image in a repository, and returns the manifest's digest. The image has one
// layer with this content.
func publish(t *testing.T, url, tag string, content []byte, login authn.Authenticator) string {
	t.Helper()
	reference, err := name.ParseReference(strings.TrimPrefix(url, "oci://") + ":" + tag)
	must(t, "name a reference", err)
	made := image(t, content)
	must(t, "push", remote.Write(reference, made, remote.WithContext(t.Context()), remote.WithAuth(login), remote.WithTransport(world.Cloud().Transport())))
	return digestOf(t, made)
}

// push publishes an image in the tenant's repository, and returns the manifest's digest. The image
// has one layer with this content.
func (tn *tenant) push(t *testing.T, tag string, content []byte) string {
	t.Helper()
	return publish(t, tn.url, tag, content, publisher(t))
}

// pushFile publishes one file with this content.
func (tn *tenant) pushFile(t *testing.T, tag, content string) string {
	t.Helper()
	return tn.push(t, tag, layer(t, file("app.yaml", content)))
}

// ecrClient returns the AWS SDK's ECR client with the publisher's key.
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
