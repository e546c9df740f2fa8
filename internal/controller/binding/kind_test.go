package binding_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/binding"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/delivery"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestFirstCredential checks that the first reconciliation creates the Secret with all its content
// at once. The next reconciliation, and the first one after a restart, must write nothing.
func TestFirstCredential(t *testing.T) {
	w := newWorld(t, newIdentity(), newBinding())
	o, result := w.reconcile()
	if r := ready(o); r.Status != metav1.ConditionTrue || !strings.Contains(r.Message, "Secret cloudprovider has a credential until ") {
		t.Fatalf("%+v", r)
	}
	secret := w.secret()
	if secret.Type != corev1.SecretTypeOpaque || len(secret.Data[delivery.TokenKey]) == 0 || string(secret.Data[delivery.ConfigKey]) != `{"iamRoleARN":"`+roleARN+`"}` {
		t.Errorf("%+v", secret)
	}
	if secret.Labels[identityv1.ProviderLabel] != "aws" || secret.Annotations[identityv1.BindingAnnotation] != "cloudidentity" {
		t.Errorf("labels %v, annotations %v", secret.Labels, secret.Annotations)
	}
	s := o.Status
	if s.KID != "key-1" || s.Type != "aws" || s.Account != "112233445566" || s.ExpiresAt.Sub(s.IssuedAt.Time) != time.Hour {
		t.Errorf("%+v", s)
	}
	if at := s.RenewAt.Sub(s.IssuedAt.Time); at < 26*time.Minute || at > 34*time.Minute {
		t.Errorf("renewed after %s", at)
	}
	if result.RequeueAfter > 10*time.Minute || len(o.Finalizers) != 1 {
		t.Errorf("looked at after %s, finalizers %v", result.RequeueAfter, o.Finalizers)
	}
	if wrote := w.wrote(); !slices.Equal(wrote, []string{"create"}) {
		t.Errorf("wrote %v", wrote)
	}
	version := o.ResourceVersion
	w.reconcile()
	w.restart()
	if o, _ := w.reconcile(); o.ResourceVersion != version || len(w.wrote()) > 0 || len(w.server.requests) != 1 {
		t.Errorf("written again: %v, %d tokens", w.writes, len(w.server.requests))
	}
	if w.gets != 3 {
		t.Errorf("%d reads of the Secret", w.gets)
	}
}

