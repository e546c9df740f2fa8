package sign

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/keyring"
)

const (
	stepInterval = 15 * time.Second
	stepTimeout  = 45 * time.Second // less than keyring.MaxViewAge, so that observations stay valid
	// heldTimeout is how long a revocation waits for the store's list of keys.
	heldTimeout = 5 * time.Second
	// orphanAge is the age after which a private half is destroyed if its key is not in the ring. A
	// younger private half is kept, because another process may be about to add its key to the
	// ring. That process may even have added the key after this process read the ring.
	orphanAge = 5 * time.Minute
)

// Rotator changes the states of a ring's keys. The replica that holds the lease runs the Rotator.
// Nothing breaks if two replicas run it.
type Rotator struct {
	// Object is the ring.
	Object Object
	// Store stores the private halves.
	Store Store
	// Policy has the rules for the keys. It must be valid.
	Policy keyring.Policy
	// Import reads the CA from which authorities are imported. It is required if Policy.Import is
	// true.
	Import func(ctx context.Context) (*CA, error)
	// Probe reads the public document. If Probe is nil, a key counts as published once the
	// KeyRing's spec.confirm lists it.
	Probe keyring.Probe
	// Former returns the issuers of all KeyRings before the one with the given UID. Services may
	// still know the keys of these earlier KeyRings. Former is no longer called once a key of the
	// ring signs. If Former is nil, the Rotator assumes that there was no earlier KeyRing.
	Former func(ctx context.Context, ring types.UID) (issuers []string, err error)
	// Skew returns how far the local clock is ahead of the API server's clock; see [Clock.Skew].
	Skew func() (time.Duration, error)
	// Log gets every change of a key's state, and every error. Its attributes name the ring.
	Log *slog.Logger

	mu       sync.Mutex // held for a whole step: an old step may still run when the lease is regained
	revision int64      // the highest revision that was seen
}

// Run makes a step every 15 seconds until ctx ends. It also makes a step whenever the channel
// delivers a value, so that people's requests are carried out at once. The channel may be nil.
func (r *Rotator) Run(ctx context.Context, changed <-chan struct{}) {
	ticker := time.NewTicker(stepInterval)
	defer ticker.Stop()
	for {
		more, err := r.Step(ctx)
		if err != nil && ctx.Err() == nil {
			r.Log.Error("the key ring cannot be kept", "error", err)
		}
		if more && err == nil {
			continue // after a change, another step may be possible
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-changed:
		}
	}
}

