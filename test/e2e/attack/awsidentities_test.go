package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// The access key of the identity controller's own AWS identity.
const (
	identityKey    = "AKIAIDENTITYIDENTITY"
	identitySecret = "of-the-identity-controller"
)

// lender is an administrator who creates AWS identities and lends them to some namespaces.
type lender struct{ t *testing.T }

func (l lender) make(o client.Object) {
	l.t.Helper()
	must(l.t, "make an object", objects.Create(l.t.Context(), o))
	l.t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(l.t.Context()), o) })
}

func lentTo(namespaces ...string) identityv1.AWSClusterIdentitySpec {
	return identityv1.AWSClusterIdentitySpec{AllowedNamespaces: &identityv1.AllowedNamespaces{List: namespaces}}
}

func (l lender) role(name string, source string, spec identityv1.AWSClusterIdentitySpec) {
	l.t.Helper()
	o := &identityv1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: identityv1.AWSClusterRoleIdentitySpec{
		AWSClusterIdentitySpec: spec, AWSRoleSpec: identityv1.AWSRoleSpec{RoleARN: "arn:aws:iam::" + local.Account + ":role/lent"},
	}}
	if source != "" {
		o.Spec.SourceIdentityRef = &identityv1.AWSClusterIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: source}
	}
	l.make(o)
}

// identityEnv returns the environment of the identity controller: the access key of its user, and
// the variables that clients of the local cloud need.
func identityEnv() []any {
	env := []any{
		map[string]any{"name": "AWS_ACCESS_KEY_ID", "value": identityKey},
		map[string]any{"name": "AWS_SECRET_ACCESS_KEY", "value": identitySecret},
	}
	for _, variable := range world.Cloud().Env() {
		name, value, _ := strings.Cut(variable, "=")
		env = append(env, map[string]any{"name": name, "value": value})
	}
	return env
}