// TestTokenNamesItsUse checks that a token names the binding, or the object in spec.contextObject.
// The session name must contain the name of the binding.
func TestTokenNamesItsUse(t *testing.T) {
	w := newWorld(t, newIdentity(), newBinding())
	w.reconcile()
	want := auth.ObjectReference{APIVersion: "identity.lanyard.dev/v1alpha1", Kind: "WorkloadIdentityBinding", Namespace: "tenant-a", Name: "cloudidentity", UID: bindingUID}
	if got := w.server.requests[0]; got.ContextObject != want || !slices.Equal(got.Audiences, []string{"team-foo"}) || got.Lifetime != 48*time.Hour {
		t.Errorf("%+v", got)
	}
	w.editBinding(func(o *identityv1.WorkloadIdentityBinding) {
		o.Spec.ContextObject = &identityv1.ContextObject{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot", Namespace: "garden-local", Name: "foo", UID: "1"}
	})
	w.reconcile()
	want = auth.ObjectReference{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot", Namespace: "garden-local", Name: "foo", UID: "1"}
	if got := w.server.requests; len(got) != 2 || got[1].ContextObject != want {
		t.Errorf("%+v", got)
	}
	if account := w.server.accounts[0]; account.Attributes["sessionName"] != "cloudidentity.tenant-a@WorkloadIdentityBinding" || account.Fingerprint != "" {
		t.Errorf("%+v", account)
	}
}

// TestRenewals checks which changes cause a new credential.
func TestRenewals(t *testing.T) {
	renew := func(o *identityv1.WorkloadIdentityBinding) {
		o.Annotations = map[string]string{meta.OperationAnnotation: meta.OperationRenewToken}
	}
	for _, c := range []struct {
		name   string
		change func(w *world)
		tokens int // number of tokens that are made because of the change
	}{
		{"nothing", func(*world) {}, 0},
		{"the audiences", func(w *world) {
			w.editIdentity(func(o *identityv1.WorkloadIdentity) { o.Spec.Audiences = []string{"a", "b"} })
		}, 1},
		{"the providerConfig", func(w *world) {
			w.editIdentity(func(o *identityv1.WorkloadIdentity) {
				o.Spec.TargetSystem.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"iamRoleARN":"arn:aws:iam::112233445566:role/other"}`)}
			})
		}, 1},
		{"the duration", func(w *world) {
			w.editIdentity(func(o *identityv1.WorkloadIdentity) { o.Spec.Duration = &metav1.Duration{Duration: 2 * time.Hour} })
		}, 1},
		{"a label of the identity", func(w *world) {
			w.editIdentity(func(o *identityv1.WorkloadIdentity) { o.Labels = map[string]string{"a": "b"} })
		}, 0},
		{"the format", func(w *world) {
			w.editBinding(func(o *identityv1.WorkloadIdentityBinding) { o.Spec.Store.Format = identityv1.StoreToken })
		}, 1},
		{"the folder", func(w *world) {
			w.editBinding(func(o *identityv1.WorkloadIdentityBinding) { o.Spec.Store.MountPath = "/secrets" })
		}, 1},
		{"the annotation", func(w *world) { w.editBinding(renew) }, 1},
		{"another annotation", func(w *world) {
			w.editBinding(func(o *identityv1.WorkloadIdentityBinding) {
				o.Annotations = map[string]string{meta.OperationAnnotation: "reboot"}
			})
		}, 0},
		{"another key was revoked", func(w *world) { w.server.revoked["key-0"] = true }, 0},
		{"the key was revoked", func(w *world) { w.server.revoked["key-1"], w.server.kid = true, "key-2" }, 1},
		{"the Secret was deleted", func(w *world) {
			must.Succeed(w.t, w.kube.Delete(w.t.Context(), w.secret()))
		}, 1},
		{"a key was changed", func(w *world) {
			w.editSecret(func(s *corev1.Secret) { s.Data[delivery.ConfigKey] = []byte("{}") })
		}, 1},
		{"a key was removed", func(w *world) {
			w.editSecret(func(s *corev1.Secret) { delete(s.Data, delivery.TokenKey) })
		}, 1},
		{"a key was added", func(w *world) {
			w.editSecret(func(s *corev1.Secret) { s.Data["more"] = []byte("x") })
		}, 0},
		{"the label was removed", func(w *world) {
			w.editSecret(func(s *corev1.Secret) { s.Labels = nil })
		}, 1},
		{"a label was added", func(w *world) {
			w.editSecret(func(s *corev1.Secret) { s.Labels["more"] = "x" })
		}, 0},
		{"the status was lost", func(w *world) {
			o := w.binding()
			o.Status = newBinding().Status
			must.Succeed(w.t, w.kube.Status().Update(w.t.Context(), o))
		}, 1}, // no digest in the status, so the Secret is not trusted
		{"the controller died between its two writes", func(w *world) {
			before := w.binding().Status
			w.editBinding(renew)
			time.Sleep(time.Second)
			w.reconcile()
			o := w.binding()
			o.Status = before
			must.Succeed(w.t, w.kube.Status().Update(w.t.Context(), o))
		}, 2}, // change() causes one renewal, and the next reconciliation another
		{"the Secret was made immutable", func(w *world) { w.editSecret(immutable) }, 0},
		{"half its life has passed in an immutable Secret", func(w *world) {
			w.editSecret(immutable)
			time.Sleep(34 * time.Minute)
		}, 1},
		{"an older Secret was restored", func(w *world) {
			older := w.secret()
			w.editBinding(renew)
			time.Sleep(time.Second)
			w.reconcile()
			w.editSecret(func(s *corev1.Secret) { s.Data, s.Annotations, s.Labels = older.Data, older.Annotations, older.Labels })
		}, 2}, // change() causes one renewal, and the next reconciliation another
		{"half its life has passed", func(*world) { time.Sleep(34 * time.Minute) }, 1},
		{"less has passed", func(*world) { time.Sleep(25 * time.Minute) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, newIdentity(), newBinding())
				w.reconcile()
				w.writes = nil
				c.change(w)
				w.writes = nil
				time.Sleep(time.Second) // so that a new token has a later issue time
				o, _ := w.reconcile()
				if r := ready(o); r.Status != metav1.ConditionTrue {
					t.Fatalf("%+v", r)
				}
				if got := len(w.server.requests) - 1; got != c.tokens || (len(w.wrote()) > 0) != (got > 0) {
					t.Errorf("%d tokens, want %d", got, c.tokens)
				}
				if _, still := o.Annotations[meta.OperationAnnotation]; still && o.Annotations[meta.OperationAnnotation] != "reboot" {
					t.Error("the request for a renewal is still there")
				}
				// The status agrees with the Secret, so the next reconciliation must write nothing.
				version := o.ResourceVersion
				if o, _ := w.reconcile(); o.ResourceVersion != version || len(w.wrote()) > 0 {
					t.Error("written again, and nothing had changed")
				}
			})
		})
	}
}

// TestOthersAndTheSecret checks that each renewal writes the Secret once and the status once.
// Content that others have added to the Secret must stay. Content of an earlier format must be
// removed.
func TestOthersAndTheSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, newIdentity(), newBinding())
		w.reconcile()
		w.editSecret(func(s *corev1.Secret) {
			s.Labels["team"], s.Annotations["note"], s.Data["more"] = "a", "b", []byte("x")
		})
		w.wrote()
		for range 3 {
			w.statuses = 0
			time.Sleep(34 * time.Minute)
			w.reconcile()
			if wrote := w.wrote(); !slices.Equal(wrote, []string{"apply"}) || w.statuses != 1 {
				t.Errorf("a renewal writes %v of the Secret, and the status %d times", wrote, w.statuses)
			}
		}
		w.editBinding(func(o *identityv1.WorkloadIdentityBinding) { o.Spec.Store.Format = identityv1.StoreToken })
		w.reconcile()
		secret := w.secret()
		if keys := slices.Sorted(maps.Keys(secret.Data)); !slices.Equal(keys, []string{"more", delivery.ConfigKey, delivery.TokenKey}) {
			t.Errorf("the keys are %v", keys)
		}
		if secret.Labels["team"] != "a" || secret.Annotations["note"] != "b" {
			t.Errorf("labels %v, annotations %v", secret.Labels, secret.Annotations)
		}
	})
}

// TestForeignSecrets checks which Secrets a binding takes over if they exist before the binding.
func TestForeignSecrets(t *testing.T) {
	adopt := map[string]string{identityv1.AdoptAnnotation: "cloudidentity"}
	for _, c := range []struct {
		name   string
		secret corev1.Secret
		says   string // part of the message; empty if the binding takes the Secret over
	}{
		{"somebody's", corev1.Secret{}, "annotate it with lanyard.dev/adopt=cloudidentity"},
		{"offered to us", corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: adopt}}, ""},
		{"offered to another binding", corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{identityv1.AdoptAnnotation: "other"}}}, "not the binding's"},
		{"another binding's", corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{identityv1.BindingAnnotation: "other", identityv1.AdoptAnnotation: "cloudidentity"}}}, "binding other writes it"},
		{"of another type", corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: adopt}, Type: corev1.SecretTypeServiceAccountToken}, "its type is"},
		{"immutable", corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: adopt}, Immutable: new(true)}, "it is immutable"},
		{"being deleted", corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: adopt, Finalizers: []string{"example.com/keep"}, DeletionTimestamp: &metav1.Time{Time: time.Now()}}}, "being deleted"},
		{"one that says that it is ours", corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{identityv1.BindingAnnotation: "cloudidentity"}}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			secret := c.secret.DeepCopy()
			secret.Namespace, secret.Name, secret.Data = "tenant-a", "cloudprovider", map[string][]byte{"password": []byte("hunter2")}
			if secret.Type == "" {
				secret.Type = corev1.SecretTypeOpaque
			}
			w := newWorld(t, newIdentity(), newBinding(), secret)
			before := w.secret()
			o, _ := w.reconcile()
			r := ready(o)
			if (r.Status == metav1.ConditionTrue) != (c.says == "") || c.says != "" && (r.Reason != meta.ReasonSecretRefused || !strings.Contains(r.Message, c.says)) {
				t.Fatalf("%+v", r)
			}
			after := w.secret()
			if c.says != "" && (after.ResourceVersion != before.ResourceVersion || len(w.server.requests) > 0) {
				t.Errorf("it was written, or a token was made: %v", after)
			}
			if string(after.Data["password"]) != "hunter2" || c.says == "" && len(after.Data[delivery.TokenKey]) == 0 {
				t.Errorf("%v", after.Data)
			}
		})
	}
}

// immutable makes the Secret immutable: the API server refuses every change of its data.
func immutable(s *corev1.Secret) { s.Immutable = new(true) }

// TestTwoBindingsOnOneSecret checks that a binding does not write the Secret of another binding.
func TestTwoBindingsOnOneSecret(t *testing.T) {
	w := newWorld(t, newIdentity(), newBinding())
	w.reconcile()
	w.editSecret(func(s *corev1.Secret) { s.Annotations[identityv1.BindingAnnotation] = "other" })
	if o, _ := w.reconcile(); !strings.Contains(ready(o).Message, "binding other writes it") {
		t.Errorf("%+v", ready(o))
	}
}

// TestDeletion checks which data stays in a Secret when the binding is deleted.
func TestDeletion(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*corev1.Secret)
		keys   []string // data keys that stay in the Secret; nil if the Secret is deleted
	}{
		{"nobody else uses it", func(*corev1.Secret) {}, nil},
		{"others have added data", func(s *corev1.Secret) { s.Data["more"] = []byte("x") }, []string{"more"}},
		{"it was adopted", func(s *corev1.Secret) { s.Annotations[identityv1.AdoptAnnotation] = "cloudidentity" }, []string{}},
		{"it was made immutable", immutable, nil},
		{"it was adopted and made immutable", func(s *corev1.Secret) {
			s.Annotations[identityv1.AdoptAnnotation] = "cloudidentity"
			immutable(s)
		}, nil},
		{"others have added data and made it immutable", func(s *corev1.Secret) {
			s.Data["more"] = []byte("x")
			immutable(s)
		}, nil},
		{"it is another binding's now", func(s *corev1.Secret) {
			s.Annotations[identityv1.BindingAnnotation], s.Data = "other", map[string][]byte{"x": nil}
		}, []string{"x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, newIdentity(), newBinding())
			w.reconcile()
			w.editSecret(c.change)
			w.delete()
			secret := w.secret()
			if c.keys == nil {
				if secret != nil {
					t.Errorf("%v is still there", secret)
				}
				return
			}
			if keys := slices.Sorted(maps.Keys(secret.Data)); !slices.Equal(keys, c.keys) {
				t.Errorf("the keys are %v, want %v", keys, c.keys)
			}
			if secret.Annotations[identityv1.BindingAnnotation] == "cloudidentity" || c.name != "it is another binding's now" && secret.Labels[identityv1.ProviderLabel] != "" {
				t.Errorf("annotations %v, labels %v", secret.Annotations, secret.Labels)
			}
		})
	}
}

// TestDeletionWithoutRights deletes a binding whose Secret the controller may no longer read. The
// binding must stay, unless Kubernetes deletes the namespace with the Secret.
func TestDeletionWithoutRights(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant-a", Finalizers: []string{"example.com/slow"}}}
	w := newWorld(t, newIdentity(), newBinding(), namespace)
	w.reconcile()
	w.forbidden = true
	must.Succeed(t, w.kube.Delete(t.Context(), w.binding()))
	_, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key("cloudidentity")})
	if _, ok := errors.AsType[*object.ForbiddenError](err); !ok || ready(w.binding()).Reason != meta.ReasonControllerForbidden {
		t.Errorf("the namespace stays: %v; %+v", err, ready(w.binding()))
	}
	must.Succeed(t, w.kube.Delete(t.Context(), namespace))
	_, err = w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key("cloudidentity")})
	must.Succeed(t, err)
	if err := w.kube.Get(t.Context(), key("cloudidentity"), &identityv1.WorkloadIdentityBinding{}); !apierrors.IsNotFound(err) {
		t.Errorf("the binding is still there: %v", err)
	}
}

// TestRefusals checks which bindings get no credential. For such a binding, no Secret may be
// written, and no token made.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, reason, says string
		binding            func(*identityv1.WorkloadIdentityBinding)
		identity           func(*identityv1.WorkloadIdentity)
	}{
		{"another type", meta.ReasonInvalidSpec, "spec.type: it is gcp, and the identity is for aws", func(o *identityv1.WorkloadIdentityBinding) { o.Spec.Type = "gcp" }, nil},
		{"the same type", "", "", func(o *identityv1.WorkloadIdentityBinding) { o.Spec.Type = "aws" }, nil},
		{"another config", meta.ReasonInvalidSpec, "spec.providerConfig", func(o *identityv1.WorkloadIdentityBinding) {
			o.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"iamRoleARN":"arn:aws:iam::112233445566:role/x"}`)}
		}, nil},
		{"the same config", "", "", func(o *identityv1.WorkloadIdentityBinding) {
			o.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{ "iamRoleARN": "` + roleARN + `" }`)}
		}, nil},
		{"two identities", meta.ReasonInvalidSpec, "exactly one", func(o *identityv1.WorkloadIdentityBinding) {
			o.Spec.IdentityRef = &identityv1.BindingIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: "a"}
		}, nil},
		{"an identity that never leaves", meta.ReasonInvalidSpec, "never leaves Lanyard", func(o *identityv1.WorkloadIdentityBinding) {
			o.Spec.WorkloadIdentity = nil
			o.Spec.IdentityRef = &identityv1.BindingIdentityReference{Kind: identityv1.AWSClusterStaticIdentityKind, Name: "a"}
		}, nil},
		{"no AWS identities", meta.ReasonInvalidSpec, "identity.awsIdentities", func(o *identityv1.WorkloadIdentityBinding) {
			o.Spec.WorkloadIdentity = nil
			o.Spec.IdentityRef = &identityv1.BindingIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: "a"}
		}, nil},
		{"an invalid identity", meta.ReasonInvalidSpec, "WorkloadIdentity banana-testing: spec.audiences", nil, func(o *identityv1.WorkloadIdentity) { o.Spec.Audiences = nil }},
		{"sessions of AWS for gcp", meta.ReasonInvalidSpec, "spec.store.format", func(o *identityv1.WorkloadIdentityBinding) { o.Spec.Store.Format = identityv1.StoreAWSSessionKeys }, func(o *identityv1.WorkloadIdentity) {
			o.Spec.TargetSystem = identityv1.TargetSystem{Type: "foo"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			identity, o := newIdentity(), newBinding()
			if c.binding != nil {
				c.binding(o)
			}
			if c.identity != nil {
				c.identity(identity)
			}
			w := newWorld(t, identity, o)
			got, _ := w.reconcile()
			if r := ready(got); (r.Status == metav1.ConditionTrue) != (c.reason == "") || c.reason != "" && (r.Reason != c.reason || !strings.Contains(r.Message, c.says)) {
				t.Errorf("%+v", r)
			}
			if c.reason != "" && (w.secret() != nil || len(w.server.requests) > 0) {
				t.Error("there is a Secret, or a token was made")
			}
		})
	}
}

// TestOtherTargets changes the target system and the account of an identity. The Secret must never
// get a credential for the new target system. A credential for the new account must wait until an
// annotation of the binding allows this account.
func TestOtherTargets(t *testing.T) {
	const other = `{"iamRoleARN":"arn:aws:iam::998877665544:role/x"}`
	w := newWorld(t, newIdentity(), newBinding())
	w.reconcile()
	before := w.secret()
	// retype changes the target system, as if another identity had taken over the name.
	retype := func(target identityv1.TargetSystem) {
		w.editIdentity(func(o *identityv1.WorkloadIdentity) { o.Spec.TargetSystem = target })
	}
	unchanged := func() {
		t.Helper()
		if now := w.secret(); now.ResourceVersion != before.ResourceVersion {
			t.Errorf("the Secret was changed: %v", now.Data)
		}
	}
	retype(identityv1.TargetSystem{Type: "foo"})
	if o, _ := w.reconcile(); ready(o).Reason != meta.ReasonInvalidSpec || !strings.Contains(ready(o).Message, "create another binding") {
		t.Errorf("%+v", ready(o))
	}
	unchanged()
	retype(identityv1.TargetSystem{Type: "aws", ProviderConfig: &runtime.RawExtension{Raw: []byte(other)}})
	if o, _ := w.reconcile(); ready(o).Reason != meta.ReasonAccountMismatch || !strings.Contains(ready(o).Message, "lanyard.dev/allow-account-change=998877665544") {
		t.Errorf("%+v", ready(o))
	}
	unchanged()
	for _, account := range []string{"true", "112233445566"} {
		w.editBinding(func(o *identityv1.WorkloadIdentityBinding) {
			o.Annotations = map[string]string{meta.AllowAccountChangeAnnotation: account}
		})
		w.reconcile()
		unchanged()
	}
	w.editBinding(func(o *identityv1.WorkloadIdentityBinding) {
		o.Annotations = map[string]string{meta.AllowAccountChangeAnnotation: "998877665544"}
	})
	if o, _ := w.reconcile(); ready(o).Status != metav1.ConditionTrue || o.Status.Account != "998877665544" || string(w.secret().Data[delivery.ConfigKey]) != other {
		t.Errorf("%+v", o.Status)
	}
}

// TestIdentityIsGone checks that the credential is removed from the Secret after the identity was
// deleted. When the identity is back, the Secret must get a credential again.
func TestIdentityIsGone(t *testing.T) {
	w := newWorld(t, newIdentity(), newBinding())
	w.reconcile()
	w.editSecret(func(s *corev1.Secret) { s.Data["more"] = []byte("x") })
	must.Succeed(t, w.kube.Delete(t.Context(), newIdentity()))
	w.wrote()
	o, _ := w.reconcile()
	if ready(o).Reason != string(auth.CodeSubjectNotFound) || o.Status.ExpiresAt != nil || o.Status.KID != "" {
		t.Errorf("%+v", o.Status)
	}
	if keys := slices.Sorted(maps.Keys(w.secret().Data)); !slices.Equal(keys, []string{"more"}) {
		t.Errorf("the Secret has %v", keys)
	}
	w.wrote()
	if w.reconcile(); len(w.wrote()) > 0 {
		t.Error("the Secret was written again")
	}
	must.Succeed(t, w.kube.Create(t.Context(), newIdentity()))
	if o, _ := w.reconcile(); ready(o).Status != metav1.ConditionTrue || len(w.secret().Data[delivery.TokenKey]) == 0 {
		t.Errorf("%+v", o.Status)
	}
}

// TestIdentityOfImmutableSecretIsGone checks that an immutable Secret is deleted after its identity
// was deleted. When the identity is back, the Secret must be created again.
func TestIdentityOfImmutableSecretIsGone(t *testing.T) {
	w := newWorld(t, newIdentity(), newBinding())
	w.reconcile()
	w.editSecret(immutable)
	must.Succeed(t, w.kube.Delete(t.Context(), newIdentity()))
	if o, _ := w.reconcile(); ready(o).Reason != string(auth.CodeSubjectNotFound) || o.Status.ExpiresAt != nil || w.secret() != nil {
		t.Errorf("%+v, and the Secret is %v", o.Status, w.secret())
	}
	must.Succeed(t, w.kube.Create(t.Context(), newIdentity()))
	if o, _ := w.reconcile(); ready(o).Status != metav1.ConditionTrue || len(w.secret().Data[delivery.TokenKey]) == 0 {
		t.Errorf("%+v", o.Status)
	}
}

// TestTokenServerIsDown checks that the last credential stays in the Secret while the token server
// is down. The pauses between attempts must be about a tenth of the remaining life.
func TestTokenServerIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, newIdentity(), newBinding())
		w.reconcile()
		before := w.secret()
		w.server.down = &auth.Error{Stage: auth.StageTokenRequest, Code: auth.CodeUnavailable, Fix: "wait", Err: errDown}
		time.Sleep(34 * time.Minute)
		var since metav1.Time
		for range 60 {
			o, result := w.reconcile()
			left := time.Until(o.Status.ExpiresAt.Time)
			if left <= 0 {
				break
			}
			r := ready(o)
			if r.Reason != string(auth.CodeUnavailable) || !strings.Contains(r.Message, "ends at "+o.Status.ExpiresAt.UTC().Format(time.RFC3339)) {
				t.Fatalf("%+v", r)
			}
			if since.IsZero() {
				since = r.LastTransitionTime
			}
			if !r.LastTransitionTime.Equal(&since) {
				t.Error("the condition does not say since when")
			}
			if limit := max(left/10, 10*time.Second) * 11 / 10; result.RequeueAfter > limit {
				t.Fatalf("tried again after %s, %s before the end", result.RequeueAfter, left)
			}
			time.Sleep(result.RequeueAfter)
		}
		// After the credential's end, attempts become rare. The Secret stays, because others may
		// have added content.
		for _, c := range []struct {
			hour  int
			calls int // upper limit for the number of attempts in this hour
		}{{1, 75}, {2, 15}, {3, 9}} {
			w.server.requests = nil
			for began := time.Now(); time.Since(began) < time.Hour; {
				_, result := w.reconcile()
				time.Sleep(result.RequeueAfter)
			}
			if n := len(w.server.requests); n < 4 || n > c.calls {
				t.Errorf("%d attempts in hour %d after the end, want at most %d", n, c.hour, c.calls)
			}
		}
		if now := w.secret(); now.ResourceVersion != before.ResourceVersion {
			t.Error("the Secret was changed")
		}
		w.server.down = nil
		if o, _ := w.reconcile(); ready(o).Status != metav1.ConditionTrue {
			t.Errorf("%+v", ready(o))
		}
	})
}

// TestFirstLook checks how long an existing binding may wait after a start of the controller. Even
// urgent bindings may wait a little, so that they are not all reconciled at the same moment.
func TestFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name   string
			ready  metav1.ConditionStatus
			left   time.Duration // remaining life of the credential; zero for no credential
			within time.Duration
		}{
			{"fresh", metav1.ConditionTrue, time.Hour, 9 * time.Minute},
			{"ends soon", metav1.ConditionTrue, 4 * time.Minute, time.Minute},
			{"has just ended", metav1.ConditionTrue, -time.Second, 10 * time.Second},
			{"ended long ago", metav1.ConditionTrue, -48 * time.Hour, 10 * time.Second},
			{"fails", metav1.ConditionFalse, 5 * time.Minute, 30 * time.Second},
			{"fails early", metav1.ConditionFalse, time.Hour, time.Minute},
			{"fails near the end", metav1.ConditionFalse, time.Second, 10 * time.Second},
			{"fails since long ago", metav1.ConditionFalse, -48 * time.Hour, time.Minute},
			{"never had one", metav1.ConditionFalse, 0, 10 * time.Second},
		} {
			o := newBinding(func(o *identityv1.WorkloadIdentityBinding) {
				o.Status.Conditions = []metav1.Condition{{Type: meta.ConditionReady, Status: c.ready}}
				if c.left != 0 {
					o.Status.ExpiresAt = &metav1.Time{Time: time.Now().Add(c.left)}
				}
			})
			server := &tokenServer{revoked: map[string]bool{"revoked": true}}
			if got := binding.ViewOf(binding.Options{WorkloadIdentities: server}, o).StartWithin; got != c.within {
				t.Errorf("%s: within %s, want %s", c.name, got, c.within)
			}
			// If the key was revoked while the controller was down, the binding is reconciled at once.
			o.Status.KID = "revoked"
			if got := binding.ViewOf(binding.Options{WorkloadIdentities: server}, o).StartWithin; got != 0 {
				t.Errorf("%s, with a key that is revoked: within %s, want at once", c.name, got)
			}
		}
	})
}

// TestWrongClock checks that a wrong clock of the issuer causes no storm: there must be a pause
// after each renewal.
func TestWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, newIdentity(), newBinding())
		w.server.behind = 50 * time.Minute
		began := time.Now()
		for range 100 {
			_, result := w.reconcile()
			time.Sleep(result.RequeueAfter)
		}
		if each := time.Since(began) / time.Duration(len(w.server.requests)); each < 2*time.Minute {
			t.Errorf("a token each %s", each)
		}
	})
}

// TestConcurrentWriter checks a Secret that another client changes just before the controller
// writes it. The Secret must keep the change, and get the new credential.
func TestConcurrentWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, newIdentity(), newBinding())
		w.reconcile()
		time.Sleep(34 * time.Minute)
		w.before = func(verb string) {
			if verb == "apply" {
				w.before = nil
				w.editSecret(func(s *corev1.Secret) { s.Data["more"] = []byte("x") })
			}
		}
		old := string(w.secret().Data[delivery.TokenKey])
		o, _ := w.reconcile()
		secret := w.secret()
		if ready(o).Status != metav1.ConditionTrue || string(secret.Data["more"]) != "x" || string(secret.Data[delivery.TokenKey]) == old {
			t.Errorf("%+v: %v", ready(o), secret.Data)
		}
		if len(w.server.requests) != 2 {
			t.Errorf("%d tokens", len(w.server.requests))
		}
		// Somebody else creates a Secret with that name first.
		w = newWorld(t, newIdentity(), newBinding())
		w.before = func(verb string) {
			if verb == "create" {
				w.before = nil
				foreign := &corev1.Secret{Type: corev1.SecretTypeOpaque}
				foreign.Namespace, foreign.Name = "tenant-a", "cloudprovider"
				must.Succeed(t, w.kube.Create(t.Context(), foreign))
			}
		}
		if o, _ := w.reconcile(); ready(o).Reason != meta.ReasonSecretRefused || len(w.secret().Data) > 0 {
			t.Errorf("%+v", ready(o))
		}
	})
}

// TestNothingSecretInStatus checks that the binding contains no part of the token.
func TestNothingSecretInStatus(t *testing.T) {
	w := newWorld(t, newIdentity(), newBinding())
	o, _ := w.reconcile()
	text, err := json.Marshal(o)
	must.Succeed(t, err)
	for part := range strings.SplitSeq(string(w.secret().Data[delivery.TokenKey]), ".") {
		if strings.Contains(string(text), part) {
			t.Error("the object has a part of the token")
		}
	}
}
