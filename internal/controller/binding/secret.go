package binding

import (
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
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/delivery"
)

// manager is the controller's field manager. Under this name the API server records which fields of
// a Secret the controller has written.
const manager = "lanyard-workload-identity-binding"

// store reads and writes the Secret of one binding.
type store struct {
	client  client.Client
	key     client.ObjectKey
	binding string
	kind    corev1.SecretType
	wrote   bool     // whether the binding has written a credential, and has not withdrawn it since
	keys    []string // data keys that the binding has written; from the status
}

func storeOf(c client.Client, o *identityv1.WorkloadIdentityBinding) *store {
	return &store{
		client: c, key: client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.Store.SecretRef.Name}, binding: o.Name,
		kind: delivery.SecretType(o.Spec.Store.Format), wrote: o.Status.Digest != "", keys: o.Status.Keys,
	}
}

// secretRead is a Secret that was read from the API server.
type secretRead struct {
	*corev1.Secret

	owned bool     // whether the Secret names the binding
	keys  []string // data keys that the binding has written; from the binding's status
}

// read reads the Secret from the API server, and returns nil if it does not exist. It refuses a
// Secret that the binding may not write.
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
	return &secretRead{secret, owned, s.keys}, nil
}

// isImmutable reports whether the API server refuses every change of a Secret's data. Anybody who
// may write a Secret may make it immutable. A withdrawn credential must not stay in such a Secret,
// so the binding deletes an immutable Secret.
func isImmutable(secret *corev1.Secret) bool { return secret.Immutable != nil && *secret.Immutable }

func (s *store) refused(fix, problem string) error {
	return &object.SecretError{Field: "spec.store.secretRef", Name: s.key.Name, Fix: fix, Err: errors.New(problem)}
}

