package awscluster_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sts"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/internal/clouds/awsclient"
	"github.com/lanyard-dev/lanyard/internal/controller/awscluster"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/identity/identitytest"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// world has AWS identities, a fake API server and a reconciler of AWSClusters.
type world struct {
	*identitytest.World

	t       *testing.T
	kube    client.Client
	r       *awscluster.Reconciler
	options awscluster.Options
	created int // number of created AWSClusterControllerIdentities
}

func newWorld(t *testing.T, creates bool, change ...func(*awscluster.Options)) *world {
	t.Helper()
	w := &world{World: identitytest.New(t), t: t}
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(corev1.AddToScheme(scheme), kinds.All().AddToScheme(scheme)))
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.AWSCluster{}).
		WithIndex(&v1alpha1.AWSCluster{}, metav1.ObjectNameField, controllertest.NameIndex)
	must.Succeed(t, awscluster.AddIndex(t.Context(), indexer{builder}))
	w.kube = builder.Build()
	options := awscluster.Options{Identities: w.Identities, Provider: w.Provider, Cache: w.Tokens, Observer: w.Tokens, Memory: w.kube}
	if creates {
		options.CreateControllerIdentity = func(context.Context) error { w.created++; return nil }
	}
	for _, c := range change {
		c(&options)
	}
	w.options = options
	w.restart()
	return w
}

// restart replaces the reconciler by a new one, without memory of earlier reconciliations.
func (w *world) restart() {
	w.r = awscluster.New(&tenant.Shared{Shared: &object.Shared{Client: controllertest.Remembering(w.kube), Live: w.kube, Recorder: events.NewFakeRecorder(1000)}}, w.options)
}

// indexer adds indexes to a fake client.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(o, field, values)
	return nil
}

func (w *world) cluster(namespace, name string, spec v1alpha1.AWSClusterSpec) {
	w.t.Helper()
	if spec.Region == "" {
		spec.Region = "eu-central-1"
	}
	o := &v1alpha1.AWSCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1}, Spec: spec}
	must.Succeed(w.t, w.kube.Create(w.t.Context(), o))
}

// reconcile reconciles a cluster, and returns the object as the API server stores it afterwards.
func (w *world) reconcile(namespace, name string) *v1alpha1.AWSCluster {
	w.t.Helper()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: key})
	must.Succeed(w.t, err)
	o := &v1alpha1.AWSCluster{}
	must.Succeed(w.t, w.kube.Get(w.t.Context(), key, o))
	controllertest.Holds(w.t, o, controllertest.View{Status: o.Status.Status}, result)
	return o
}

func ref(kind, name string) *meta.AWSIdentityReference {
	return &meta.AWSIdentityReference{Kind: kind, Name: name}
}

