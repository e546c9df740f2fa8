package e2e

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/dataplane"
)

// chainedURL is the URL of a repository in the workload account. The account's role "reader" may
// pull from it.
const chainedURL = "oci://" + workloadAccount + ".dkr.ecr." + local.Region + ".amazonaws.com/" + chainedRepository

// lendIdentity creates an AWS identity for these namespaces. If the spec sets SourceOnly, they may
// use the identity only as the source of other identities.
func lendIdentity(t *testing.T, o client.Object, spec *identityv1.AWSClusterIdentitySpec, namespaces ...string) {
	t.Helper()
	spec.AllowedNamespaces = &identityv1.AllowedNamespaces{List: namespaces}
	create(t, o)
	t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), o) })
}

// lendChain lends the role "reader" of the workload account through a chain of identities: the
// controller's own identity assumes the role "landing", which assumes the role "reader".
func lendChain(t *testing.T, namespaces ...string) {
	t.Helper()
	own := &identityv1.AWSClusterControllerIdentity{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	own.Spec.SourceOnly = true
	lendIdentity(t, own, &own.Spec.AWSClusterIdentitySpec, namespaces...)
	for name, source := range map[string]*identityv1.AWSClusterIdentityReference{
		"landing": nil, "reader": {Kind: identityv1.AWSClusterRoleIdentityKind, Name: "landing"},
	} {
		role := &identityv1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: name}}
		role.Spec.RoleARN, role.Spec.SourceIdentityRef, role.Spec.SourceOnly = "arn:aws:iam::"+workloadAccount+":role/"+name, source, source == nil
		lendIdentity(t, role, &role.Spec.AWSClusterIdentitySpec, namespaces...)
	}
}

// asRole makes an object use the role identity with this name in place of its ServiceAccount.
func asRole(account *string, ref **meta.AWSIdentityReference, name string) {
	*account, *ref = "", &meta.AWSIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: name}
}

