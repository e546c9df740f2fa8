package binding_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/delivery"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const hold = "example.com/hold"

// held adds a finalizer of the tenant to the Secret.
func held(s *corev1.Secret) { s.Finalizers = append(s.Finalizers, hold) }

func disown(s *corev1.Secret) { delete(s.Annotations, identityv1.BindingAnnotation) }

func relabel(s *corev1.Secret) { delete(s.Labels, identityv1.ProviderLabel) }

// endLine adds a line end to the token. So the record of managed fields names the tenant for this
// key, but clients still accept the token.
func endLine(s *corev1.Secret) { s.Data[delivery.TokenKey] = append(s.Data[delivery.TokenKey], '\n') }

// share adds data of the tenant to the Secret.
func share(s *corev1.Secret) { s.Data["password"] = []byte("a") }

// crowd adds more labels to the Secret than the admission policy can compare.
func crowd(s *corev1.Secret) {
	s.Annotations["workloadidentity.lanyard.dev/issued-at"] = "2026-11-28T12:00:00Z"
	for i := range 2000 {
		s.Labels[fmt.Sprint("label-", i)] = "x"
	}
}

// clearing is a test case. The tenant changes the Secret, and then the controller must remove the
// credential from the Secret.
type clearing struct {
	name    string
	change  []func(*corev1.Secret)
	forgets bool // the tenant clears the Secret's record of managed fields
	deletes bool // the tenant deletes the Secret

	deleted, withdrawn []string // writes after the binding was deleted, and writes after its identity was deleted
	keeps              bool     // the Secret keeps the credential
	says               string   // part of the event or the condition; empty if no Secret stays after the binding is deleted
}

// disowned reports whether the tenant has removed the annotation with the binding's name.
func (c *clearing) disowned() bool { return strings.HasSuffix(c.name, "another owner") }

// forget clears the Secret's record of managed fields: an empty entry has the API server do so.
func (w *world) forget() {
	w.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))
	must.Succeed(w.t, w.kube.Patch(w.t.Context(), w.secret(), patch))
	if s := w.secret(); len(s.ManagedFields) > 0 {
		w.t.Fatalf("the managed fields are %v", s.ManagedFields)
	}
}

// tamper does what the tenant does.
func (c *clearing) tamper(w *world) {
	for _, change := range c.change {
		w.editSecret(change)
	}
	if c.forgets {
		w.forget()
	}
	if c.deletes {
		must.Succeed(w.t, w.kube.Delete(w.t.Context(), w.secret()))
	}
}

func clearings() []clearing {
	return []clearing{{
		name: "nothing", deleted: []string{"delete"}, withdrawn: []string{"patch"},
	}, {
		name: "a finalizer", change: []func(*corev1.Secret){held},
		deleted: []string{"patch", "delete"}, withdrawn: []string{"patch"}, says: "without the credential",
	}, {
		name: "a finalizer, and the Secret is deleted", change: []func(*corev1.Secret){held}, deletes: true,
		deleted: []string{"patch"}, withdrawn: []string{"patch"}, says: "without the credential",
	}, {
		name: "a finalizer, data of others, and the Secret is deleted", change: []func(*corev1.Secret){held, share}, deletes: true,
		deleted: []string{"patch"}, withdrawn: []string{"patch"}, says: "without the credential",
	}, {
		name: "a finalizer, and no label", change: []func(*corev1.Secret){held, relabel},
		deleted: []string{"patch", "delete"}, withdrawn: []string{"patch"}, says: "without the credential",
	}, {
		name: "a finalizer, and 2,000 labels", change: []func(*corev1.Secret){held, crowd},
		deleted: []string{"patch", "delete"}, withdrawn: []string{"patch"}, says: "without the credential",
	}, {
		name: "immutable", change: []func(*corev1.Secret){immutable}, deleted: []string{"delete"}, withdrawn: []string{"delete"},
	}, {
		name: "immutable with a finalizer", change: []func(*corev1.Secret){held, immutable},
		deleted: []string{"delete"}, withdrawn: []string{"delete"}, keeps: true, says: "with the credential, because it is immutable",
	}, {
		name: "another owner", change: []func(*corev1.Secret){disown}, keeps: true, says: "does not name the binding any more",
	}, {
		name: "no managed fields", forgets: true, deleted: []string{"delete"}, withdrawn: []string{"patch"},
	}, {
		name: "no managed fields, and a finalizer", change: []func(*corev1.Secret){held}, forgets: true,
		deleted: []string{"patch", "delete"}, withdrawn: []string{"patch"}, says: "without the credential",
	}, {
		name: "no managed fields, and immutable with a finalizer", change: []func(*corev1.Secret){held, immutable}, forgets: true,
		deleted: []string{"delete"}, withdrawn: []string{"delete"}, keeps: true, says: "with the credential, because it is immutable",
	}, {
		name: "no managed fields, and another owner", change: []func(*corev1.Secret){disown}, forgets: true,
		keeps: true, says: "does not name the binding any more",
	}, {
		name: "a line end after the token", change: []func(*corev1.Secret){endLine}, deleted: []string{"delete"}, withdrawn: []string{"patch"},
	}, {
		name: "a line end after the token, and a finalizer", change: []func(*corev1.Secret){held, endLine},
		deleted: []string{"patch", "delete"}, withdrawn: []string{"patch"}, says: "without the credential",
	}, {
		name: "a line end after the token, and another owner", change: []func(*corev1.Secret){disown, endLine}, forgets: true,
		keeps: true, says: "does not name the binding any more",
	}}
}

