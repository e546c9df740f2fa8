package kustomization

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fluxcd/pkg/ssa/utils"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/desired"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/health"
	"github.com/lanyard-dev/lanyard/internal/keyservice"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// run is one reconciliation that applies.
type run struct {
	*kind

	o         *v1alpha1.Kustomization
	owner     apply.Owner
	plan      plan
	to        *destination
	applier   *apply.Applier
	variables desired.Variables
	judge     *health.Judge
	save      func(ctx context.Context) error
	began     time.Time

	input     hash
	last      record
	inventory []apply.Entry // what status.inventory should have
	stored    []apply.Entry // what status.inventory has
	unsure    bool          // a write of the inventory has failed, and may have been carried out
	watch     watch
	attempt   attempt
	decrypted *v1alpha1.DecryptionStatus // what status.decryption should have
	warning   object.Warning
	mu        sync.Mutex // guards watch.healthy while objects are read
}

// Act implements object.Kind.
func (k *kind) Act(ctx context.Context, o *v1alpha1.Kustomization, p plan, save func(context.Context) error) (object.News, error) {
	if err := k.checkDependencies(ctx, o, p.revision); err != nil {
		return object.News{}, err
	}
	r := &run{kind: k, o: o, owner: apply.Owner{Namespace: o.Namespace, Name: o.Name}, plan: p, save: save, began: time.Now()}
	if err := r.begin(ctx); err != nil {
		return object.News{}, err
	}
	defer r.to.close()
	o.Status.LastAttemptedRevision = p.revision
	if r.last.input != r.input || r.watch.since.IsZero() {
		r.attempt.began = r.began
	}
	var state *apply.State
	if r.last.input == r.input {
		if r.watch.waits(o) {
			if err := r.awaitHealth(ctx, r.watch.pending); err != nil {
				r.setInventory(r.inventory)
				r.record(r.input, r.last.versions)
				return object.News{}, err
			}
			// The other targets may have changed during the wait. So compare all objects.
		}
		var err error
		if state, err = r.applier.Check(ctx, r.inventory, r.last.versions); err != nil {
			return object.News{}, err
		}
		if len(state.Changed()) == 0 {
			r.watch.compared = r.began
			return r.finish(ctx, r.last.versions, r.unknown(state.Has), nil, nil)
		}
	}
	if err := r.judge.Parse(ctx); err != nil {
		return object.News{}, err
	}
	return r.renew(ctx, state)
}

// renew builds and applies the manifests. The state has the objects that are as they were left.
func (r *run) renew(ctx context.Context, state *apply.State) (object.News, error) {
	// Until the end, the record says that nothing is known of the manifests.
	r.attempt = attempt{began: r.attempt.began, changed: r.attempt.changed, originRevision: r.plan.originRevision}
	if r.last.input != r.input {
		r.watch = watch{healthy: &apply.Versions{}}
	}
	r.record(hash{}, nil)
	manifests, err := r.build(ctx)
	if err != nil {
		return object.News{}, err
	}
	if r.attempt.digest, err = r.digestOf(manifests); err != nil {
		return object.News{}, err
	}
	r.record(hash{}, nil)
	result, err := r.apply(ctx, manifests, state)
	if err != nil {
		return object.News{}, err
	}
	pruned, err := r.prune(ctx, result)
	if err != nil {
		return object.News{}, err
	}
	r.watch.targets, r.watch.compared = r.targets(manifests, result), r.began
	return r.finish(ctx, result.Versions, r.unknown(result.Has), result.Changed(), pruned)
}

// unknown returns the targets that are not known to be healthy. The function has says whether an
// object is in one of the versions.
func (r *run) unknown(has func(apply.Entry, *apply.Versions) bool) []target {
	if !r.plan.wait {
		return r.watch.targets // nothing is known of listed objects, because they are not compared
	}
	return slices.DeleteFunc(slices.Clone(r.watch.targets), func(t target) bool { return has(t.Entry, r.watch.healthy) })
}

// finish waits until the objects are healthy, and then sets the status of manifests that are
// applied. The write of an earlier status may have failed, so finish sets the status also if
// nothing has changed.
func (r *run) finish(ctx context.Context, versions *apply.Versions, unknown []target, changed []apply.Change, deleted []apply.Entry) (object.News, error) {
	waited := !r.watch.since.IsZero()
	if len(changed) > 0 || len(deleted) > 0 {
		r.attempt.changed = time.Now()
	}
	if r.watch.healthy.Len() > versions.Len() {
		r.watch.healthy.Keep(versions) // otherwise it would grow with each change of an object
	}
	news := newsOf(r.plan.revision, changed, deleted)
	news.Warning = r.warning
	r.setInventory(r.inventory)
	err := r.awaitHealth(ctx, unknown)
	if err == nil {
		r.watch.since = time.Time{}
	}
	r.record(r.input, versions)
	if err != nil {
		return news, err
	}
	r.o.Status.Decryption = r.decrypted.DeepCopy()
	r.o.Status.LastAppliedRevision, r.o.Status.LastAppliedOriginRevision = r.plan.revision, r.plan.originRevision
	if waited && news.Note == "" {
		news.Reason, news.Note = "Healthy", "the objects of revision "+r.plan.revision+" are healthy"
	}
	return news, nil
}