// TestSourcesWithClusterIdentities reads a tenant's registry, tags and bucket in a second account
// through a chain of roles. Another tenant must not be able to use the chain. The test also tries
// the controller's own identity and static keys.
func TestSourcesWithClusterIdentities(t *testing.T) {
	alone(t, "AWS identities are of the whole cluster, and the chart grants more for them")
	s := takeShard(t)
	a, b := s.newTenant(t, "lent-a"), s.newTenant(t, "lent-b")
	startIdentities(t, map[string]any{"controllerNamespaces": map[string]any{"list": []any{"lent-a", "lent-b"}}}, "lent-a", "lent-b")
	s.start(t, "lent", nil)
	// Clear the tenants before the replica ends, because the replica removes their finalizers.
	t.Cleanup(func() { a.clear(t); b.clear(t) })
	plane, err := dataplane.S3(chainedBucket)
	must(t, "start a store", err)
	serveS3(t, plane, chainedBucket)
	for key, content := range some("chained") {
		putInto(t, plane, "/"+chainedBucket+"/"+(&url.URL{Path: key}).EscapedPath(), content, nil)
	}
	digest := publish(t, chainedURL, "1.0.0", layer(t, file("app.yaml", "chained")), publisher(t))
	lendChain(t, "lent-a")
	begin := world.Cloud().Journal().Last()

	repository := func(tn *tenant) *v1alpha1.OCIRepository {
		o := tn.object("chained")
		o.Spec.URL = chainedURL
		asRole(&o.Spec.ServiceAccountName, &o.Spec.IdentityRef, "reader")
		create(t, o)
		return o
	}
	bucket := func(tn *tenant) *v1alpha1.Bucket {
		o := tn.bucket("chained", v1alpha1.ProviderAWS, chainedBucket)
		asRole(&o.Spec.ServiceAccountName, &o.Spec.IdentityRef, "reader")
		create(t, o)
		return o
	}
	image := a.image("chained")
	image.Spec.Image = strings.TrimPrefix(chainedURL, "oci://")
	asRole(&image.Spec.ServiceAccountName, &image.Spec.IdentityRef, "reader")
	create(t, image)
	pulled, read := repository(a), bucket(a)
	await(t, pulled, "it is pulled", revision(digest))
	await(t, read, "it is read", holding(t, some("chained")))
	await(t, image, "it is scanned", func(o *v1alpha1.ImageRepository) error {
		return wantf(apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionReady), "%+v", o.Status.Conditions)
	})
	reader := "arn:aws:iam::" + workloadAccount + ":role/reader"
	if id := pulled.Status.Identity; id == nil || id.Subject != "lanyard.dev:awsclusterroleidentity:reader" || id.CloudIdentity != reader {
		t.Errorf("the identity is %+v", id)
	}
	// Each of the two controllers requests each session once. The login at the registry needs one
	// more session of the role "reader".
	sessions := map[string]int{}
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{Service: "sts", After: begin}) {
		if call.Operation == "AssumeRole" {
			sessions[call.Role]++
		}
	}
	if sessions[reader] > 3 || sessions["arn:aws:iam::"+workloadAccount+":role/landing"] > 2 {
		t.Errorf("calls of AssumeRole: %v, want at most the registry's, the bucket's and the status's of one chain", sessions)
	}
	lent := &identityv1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}
	await(t, lent, "it knows its users", func(o *identityv1.AWSClusterRoleIdentity) error {
		return wantf(o.Status.UsedBy == 3, "%d objects use it", o.Status.UsedBy)
	})

	t.Run("another tenant", func(t *testing.T) {
		refused := failing(meta.ReasonPrincipalUsageUnauthorized, "namespace lent-b may not use AWSClusterRoleIdentity reader")
		o := repository(b)
		await(t, o, "it is refused", func(o *v1alpha1.OCIRepository) error {
			if err := refused(o); err != nil {
				return err
			}
			return wantf(o.Status.Identity == nil && apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionStalled), "%+v", o.Status)
		})
		await(t, bucket(b), "it is refused", unfetched(meta.ReasonPrincipalUsageUnauthorized, "namespace lent-b"))
		// A grant of the identity "reader" alone is not enough: its source identity must be granted
		// too.
		patch(t, lent, func(o *identityv1.AWSClusterRoleIdentity) {
			o.Spec.AllowedNamespaces.List = append(o.Spec.AllowedNamespaces.List, "lent-b")
		})
		await(t, o, "its source refuses it", failing(meta.ReasonSourcePrincipalUsageUnauthorized, "AWSClusterRoleIdentity landing"))
		patch(t, lent, func(o *identityv1.AWSClusterRoleIdentity) { o.Spec.AllowedNamespaces.List = []string{"lent-a"} })
	})

	t.Run("the controller's own identity", func(t *testing.T) {
		// The chart's value controllerNamespaces admits the namespaces of both tenants. The
		// AWSClusterControllerIdentity admits only lent-a, the first tenant's. At first, this
		// identity is only a source for other identities, and no object may use it directly.
		own := func(tn *tenant) *v1alpha1.Bucket {
			o := tn.bucket("own", v1alpha1.ProviderAWS, chainedBucket)
			o.Spec.ServiceAccountName = ""
			create(t, o)
			return o
		}
		first, second := own(a), own(b)
		await(t, first, "it is refused", unfetched(meta.ReasonSourceOnly, "no identity is named"))
		await(t, second, "it is refused", unfetched(meta.ReasonSourceOnly))
		identity := &identityv1.AWSClusterControllerIdentity{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		patch(t, identity, func(o *identityv1.AWSClusterControllerIdentity) { o.Spec.SourceOnly = false })
		// The first tenant's Bucket may now use the controller's identity. But AWS does not let
		// this identity read chainedBucket.
		await(t, first, "it acts as the controller", unfetched("BucketRefused", "AccessDenied"))
		await(t, second, "it is refused", unfetched(meta.ReasonPrincipalUsageUnauthorized, "AWSClusterControllerIdentity default"))
	})

	t.Run("static keys", func(t *testing.T) {
		create(t, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lanyard-identities", Name: "sources"}, Type: identityv1.SecretTypeAWSStatic,
			StringData: map[string]string{"accessKeyID": ownerKey, "secretAccessKey": ownerSecret},
		})
		static := &identityv1.AWSClusterStaticIdentity{ObjectMeta: metav1.ObjectMeta{Name: "sources"}}
		static.Spec.SecretRef.Name = "sources"
		lendIdentity(t, static, &static.Spec.AWSClusterIdentitySpec, "lent-a")
		o := a.bucket("static", v1alpha1.ProviderAWS, chainedBucket)
		o.Spec.ServiceAccountName = ""
		o.Spec.IdentityRef = &meta.AWSIdentityReference{Kind: identityv1.AWSClusterStaticIdentityKind, Name: "sources"}
		create(t, o)
		await(t, o, "it is refused", unfetched(meta.ReasonStaticIdentityNotForSources, "identity.sourcesReadStaticKeys"))
	})

	t.Run("a withdrawn grant", func(t *testing.T) {
		// The objects of the tenant use the role "reader", and thereby its source, the controller's
		// own identity. Without the grant, they no longer prevent the deletion of the source.
		source := &identityv1.AWSClusterControllerIdentity{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		must(t, "delete the source", objects.Delete(t.Context(), source))
		await(t, source, "it is in use", func(o *identityv1.AWSClusterControllerIdentity) error {
			c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady)
			return wantf(c != nil && c.Reason == meta.ReasonIdentityInUse && o.Status.UsedBy == 3, "%+v", o.Status)
		})
		patch(t, lent, func(o *identityv1.AWSClusterRoleIdentity) { o.Spec.AllowedNamespaces.List = nil })
		eventually(t, "the source is gone", func(ctx context.Context) error {
			err := objects.Get(ctx, client.ObjectKeyFromObject(source), source)
			return wantf(apierrors.IsNotFound(err), "%v, %+v", err, source.Status)
		})
		await(t, pulled, "it is refused", failing(meta.ReasonPrincipalUsageUnauthorized))
		await(t, read, "it is refused", unfetched(meta.ReasonPrincipalUsageUnauthorized))
	})
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{Verdict: journal.Granted, After: begin}) {
		if (call.Service == "s3" || call.Service == "ecr") && strings.Contains(fmt.Sprint(call), "chained") && !strings.Contains(call.Principal, ":assumed-role/reader/") {
			t.Errorf("%s used what is the reader's: %+v", call.Principal, call)
		}
	}
}