func checkCleared(t *testing.T, w *world, keeps bool) {
	t.Helper()
	if s := w.secret(); s != nil && (len(s.Data[delivery.TokenKey]) > 0) != keeps {
		t.Errorf("the Secret has %v; keeps %v", slices.Sorted(maps.Keys(s.Data)), keeps)
	}
	checkPolicy(t, w)
}

// checkPolicy checks that the Secret obeys two rules of the admission policy lanyard-bindings. A
// Secret that has the annotation with the binding's name must also have the label with the
// provider. If the Secret has too many labels for the policy to compare, its annotations must stay.
func checkPolicy(t *testing.T, w *world) {
	t.Helper()
	s := w.secret()
	if s == nil || s.Annotations[identityv1.BindingAnnotation] == "" {
		return
	}
	if _, labelled := s.Labels[identityv1.ProviderLabel]; !labelled {
		t.Error("the admission policy refuses the Secret without the label")
	}
	if _, kept := s.Annotations["workloadidentity.lanyard.dev/issued-at"]; !kept && len(s.Labels) > 2000 {
		t.Error("the admission policy cannot judge a change of the annotations beside 2,000 labels")
	}
}

// TestTenantKeepsDeletedCredential changes the Secret of a binding as the tenant, and then deletes
// the binding. The controller must remove the credential from the Secret. The only exception is a
// Secret that the controller cannot change, or must not change. If the Secret still exists
// afterwards, an event must name the Secret. If the first deletion of the binding fails, the second
// try writes no more, and reports the same.
func TestTenantKeepsDeletedCredential(t *testing.T) {
	for _, fails := range []bool{false, true} {
		for _, c := range clearings() {
			t.Run(fmt.Sprintf("%s/fails=%t", c.name, fails), func(t *testing.T) { deletedCredential(t, c, fails) })
		}
	}
}

// deletedCredential tests one case. If fails is true, the first deletion of the binding fails.
func deletedCredential(t *testing.T, c clearing, fails bool) {
	t.Helper()
	w := newWorld(t, newIdentity(), newBinding())
	w.reconcile()
	for len(w.events.Events) > 0 {
		<-w.events.Events
	}
	c.tamper(w)
	w.wrote()
	w.conflict = fails
	w.delete()
	if wrote := w.wrote(); !slices.Equal(wrote, c.deleted) {
		t.Errorf("wrote %v, want %v", wrote, c.deleted)
	}
	checkCleared(t, w, c.keeps)
	if s := w.secret(); (s != nil) != (c.says != "") || s != nil && s.DeletionTimestamp == nil && !c.disowned() {
		t.Errorf("the Secret is %v", s)
	}
	var event string
	if len(w.events.Events) > 0 {
		event = <-w.events.Events
	}
	if c.says == "" && event != "" || !strings.Contains(event, c.says) {
		t.Errorf("event %q", event)
	}
	if c.says != "" && (!strings.Contains(event, meta.ReasonContentStays) || !strings.Contains(event, "Secret cloudprovider stays")) {
		t.Errorf("event %q", event)
	}
	if slices.ContainsFunc(c.change, isHeld) && !strings.Contains(event, hold) {
		t.Errorf("event %q does not name the finalizer", event)
	}
	if n := len(w.events.Events); n > 0 {
		t.Errorf("%d more events", n)
	}
}

