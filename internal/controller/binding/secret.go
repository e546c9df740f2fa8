package binding

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// manager is the name under which the API server remembers which fields of a Secret are ours.
const manager = "lanyard-workload-identity-binding"

// store is the Secret of one binding.
type store struct {
	client  client.Client
	key     client.ObjectKey
	binding string
	kind    corev1.SecretType
}

func storeOf(c client.Client, o *identityv1.WorkloadIdentityBinding) *store {
	kind := corev1.SecretTypeOpaque
	if o.Spec.Store.Format == identityv1.StoreDockerConfigJSON {
		kind = corev1.SecretTypeDockerConfigJson
	}
	return &store{client: c, key: client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.Store.SecretRef.Name}, binding: o.Name, kind: kind}
}

// secretRead is a Secret as it was read.
type secretRead struct {
	*corev1.Secret

	owned bool // the binding has written it
}

// read reads the Secret from the API server; nil if there is none. It refuses a Secret that the
// binding may not write.
func (s *store) read(ctx context.Context) (*secretRead, error) {
	secret := &corev1.Secret{}
	err := s.client.Get(ctx, s.key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, s.failure(err, "get")
	}
	return s.judge(secret)
}

// judge refuses a Secret that the binding may not write.
func (s *store) judge(secret *corev1.Secret) (*secretRead, error) {
	owner := secret.Annotations[identityv1.BindingAnnotation]
	owned := owner == s.binding
	adopt := fmt.Sprintf("annotate it with %s=%s if the binding is to write it, or name another Secret", identityv1.AdoptAnnotation, s.binding)
	switch {
	case owner != "" && !owned:
		return nil, s.refused("name another Secret", "binding "+owner+" writes it")
	case !owned && secret.Annotations[identityv1.AdoptAnnotation] != s.binding:
		return nil, s.refused(adopt, "it is there already, and not the binding's")
	case secret.Type != s.kind:
		return nil, s.refused("delete the Secret, or name another one", fmt.Sprintf("its type is %.80q, and must be %s", string(secret.Type), s.kind))
	case !owned && isImmutable(secret):
		return nil, s.refused("delete the Secret, or name another one", "it is immutable")
	case secret.DeletionTimestamp != nil:
		return nil, s.refused("wait until it is gone, or remove its finalizers", "it is being deleted")
	}
	return &secretRead{secret, owned}, nil
}

// isImmutable reports whether the API server refuses every change of a Secret's data. Who may write
// a Secret may make it so, but must not keep a credential in it that is withdrawn.
func isImmutable(secret *corev1.Secret) bool { return secret.Immutable != nil && *secret.Immutable }

func (s *store) refused(fix, problem string) error {
	return &object.SecretError{Field: "spec.store.secretRef", Name: s.key.Name, Fix: fix, Err: errors.New(problem)}
}

