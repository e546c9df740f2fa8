package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// bindingNamespace is the namespace in which a hostile tenant has the ClusterRole edit, and an
// operator writes bindings.
const bindingNamespace = "tenant-b"

// hostileEditor returns a client for a user who has the role edit in bindingNamespace.
func hostileEditor(t *testing.T) client.Client {
	t.Helper()
	lender{t}.make(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: bindingNamespace, Name: "hostile-editor"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "hostile-editor"}},
	})
	config := world.Config()
	config.Impersonate.UserName, config.WarningHandler = "hostile-editor", rest.NoWarnings{}
	hostile, err := client.New(config, client.Options{Scheme: world.Client().Scheme()})
	must(t, "make a client", err)
	return hostile
}

func bindingOf(name, identity string, change ...func(*identityv1.WorkloadIdentityBinding)) *identityv1.WorkloadIdentityBinding {
	o := &identityv1.WorkloadIdentityBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: bindingNamespace, Name: name},
		Spec: identityv1.WorkloadIdentityBindingSpec{
			WorkloadIdentity: &identityv1.WorkloadIdentityReference{Name: identity},
			Store:            identityv1.BindingStore{SecretRef: identityv1.BindingSecretReference{Name: name}},
		},
	}
	for _, c := range change {
		c(o)
	}
	return o
}

func targetOf(kind, config string) identityv1.WorkloadIdentitySpec {
	return identityv1.WorkloadIdentitySpec{
		Audiences: []string{stsAudience}, TargetSystem: identityv1.TargetSystem{Type: kind, ProviderConfig: &runtime.RawExtension{Raw: []byte(config)}},
	}
}

// awaitReady waits until a binding is Ready. If ready is false, it waits until the binding is
// refused.
func awaitReady(t *testing.T, o *identityv1.WorkloadIdentityBinding, ready bool) metav1.Condition {
	t.Helper()
	await(t, o, "the binding "+o.Name, func() error {
		c := condition(o)
		return wantf(c.Status != "" && c.Status != metav1.ConditionUnknown && (c.Status == metav1.ConditionTrue) == ready && c.ObservedGeneration == o.Generation, "%+v", c)
	})
	return condition(o)
}

