package sign

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// Errors of signing. All of them are temporary: a caller answers 503 and Retry-After.
var (
	// ErrStale says that the signer does not know the current state of the ring: it has not read
	// the ring within keyring.MaxViewAge.
	ErrStale = errors.New(
		"the view of the key ring is too old to sign: the token server cannot read the KeyRing, or its clock differs from the API server's")

	// ErrNoKey says that the ring has no active key for the algorithm. The KeyRing's conditions
	// say why, and what to do.
	ErrNoKey = errors.New("the key ring has no active key for the algorithm: see the conditions of the KeyRing")

	// ErrReplaced says that another key has become active. Ask the Signer for the new key.
	ErrReplaced = errors.New("the key signs no more: another key has replaced it")
)

// A LifeError says that the requested life of a token or certificate is longer than the ring
// allows. The key would be removed before the token or certificate expires.
type LifeError struct {
	// Asked is the requested life, and Max is the longest life that the ring allows. Both start at
	// the time of the request.
	Asked, Max time.Duration
}

// Error returns a text with both durations.
func (e *LifeError) Error() string {
	return fmt.Sprintf("a life of %v is longer than the key ring's maximum %v", e.Asked.Round(time.Second), e.Max)
}

const (
	refreshInterval = 15 * time.Second
	refreshTimeout  = 10 * time.Second
)

// Signer signs with the active keys of a ring. It is safe for concurrent use.
type Signer struct {
	object Object
	store  Store
	skew   func() (time.Duration, error)
	log    *slog.Logger

	view atomic.Pointer[view]

	mu     sync.Mutex               // held for a whole Refresh; guards opened
	opened map[string]crypto.Signer // private halves by kid
}

// view is a signer's knowledge of the ring at one moment. It is immutable.
type view struct {
	// taken is when the Signer asked the API server for the ring. The view shows the ring at this
	// time or later.
	taken     instant
	keys      map[keyring.Role]*Key
	authority *svid.Issuer // signs with keys[keyring.X509]; nil if no authority can sign
}

// NewSigner returns a Signer that signs nothing until Run or Refresh has read the ring. The
// function skew returns how far the local clock is ahead of the API server's clock. Usually it is
// [Clock.Skew].
func NewSigner(o Object, store Store, skew func() (time.Duration, error), log *slog.Logger) *Signer {
	return &Signer{object: o, store: store, skew: skew, log: log, opened: map[string]crypto.Signer{}}
}

// Run refreshes the view of the ring until ctx ends. It reads the ring every 15 seconds, and
// whenever the channel reports a change. So a revoked key stops signing at once. The channel may be
// nil.
func (s *Signer) Run(ctx context.Context, changed <-chan struct{}) {
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for {
		if err := s.Refresh(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot read the key ring; signing stops when the last view is a minute old", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-changed:
		}
	}
}

// Refresh reads the ring, and gets the private halves of its active keys from the store. After an
// error, the Signer uses its last view until the view is older than keyring.MaxViewAge. Refresh
// also gets the private halves of the published keys, which will sign next. So a rotation or a
// revocation need not wait for the store. The store may be a service that throttles requests.
func (s *Signer) Refresh(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	taken := now()
	object, err := s.object.read(ctx)
	if err != nil {
		return err
	}
	if skew, err := s.skew(); err != nil {
		return err
	} else if skew.Abs() > keyring.MaxSkew {
		return fmt.Errorf("the clock differs by %v from the API server's: nothing may be signed by it", skew.Round(time.Second))
	}
	ring, err := keyring.Parse(&object.Status)
	if err != nil {
		s.log.Error("the key ring has keys that are not used", "error", err)
	}
	s.forget(&object.Status)
	next := &view{taken: taken, keys: map[keyring.Role]*Key{}}
	for _, k := range ring.ActiveKeys() {
		role := keyring.Role(k.Algorithm)
		key, err := s.open(ctx, role, k.Key, k.Entry.MaxLife.Duration)
		if err != nil {
			s.log.Error("an active key cannot sign", "kid", k.ID, "error", err)
			key = s.former(role, &object.Status)
		}
		if key != nil {
			next.keys[role] = key
		}
	}
	if a, found := ring.ActiveAuthority(); found {
		if err := s.openAuthority(ctx, next, a, object.Status.TrustDomain); err != nil {
			s.log.Error("the active authority cannot sign", "id", a.ID, "error", err)
		}
	}
	s.view.Store(next)
	for _, e := range keyring.Entries(&object.Status) {
		if e.State != v1alpha1.KeyPublished {
			continue
		}
		if _, err := s.private(ctx, e.KID); err != nil {
			s.log.Warn("a key that is to sign next cannot be opened yet", "kid", e.KID, "error", err)
		}
	}
	return nil
}

