package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// fetcher is an object for which the controller fetches something from a cloud.
type fetcher interface {
	client.Object

	GetStatus() *meta.Status
	GetFetchStatus() *meta.FetchStatus
}

// repositoryOf returns an OCIRepository at Amazon ECR. It refers to an AWS identity, unless ref is
// nil.
func repositoryOf(namespace string, ref *meta.AWSIdentityReference) *v1alpha1.OCIRepository {
	return &v1alpha1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "source-"},
		Spec: v1alpha1.OCIRepositorySpec{
			URL:            "oci://" + local.Account + ".dkr.ecr." + local.Region + ".amazonaws.com/tenant-a/app",
			Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: time.Second}},
			RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: v1alpha1.ProviderAWS, IdentityRef: ref}},
		},
	}
}

// imagesOf returns an ImageRepository at Amazon ECR. It refers to an AWS identity, unless ref is
// nil.
func imagesOf(namespace string, ref *meta.AWSIdentityReference) *v1alpha1.ImageRepository {
	return &v1alpha1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "source-"},
		Spec: v1alpha1.ImageRepositorySpec{
			Image:          local.Account + ".dkr.ecr." + local.Region + ".amazonaws.com/tenant-a/app",
			Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: time.Second}},
			RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: v1alpha1.ProviderAWS, IdentityRef: ref}},
		},
	}
}

// bucketOf returns a Bucket at Amazon S3. It refers to an AWS identity, unless ref is nil.
func bucketOf(namespace string, ref *meta.AWSIdentityReference) *v1alpha1.Bucket {
	return &v1alpha1.Bucket{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "source-"},
		Spec: v1alpha1.BucketSpec{
			BucketName: "of-the-victim",
			Schedule:   v1alpha1.Schedule{Interval: metav1.Duration{Duration: time.Second}},
			Access:     v1alpha1.Access{Provider: v1alpha1.ProviderAWS, IdentityRef: ref},
		},
	}
}

