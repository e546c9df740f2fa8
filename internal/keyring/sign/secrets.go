package sign

import (
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// The metadata of a key's Secret. A Vault defines the type and the data.
const (
	labelRing     = "identity.lanyard.dev/keyring"     // the ring's name
	annotationUID = "identity.lanyard.dev/keyring-uid" // the ring's UID
)

// Secrets is a Store with an immutable Secret for each key, in the ring's namespace. The Secret has
// the private half itself, or a reference to a private half in a Vault.
type Secrets struct {
	object Object
	vaults []Vault // the first vault makes new keys
}

// NewSecrets returns the Store of a ring's keys. The vault makes the new keys. Without a vault, the
// private half of each new key is in its Secret. After a vault is added, private halves in Secrets
// stay usable until their keys are rotated.
func NewSecrets(o Object, vault ...Vault) *Secrets {
	return &Secrets{object: o, vaults: append(slices.Clone(vault), inSecret{})}
}

// List returns the keys of all Secrets that are labelled with the ring's name. It omits a Secret
// without a usable key.
func (s *Secrets) List(ctx context.Context) ([]Kept, error) {
	var secrets corev1.SecretList
	err := s.object.Client.List(ctx, &secrets, client.InNamespace(s.object.Namespace), client.MatchingLabels{labelRing: s.object.Name})
	if err != nil {
		return nil, fmt.Errorf("list Secrets of KeyRing %s/%s: %w", s.object.Namespace, s.object.Name, err)
	}
	var kept []Kept
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		_, key, err := s.open(ctx, secret)
		switch {
		case errors.Is(err, ErrGone), err == nil && secret.Name != s.name(key.ID):
			continue
		case err != nil: // if a vault does not answer, it is unknown whether its keys exist
			return nil, err
		}
		kept = append(kept, Kept{KID: key.ID, Ring: types.UID(secret.Annotations[annotationUID]), CreatedAt: secret.CreationTimestamp.Time})
	}
	return kept, nil
}

// Create makes a key of the algorithm's type and a Secret for it. If the Secret cannot be made, the
// key is destroyed again.
func (s *Secrets) Create(ctx context.Context, ring types.UID, algorithm v1alpha1.Algorithm) (keyring.Key, error) {
	vault := s.vaults[0]
	data, private, err := vault.Create(ctx, ring, algorithm)
	if err != nil {
		return keyring.Key{}, err
	}
	key, err := s.record(ctx, ring, vault.SecretType(), data, private)
	if err != nil {
		return keyring.Key{}, errors.Join(err, vault.Destroy(context.WithoutCancel(ctx), data))
	}
	return key, nil
}

// record makes the Secret of a new key.
func (s *Secrets) record(
	ctx context.Context, ring types.UID, secretType corev1.SecretType, data map[string][]byte, private crypto.Signer,
) (keyring.Key, error) {
	key, err := keyring.NewKey(private.Public())
	if err != nil {
		return keyring.Key{}, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.object.Namespace, Name: s.name(key.ID),
			Labels: map[string]string{labelRing: s.object.Name}, Annotations: map[string]string{annotationUID: string(ring)},
		},
		Type: secretType, Immutable: new(true), Data: data,
	}
	if err := s.object.Client.Create(ctx, secret); err != nil {
		return keyring.Key{}, fmt.Errorf("create Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return key, nil
}

// Open returns the private half of a key, which it finds through the key's Secret.
func (s *Secrets) Open(ctx context.Context, kid string) (crypto.Signer, error) {
	secret, err := s.read(ctx, kid)
	if err != nil {
		return nil, err
	}
	private, key, err := s.open(ctx, secret)
	switch {
	case err != nil:
		return nil, err
	case key.ID != kid:
		return nil, fmt.Errorf("the Secret %s/%s has the key %s, not %s", secret.Namespace, secret.Name, key.ID, kid)
	}
	return private, nil
}

// Delete destroys the private half of a key, and then deletes its Secret. If the process dies in
// between, a Secret without a private half stays.
func (s *Secrets) Delete(ctx context.Context, kid string) error {
	secret, err := s.read(ctx, kid)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if vault := s.vaultOf(secret); vault != nil {
		if err := vault.Destroy(ctx, secret.Data); err != nil {
			return err
		}
	}
	if err := s.object.Client.Delete(ctx, secret); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

func (s *Secrets) read(ctx context.Context, kid string) (*corev1.Secret, error) {
	var secret corev1.Secret
	if err := s.object.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: s.name(kid)}, &secret); err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", s.object.Namespace, s.name(kid), err)
	}
	return &secret, nil
}

// name returns the name of a key's Secret. The kid itself has characters that names must not have.
func (s *Secrets) name(kid string) string {
	sum := sha256.Sum256([]byte(kid))
	return fmt.Sprintf("%s-key-%s", s.object.Name, hex.EncodeToString(sum[:10]))
}

// vaultOf returns the Vault for a Secret's type, or nil.
func (s *Secrets) vaultOf(secret *corev1.Secret) Vault {
	i := slices.IndexFunc(s.vaults, func(v Vault) bool { return v.SecretType() == secret.Type })
	if i < 0 {
		return nil
	}
	return s.vaults[i]
}

// open returns the private half and the public half of a Secret's key. Its errors do not quote the
// Secret's data. They wrap ErrGone if there is no usable key.
func (s *Secrets) open(ctx context.Context, secret *corev1.Secret) (crypto.Signer, keyring.Key, error) {
	vault := s.vaultOf(secret)
	if vault == nil {
		return nil, keyring.Key{}, fmt.Errorf("the Secret %s/%s is of a type that this token server does not read: %w",
			secret.Namespace, secret.Name, ErrGone)
	}
	private, err := vault.Open(ctx, secret.Data)
	if err != nil {
		return nil, keyring.Key{}, fmt.Errorf("the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	key, err := keyring.NewKey(private.Public())
	if err != nil {
		return nil, keyring.Key{}, fmt.Errorf("the Secret %s/%s has no key of a ring: %w", secret.Namespace, secret.Name, ErrGone)
	}
	return private, key, nil
}