// record remembers the inventory and, if the manifests are applied, their input and versions.
func (r *run) record(input hash, versions *apply.Versions) {
	r.Records.set(r.o, record{
		input: input, inventory: r.inventory, unsure: r.unsure || !slices.Equal(r.inventory, r.stored), versions: versions,
		watch: r.watch, attempt: r.attempt, decrypted: r.decrypted,
	})
}

// newsOf returns the news of a revision: what was created, configured and deleted.
func newsOf(revision string, changed []apply.Change, deleted []apply.Entry) object.News {
	if len(changed) == 0 && len(deleted) == 0 {
		return object.News{}
	}
	by := map[string][]apply.Entry{"deleted": deleted}
	for _, c := range changed {
		by[c.Action.String()] = append(by[c.Action.String()], c.Entry)
	}
	var note strings.Builder
	note.WriteString("applied revision " + revision)
	for _, action := range []string{"created", "configured", "deleted"} {
		if entries := by[action]; len(entries) > 0 {
			note.WriteString("; " + action + " " + namesOf(entries))
		}
	}
	return object.News{Reason: "Applied", Note: note.String()}
}

// begin finds the cluster, the variables, and what was applied last. If it returns no error, the
// caller must close the cluster.
func (r *run) begin(ctx context.Context) (err error) {
	if r.to, err = r.destination(ctx, r.o, r.plan.account); err != nil {
		return retryMissingAccount(err)
	}
	if err = r.recall(ctx); err != nil {
		r.to.close()
	}
	return err
}

// retryMissingAccount marks the error of a missing ServiceAccount as retryable. The program watches
// no accounts.
func retryMissingAccount(err error) error {
	if auth.CodeOf(err) == auth.CodeSubjectNotFound {
		return object.Retryable(err)
	}
	return err
}

// readVariables reads the variables in this cluster, also if the manifests are for another cluster.
func (r *run) readVariables(ctx context.Context) (desired.Variables, error) {
	var reader client.Reader = r.to
	if r.to.cluster != "" && readsVariables(r.o.Spec) {
		tenant, err := r.Clients.As(ctx, r.plan.account)
		if err != nil {
			return desired.Variables{}, retryMissingAccount(err)
		}
		reader = tenant
	}
	return desired.ReadVariables(ctx, reader, r.o)
}

// recall finds the variables, and what was applied last.
func (r *run) recall(ctx context.Context) (err error) {
	if r.variables, err = r.readVariables(ctx); err != nil {
		return err
	}
	if r.input, err = r.Records.hash(r.plan, r.to.cluster, r.variables.Values); err != nil {
		return err
	}
	r.applier = newApplier(r.to, r.owner, r.isSecret())
	r.judge = health.New(r.Expressions, r.owner.Namespace, r.plan.checks, r.isSecret())
	last, known := r.Records.get(r.o)
	r.last, r.inventory, r.stored, r.watch, r.attempt = last, last.inventory, last.inventory, last.watch, last.attempt
	r.decrypted = last.decrypted
	if !known || last.unsure {
		if r.stored, err = r.readInventory(ctx, r.o); err != nil {
			return err
		}
	}
	if !known {
		r.inventory = r.stored
	}
	return nil
}

func newApplier(to *destination, owner apply.Owner, secret bool) *apply.Applier {
	return apply.New(to, to.user, owner, secret)
}

// build downloads the artifact, and builds the manifests.
func (r *run) build(ctx context.Context) ([]*unstructured.Unstructured, error) {
	// A stranger may have chosen the size. So check the size before memory is reserved.
	if err := r.Content.Check(r.plan.reference); err != nil {
		return nil, err
	}
	size := *r.plan.reference.Size // the download has this size, or fails
	if err := reserve.Take(ctx, size); err != nil {
		return nil, err
	}
	defer reserve.Free(ctx, size)
	archive, err := r.Content.Fetch(ctx, r.plan.reference)
	if err != nil {
		return nil, err
	}
	spec := r.plan.spec
	if spec.Substitute != nil {
		substitute := *spec.Substitute
		substitute.Values = r.variables.Values
		spec.Substitute = &substitute
	}
	request := kustomize.Request{Tenant: r.owner.Namespace, Archive: archive, Spec: spec, Secret: r.variables.Secret}
	var uses []keyservice.Use
	if r.o.Spec.Decryption != nil {
		request.DataKeys = func(ctx context.Context, files []masterkey.File) (keys map[string][]byte, err error) {
			keys, uses, err = r.Decryption.dataKeys(ctx, r.Live, r.o, files)
			return keys, err
		}
	}
	built, err := r.Builder.Build(ctx, request)
	if refused, ok := errors.AsType[*kustomize.Error](err); ok {
		return nil, &buildError{err: refused, variable: r.variables.Read}
	}
	if err != nil {
		return nil, err
	}
	r.decrypted = statusOf(uses)
	if r.last.input != r.input { // each artifact is told once, and not after each drift
		r.warning = unencrypted(built)
	}
	utils.SetCommonMetadata(built.Objects, r.plan.common.Labels, r.plan.common.Annotations)
	return built.Objects, nil
}