// TestConditions checks that the conditions are stored on success and on failure. In Cluster API
// Provider AWS (CAPA), they were never stored.
func TestConditions(t *testing.T) {
	const role, static, controller = identityv1.AWSClusterRoleIdentityKind, identityv1.AWSClusterStaticIdentityKind, identityv1.AWSClusterControllerIdentityKind
	succeeded := meta.ReasonSucceeded
	for name, c := range map[string]struct {
		spec                      v1alpha1.AWSClusterSpec
		ready, allowed, retrieved string // reasons of the conditions
		account                   string
		says                      string // part of Ready's message
	}{
		"granted": {
			v1alpha1.AWSClusterSpec{IdentityRef: ref(role, "target"), AccountID: identitytest.Workload},
			succeeded, succeeded, succeeded, identitytest.Workload, "credentials of account",
		},
		"not granted": {
			v1alpha1.AWSClusterSpec{IdentityRef: ref(role, "of-others")},
			meta.ReasonPrincipalUsageUnauthorized, meta.ReasonPrincipalUsageUnauthorized, meta.ReasonPrincipalUsageUnauthorized, "", "team-a may not use AWSClusterRoleIdentity of-others",
		},
		"a source that is not granted": {
			v1alpha1.AWSClusterSpec{IdentityRef: ref(role, "with-source-of-others")},
			meta.ReasonSourcePrincipalUsageUnauthorized, meta.ReasonSourcePrincipalUsageUnauthorized, meta.ReasonSourcePrincipalUsageUnauthorized, "", "root-of-others",
		},
		"no identity at all": {
			v1alpha1.AWSClusterSpec{}, // created before the schema had a default for identityRef
			meta.ReasonControllerIdentityMissing, meta.ReasonControllerIdentityMissing, meta.ReasonControllerIdentityMissing, "", `"kind":"AWSClusterControllerIdentity"`,
		},
		"an identity that does not exist": {
			v1alpha1.AWSClusterSpec{IdentityRef: ref(static, "nobody")},
			"SubjectNotFound", "SubjectNotFound", "SubjectNotFound", "", "does not exist",
		},
		"another account": {
			v1alpha1.AWSClusterSpec{IdentityRef: ref(role, "target"), AccountID: identitytest.Management},
			meta.ReasonAccountMismatch, succeeded, succeeded, identitytest.Workload, "correct spec.accountID",
		},
		"a role that AWS refuses": {
			v1alpha1.AWSClusterSpec{IdentityRef: ref(role, "refused")},
			"TrustRefused", succeeded, meta.ReasonPrincipalCredentialRetrievalFailed, "", "sts:AssumeRole",
		},
		"a Secret that is missing": {
			v1alpha1.AWSClusterSpec{IdentityRef: ref(static, "without-secret")},
			meta.ReasonSecretRefused, succeeded, meta.ReasonSecretRefused, "", "there is no Secret",
		},
		"a source that is missing": {
			v1alpha1.AWSClusterSpec{IdentityRef: ref(role, "without-source")},
			"SubjectNotFound", "SubjectNotFound", "SubjectNotFound", "", "the source of",
		},
		"an invalid region": {
			v1alpha1.AWSClusterSpec{Region: "moon-1", IdentityRef: ref(role, "target")},
			meta.ReasonInvalidSpec, succeeded, meta.ReasonPrincipalCredentialRetrievalFailed, "", "spec.region",
		},
		"an invalid account": {
			v1alpha1.AWSClusterSpec{IdentityRef: ref(role, "target"), AccountID: "123456789"},
			meta.ReasonInvalidSpec, succeeded, meta.ReasonPrincipalCredentialRetrievalFailed, "", "twelve digits",
		},
		"a kind that is no identity": {
			v1alpha1.AWSClusterSpec{IdentityRef: ref("Secret", "target")},
			meta.ReasonInvalidSpec, "SubjectInvalid", "SubjectInvalid", "", "spec.identityRef",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, false)
			w.Static("root", identitytest.Admits("team-a"))
			w.Static("root-of-others", identitytest.Admits("team-b"))
			arn := w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil)
			w.Role("target", identitytest.RoleSpec(arn, "root", identitytest.Admits("team-a")))
			w.Role("of-others", identitytest.RoleSpec(arn, "root", identitytest.Admits("team-b")))
			w.Role("with-source-of-others", identitytest.RoleSpec(arn, "root-of-others", identitytest.Admits("team-a")))
			w.Role("refused", identitytest.RoleSpec("arn:aws:iam::"+identitytest.Workload+":role/nobody", "root", identitytest.Admits("team-a")))
			w.Role("without-source", identitytest.RoleSpec(arn, "nobody", identitytest.Admits("team-a")))
			w.Put(&identityv1.AWSClusterStaticIdentity{ObjectMeta: metav1.ObjectMeta{Name: "without-secret"}, Spec: identityv1.AWSClusterStaticIdentitySpec{
				AWSClusterIdentitySpec: identitytest.Admits("team-a"), SecretRef: identityv1.AWSClusterSecretReference{Name: "nobody"},
			}})
			w.cluster("team-a", "test", c.spec)
			o := w.reconcile("team-a", "test")
			for condition, want := range map[string]string{
				meta.ConditionReady: c.ready, v1alpha1.ConditionPrincipalUsageAllowed: c.allowed, v1alpha1.ConditionPrincipalCredentialRetrieved: c.retrieved,
			} {
				got := apimeta.FindStatusCondition(o.Status.Conditions, condition)
				if got == nil || got.Reason != want || (got.Status == metav1.ConditionTrue) != (want == succeeded) {
					t.Errorf("%s is %+v, want %s", condition, got, want)
				}
				if condition == meta.ConditionReady && got != nil && !strings.Contains(got.Message, c.says) {
					t.Errorf("Ready says %q", got.Message)
				}
			}
			if o.Status.AccountID != c.account || (o.Status.Identity != nil) != (c.account != "") {
				t.Errorf("account %q, identity %+v", o.Status.AccountID, o.Status.Identity)
			}
		})
	}
}

