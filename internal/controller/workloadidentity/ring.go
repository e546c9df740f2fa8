package workloadidentity

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// Ring finds out from the KeyRing of an issuer whether services can check the issuer's tokens.
type Ring struct {
	memory   client.Reader
	key      client.ObjectKey
	issuer   string
	informer cache.Informer
}

// NewRing makes the Ring of an issuer. The parameter key is the namespace and name of the issuer's
// KeyRing. The reader and the informers must use the same cache, which must watch only this
// KeyRing.
func NewRing(ctx context.Context, memory client.Reader, informers cache.Informers, key client.ObjectKey, issuer string) (*Ring, error) {
	informer, err := informers.GetInformer(ctx, &identityv1.KeyRing{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch KeyRing %s: %w", key, err)
	}
	return &Ring{memory: memory, key: key, issuer: issuer, informer: informer}, nil
}

// dependency returns the ring as a dependency of identities.
func (r *Ring) dependency() object.Dependency {
	return object.Dependency{Kind: identityv1.KeyRingKind, Namespace: r.key.Namespace, Name: r.key.Name}
}

// verdicts has one text for each signing algorithm of identities: the text of the error from
// [Ring.judge], or an empty text if there is no error.
type verdicts [2]string

// Subscribe registers a function that is called after each change of the ring that concerns
// identities. Most changes do not: a rotation of keys must not wake thousands of identities.
func (r *Ring) Subscribe(changed func(object.Dependency)) {
	last := r.verdicts(nil)
	see := func(ring *identityv1.KeyRing) {
		if now := r.verdicts(ring); now != last {
			last = now
			changed(r.dependency())
		}
	}
	// An informer calls a handler's functions one after the other, so last needs no mutex.
	// AddEventHandler fails only after the informer has ended. In that case the program ends too,
	// so ignore the error.
	_, _ = r.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		// The informer has only KeyRings.
		AddFunc:    func(o any) { see(o.(*identityv1.KeyRing)) },
		UpdateFunc: func(_, o any) { see(o.(*identityv1.KeyRing)) },
		DeleteFunc: func(any) { see(nil) },
	})
}

func (r *Ring) verdicts(ring *identityv1.KeyRing) verdicts {
	var v verdicts
	for i, algorithm := range []identityv1.Algorithm{identityv1.RS256, identityv1.ES256} {
		if err := r.judge(ring, algorithm); err != nil {
			v[i] = err.Error()
		}
	}
	return v
}

// check returns the UID of the ring. It returns a *ringError if services would be unable to verify
// a token that is signed with the algorithm.
func (r *Ring) check(ctx context.Context, algorithm identityv1.Algorithm) (types.UID, error) {
	ring := &identityv1.KeyRing{}
	err := r.memory.Get(ctx, r.key, ring)
	switch {
	case apierrors.IsNotFound(err):
		return "", r.judge(nil, algorithm)
	case err != nil:
		return "", fmt.Errorf("read KeyRing %s: %w", r.key, err)
	}
	return ring.UID, r.judge(ring, algorithm)
}

// judge returns nil if the ring has a published active key of the algorithm, and otherwise a
// *ringError. The ring is nil if it does not exist.
func (r *Ring) judge(ring *identityv1.KeyRing, algorithm identityv1.Algorithm) error {
	if ring == nil {
		return unavailable("there is no KeyRing %s, which the token server makes: see the log of lanyard-token-server", r.key)
	}
	status := &ring.Status
	ready := apimeta.FindStatusCondition(status.Conditions, meta.ConditionReady)
	switch {
	case status.Issuer != "" && status.Issuer != r.issuer:
		return unavailable("KeyRing %s has the keys of %s, and not of %s: start lanyard-identity-controller and lanyard-token-server with the same --issuer",
			r.key, status.Issuer, r.issuer)
	case ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == identityv1.ReasonForeignKey:
		return unavailable("%s", ready.Message)
	}
	keys, _ := keyring.Parse(status) // the token server logs the keys that Parse leaves out
	for _, key := range keys.ActiveKeys() {
		if key.Algorithm == algorithm && key.Entry.PublishedAt != nil {
			return nil
		}
	}
	next := slices.IndexFunc(status.Keys, func(k identityv1.RingKey) bool {
		return k.Algorithm == algorithm && slices.Contains([]identityv1.KeyState{identityv1.KeyActive, identityv1.KeyPublished, identityv1.KeyPending}, k.State)
	})
	switch {
	case next >= 0:
		return notPublished("%s", keyring.HowToPublish(status, keyring.Entries(status)[next]))
	case len(status.Keys) == 0:
		return notPublished("the issuer has no keys yet, which the token server makes: see the log of lanyard-token-server")
	default:
		return notPublished("the issuer has no key for %s: choose another spec.signingAlgorithm, or add it to --key-algorithms of lanyard-token-server", algorithm)
	}
}

// ringError says why services would be unable to verify a token that the token server signs.
type ringError struct{ reason, message string }

func (e *ringError) Error() string { return e.message }

func unavailable(format string, args ...any) error {
	return &ringError{meta.ReasonIssuerUnavailable, fmt.Sprintf(format, args...)}
}

func notPublished(format string, args ...any) error {
	return &ringError{meta.ReasonIssuerNotPublished, fmt.Sprintf(format, args...)}
}
