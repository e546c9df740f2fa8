package ocirepository

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// TokenCache is what the reconciler needs of the cache; *cache.Cache is one.
type TokenCache interface {
	auth.Cache
	// Forget removes the metrics of an object that is gone.
	Forget(kind, namespace, name string)
}

// Reconciler fetches the artifacts of OCIRepositories. All fields that are exported are required unless they say otherwise.
type Reconciler struct {
	// Client reads OCIRepositories from memory and patches them and their status.
	Client client.Client
	// Live reads Secrets, ServiceAccounts and Namespaces, one by one and never from memory.
	Live client.Reader
	// Recorder tells people.
	Recorder events.EventRecorder
	// Elected is closed when this replica begins to reconcile.
	Elected <-chan struct{}

	// Rules turn an object's identity fields into an identity or a refusal.
	Rules spec.Rules
	// Providers are the clouds, by name.
	Providers map[string]auth.Provider
	// Accounts know and prove ServiceAccounts.
	Accounts auth.Accounts
	// Cache keeps tokens.
	Cache TokenCache
	// Observer hears of exchanges.
	Observer auth.Observer

	// Store keeps artifacts.
	Store *store.Store
	// BaseURL is what the paths of artifacts' URLs are appended to, without a slash at its end.
	BaseURL string
	// Transports connect to registries. Their dial function must refuse the addresses that tenants may not reach.
	Transports *transport.Pool
	// MaxArtifactSize bounds an artifact, transferred and unpacked, in bytes; zero for the defaults of packages oci and archive.
	MaxArtifactSize int64

	readiness readiness
	tenants   tenants
	failures  failures
	verified  sync.Map // store.Object -> digest that was found whole since the start
}

// crowdedPause is how long an object waits when its namespace has its share of the workers and nobody wakes it, as when the
// one that was woken in its place is gone.
const crowdedPause = time.Minute

// Reconcile implements reconcile.Reconciler. An error that people can act on becomes a condition and is not returned.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o := &v1alpha1.OCIRepository{}
	if err := r.Client.Get(ctx, req.NamespacedName, o); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !o.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.finalize(ctx, o)
	}
	if !r.tenants.enter(req) {
		return reconcile.Result{RequeueAfter: jitter(crowdedPause)}, nil
	}
	defer r.tenants.leave(req)
	result, err := r.reconcile(ctx, o)
	if ctx.Err() == nil {
		r.readiness.try(o.UID)
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: jitter(time.Second)}, nil // the object changed meanwhile: begin anew
	}
	return result, client.IgnoreNotFound(err)
}

func (r *Reconciler) reconcile(ctx context.Context, o *v1alpha1.OCIRepository) (reconcile.Result, error) {
	if err := r.hold(ctx, o); err != nil {
		return reconcile.Result{}, err
	}
	stored := r.stored(ctx, o)
	identity, refused := spec.Resolve(ctx, fields(o), r.Rules)
	p := decide(facts{object: o, stored: stored, identity: identity, refused: refused})
	if p.action == suspend {
		before := o.DeepCopy()
		markSuspended(o, stored)
		r.failures.forget(o.UID)
		return reconcile.Result{}, r.patchStatus(ctx, before, o)
	}
	if p.action == fetch && o.Generation != o.Status.ObservedGeneration {
		before := o.DeepCopy()
		markProgressing(o)
		if err := r.patchStatus(ctx, before, o); err != nil {
			return reconcile.Result{}, err
		}
	}

	before := o.DeepCopy()
	o.Status.LastHandledReconcileAt = requested(o)
	var err error
	if p.action == fetch {
		err = r.fetch(ctx, o, p)
	} else {
		err, o.Status.Identity = p.refusal, nil
	}
	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err() // the controller is ending; what was stored is found again or collected
	}
	if err != nil {
		return r.failed(ctx, before, o, err, stored)
	}
	return r.succeeded(ctx, before, o)
}