// ours returns the sorted data keys that the binding has written, whoever has changed their values.
// The status and the record of managed fields name these keys. Tenants can clear the record, but
// cannot change the status. The record also has keys of a write after which the controller died.
func (r *secretRead) ours() []string {
	keys := r.unchanged()
	for _, key := range r.keys {
		if _, exists := r.Data[key]; exists {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// unchanged returns the sorted data keys that the record of managed fields names as the binding's.
// The record leaves out keys that somebody else has changed.
func (r *secretRead) unchanged() []string {
	var keys []string
	for _, entry := range r.ManagedFields {
		if entry.Manager != manager || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Data map[string]json.RawMessage `json:"f:data"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // cannot happen: the API server writes this field
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

// write writes all content of the Secret at once:
//   - A missing Secret is created.
//   - An immutable Secret is deleted and created again.
//   - In any other Secret, the content that others have added stays.
//
// An attempt fails if the Secret has changed since it was read. After that, write reads and checks
// the Secret again, and tries again.
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

// attempts is the number of attempts to write a Secret that other clients write at the same time.
const attempts = 3

var errBusy = errors.New("others write the Secret all the time")

func (s *store) create(ctx context.Context, w written) error {
	err := s.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name, Labels: w.labels, Annotations: w.annotations},
		Type:       s.kind, Data: w.data,
	}, client.FieldOwner(manager))
	return s.failure(err, "create")
}

// apply writes w into the Secret. Then it removes the data that the binding has written before and
// that w lacks. Data that others have added stays. apply fails with a conflict if the Secret has
// changed since it was read.
//
// A server-side apply keeps a field that somebody else has set too, or that the Secret was created
// with. So apply removes the data with a merge patch that names each key.
func (s *store) apply(ctx context.Context, secret *secretRead, w written) error {
	fields := applycorev1.Secret(s.key.Name, s.key.Namespace).WithUID(secret.UID).WithResourceVersion(secret.ResourceVersion).
		WithType(s.kind).WithLabels(w.labels).WithAnnotations(w.annotations).WithData(w.data)
	if err := s.client.Apply(ctx, fields, client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return s.failure(err, "patch")
	}
	surplus := map[string]any{}
	for _, key := range secret.ours() {
		if _, stays := w.data[key]; !stays {
			surplus[key] = nil
		}
	}
	if len(surplus) == 0 {
		return nil
	}
	// Apply has stored the new resource version in fields.
	return s.patch(ctx, secret, surplus, map[string]any{"uid": secret.UID, "resourceVersion": fields.ResourceVersion})
}

// patch sends a merge patch of the data and the metadata of the Secret.
func (s *store) patch(ctx context.Context, secret *secretRead, data, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"data": data, "metadata": metadata})
	if err != nil {
		return fmt.Errorf("change Secret %s: %w", s.key.Name, err)
	}
	err = s.client.Patch(ctx, secret.Secret, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(manager))
	return s.failure(err, "patch")
}

// withdraw removes the credential from the Secret. The Secret stays, and still belongs to the
// binding. Only an immutable Secret is deleted, because its data cannot be changed. The results are
// those of clear.
func (s *store) withdraw(ctx context.Context) (*leftover, error) {
	return s.clear(ctx, func(secret *secretRead) bool { return isImmutable(secret.Secret) }, keepOwner)
}

// remove deletes the Secret, or only the content that the binding has written. A Secret stays if it
// was adopted, or if others have added data. But an immutable Secret is always deleted.
func (s *store) remove(ctx context.Context) (*leftover, error) {
	return s.clear(ctx, func(secret *secretRead) bool {
		_, adopted := secret.Annotations[identityv1.AdoptAnnotation]
		return isImmutable(secret.Secret) || !adopted && len(secret.ours()) == len(secret.Data)
	}, dropOwner)
}

// owner says whether the binding still owns a Secret after [store.clear] has emptied the Secret.
// The value has no effect if clear deletes the Secret. The binding also stays the owner of a Secret
// that is being deleted.
type owner bool

const (
	keepOwner owner = true
	dropOwner owner = false
)

// clear removes the credential from the Secret. If the function whole returns true for the Secret,
// clear deletes the Secret. If a change by the tenant makes the Secret stay, clear returns a
// leftover. Otherwise clear returns nil.
//
// The API server deletes a Secret without finalizers at once. A Secret with finalizers can stay for
// ever, so clear empties such a Secret first. Each write fails with a conflict if the Secret has
// changed since clear read the Secret. So nobody can add a finalizer between the read and the
// write. After a conflict, clear reads the Secret and tries again.
func (s *store) clear(ctx context.Context, whole func(*secretRead) bool, stays owner) (*leftover, error) {
	for range attempts {
		found := &corev1.Secret{}
		if err := s.client.Get(ctx, s.key, found); apierrors.IsNotFound(err) {
			return nil, nil
		} else if err != nil {
			return nil, s.failure(err, "get")
		}
		left, err := s.clearOnce(ctx, &secretRead{found, found.Annotations[identityv1.BindingAnnotation] == s.binding, s.keys}, whole, stays)
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case !apierrors.IsConflict(err):
			return left, err
		}
	}
	return nil, errBusy
}

func (s *store) clearOnce(ctx context.Context, secret *secretRead, whole func(*secretRead) bool, stays owner) (*leftover, error) {
	holds := !secret.isEmpty()
	left := &leftover{secret: s.key.Name, finalizers: secret.Finalizers, emptied: !isImmutable(secret.Secret) || !holds}
	if !secret.owned {
		if !holds || !s.wrote {
			return nil, nil
		}
		// The controller must not change the Secret of somebody else.
		left.disowned, left.emptied = true, false
		return left, nil
	}
	if secret.DeletionTimestamp != nil {
		stays = keepOwner // a second call of clear then finds the same leftover again
	}
	if !whole(secret) {
		if holds || stays == dropOwner {
			if err := s.empty(ctx, secret, stays); err != nil {
				return nil, err
			}
		}
		if secret.DeletionTimestamp == nil {
			return nil, nil // the Secret stays on purpose, without the credential
		}
		return left, nil
	}
	if len(secret.Finalizers) == 0 {
		return nil, s.delete(ctx, secret.Secret)
	}
	if holds && !isImmutable(secret.Secret) {
		if err := s.empty(ctx, secret, keepOwner); err != nil {
			return nil, err
		}
	}
	if secret.DeletionTimestamp == nil {
		if err := s.delete(ctx, secret.Secret); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// leftover is a Secret that stays after clear. Either the Secret has finalizers, or the binding no
// longer owns the Secret.
type leftover struct {
	secret     string
	finalizers []string
	emptied    bool // the Secret has no credential any more
	disowned   bool // somebody has changed or removed the annotation with the binding's name
}

// String returns a message: which Secret stays, why, and what a user can do.
func (l *leftover) String() string {
	if l.disowned {
		return fmt.Sprintf("Secret %s stays as it is, because its annotation %s does not name the binding any more; "+
			"delete the Secret if it has the credential", l.secret, identityv1.BindingAnnotation)
	}
	names := make([]string, 0, maxFinalizers)
	for _, name := range l.finalizers[:min(maxFinalizers, len(l.finalizers))] {
		names = append(names, fmt.Sprintf("%.80q", name))
	}
	if more := len(l.finalizers) - maxFinalizers; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	how := "without the credential"
	if !l.emptied {
		how = "with the credential, because it is immutable"
	}
	return fmt.Sprintf("Secret %s stays, %s: it is deleted once its finalizers are removed (%s)", l.secret, how, strings.Join(names, ", "))
}

// maxFinalizers is the largest number of finalizers that [leftover.String] names.
const maxFinalizers = 5

// isEmpty reports whether the Secret has no credential that the binding has written.
func (r *secretRead) isEmpty() bool {
	return !slices.ContainsFunc(r.ours(), func(key string) bool {
		return key != corev1.DockerConfigJsonKey || string(r.Data[key]) != emptyDockerConfig
	})
}

// emptyDockerConfig is a registry configuration without a credential. A Secret of type
// kubernetes.io/dockerconfigjson must have a registry configuration.
const emptyDockerConfig = `{"auths":{}}`

// maxCompared is the largest number of labels and annotations, together, of a Secret whose metadata
// the controller changes. The admission policy compares the old and the new labels and annotations.
// With more labels and annotations, this comparison would cost the API server too much.
const maxCompared = 1000

// empty removes the data keys that the binding has written. Keys that only others have written
// stay. empty sends a merge patch that names each key. A server-side apply would keep a key that
// somebody else has also applied.
//
// With dropOwner, empty also removes the annotation with the binding's name. The Secret then has no
// owner. But if the Secret has more than maxCompared labels and annotations, empty changes none of
// these.
func (s *store) empty(ctx context.Context, secret *secretRead, stays owner) error {
	data, labels := map[string]any{}, map[string]any{}
	for _, key := range secret.ours() {
		data[key] = nil
	}
	if secret.Type == corev1.SecretTypeDockerConfigJson {
		data[corev1.DockerConfigJsonKey] = []byte(emptyDockerConfig)
	}
	annotations := map[string]any{issuedAnnotation: nil, expiresAnnotation: nil}
	if _, labelled := secret.Labels[identityv1.ProviderLabel]; stays == dropOwner {
		annotations[identityv1.BindingAnnotation], labels[identityv1.ProviderLabel] = nil, nil
	} else if !labelled {
		labels[identityv1.ProviderLabel] = "" // the admission policy requires this label
	}
	metadata := map[string]any{"uid": secret.UID, "resourceVersion": secret.ResourceVersion}
	if len(secret.Annotations)+len(secret.Labels) <= maxCompared {
		metadata["annotations"], metadata["labels"] = annotations, labels
	}
	return s.patch(ctx, secret, data, metadata)
}

// delete deletes the Secret. It fails with a conflict if the Secret has changed since it was read.
func (s *store) delete(ctx context.Context, secret *corev1.Secret) error {
	err := s.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
	return s.failure(err, "delete")
}

// failure returns the error to report for a failed call about the Secret.
func (s *store) failure(err error, verb string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err):
		return s.refused("make room in the Secret, or name another one", "the API server refuses what is to be written; the data of a Secret has at most 1 MiB")
	}
	return fmt.Errorf("%s Secret %s: %w", verb, s.key.Name, object.Forbidden(err, verb, "secrets", s.key.Namespace))
}