// open returns an active key with its private half.
func (s *Signer) open(ctx context.Context, role keyring.Role, public keyring.Key, maxLife time.Duration) (*Key, error) {
	private, err := s.private(ctx, public.ID)
	if err != nil {
		return nil, err
	}
	return &Key{Key: public, MaxLife: maxLife, role: role, private: private, signer: s}, nil
}

// private returns the private half of a key. It opens each private half only once, because private
// halves cannot change. It need not check whether the Secret still exists: deleting the Secret does
// not revoke the key.
func (s *Signer) private(ctx context.Context, kid string) (crypto.Signer, error) {
	if private := s.opened[kid]; private != nil {
		return private, nil
	}
	private, err := s.store.Open(ctx, kid)
	if err != nil {
		return nil, err
	}
	s.opened[kid] = private
	return private, nil
}

// forget drops the private halves of all keys that neither sign now nor will sign next.
func (s *Signer) forget(status *v1alpha1.KeyRingStatus) {
	entries := keyring.Entries(status)
	maps.DeleteFunc(s.opened, func(kid string, _ crypto.Signer) bool {
		return !slices.ContainsFunc(entries, func(e keyring.Entry) bool {
			return e.KID == kid && (e.State == v1alpha1.KeyActive || e.State == v1alpha1.KeyPublished)
		})
	})
}

// former returns the key with which the Signer has signed for a role until now. The Signer keeps
// this key if it cannot get the private half of the successor from the store. The ring removes the
// key after RetiredAt + MaxLife of its entry. The key's tokens must have expired by then. So the
// MaxLife of the result is the time that remains until RetiredAt + MaxLife. The result is nil if no
// time remains, or if the key is not Retiring.
func (s *Signer) former(role keyring.Role, status *v1alpha1.KeyRingStatus) *Key {
	v := s.view.Load()
	if v == nil || v.keys[role] == nil {
		return nil
	}
	key := *v.keys[role]
	e, found := keyring.Find(status, key.ID)
	if !found || e.State != v1alpha1.KeyRetiring {
		return nil
	}
	key.MaxLife = time.Until(e.RetiredAt.Add(e.MaxLife.Duration))
	if key.MaxLife <= 0 {
		return nil
	}
	return &key
}

// openAuthority opens the key of the active authority, and adds the key and the authority to a
// view.
func (s *Signer) openAuthority(ctx context.Context, into *view, a keyring.RingAuthority, trustDomain string) error {
	domain, err := svid.ParseTrustDomain(trustDomain)
	if err != nil {
		return err
	}
	key, err := s.open(ctx, keyring.X509, a.Key, a.Entry.MaxLife.Duration)
	if err != nil {
		return err
	}
	issuer, err := svid.NewIssuer(domain, key, a.Certificate, a.Intermediate)
	if err != nil {
		return err
	}
	into.keys[keyring.X509], into.authority = key, issuer
	return nil
}