func isHeld(change func(*corev1.Secret)) bool {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}, Data: map[string][]byte{}}
	change(s)
	return len(s.Finalizers) > 0
}

// TestTenantKeepsWithdrawnCredential is like TestTenantKeepsDeletedCredential, but deletes the
// identity instead of the binding. If the Secret stays against the controller's intention, the
// binding's condition must say why.
func TestTenantKeepsWithdrawnCredential(t *testing.T) {
	for _, c := range clearings() {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, newIdentity(), newBinding())
			w.reconcile()
			c.tamper(w)
			must.Succeed(t, w.kube.Delete(t.Context(), newIdentity()))
			w.wrote()
			o, _ := w.reconcile()
			if wrote := w.wrote(); !slices.Equal(wrote, c.withdrawn) {
				t.Errorf("wrote %v, want %v", wrote, c.withdrawn)
			}
			checkCleared(t, w, c.keeps)
			// If nobody deletes the Secret, the controller only empties the Secret. Then the
			// condition does not mention the Secret's finalizers.
			says := c.says
			if s := w.secret(); s != nil && s.DeletionTimestamp == nil && !c.disowned() {
				says = ""
			}
			for range 2 {
				if r := ready(o); r.Reason != string(auth.CodeSubjectNotFound) || !strings.Contains(r.Message, says) || says == "" && strings.Contains(r.Message, "stays") {
					t.Errorf("%+v, want %q", r, says)
				}
				if o.Status.ExpiresAt != nil {
					t.Errorf("%+v", o.Status)
				}
				o, _ = w.reconcile()
				if wrote := w.wrote(); len(wrote) > 0 {
					t.Errorf("the next look writes %v", wrote)
				}
			}
		})
	}
}

// TestTamperingWhileDeleting deletes a binding. The tenant changes the binding's Secret just before
// the controller patches or deletes the Secret. A Secret of the binding must not keep the
// credential. The controller must not change a Secret that does not belong to the binding.
func TestTamperingWhileDeleting(t *testing.T) {
	for _, c := range []struct {
		name   string
		at     string // the tenant acts just before this call of the controller
		tamper func(w *world)
		keeps  []string // data keys of the Secret afterwards; nil if the Secret is gone
	}{
		{"adds a finalizer", "delete", func(w *world) { w.editSecret(held) }, []string{}},
		{"adds data", "delete", func(w *world) { w.editSecret(func(s *corev1.Secret) { s.Data["more"] = []byte("x") }) }, []string{"more"}},
		{"adds data to a held Secret", "patch", func(w *world) {
			w.editSecret(func(s *corev1.Secret) { held(s); s.Data["more"] = []byte("x") })
		}, []string{"more"}},
		{"applies the credential again", "patch", func(w *world) {
			s := w.secret()
			again := applycorev1.Secret(s.Name, s.Namespace).WithData(map[string][]byte{delivery.TokenKey: s.Data[delivery.TokenKey]})
			must.Succeed(w.t, w.kube.Apply(w.t.Context(), again, client.FieldOwner("tenant"), client.ForceOwnership))
		}, []string{}},
		{"removes the label", "patch", func(w *world) { w.editSecret(relabel) }, []string{}},
		{"gives it to another binding", "patch", func(w *world) {
			w.editSecret(func(s *corev1.Secret) {
				s.Annotations[identityv1.BindingAnnotation], s.Data = "other", map[string][]byte{"theirs": nil}
			})
		}, []string{"theirs"}},
		{"gives it with the credential to another binding", "patch", func(w *world) {
			w.editSecret(func(s *corev1.Secret) {
				token := s.Data[delivery.TokenKey]
				s.Annotations[identityv1.BindingAnnotation], s.Data = "other", map[string][]byte{delivery.TokenKey: token}
			})
		}, []string{delivery.TokenKey}},
		{"makes it immutable", "delete", func(w *world) { w.editSecret(immutable) }, nil},
		{"replaces it by another Secret", "delete", func(w *world) {
			s := w.secret()
			must.Succeed(w.t, w.kube.Delete(w.t.Context(), s))
			foreign := &corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"theirs": nil}}
			foreign.Namespace, foreign.Name, foreign.UID = s.Namespace, s.Name, "another"
			must.Succeed(w.t, w.kube.Create(w.t.Context(), foreign))
			// The controller's request to delete a Secret names the UID and the resource version.
			// The fake API server compares only the version. So this edit gives the new Secret
			// another version.
			w.editSecret(func(s *corev1.Secret) { s.Labels = map[string]string{"theirs": ""} })
		}, []string{"theirs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, newIdentity(), newBinding())
			w.reconcile()
			if c.at == "patch" {
				w.editSecret(held)
			}
			w.before = func(verb string) {
				if verb == c.at {
					w.before = nil
					c.tamper(w)
				}
			}
			w.delete()
			if w.before != nil {
				t.Fatalf("no call %s", c.at)
			}
			s := w.secret()
			if (s == nil) != (c.keeps == nil) {
				t.Fatalf("the Secret is %v", s)
			}
			if s == nil {
				return
			}
			if keys := slices.Sorted(maps.Keys(s.Data)); !slices.Equal(keys, c.keeps) {
				t.Errorf("the keys are %v, want %v", keys, c.keeps)
			}
			checkPolicy(t, w)
		})
	}
}