// Retire makes steps until the ring has no keys and no authorities. The policy must have switched
// the ring off; see [keyring.Policy.Off]. Retire returns false if ctx ends first.
func (r *Rotator) Retire(ctx context.Context) bool {
	ticker := time.NewTicker(stepInterval)
	defer ticker.Stop()
	for {
		more, err := r.Step(ctx)
		if err == nil && !more {
			var left bool
			if left, err = r.left(ctx); err == nil && !left {
				return true
			}
		}
		if err != nil && ctx.Err() == nil {
			r.Log.Error("the key ring cannot be retired", "error", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

// left reports whether the ring has keys or authorities.
func (r *Rotator) left(ctx context.Context) (bool, error) {
	ring, err := r.Object.read(ctx)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && len(keyring.Entries(&ring.Status)) > 0, err
}

// Step makes the next step of the ring. It does the first of these that is necessary:
//   - It revokes keys. This needs neither the public document nor the store.
//   - It changes states, after it has observed the ring.
//   - It makes keys.
//
// Step reports whether it has changed the ring. The caller may call Step again after any error,
// even a conflict.
func (r *Rotator) Step(ctx context.Context) (changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	began := now()
	read := r.Object.readOrCreate
	if r.Policy.Off() {
		read = r.Object.read
	}
	ring, err := read(ctx)
	if r.Policy.Off() && apierrors.IsNotFound(err) {
		return false, nil // there is no ring to retire
	}
	if err != nil {
		return false, err
	}
	if plan := r.revocation(ctx, ring); plan.Changed {
		return true, r.write(ctx, ring, &plan, began)
	}
	kept, err := r.Store.List(ctx)
	if err != nil {
		return false, err
	}
	observed, ca, err := r.observe(ctx, ring, kept)
	if err != nil {
		return false, err
	}
	observedAt := now() // read the clock after the probe: the publish delay must not begin before the probe ends
	plan := keyring.Next(ring, observed, r.Policy, observedAt.wall)
	r.revision = max(r.revision, ring.Status.Revision) // if a later step reads a lower revision, the ring comes from a backup
	changed = plan.Changed
	var makeErr error
	if !plan.Changed && plan.Makes() {
		changed, makeErr = r.makeKeys(ctx, ring, &plan, ca, began)
	}
	if changed {
		if err := r.write(ctx, ring, &plan, began); err != nil {
			return false, err
		}
	}
	if observed.Skew.Abs() > keyring.MaxSkew {
		return changed, makeErr
	}
	return changed, errors.Join(makeErr, r.sweep(ctx, &plan.Status, kept, observedAt.wall))
}

// revocation returns the plan for revocations. If the store does not answer, the private half of
// each key in the ring is assumed to exist.
func (r *Rotator) revocation(ctx context.Context, ring *v1alpha1.KeyRing) keyring.Plan {
	o := keyring.Observation{Revision: r.revision}
	for _, e := range keyring.Entries(&ring.Status) {
		o.Held = append(o.Held, e.KID)
	}
	plan := keyring.Revocation(ring, o, r.Policy, now().wall)
	if !plan.Changed {
		return plan
	}
	ctx, cancel := context.WithTimeout(ctx, heldTimeout)
	defer cancel()
	kept, err := r.Store.List(ctx)
	if err != nil {
		r.Log.Warn("a key is revoked without knowing whether its successor's private half is there", "error", err)
		return plan
	}
	o.Held = nil
	for _, k := range kept {
		o.Held = append(o.Held, k.KID)
	}
	return keyring.Revocation(ring, o, r.Policy, now().wall)
}

// observe makes the observation for keyring.Next. It also returns the imported CA, or nil.
func (r *Rotator) observe(ctx context.Context, ring *v1alpha1.KeyRing, kept []Kept) (keyring.Observation, *CA, error) {
	o := keyring.Observation{Revision: r.revision}
	for _, k := range kept {
		o.Held = append(o.Held, k.KID)
		o.EarlierKeys = o.EarlierKeys || k.Ring != ring.UID
	}
	var err error
	if o.Skew, err = r.Skew(); err != nil {
		return o, nil, err
	}
	if err := r.observeFormer(ctx, ring, &o); err != nil {
		return o, nil, err
	}
	var ca *CA
	if r.Policy.Import {
		if ca, err = r.Import(ctx); err != nil {
			r.Log.Warn("the CA that is imported cannot be read", "error", err)
		}
		o.Import = ca.observation()
	}
	if r.Probe == nil {
		return o, ca, nil
	}
	if o.Document, o.DocumentErr = r.Probe(ctx); o.DocumentErr != nil {
		r.Log.Warn("the public document cannot be read", "error", o.DocumentErr)
	}
	return o, ca, nil
}

// observeFormer finds out whether an earlier installation had published keys of the issuer. It
// calls Former only if no key of the ring was ever active, and if status.otherKeysSeen is false.
func (r *Rotator) observeFormer(ctx context.Context, ring *v1alpha1.KeyRing, o *keyring.Observation) error {
	signed := func(e keyring.Entry) bool { return e.ActivatedAt != nil }
	if r.Former == nil || ring.Status.OtherKeysSeen || slices.ContainsFunc(keyring.Entries(&ring.Status), signed) {
		return nil
	}
	issuers, err := r.Former(ctx, ring.UID)
	if err != nil {
		return err
	}
	for _, issuer := range issuers {
		if issuer == r.Policy.Issuer {
			o.EarlierKeys = true
			r.Log.Warn("WorkloadIdentities show that another KeyRing had keys of this issuer: new keys wait for the publish delay, because services may remember the former ones", "issuer", issuer)
			continue
		}
		r.Log.Warn("WorkloadIdentities had another issuer before: services that trust it refuse the new issuer's tokens",
			"former", issuer, "issuer", r.Policy.Issuer)
	}
	return nil
}

// makeKeys makes the missing keys and certificates, and adds them to the plan. It reports whether
// it has added any. Added keys are written even if other keys could not be made.
func (r *Rotator) makeKeys(ctx context.Context, ring *v1alpha1.KeyRing, plan *keyring.Plan, ca *CA, began instant) (added bool, err error) {
	var errs []error
	note := func(err error) {
		added = added || err == nil
		errs = append(errs, err)
	}
	for _, role := range plan.Missing {
		note(r.add(ctx, ring, plan, role, began.wall))
	}
	if plan.Import {
		note(r.adopt(ctx, ring, plan, ca, began.wall))
	}
	if plan.Renew != "" {
		note(r.renew(plan, ca, began.wall))
	}
	return added, errors.Join(errs...)
}

// write writes a plan's status. After an error, it is unknown whether the status was written. So
// write keeps the private halves of the plan's new keys. After a later read of the ring, the method
// sweep deletes those that are older than orphanAge and whose keys are not in the ring.
func (r *Rotator) write(ctx context.Context, ring *v1alpha1.KeyRing, plan *keyring.Plan, began instant) error {
	if !began.fresh(now()) {
		return errors.New("the step took too long, or the machine was suspended: what was observed is too old to act on")
	}
	if err := r.Object.write(ctx, ring, plan.Status); err != nil {
		return err
	}
	r.revision = plan.Status.Revision
	r.logChanges(&ring.Status, &plan.Status)
	return nil
}

// add makes a key, or an authority with its key, and adds it to the plan.
func (r *Rotator) add(ctx context.Context, ring *v1alpha1.KeyRing, plan *keyring.Plan, role keyring.Role, now time.Time) error {
	if role != keyring.X509 {
		key, err := r.Store.Create(ctx, ring.UID, v1alpha1.Algorithm(role))
		if err != nil {
			return err
		}
		return plan.AddKey(key, now)
	}
	key, err := r.Store.Create(ctx, ring.UID, authorityAlgorithm)
	if err != nil {
		return err
	}
	private, err := r.Store.Open(ctx, key.ID)
	if err != nil {
		return err
	}
	certificate, err := svid.NewAuthority(r.Policy.TrustDomain, private, r.Policy.AuthorityLife(), now)
	if err != nil {
		return err
	}
	authority, err := keyring.NewAuthority(certificate, nil)
	if err != nil {
		return err
	}
	plan.AddAuthority(authority, now)
	return nil
}

// sweep destroys the private half of each key that has left the public document. It also destroys
// each private half that is older than orphanAge and whose key is not in the ring.
func (r *Rotator) sweep(ctx context.Context, status *v1alpha1.KeyRingStatus, kept []Kept, now time.Time) error {
	var errs []error
	for _, k := range kept {
		entries := keyring.Entries(status)
		i := slices.IndexFunc(entries, func(e keyring.Entry) bool { return e.KID == k.KID })
		var needless bool
		if i < 0 {
			needless = now.Sub(k.CreatedAt) > orphanAge
		} else {
			needless = entries[i].RemovedAt != nil
		}
		if needless {
			r.Log.Info("private key destroyed", "kid", k.KID)
			errs = append(errs, r.Store.Delete(ctx, k.KID))
		}
	}
	return errors.Join(errs...)
}

// logChanges logs each key whose state has changed.
func (r *Rotator) logChanges(before, after *v1alpha1.KeyRingStatus) {
	states := map[string]v1alpha1.KeyState{}
	for _, e := range keyring.Entries(before) {
		states[e.ID] = e.State
	}
	for _, e := range keyring.Entries(after) {
		if states[e.ID] != e.State {
			r.Log.Info("key changed its state", "kid", e.ID, "algorithm", e.Role, "from", states[e.ID], "to", e.State)
		}
	}
}