// hold adds the finalizer before there is anything to clean up.
func (r *Reconciler) hold(ctx context.Context, o *v1alpha1.OCIRepository) error {
	before := o.DeepCopy()
	if !controllerutil.AddFinalizer(o, meta.Finalizer) {
		return nil
	}
	return r.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// finalize removes what was kept for the object and lets it go.
func (r *Reconciler) finalize(ctx context.Context, o *v1alpha1.OCIRepository) error {
	before := o.DeepCopy()
	if !controllerutil.RemoveFinalizer(o, meta.Finalizer) {
		return nil
	}
	if err := r.Store.Remove(owner(o)); err != nil {
		// Whoever waits for the deletion, or for the namespace's, looks at the object.
		r.tell(o, corev1.EventTypeWarning, meta.ReasonStorageFailed, "the object stays until its artifacts are removed: "+err.Error())
		return err
	}
	r.verified.Delete(owner(o))
	r.failures.forget(o.UID)
	r.Cache.Forget(v1alpha1.OCIRepositoryKind, o.Namespace, o.Name)
	err := r.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}

// stored reports whether the artifact that the status names is in the store. Its content is read once per start and
// content: a disk that has lost it in between is found at the next start.
func (r *Reconciler) stored(ctx context.Context, o *v1alpha1.OCIRepository) bool {
	if o.Status.Artifact == nil {
		return false
	}
	digest := o.Status.Artifact.Digest
	if seen, ok := r.verified.Load(owner(o)); ok && seen == digest {
		return r.Store.Has(owner(o), digest)
	}
	if err := r.Store.Verify(ctx, owner(o), digest); err != nil {
		log.FromContext(ctx).Info("the artifact in the status is not in the store", "digest", digest, "cause", err.Error())
		return false
	}
	r.verified.Store(owner(o), digest)
	return true
}

// fetch makes the status name the artifact that the plan asks for. Who it was fetched as stands in the status even if the
// registry refuses.
func (r *Reconciler) fetch(ctx context.Context, o *v1alpha1.OCIRepository, p plan) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	conn, err := r.connect(ctx, o, p)
	if err != nil {
		return err
	}
	defer conn.Close()
	c, err := r.credential(ctx, o, p, conn.proxy, 0)
	if err != nil {
		if !auth.IsTemporary(err) {
			o.Status.Identity = nil // it was refused
		}
		return err
	}
	err = r.pull(ctx, o, p, conn, c)
	if oci.CodeOf(err) == oci.CodeUnauthorized && conn.bound {
		// The registry may have ended the credential early. One that lives longer than this one is another.
		if c, err = r.credential(ctx, o, p, conn.proxy, time.Until(c.identity.ExpiresAt.Time)+time.Second); err != nil {
			return err
		}
		err = r.pull(ctx, o, p, conn, c)
	}
	return err
}