// TestSourcesReadStaticKeys lets the controller read static keys, and rotates them. The controller
// must then use the new keys.
func TestSourcesReadStaticKeys(t *testing.T) {
	alone(t, "AWS identities are of the whole cluster, and the chart grants more for them")
	s := takeShard(t)
	a := s.newTenant(t, "static-a")
	startIdentities(t, map[string]any{"sourcesReadStaticKeys": true}, "static-a")
	s.start(t, "static", nil)
	t.Cleanup(func() { a.clear(t) })
	create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lanyard-identities", Name: "rotated"}, Type: identityv1.SecretTypeAWSStatic,
		StringData: map[string]string{"accessKeyID": "AKIANOBODYNOBODYNOBO", "secretAccessKey": secretMark + "of-nobody"},
	})
	static := &identityv1.AWSClusterStaticIdentity{ObjectMeta: metav1.ObjectMeta{Name: "rotated"}}
	static.Spec.SecretRef.Name = "rotated"
	lendIdentity(t, static, &static.Spec.AWSClusterIdentitySpec, "static-a")
	o := a.bucket("static", v1alpha1.ProviderAWS, chainedBucket)
	o.Spec.ServiceAccountName = ""
	o.Spec.IdentityRef = &meta.AWSIdentityReference{Kind: identityv1.AWSClusterStaticIdentityKind, Name: "rotated"}
	create(t, o)
	await(t, o, "AWS does not know the keys", func(o *v1alpha1.Bucket) error {
		c := ready(o)
		return wantf(c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "InvalidClientTokenId"), "%+v", c)
	})
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "lanyard-identities", Name: "rotated"}}
	patch(t, keys, func(s *corev1.Secret) {
		s.Data = map[string][]byte{"accessKeyID": []byte(ownerKey), "secretAccessKey": []byte(ownerSecret)}
	})
	await(t, o, "the new keys are in force", unfetched("BucketRefused", "AccessDenied"))
	await(t, static, "the identity controller has them too", func(o *identityv1.AWSClusterStaticIdentity) error {
		return wantf(o.Status.AccountID == managementAccount, "%+v", o.Status)
	})
}