// ours returns the keys of the data that the binding has written, in order. A key that somebody
// else has changed since is none of them.
func (r *secretRead) ours() []string {
	var keys []string
	for _, entry := range r.ManagedFields {
		if entry.Manager != manager || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Data map[string]json.RawMessage `json:"f:data"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // the API server writes none such
		}
		for field := range fields.Data {
			if key, ok := strings.CutPrefix(field, "f:"); ok {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// differs reports whether the binding has written other data into the Secret than these.
func (r *secretRead) differs(w written) bool {
	return slices.ContainsFunc(r.ours(), func(key string) bool {
		stays, ok := w.data[key]
		return !ok || !bytes.Equal(stays, r.Data[key])
	})
}

// write writes the Secret: all at once, and only if it is as it was read. The first write creates
// the Secret; later ones leave alone what others have added, except in an immutable Secret, which
// is made again. If somebody has changed the Secret meanwhile, it is read and judged again.
func (s *store) write(ctx context.Context, secret *secretRead, w written) error {
	w.annotations[identityv1.BindingAnnotation] = s.binding
	for range attempts {
		var err error
		switch {
		case secret == nil:
			err = s.create(ctx, w)
		case isImmutable(secret.Secret):
			if err = s.delete(ctx, secret.Secret); err == nil {
				secret, err = nil, s.create(ctx, w)
			}
		default:
			err = s.apply(ctx, secret, w)
		}
		changed := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || secret != nil && apierrors.IsNotFound(err)
		if !changed {
			return err
		}
		if secret, err = s.read(ctx); err != nil {
			return err
		}
	}
	return errBusy
}

// attempts is how often a write is tried against others who write the Secret.
const attempts = 3

var errBusy = errors.New("others write the Secret all the time")

func (s *store) create(ctx context.Context, w written) error {
	err := s.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name, Labels: w.labels, Annotations: w.annotations},
		Type:       w.kind, Data: w.data,
	}, client.FieldOwner(manager))
	return s.failure(err, "create")
}

// apply has the fields of the Secret that are ours be exactly what is written. It fails with a
// conflict if the Secret is no longer as it was read.
func (s *store) apply(ctx context.Context, secret *secretRead, w written) error {
	if err := s.claim(ctx, secret, w); err != nil {
		return err
	}
	fields := applycorev1.Secret(s.key.Name, s.key.Namespace).WithUID(secret.UID).WithResourceVersion(secret.ResourceVersion).
		WithType(s.kind).WithLabels(w.labels).WithAnnotations(w.annotations).WithData(w.data)
	return s.failure(s.client.Apply(ctx, fields, client.FieldOwner(manager), client.ForceOwnership), "patch")
}

// claim takes over what the create has written, if fields of it are to be removed: the API server
// removes only fields that were applied.
func (s *store) claim(ctx context.Context, secret *secretRead, w written) error {
	surplus := func(key string) bool { _, stays := w.data[key]; return !stays }
	if !slices.ContainsFunc(secret.ours(), surplus) {
		return nil
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(secret.Secret, sets.New(manager), manager)
	if err != nil || patch == nil {
		return err
	}
	return s.failure(s.client.Patch(ctx, secret.Secret, client.RawPatch(types.JSONPatchType, patch)), "patch")
}

// withdraw removes the credential from the Secret, and leaves the Secret the binding's. An
// immutable Secret is deleted.
func (s *store) withdraw(ctx context.Context, secret *secretRead) error {
	w := s.empty()
	switch {
	case secret == nil || !secret.owned:
		return nil
	case isImmutable(secret.Secret):
		return client.IgnoreNotFound(s.delete(ctx, secret.Secret))
	case !secret.differs(w):
		return nil
	}
	w.annotations = map[string]string{identityv1.BindingAnnotation: s.binding}
	w.labels = map[string]string{identityv1.ProviderLabel: secret.Labels[identityv1.ProviderLabel]}
	return s.apply(ctx, secret, w)
}

// remove removes what the binding has written. The Secret goes with it, unless it was adopted, or
// others have added data. An immutable Secret goes in any case.
func (s *store) remove(ctx context.Context) error {
	found := &corev1.Secret{}
	if err := s.client.Get(ctx, s.key, found); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return s.failure(err, "get")
	}
	if found.Annotations[identityv1.BindingAnnotation] != s.binding {
		return nil
	}
	secret := &secretRead{found, true}
	_, adopted := found.Annotations[identityv1.AdoptAnnotation]
	if (adopted || len(secret.ours()) < len(found.Data)) && !isImmutable(found) {
		return client.IgnoreNotFound(s.apply(ctx, secret, s.empty()))
	}
	return client.IgnoreNotFound(s.delete(ctx, found))
}

// delete deletes the Secret. It fails with a conflict if the Secret is no longer as it was read.
func (s *store) delete(ctx context.Context, secret *corev1.Secret) error {
	err := s.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
	return s.failure(err, "delete")
}

// failure is the error of a call about the Secret.
func (s *store) failure(err error, verb string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err):
		return s.refused("make room in the Secret, or name another one", "the API server refuses what is to be written; the data of a Secret has at most 1 MiB")
	}
	return fmt.Errorf("%s Secret %s: %w", verb, s.key.Name, object.Forbidden(err, verb, "secrets", s.key.Namespace))
}

// empty is what is written instead of a credential. A Secret with logins must have the key of the
// logins.
func (s *store) empty() written {
	w := written{kind: s.kind}
	if s.kind == corev1.SecretTypeDockerConfigJson {
		w.data = map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}
	}
	return w
}