// awaitRefused waits until an object is refused with this reason. It fails the test if the object
// has an identity in the meantime.
func awaitRefused(t *testing.T, o fetcher, reason string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		if o.GetFetchStatus().Identity != nil {
			t.Errorf("it has the identity %+v", o.GetFetchStatus().Identity)
		}
		ready := apimeta.FindStatusCondition(o.GetStatus().Conditions, meta.ConditionReady)
		if ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == reason && ready.ObservedGeneration == o.GetGeneration() {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%T: %+v, want the reason %s", o, ready, reason)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestBorrowedAWSIdentitiesOfSources tries every way to get an AWS identity in a namespace without
// a grant. It tries with OCIRepositories, Buckets and ImageRepositories. Each try must be refused
// with the expected reason.
func TestBorrowedAWSIdentitiesOfSources(t *testing.T) {
	const hostile, victim = "lessee-2", "lessee" // a check that compares prefixes would confuse these names
	const role = identityv1.AWSClusterRoleIdentityKind
	l := lender{t}
	l.start()
	l.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: victim, Labels: map[string]string{"team": "lessee"}}})
	l.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostile}})
	l.role("leased", "", lentTo(victim))
	l.role("leased-carelessly", "leased", lentTo(victim, hostile))
	l.role("leased-by-label", "", identityv1.AWSClusterIdentitySpec{AllowedNamespaces: &identityv1.AllowedNamespaces{
		Selector: &identityv1.NamespaceSelector{MatchLabels: map[string]string{"team": "lessee"}},
	}})
	before := world.Cloud().Journal().Last()
	named := func(kind, name string) *meta.AWSIdentityReference {
		return &meta.AWSIdentityReference{Kind: kind, Name: name}
	}

	for name, c := range map[string]struct {
		ref    *meta.AWSIdentityReference
		reason string
	}{
		"every identity field left out": {nil, "NotGranted"},
		"the controller's":              {named(identityv1.AWSClusterControllerIdentityKind, "default"), meta.ReasonControllerIdentityMissing},
		"another's":                     {named(role, "leased"), meta.ReasonPrincipalUsageUnauthorized},
		"by a chain":                    {named(role, "leased-carelessly"), meta.ReasonSourcePrincipalUsageUnauthorized},
		"by a label":                    {named(role, "leased-by-label"), meta.ReasonPrincipalUsageUnauthorized},
		"one of its own of that name":   {named(identityv1.AWSServiceAccountIdentityKind, "leased"), "SubjectNotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			l := lender{t}
			for _, o := range []fetcher{repositoryOf(hostile, c.ref), bucketOf(hostile, c.ref), imagesOf(hostile, c.ref)} {
				l.make(o)
				awaitRefused(t, o, c.reason)
			}
		})
	}

	// The identity "leased-by-label" admits namespaces with the label team=lessee. The object must
	// be refused while its namespace lacks this label. The same label on the object, or a similar
	// label on the namespace, must not help. When the namespace loses the label, the object must be
	// refused at once.
	t.Run("games with labels", func(t *testing.T) {
		l := lender{t}
		o := bucketOf(hostile, named(role, "leased-by-label"))
		o.Labels = map[string]string{"team": "lessee", "kubernetes.io/metadata.name": victim}
		l.make(o)
		awaitRefused(t, o, meta.ReasonPrincipalUsageUnauthorized)
		for _, labels := range []map[string]string{{"team": "Lessee"}, {"lessee": "team"}, {"team": "lessee-2", "example.com/team": "lessee"}, {"team": ""}} {
			relabel(t, hostile, labels)
			awaitRefused(t, o, meta.ReasonPrincipalUsageUnauthorized)
		}
		relabel(t, hostile, map[string]string{"team": "lessee"})
		// The namespace is admitted now, but the object is still refused: the identity's source is
		// the AWSClusterControllerIdentity "default", which does not exist.
		awaitRefused(t, o, meta.ReasonControllerIdentityMissing)
		relabel(t, hostile, nil)
		awaitRefused(t, o, meta.ReasonPrincipalUsageUnauthorized)
	})

	// An identity is deleted and made again under another name. Objects that refer to the former
	// name must be refused. A later identity with the former name must not inherit the former
	// grant.
	t.Run("a renamed identity", func(t *testing.T) {
		l := lender{t}
		l.role("leased-once", "", lentTo(victim, hostile))
		renamed := &identityv1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "leased-once"}}
		must(t, "delete the identity", objects.Delete(t.Context(), renamed))
		for deadline := time.After(time.Minute); ; {
			err := objects.Get(t.Context(), client.ObjectKeyFromObject(renamed), renamed)
			if apierrors.IsNotFound(err) {
				break
			}
			select {
			case <-deadline:
				t.Fatalf("the identity is not gone: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
		}
		l.role("leased-anew", "", lentTo(victim, hostile))
		o := imagesOf(hostile, named(role, "leased-once"))
		l.make(o)
		awaitRefused(t, o, "SubjectNotFound")
		l.role("leased-once", "", lentTo(victim))
		awaitRefused(t, o, meta.ReasonPrincipalUsageUnauthorized)
	})

	// Objects that an earlier schema accepted must be judged like new objects.
	t.Run("objects from before a rule", func(t *testing.T) {
		l := lender{t}
		both, over, grant := repositoryOf(hostile, named(role, "leased")), bucketOf(hostile, named(role, "leased-carelessly")), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "identity.lanyard.dev/v1alpha1", "kind": role, "metadata": map[string]any{"name": "leased-to-all-once"},
			"spec": map[string]any{"roleARN": "arn:aws:iam::" + local.Account + ":role/lent", "allowedNamespaces": map[string]any{"list": nil, "selector": map[string]any{}}},
		}}
		both.Spec.ServiceAccountName = "default"
		over.Spec.ProxySecretRef = &meta.LocalReference{Name: "proxy"}
		withoutRules(t, []string{"ocirepositories.toolkit.lanyard.dev", "buckets.toolkit.lanyard.dev", "awsclusterroleidentities.identity.lanyard.dev"}, func() {
			l.make(both)
			l.make(over)
			l.make(grant)
		})
		awaitRefused(t, both, meta.ReasonInvalidSpec)
		awaitRefused(t, over, meta.ReasonInvalidSpec)
		o := bucketOf(hostile, named(role, "leased-to-all-once"))
		l.make(o)
		awaitRefused(t, o, meta.ReasonPrincipalUsageUnauthorized)
	})

	// A tenant who may edit its namespace must not be able to create or rename a lent identity,
	// change a grant, or label its namespace.
	t.Run("a grant of one's own", func(t *testing.T) {
		l := lender{t}
		l.make(&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: hostile, Name: "editor"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "mallory"}},
		})
		config := world.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: "mallory"}
		mallory, err := client.New(config, client.Options{Scheme: world.Client().Scheme()})
		must(t, "become a tenant", err)
		leased := &identityv1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "leased"}}
		forbidden := map[string]error{
			"make an identity": mallory.Create(t.Context(), &identityv1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: identityv1.AWSClusterRoleIdentitySpec{
				AWSClusterIdentitySpec: lentTo(hostile), AWSRoleSpec: identityv1.AWSRoleSpec{RoleARN: "arn:aws:iam::" + local.Account + ":role/lent"},
			}}),
			"make the controller's": mallory.Create(t.Context(), &identityv1.AWSClusterControllerIdentity{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: identityv1.AWSClusterControllerIdentitySpec{AWSClusterIdentitySpec: lentTo(hostile)}}),
			"widen a grant":         mallory.Patch(t.Context(), leased, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"allowedNamespaces":{"list":["`+hostile+`"]}}}`))),
			"delete an identity":    mallory.Delete(t.Context(), leased),
			"label the namespace":   mallory.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostile}}, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"team":"lessee"}}}`))),
			"write a status":        mallory.Status().Patch(t.Context(), leased, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"usedBy":0}}`))),
			"read static keys":      mallory.List(t.Context(), &corev1.SecretList{}, client.InNamespace("lanyard-identities")),
		}
		for what, err := range forbidden {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		must(t, "name an identity of the namespace", mallory.Create(t.Context(), &infrav1.AWSCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: hostile, Name: "allowed"}, Spec: infrav1.AWSClusterSpec{Region: local.Region},
		}, client.DryRunAll))
	})

	for _, call := range world.Cloud().Journal().Calls(journal.Filter{Service: "sts", Verdict: journal.Granted, After: before}) {
		if call.Role == "arn:aws:iam::"+local.Account+":role/lent" {
			t.Errorf("somebody assumed the role: %+v", call)
		}
	}
}

// relabel replaces the labels of a namespace.
func relabel(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(t, "read a namespace", objects.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
	namespace.Labels = labels
	must(t, "label a namespace", objects.Update(t.Context(), namespace))
}

// withoutRules calls a function while the CRDs with these names have no validation rules, as in an
// earlier release.
func withoutRules(t *testing.T, names []string, work func()) {
	t.Helper()
	for _, name := range names {
		definition := &unstructured.Unstructured{}
		definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		must(t, "read a definition", objects.Get(t.Context(), client.ObjectKey{Name: name}, definition))
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		before, err := json.Marshal(map[string]any{"spec": map[string]any{"versions": versions}})
		must(t, "keep a definition", err)
		for _, version := range versions {
			dropRules(version)
		}
		must(t, "change a definition", unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"))
		must(t, "change a definition", objects.Update(t.Context(), definition))
		defer func() {
			must(t, "restore a definition", objects.Patch(context.WithoutCancel(t.Context()), definition, client.RawPatch("application/merge-patch+json", before)))
		}()
	}
	// Wait until the API server uses the changed CRDs.
	probe := repositoryOf("default", &meta.AWSIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: "probe"})
	probe.Spec.ServiceAccountName = "default"
	grant := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "identity.lanyard.dev/v1alpha1", "kind": identityv1.AWSClusterRoleIdentityKind, "metadata": map[string]any{"name": "probe"},
		"spec": map[string]any{"roleARN": "arn:aws:iam::" + local.Account + ":role/lent", "allowedNamespaces": map[string]any{"selector": map[string]any{}}},
	}}
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := objects.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
		if err == nil {
			err = objects.Create(t.Context(), grant.DeepCopy(), client.DryRunAll)
		}
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(fmt.Errorf("the rules are still there: %w", err))
		}
		<-time.After(100 * time.Millisecond)
	}
	<-time.After(time.Second)
	work()
}

// dropRules removes the validation rules of a schema, at every depth.
func dropRules(node any) {
	switch n := node.(type) {
	case map[string]any:
		for _, rule := range []string{"x-kubernetes-validations", "minItems", "minProperties"} {
			delete(n, rule)
		}
		for _, child := range n {
			dropRules(child)
		}
	case []any:
		for _, child := range n {
			dropRules(child)
		}
	}
}