// TestManyFinalizers checks the event for a Secret with 40 finalizers that have long names. The
// event has only a few of the names, and only the first characters of each name.
func TestManyFinalizers(t *testing.T) {
	w := newWorld(t, newIdentity(), newBinding())
	w.reconcile()
	w.editSecret(func(s *corev1.Secret) {
		for i := range 40 {
			s.Finalizers = append(s.Finalizers, "example.com/"+strings.Repeat(string(rune('a'+i%26)), 200+i))
		}
	})
	for len(w.events.Events) > 0 {
		<-w.events.Events
	}
	w.delete()
	if event := <-w.events.Events; !strings.Contains(event, "35 more") || len(event) > 700 {
		t.Errorf("%d characters: %s", len(event), event)
	}
}

// TestKeysOfOthers clears the record of managed fields. The binding must then remove only the keys
// in its status. A key that only others have written stays, even if the format knows its name.
func TestKeysOfOthers(t *testing.T) {
	w := newWorld(t, newIdentity(), newBinding())
	o, _ := w.reconcile()
	written := slices.Sorted(maps.Keys(w.secret().Data))
	if !slices.Equal(o.Status.Keys, written) {
		t.Fatalf("the status records %v, the Secret has %v", o.Status.Keys, written)
	}
	o.Status.Keys = nil
	must.Succeed(t, w.kube.Status().Update(t.Context(), o))
	w.wrote()
	if o, _ = w.reconcile(); !slices.Equal(o.Status.Keys, written) || len(w.wrote()) > 0 {
		t.Errorf("the status records %v after its loss", o.Status.Keys)
	}
	has := func(when string, want ...string) {
		t.Helper()
		if keys := slices.Sorted(maps.Keys(w.secret().Data)); !slices.Equal(keys, want) {
			t.Errorf("%s: the keys are %v, want %v", when, keys, want)
		}
	}
	w.editSecret(func(s *corev1.Secret) { s.Data["AWS_REGION"] = []byte("eu-west-1") })
	w.forget()
	w.editBinding(func(o *identityv1.WorkloadIdentityBinding) { o.Spec.Store.Format = identityv1.StoreToken })
	if o, _ = w.reconcile(); !slices.Equal(o.Status.Keys, []string{delivery.ConfigKey, delivery.TokenKey}) {
		t.Errorf("the status records %v after another format", o.Status.Keys)
	}
	has("another format", "AWS_REGION", delivery.ConfigKey, delivery.TokenKey)
	w.forget()
	must.Succeed(t, w.kube.Delete(t.Context(), newIdentity()))
	if o, _ = w.reconcile(); len(o.Status.Keys) > 0 || o.Status.Digest != "" {
		t.Errorf("the status records %v after the withdrawal", o.Status.Keys)
	}
	has("withdrawn", "AWS_REGION")
	w.editSecret(func(s *corev1.Secret) { s.Data[delivery.TokenKey] = []byte("the tenant's") })
	w.reconcile()
	w.delete()
	has("deleted", "AWS_REGION", delivery.TokenKey)
}