// TestConditionsRecover checks that all conditions become true after the namespace gets the grant,
// and that a new identityRef takes effect at once.
func TestConditionsRecover(t *testing.T) {
	w := newWorld(t, false)
	w.Static("root", identitytest.Admits())
	spec := identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil), "root", identitytest.Admits("team-b"))
	w.Role("target", spec)
	w.cluster("team-a", "test", v1alpha1.AWSClusterSpec{IdentityRef: ref(identityv1.AWSClusterRoleIdentityKind, "target")})
	if o := w.reconcile("team-a", "test"); apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionReady) {
		t.Fatal("ready without a grant")
	}
	spec.AWSClusterIdentitySpec = identitytest.Admits("team-a")
	w.Role("target", spec)
	o := w.reconcile("team-a", "test")
	for _, c := range o.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			t.Errorf("%+v", c)
		}
	}
	o.Spec.IdentityRef = ref(identityv1.AWSClusterStaticIdentityKind, "root")
	o.Generation++
	must.Succeed(t, w.kube.Update(t.Context(), o))
	if o = w.reconcile("team-a", "test"); o.Status.AccountID != identitytest.Management {
		t.Errorf("the old identity's credential is in force: account %s", o.Status.AccountID)
	}
}

// TestFailedManagement checks that the two conditions about the identity have the status True even
// if Manage fails.
func TestFailedManagement(t *testing.T) {
	w := newWorld(t, false, func(o *awscluster.Options) {
		o.Manage = func(context.Context, *v1alpha1.AWSCluster, awsclient.Scope) error {
			return errors.New("no subnet is free")
		}
	})
	w.Static("root", identitytest.Admits())
	w.cluster("team-a", "test", v1alpha1.AWSClusterSpec{IdentityRef: ref(identityv1.AWSClusterStaticIdentityKind, "root")})
	o := w.reconcile("team-a", "test")
	if apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionReady) {
		t.Error("ready although the work failed")
	}
	for _, condition := range []string{v1alpha1.ConditionPrincipalUsageAllowed, v1alpha1.ConditionPrincipalCredentialRetrieved} {
		if !apimeta.IsStatusConditionTrue(o.Status.Conditions, condition) {
			t.Errorf("%+v", apimeta.FindStatusCondition(o.Status.Conditions, condition))
		}
	}
}

// TestStatusForgetsTheOldIdentity changes the identity while AWS throttles. The status must not
// show the old identity.
func TestStatusForgetsTheOldIdentity(t *testing.T) {
	w := newWorld(t, false)
	w.Static("root", identitytest.Admits())
	w.Role("target", identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil), "root", identitytest.Admits()))
	w.cluster("team-a", "test", v1alpha1.AWSClusterSpec{IdentityRef: ref(identityv1.AWSClusterStaticIdentityKind, "root")})
	o := w.reconcile("team-a", "test")
	if _, err := w.Cloud.Faults().Add(fault.Fault{Kind: fault.Throttle, Service: "sts", Operation: "AssumeRole"}); err != nil {
		t.Fatal(err)
	}
	o.Spec.IdentityRef = ref(identityv1.AWSClusterRoleIdentityKind, "target")
	o.Generation++
	must.Succeed(t, w.kube.Update(t.Context(), o))
	if o = w.reconcile("team-a", "test"); o.Status.Identity != nil || o.Status.AccountID != "" {
		t.Errorf("the status has identity %+v, account %q", o.Status.Identity, o.Status.AccountID)
	}
}