// connect prepares the way to the registry.
func (r *Reconciler) connect(ctx context.Context, o *v1alpha1.OCIRepository, p plan) (*connection, error) {
	c := &connection{registry: p.repository.Host(), bound: p.identity.Source == spec.Cloud, pool: r.Transports}
	if name := p.identity.ProxySecretName; name != "" {
		const field = "spec.proxySecretRef"
		secret, err := r.secret(ctx, field, o.Namespace, name)
		if err != nil {
			return nil, err
		}
		if c.proxy, err = readProxy(field, secret); err != nil {
			return nil, err
		}
	}
	if name := p.identity.CertSecretName; name != "" {
		const field = "spec.certSecretRef"
		secret, err := r.secret(ctx, field, o.Namespace, name)
		if err != nil {
			return nil, err
		}
		if c.certs, err = readCertificates(field, secret); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// pull asks the registry for the revision and stores what is new.
func (r *Reconciler) pull(ctx context.Context, o *v1alpha1.OCIRepository, p plan, conn *connection, c credential) (err error) {
	o.Status.Identity = c.identity
	defer func() {
		if err = conn.explain(err); err != nil && c.identity != nil {
			err = fmt.Errorf("as %s: %w", c.name(), err)
		}
	}()
	registry, err := oci.Connect(ctx, p.repository, oci.Options{
		Auth: c.login, Transport: conn, Insecure: p.identity.Insecure, Limits: oci.Limits{MaxLayerBytes: r.MaxArtifactSize},
	})
	if err != nil {
		return err
	}
	resolved, err := registry.Resolve(ctx, p.reference)
	if err != nil {
		return err
	}
	if upToDate(o, p, resolved.Revision()) {
		return r.name(o, o.Status.Artifact.DeepCopy())
	}
	manifest, err := registry.Fetch(ctx, resolved)
	if err != nil {
		return err
	}
	layer, err := manifest.Select(p.selector)
	if err != nil {
		return err
	}
	var source error
	kept, err := r.Store.Put(ctx, owner(o), func(w io.Writer) error {
		source = r.write(ctx, w, registry, layer, p)
		return source
	})
	if err != nil {
		if source == nil {
			err = &storeError{err}
		}
		return err
	}
	r.verified.Store(owner(o), kept.Digest)
	artifact := &v1alpha1.Artifact{
		Path: kept.Path, Revision: resolved.Revision(), Digest: kept.Digest, Size: kept.Size,
		LastUpdateTime: metav1.NewTime(kept.Time.Truncate(time.Second)), Metadata: manifest.Metadata,
	}
	if old := o.Status.Artifact; old != nil && old.Digest == kept.Digest {
		artifact.LastUpdateTime = old.LastUpdateTime // of the content, which is the same
	}
	return r.name(o, artifact)
}

// write puts the layer into the store in the form that is asked for.
func (r *Reconciler) write(ctx context.Context, w io.Writer, registry *oci.Client, layer oci.Layer, p plan) (err error) {
	defer func() { err = nameLimit(err) }()
	stream, err := registry.Open(ctx, layer)
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // read only
	limits := archive.Limits{MaxBytes: r.MaxArtifactSize}
	if p.selector.Operation == oci.Copy {
		_, err = archive.Copy(ctx, stream, w, limits)
	} else {
		_, err = archive.Normalize(ctx, stream, w, archive.Options{Ignore: p.ignore, Limits: limits})
	}
	return err
}

// name has the status name the artifact. Its URL changes with the store's key and the controller's address too.
func (r *Reconciler) name(o *v1alpha1.OCIRepository, artifact *v1alpha1.Artifact) error {
	path, err := r.Store.URLPath(owner(o), artifact.Digest)
	if err != nil {
		return &storeError{err}
	}
	artifact.URL = r.BaseURL + path
	o.Status.Artifact = artifact
	return nil
}

func (r *Reconciler) succeeded(ctx context.Context, before, o *v1alpha1.OCIRepository) (reconcile.Result, error) {
	markReady(o)
	r.failures.forget(o.UID)
	if err := r.patchStatus(ctx, before, o); err != nil {
		return reconcile.Result{}, err
	}
	switch was := before.Status.Artifact; {
	case was == nil || was.Revision != o.Status.Artifact.Revision || was.Digest != o.Status.Artifact.Digest:
		r.tell(o, corev1.EventTypeNormal, "NewArtifact", ready(o).Message)
	case ready(before).Status == metav1.ConditionFalse:
		r.tell(o, corev1.EventTypeNormal, meta.ReasonSucceeded, ready(o).Message)
	}
	return reconcile.Result{RequeueAfter: jitter(o.Spec.Interval.Duration)}, nil
}

func (r *Reconciler) failed(ctx context.Context, before, o *v1alpha1.OCIRepository, cause error, stored bool) (reconcile.Result, error) {
	f := explain(cause)
	markFailed(o, f, stored)
	if err := r.patchStatus(ctx, before, o); err != nil {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).Info("not fetched", "reason", f.reason, "stalled", f.stalled, "message", f.message)
	was, is := ready(before), ready(o)
	if was.Status != is.Status || was.Reason != is.Reason || was.Message != is.Message {
		r.tell(o, corev1.EventTypeWarning, f.reason, f.message)
	}
	if f.stalled {
		r.failures.forget(o.UID)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: jitter(max(f.after, r.failures.next(o.UID, o.Spec.Interval.Duration)))}, nil
}

// patchStatus writes the status if it differs. The patch holds only if nobody has changed the object meanwhile: a status
// speaks of the spec that was read.
func (r *Reconciler) patchStatus(ctx context.Context, before, o *v1alpha1.OCIRepository) error {
	if equality.Semantic.DeepEqual(before.Status, o.Status) {
		return nil
	}
	return r.Client.Status().Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (r *Reconciler) tell(o *v1alpha1.OCIRepository, kind, reason, message string) {
	r.Recorder.Eventf(o, nil, kind, reason, "Fetch", "%s", clip(message, maxNote))
}

// fields are the object's identity fields.
func fields(o *v1alpha1.OCIRepository) spec.Fields {
	name := func(ref *meta.LocalReference) *string {
		if ref == nil {
			return nil
		}
		return &ref.Name
	}
	return spec.Fields{
		Namespace: o.Namespace, Provider: o.Spec.Provider, ServiceAccountName: o.Spec.ServiceAccountName,
		SecretRef: name(o.Spec.SecretRef), CertSecretRef: name(o.Spec.CertSecretRef), ProxySecretRef: name(o.Spec.ProxySecretRef),
		Insecure: o.Spec.Insecure,
	}
}

// owner is the object as the store knows it.
func owner(o *v1alpha1.OCIRepository) store.Object {
	return store.Object{Kind: strings.ToLower(v1alpha1.OCIRepositoryKind), Namespace: o.Namespace, Name: o.Name, UID: string(o.UID)}
}

// jitter spreads what began together: d, and up to 5 % more or less.
func jitter(d time.Duration) time.Duration {
	//nolint:gosec // spreads load; not a secret.
	return d + time.Duration((rand.Float64()-0.5)/10*float64(d))
}