// start creates the identity controller's user and the role "lent" in the local cloud.
func (l lender) start() {
	t := l.t
	t.Helper()
	everything := map[string]json.RawMessage{"all": json.RawMessage(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:*","Resource":"*"}]}`)}
	must(t, "make a user", world.Cloud().AWS().PutUser(local.Account, cloudaws.User{
		Name: "identity-controller", AccessKeys: []cloudaws.AccessKey{{ID: identityKey, Secret: identitySecret}}, Policies: everything,
	}))
	must(t, "make a role", world.Cloud().AWS().PutRole(local.Account, cloudaws.Role{Name: "lent", Policies: everything, TrustPolicy: json.RawMessage(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"` + local.Account + `"},"Action":"sts:AssumeRole"}]}`)}))
}

// TestBorrowedAWSIdentities tries every way to get an AWS identity from a namespace without a
// grant. Each try must be refused with the reason in its row. The namespace with a grant must get
// the identity.
func TestBorrowedAWSIdentities(t *testing.T) {
	const hostile, victim = "victim-2", "victim" // a check that compares prefixes would confuse these names
	l := lender{t}
	l.start()
	l.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: victim, Labels: map[string]string{"team": "victim"}}})
	l.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostile}})
	l.make(tenantBinding(victim, identityAccount))
	l.make(tenantBinding(hostile, identityAccount))

	l.make(&identityv1.AWSClusterControllerIdentity{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: identityv1.AWSClusterControllerIdentitySpec{
		AWSClusterIdentitySpec: lentTo(victim),
	}})
	l.role("lent", "", lentTo(victim))
	// The identity "careless" admits the hostile namespace, but its source identity "lent" does
	// not.
	l.role("careless", "lent", lentTo(victim, hostile))
	selected := identityv1.AWSClusterIdentitySpec{AllowedNamespaces: &identityv1.AllowedNamespaces{
		Selector: &identityv1.NamespaceSelector{MatchLabels: map[string]string{"team": "victim"}},
	}}
	l.role("selected", "", selected)
	l.role("nobodys", "", identityv1.AWSClusterIdentitySpec{})
	l.role("emptied", "", lentTo())
	l.make(&identityv1.AWSClusterStaticIdentity{ObjectMeta: metav1.ObjectMeta{Name: "mislaid"}, Spec: identityv1.AWSClusterStaticIdentitySpec{
		AWSClusterIdentitySpec: lentTo(victim, hostile), SecretRef: identityv1.AWSClusterSecretReference{Name: "keys", Namespace: hostile},
	}})
	// The identity "mislaid" refers to this Secret, which is in the hostile tenant's own namespace.
	l.make(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: hostile, Name: "keys"}, Type: identityv1.SecretTypeAWSStatic,
		StringData: map[string]string{"accessKeyID": identityKey, "secretAccessKey": identitySecret},
	})
	// The hostile tenant copies the victim's ServiceAccount and identity, including the names and
	// the role ARN.
	for _, namespace := range []string{victim, hostile} {
		l.make(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant-a-ecr-sa"}})
		l.make(&identityv1.AWSServiceAccountIdentity{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant-a-ecr-sa"},
			Spec:       identityv1.AWSServiceAccountIdentitySpec{AWSRoleSpec: identityv1.AWSRoleSpec{RoleARN: roleA}},
		})
	}
	l.make(&identityv1.AWSServiceAccountIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: victim, Name: "victims-own"},
		Spec:       identityv1.AWSServiceAccountIdentitySpec{AWSRoleSpec: identityv1.AWSRoleSpec{RoleARN: roleA}},
	})

	const role, static, controller, account = identityv1.AWSClusterRoleIdentityKind, identityv1.AWSClusterStaticIdentityKind,
		identityv1.AWSClusterControllerIdentityKind, identityv1.AWSServiceAccountIdentityKind
	cluster := func(namespace, name string, ref *meta.AWSIdentityReference) *infrav1.AWSCluster {
		o := &infrav1.AWSCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: infrav1.AWSClusterSpec{Region: local.Region, IdentityRef: ref}}
		l.make(o)
		return o
	}
	for name, c := range map[string]struct {
		ref    *meta.AWSIdentityReference
		reason string
	}{
		"every field left out":             {nil, meta.ReasonPrincipalUsageUnauthorized},
		"the controller's":                 {&meta.AWSIdentityReference{Kind: controller, Name: "default"}, meta.ReasonPrincipalUsageUnauthorized},
		"another's":                        {&meta.AWSIdentityReference{Kind: role, Name: "lent"}, meta.ReasonPrincipalUsageUnauthorized},
		"by a chain":                       {&meta.AWSIdentityReference{Kind: role, Name: "careless"}, meta.ReasonSourcePrincipalUsageUnauthorized},
		"by a label":                       {&meta.AWSIdentityReference{Kind: role, Name: "selected"}, meta.ReasonPrincipalUsageUnauthorized},
		"without a grant":                  {&meta.AWSIdentityReference{Kind: role, Name: "nobodys"}, meta.ReasonPrincipalUsageUnauthorized},
		"with an empty list":               {&meta.AWSIdentityReference{Kind: role, Name: "emptied"}, meta.ReasonPrincipalUsageUnauthorized},
		"with a Secret of one's own":       {&meta.AWSIdentityReference{Kind: static, Name: "mislaid"}, meta.ReasonSecretNamespaceRefused},
		"an account of the same name":      {&meta.AWSIdentityReference{Kind: account, Name: "tenant-a-ecr-sa"}, "TrustRefused"},
		"another namespace's account":      {&meta.AWSIdentityReference{Kind: account, Name: "victims-own"}, "SubjectNotFound"},
		"a kind's name for another's name": {&meta.AWSIdentityReference{Kind: static, Name: "lent"}, "SubjectNotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			l := lender{t}
			o := &infrav1.AWSCluster{ObjectMeta: metav1.ObjectMeta{Namespace: hostile, GenerateName: "cluster-"}, Spec: infrav1.AWSClusterSpec{Region: local.Region, IdentityRef: c.ref}}
			l.make(o)
			awaitCluster(t, o, func(o *infrav1.AWSCluster) error {
				ready := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady)
				if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != c.reason {
					return fmt.Errorf("%+v", o.Status.Conditions)
				}
				if o.Status.AccountID != "" || o.Status.Identity != nil {
					t.Errorf("it has a credential: %+v", o.Status)
				}
				return nil
			})
		})
	}

	// An object's reference flips between two identities. Meanwhile, the object must never get the
	// identity that does not admit its namespace.
	t.Run("a race", func(t *testing.T) {
		l := lender{t}
		l.role("mine", "", lentTo(hostile, victim))
		own := &identityv1.AWSClusterControllerIdentity{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(own), own))
		before := own.DeepCopy()
		own.Spec.SourceOnly, own.Spec.AllowedNamespaces.List = true, []string{victim, hostile}
		must(t, "admit the tenant to the source", objects.Patch(t.Context(), own, client.MergeFrom(before)))
		o := cluster(hostile, "flips", &meta.AWSIdentityReference{Kind: role, Name: "mine"})
		ctx, stop := context.WithCancel(t.Context())
		watch, err := objects.Watch(ctx, &infrav1.AWSClusterList{}, client.InNamespace(hostile))
		must(t, "watch", err)
		var seen sync.WaitGroup
		seen.Go(func() {
			for e := range watch.ResultChan() {
				if o, ok := e.Object.(*infrav1.AWSCluster); ok && o.Name == "flips" && o.Status.Identity != nil && o.Status.Identity.Subject != "lanyard.dev:awsclusterroleidentity:mine" {
					t.Errorf("it acted as %s", o.Status.Identity.Subject)
				}
			}
		})
		for i := range 40 {
			before := o.DeepCopy()
			o.Spec.IdentityRef.Name = []string{"mine", "lent"}[i%2]
			must(t, "flip", objects.Patch(ctx, o, client.MergeFrom(before)))
		}
		awaitCluster(t, o, func(o *infrav1.AWSCluster) error {
			ready := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady)
			if ready == nil || ready.Reason != meta.ReasonPrincipalUsageUnauthorized || ready.ObservedGeneration != o.Generation {
				return fmt.Errorf("%+v", ready)
			}
			return nil
		})
		stop()
		watch.Stop()
		seen.Wait()
	})

	served := cluster(victim, "served", &meta.AWSIdentityReference{Kind: role, Name: "lent"})
	awaitCluster(t, served, func(o *infrav1.AWSCluster) error {
		if !apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionReady) {
			return fmt.Errorf("the namespace that is admitted is not served: %+v", o.Status.Conditions)
		}
		return nil
	})
}

// awaitCluster reads o from the API server until want(o) returns nil, for at most 30 seconds.
func awaitCluster(t *testing.T, o *infrav1.AWSCluster, want func(*infrav1.AWSCluster) error) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		err := objects.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		if err == nil {
			if err = want(o); err == nil {
				return
			}
		}
		select {
		case <-deadline:
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