// Ready returns nil while the signer can sign with every algorithm of the list.
func (s *Signer) Ready(algorithms ...v1alpha1.Algorithm) error {
	for _, a := range algorithms {
		if _, err := s.Key(a); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return nil
}

// Fresh returns ErrStale while the signer does not know the current state of the ring. It is for
// readiness checks. If the ring has no active key, Fresh does not fail, because no other replica
// could sign either.
func (s *Signer) Fresh() error {
	_, err := s.current()
	return err
}

// MaxLife returns the longest life of a token that is signed now. It fails with ErrStale or
// ErrNoKey.
func (s *Signer) MaxLife(algorithm v1alpha1.Algorithm) (time.Duration, error) {
	key, err := s.Key(algorithm)
	if err != nil {
		return 0, err
	}
	return key.MaxLife, nil
}

// Key returns the key that signs with the algorithm now. It fails with ErrStale or ErrNoKey.
func (s *Signer) Key(algorithm v1alpha1.Algorithm) (*Key, error) {
	v, err := s.current()
	if err != nil {
		return nil, err
	}
	return v.key(keyring.Role(algorithm))
}

// current returns the signer's view of the ring, if the view is new enough to sign.
func (s *Signer) current() (*view, error) {
	if v := s.view.Load(); v != nil && v.taken.fresh(now()) {
		return v, nil
	}
	return nil, ErrStale
}

func (v *view) key(role keyring.Role) (*Key, error) {
	if key := v.keys[role]; key != nil {
		return key, nil
	}
	return nil, ErrNoKey
}

// JWT returns the claims as a signed token in compact form; source: RFC 7515 §3.1. The token's
// header has the members alg, kid and typ. The claims are a struct or a map. The claim exp must
// equal expires. JWT fails with ErrStale, ErrNoKey, a *LifeError, or an error of the key's store.
func (s *Signer) JWT(algorithm v1alpha1.Algorithm, claims any, expires time.Time) (string, error) {
	token, err := s.jwt(algorithm, claims, expires)
	if errors.Is(err, ErrReplaced) { // another key became active meanwhile
		return s.jwt(algorithm, claims, expires)
	}
	return token, err
}

func (s *Signer) jwt(algorithm v1alpha1.Algorithm, claims any, expires time.Time) (string, error) {
	key, err := s.Key(algorithm)
	if err != nil {
		return "", err
	}
	if life := time.Until(expires); life > key.MaxLife {
		return "", &LifeError{Asked: life, Max: key.MaxLife}
	}
	return svid.SignJWT(claims, key.ID, key)
}

// Certificate returns an X.509-SVID of the active authority; see [svid.Issuer.Certificate]. It
// fails with ErrStale, ErrNoKey, a *LifeError, svid.ErrExpired, or an error of the key's store.
func (s *Signer) Certificate(id spiffeid.ID, public *ecdsa.PublicKey) (svid.Certificate, error) {
	certificate, err := s.certificate(id, public)
	if errors.Is(err, ErrReplaced) { // another authority became active meanwhile
		return s.certificate(id, public)
	}
	return certificate, err
}

func (s *Signer) certificate(id spiffeid.ID, public *ecdsa.PublicKey) (svid.Certificate, error) {
	v, err := s.current()
	if err != nil {
		return svid.Certificate{}, err
	}
	key, err := v.key(keyring.X509)
	if err != nil {
		return svid.Certificate{}, err
	}
	if svid.Lifetime > key.MaxLife {
		return svid.Certificate{}, &LifeError{Asked: svid.Lifetime, Max: key.MaxLife}
	}
	return v.authority.Certificate(id, public, time.Now())
}

// Key is an active key of a ring, as a crypto.Signer. It refuses to sign after another key has
// become active. It also refuses while its Signer's view of the ring is stale.
type Key struct {
	keyring.Key
	// MaxLife is the longest time for which anything that the key signs may be valid.
	MaxLife time.Duration

	role    keyring.Role
	private crypto.Signer
	signer  *Signer
}

// Public returns the public half.
func (k *Key) Public() crypto.PublicKey { return k.Key.Public }

// Sign signs a digest; see crypto.Signer. It fails with ErrStale, ErrNoKey or ErrReplaced, or with
// an error of the key's store.
func (k *Key) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	v, err := k.signer.current()
	if err != nil {
		return nil, err
	}
	if current, err := v.key(k.role); err != nil {
		return nil, err
	} else if current.ID != k.ID {
		return nil, ErrReplaced
	}
	return k.private.Sign(rand, digest, opts)
}

// String returns the key's ID and algorithm, without its private half.
func (k *Key) String() string { return fmt.Sprintf("key %s (%s)", k.ID, k.Algorithm) }

// GoString returns the text of String, because %#v must not print the private half either.
func (k *Key) GoString() string { return k.String() }