// TestManage checks that Manage runs only with a credential of the right account. Then the grant is
// withdrawn while Manage runs. The next AWS call must fail, and the conditions must report the
// missing grant.
func TestManage(t *testing.T) {
	var w *world
	var regions []string
	withdraw := func() {}
	w = newWorld(t, false, func(o *awscluster.Options) {
		o.Manage = func(ctx context.Context, _ *v1alpha1.AWSCluster, scope awsclient.Scope) error {
			scope.HTTPClient = &http.Client{Transport: w.Cloud.Transport()}
			config := scope.Config()
			regions = append(regions, config.Region)
			client := sts.NewFromConfig(config)
			if _, err := client.GetCallerIdentity(ctx, nil); err != nil {
				t.Errorf("before the grant is withdrawn: %v", err)
			}
			withdraw()
			_, err := client.GetCallerIdentity(ctx, nil)
			return err
		}
	})
	w.Static("root", identitytest.Admits())
	spec := identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil), "root", identitytest.Admits("team-a"))
	w.Role("target", spec)
	identityRef := ref(identityv1.AWSClusterRoleIdentityKind, "target")
	w.cluster("team-a", "elsewhere", v1alpha1.AWSClusterSpec{IdentityRef: identityRef, AccountID: identitytest.Management})
	if w.reconcile("team-a", "elsewhere"); len(regions) != 0 {
		t.Error("a cluster was managed with another account's identity")
	}
	w.cluster("team-a", "test", v1alpha1.AWSClusterSpec{IdentityRef: identityRef, AccountID: identitytest.Workload})
	if o := w.reconcile("team-a", "test"); !apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionReady) || !slices.Equal(regions, []string{"eu-central-1"}) {
		t.Fatalf("%+v, regions %q", o.Status.Conditions, regions)
	}
	withdraw = func() {
		spec.AWSClusterIdentitySpec = identitytest.Admits("team-b")
		w.Role("target", spec)
	}
	calls := w.Count("GetCallerIdentity")
	o := w.reconcile("team-a", "test")
	for _, condition := range []string{meta.ConditionReady, v1alpha1.ConditionPrincipalUsageAllowed} {
		if got := apimeta.FindStatusCondition(o.Status.Conditions, condition); got.Status != metav1.ConditionFalse || got.Reason != meta.ReasonPrincipalUsageUnauthorized {
			t.Errorf("%+v", got)
		}
	}
	if n := w.Count("GetCallerIdentity") - calls; n != 1 {
		t.Errorf("%d calls, want one before the grant was withdrawn", n)
	}
}

// TestClusterNames checks that two clusters with the same name and account are reported. The
// message must not reveal the other cluster's namespace.
func TestClusterNames(t *testing.T) {
	w := newWorld(t, false)
	w.Static("root", identitytest.Admits())
	spec := v1alpha1.AWSClusterSpec{IdentityRef: ref(identityv1.AWSClusterStaticIdentityKind, "root")}
	w.cluster("team-a", "test", spec)
	w.cluster("team-b", "test", spec)
	w.cluster("team-b", "other", spec)
	w.reconcile("team-a", "test")
	for name, want := range map[string]bool{"test": false, "other": true} {
		o := w.reconcile("team-b", name)
		got := apimeta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionClusterNameUnique)
		if got == nil || (got.Status == metav1.ConditionTrue) != want || strings.Contains(got.Message, "team-a") {
			t.Errorf("%s: %+v", name, got)
		}
		if !apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionReady) {
			t.Errorf("%s is not ready", name)
		}
	}
}

// TestCreator checks that CreateControllerIdentity is called only if an AWSCluster needs the
// identity.
func TestCreator(t *testing.T) {
	w := newWorld(t, true)
	w.Static("root", identitytest.Admits())
	w.cluster("team-a", "one", v1alpha1.AWSClusterSpec{IdentityRef: ref(identityv1.AWSClusterStaticIdentityKind, "root")})
	if w.reconcile("team-a", "one"); w.created != 0 {
		t.Error("it was made, and nobody needs it")
	}
	w.cluster("team-a", "two", v1alpha1.AWSClusterSpec{})
	if w.reconcile("team-a", "two"); w.created != 1 {
		t.Errorf("made %d times", w.created)
	}
}