// isSecret reports whether objects of any kind may have secret values: from Secrets with variables, or
// from encrypted files. Then no error and no event shows a value.
func (r *run) isSecret() bool { return r.variables.Secret || r.o.Spec.Decryption != nil }

// apply applies the manifests. Before the first object is stored, it writes the names of all objects
// to the inventory.
func (r *run) apply(ctx context.Context, manifests []*unstructured.Unstructured, state *apply.State) (*apply.Result, error) {
	var wanted []apply.Entry
	for _, o := range manifests {
		wanted = append(wanted, apply.EntryOf(o))
	}
	never := r.o.Status.LastAppliedRevision == "" && r.last.input == hash{}
	return r.applier.Apply(ctx, manifests, apply.Options{
		Inventory: r.inventory, State: state, Force: r.plan.force, Ignore: r.plan.ignore, TakeOver: never || object.RetryNow(r.o),
		Yields: r.yields, BeforeDelete: r.to.verify, Seen: r.seen,
		BeforeWrite: func(ctx context.Context) error { return r.announce(ctx, wanted) },
	})
}

// announce adds entries to the stored inventory, before their objects are stored.
func (r *run) announce(ctx context.Context, wanted []apply.Entry) error {
	added := apply.Without(r.applier.Canonical(wanted), r.inventory)
	if len(added) == 0 && slices.Equal(r.inventory, r.stored) {
		return nil
	}
	before, shown := r.inventory, r.o.Status.Inventory
	r.setInventory(append(slices.Clone(r.inventory), added...))
	if err := r.save(ctx); err != nil {
		r.inventory, r.o.Status.Inventory, r.unsure = before, shown, true
		r.record(hash{}, nil)
		return err
	}
	r.stored = r.inventory
	r.record(hash{}, nil)
	return nil
}

// prune deletes the objects that left the inventory, and sets the inventory.
func (r *run) prune(ctx context.Context, result *apply.Result) (deleted []apply.Entry, err error) {
	applied := result.Entries()
	obsolete := apply.Without(r.applier.Canonical(r.inventory), applied)
	if len(obsolete) == 0 || !r.o.Spec.Prune {
		r.setInventory(applied)
		return nil, nil
	}
	// A deletion cannot be undone. So the account, or the kubeconfig file, must still be there.
	if err := r.to.verify(ctx); err != nil {
		return nil, err
	}
	pruned, err := r.applier.Prune(ctx, obsolete, result)
	r.setInventory(append(slices.Clone(applied), pruned.Failed...))
	r.record(hash{}, nil)
	return pruned.Deleted, err
}

// setInventory sets what status.inventory should have. If the API server has this inventory already,
// setInventory does not change the status. The program's cache has no inventories, and the write of a
// status without an inventory changes no inventory.
func (r *run) setInventory(entries []apply.Entry) {
	entries = slices.Clone(entries)
	apply.Sort(entries)
	if slices.Equal(entries, r.stored) {
		r.inventory = r.stored // the record keeps this slice, and not a new copy after each interval
		return
	}
	r.inventory = entries
	shown := &v1alpha1.Inventory{Entries: make([]v1alpha1.InventoryEntry, 0, len(entries))}
	for _, e := range entries {
		shown.Entries = append(shown.Entries, v1alpha1.InventoryEntry{ID: e.ID(), Version: e.Version})
	}
	r.o.Status.Inventory = shown
}

// readInventory reads status.inventory from the API server. An entry that cannot be parsed is an
// error: whoever wrote it, its object would stay for ever.
func (k *kind) readInventory(ctx context.Context, o *v1alpha1.Kustomization) ([]apply.Entry, error) {
	whole := &v1alpha1.Kustomization{}
	if err := k.Live.Get(ctx, client.ObjectKeyFromObject(o), whole); err != nil {
		return nil, object.Forbidden(err, "get", "kustomizations", o.Namespace)
	}
	if whole.UID != o.UID {
		return nil, apierrors.NewConflict(v1alpha1.GroupVersion().WithResource("kustomizations").GroupResource(), o.Name, fmt.Errorf("the object was created anew"))
	}
	return desired.Inventory(whole)
}

// yields reports whether another Kustomization leaves an object to this one. Several goroutines call
// yields.
func (r *run) yields(ctx context.Context, e apply.Entry, other apply.Owner) (bool, error) {
	yields, err := desired.Yields(ctx, r.Live, r.owner, other, r.applier.Canonical, e)
	return yields, object.Forbidden(err, "get", "kustomizations", other.Namespace)
}