// secretOf returns the Secret of a binding, or nil if it does not exist.
func secretOf(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	err := objects.Get(t.Context(), client.ObjectKey{Namespace: bindingNamespace, Name: name}, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(t, "read the Secret", err)
	return s
}

// TestHostileBindings tries every way in which a tenant could misuse bindings: to get another
// tenant's credential into a Secret, or to get its own data into a binding's Secret.
func TestHostileBindings(t *testing.T) {
	operator, hostile := lender{t}, hostileEditor(t)
	t.Run("writing bindings", func(t *testing.T) {
		o := bindingOf("operated", "operated")
		operator.make(o)
		for what, err := range map[string]error{
			"create":   hostile.Create(t.Context(), bindingOf("mine", "operated")),
			"patch":    hostile.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"workloadIdentity":{"name":"other"}}}`))),
			"annotate": hostile.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"lanyard.dev/allow-account-change":"1"}}}`))),
			"status":   hostile.Status().Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"account":"x"}}`))),
			"delete":   hostile.Delete(t.Context(), o.DeepCopy()),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	t.Run("another's identity", func(t *testing.T) {
		operator.make(&identityv1.WorkloadIdentity{ObjectMeta: metav1.ObjectMeta{Namespace: victimNamespace, Name: "theirs"}, Spec: targetOf("any", `{}`)})
		for name, identity := range map[string]string{"of-victim": "theirs", "by-path": "../" + victimNamespace + "/theirs"} {
			o := bindingOf(name, identity)
			err := objects.Create(t.Context(), o)
			if strings.Contains(identity, "/") {
				if !apierrors.IsInvalid(err) {
					t.Errorf("%s: %v", identity, err)
				}
				continue
			}
			must(t, "make a binding", err)
			t.Cleanup(func() { _ = objects.Delete(t.Context(), o) })
			if c := awaitReady(t, o, false); c.Reason != "SubjectNotFound" || secretOf(t, name) != nil {
				t.Errorf("%+v", c)
			}
		}
	})
	t.Run("another's context", func(t *testing.T) {
		must(t, "make an identity", hostile.Create(t.Context(), &identityv1.WorkloadIdentity{
			ObjectMeta: metav1.ObjectMeta{Namespace: bindingNamespace, Name: "spoofing"}, Spec: targetOf("any", `{}`),
		}))
		var repositories v1alpha1.OCIRepositoryList
		must(t, "list the victim's objects", objects.List(t.Context(), &repositories, client.InNamespace(victimNamespace)))
		if len(repositories.Items) == 0 {
			t.Fatal("the victim has no object")
		}
		victim := repositories.Items[0]
		o := bindingOf("spoofing", "spoofing", func(o *identityv1.WorkloadIdentityBinding) {
			o.Spec.ContextObject = &identityv1.ContextObject{
				APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.OCIRepositoryKind, Namespace: victim.Namespace, Name: victim.Name, UID: victim.UID,
			}
		})
		operator.make(o)
		if c := awaitReady(t, o, false); secretOf(t, o.Name) != nil {
			t.Errorf("%+v", c)
		}
	})
	t.Run("a line in a config file", func(t *testing.T) {
		for _, config := range []string{
			`{"iamRoleARN":"arn:aws:iam::123456789123:role/a\nrole_arn = arn:aws:iam::999999999999:role/b"}`,
			`{"iamRoleARN":"arn:aws:iam::123456789123:role/a","credential_process":"/bin/sh"}`,
			`{"iamRoleARN":"arn:aws:iam::123456789123:role/a","region":"eu-west-1\n[profile x]"}`,
		} {
			err := hostile.Create(t.Context(), &identityv1.WorkloadIdentity{
				ObjectMeta: metav1.ObjectMeta{Namespace: bindingNamespace, Name: "line"}, Spec: targetOf("aws", config),
			})
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v", config, err)
			}
		}
		const open = `{"a":"x\n[default]\nrole_arn = b","credential_source":{"executable":{"command":"/bin/sh"}}}`
		must(t, "make an identity of another system", hostile.Create(t.Context(), &identityv1.WorkloadIdentity{
			ObjectMeta: metav1.ObjectMeta{Namespace: bindingNamespace, Name: "open"}, Spec: targetOf("any", open),
		}))
		o := bindingOf("open", "open")
		operator.make(o)
		awaitReady(t, o, true)
		s := secretOf(t, "open")
		if keys := slices.Sorted(maps.Keys(s.Data)); !slices.Equal(keys, []string{"workloadIdentityConfig", "workloadIdentityToken"}) {
			t.Errorf("the keys are %v", keys)
		}
		if config := s.Data["workloadIdentityConfig"]; !json.Valid(config) || strings.Contains(string(config), "\n") {
			t.Errorf("the config is %q", config)
		}
	})
	t.Run("a Secret that waits", func(t *testing.T) {
		for name, kind := range map[string]corev1.SecretType{"waits": corev1.SecretTypeOpaque, "waits-tls": corev1.SecretTypeTLS} {
			trap := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: bindingNamespace, Name: name}, Type: kind, Data: map[string][]byte{"tls.crt": []byte("x"), "tls.key": []byte("x")}}
			must(t, "make a Secret", hostile.Create(t.Context(), trap))
			o := bindingOf(name, "open")
			operator.make(o)
			if c := awaitReady(t, o, false); c.Reason != meta.ReasonSecretRefused {
				t.Errorf("%+v", c)
			}
			if s := secretOf(t, name); s.ResourceVersion != trap.ResourceVersion {
				t.Errorf("it was written: %v", slices.Sorted(maps.Keys(s.Data)))
			}
		}
	})
	t.Run("a token of one's own", func(t *testing.T) {
		o := bindingOf("forged", "open")
		operator.make(o)
		awaitReady(t, o, true)
		s := secretOf(t, "forged")
		good := string(s.Data["workloadIdentityToken"])
		s.Data["workloadIdentityToken"] = []byte("eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpYXQiOjEsImV4cCI6NDEwMjQ0NDgwMH0.eA")
		must(t, "forge the token", hostile.Update(t.Context(), s))
		must(t, "have the binding looked at", objects.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"now"}}}`, meta.ReconcileRequestedAnnotation))))
		await(t, s, "the Secret is mended", func() error {
			token := string(s.Data["workloadIdentityToken"])
			return wantf(!strings.HasSuffix(token, ".eA") && token != good, "the token is the forged one")
		})
	})
	t.Run("a Secret that stays", func(t *testing.T) {
		must(t, "make an identity", hostile.Create(t.Context(), &identityv1.WorkloadIdentity{
			ObjectMeta: metav1.ObjectMeta{Namespace: bindingNamespace, Name: "stays"}, Spec: targetOf("any", `{}`),
		}))
		o := bindingOf("stays", "stays")
		operator.make(o)
		awaitReady(t, o, true)
		s := secretOf(t, "stays")
		if s == nil {
			t.Fatal("the binding has no Secret")
		}
		s.Finalizers = []string{"hostile.example.com/stay"}
		must(t, "keep the Secret", hostile.Update(t.Context(), s))
		t.Cleanup(func() {
			release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			err := objects.Patch(context.WithoutCancel(t.Context()), s, release)
			must(t, "take the finalizer from the Secret", client.IgnoreNotFound(err))
		})
		must(t, "delete the binding", objects.Delete(t.Context(), o))
		await(t, s, "the Secret is empty", func() error {
			return wantf(len(s.Data) == 0, "it has %v, deletion %v", slices.Sorted(maps.Keys(s.Data)), s.DeletionTimestamp)
		})
	})
}
