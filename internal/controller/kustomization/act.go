package kustomization

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/ssa/utils"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/impersonation"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
)

// run is one reconciliation that applies.
type run struct {
	*kind

	o         *v1alpha1.Kustomization
	plan      plan
	tenant    *impersonation.Client
	applier   *apply.Applier
	variables variables
	save      func(ctx context.Context) error

	input     hash
	known     bool          // there is a record of the object
	last      record        // what was applied last
	inventory []apply.Entry // status.inventory as it is stored now
}

// Act implements object.Kind.
func (k *kind) Act(ctx context.Context, o *v1alpha1.Kustomization, p plan, save func(context.Context) error) (news object.News, err error) {
	r := &run{kind: k, o: o, plan: p, save: save}
	if err := r.begin(ctx); err != nil {
		return news, err
	}
	var state *apply.State
	if r.known && r.last.input == r.input {
		if state, err = r.applier.Check(ctx, r.inventory, r.last.versions); err != nil {
			return news, err
		}
		if len(state.Changed()) == 0 {
			return news, nil
		}
	}
	// Until the end, the record says that nothing is known of the manifests.
	k.records.set(o.UID, record{inventory: r.inventory})
	o.Status.LastAttemptedRevision = p.revision
	manifests, err := r.build(ctx)
	if err != nil {
		return news, err
	}
	result, err := r.apply(ctx, manifests, state)
	if err != nil {
		return news, err
	}
	pruned, err := r.prune(ctx, result.Entries())
	if err != nil {
		return news, err
	}
	o.Status.LastAppliedRevision, o.Status.LastAppliedOriginRevision = p.revision, p.originRevision
	k.records.set(o.UID, record{input: r.input, inventory: r.inventory, versions: result.Versions})
	return newsOf(p.revision, result.Changed(), pruned), nil
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

// begin finds the account, the variables, and what was applied last.
func (r *run) begin(ctx context.Context) (err error) {
	if r.tenant, err = r.Clients.As(ctx, r.plan.account); err != nil {
		return err
	}
	if r.variables, err = readVariables(ctx, r.tenant, r.o); err != nil {
		return err
	}
	if r.input, err = r.records.hash(r.plan, r.variables.values); err != nil {
		return err
	}
	r.applier = r.newApplier(r.tenant, r.o, r.variables.secrets)
	r.last, r.known = r.records.get(r.o.UID)
	r.inventory = r.last.inventory
	if !r.known {
		r.inventory, err = r.readInventory(ctx, r.o)
	}
	return err
}

func (*kind) newApplier(tenant *impersonation.Client, o *v1alpha1.Kustomization, secrets []string) *apply.Applier {
	return apply.New(tenant, tenant.User(), apply.Owner{Namespace: o.Namespace, Name: o.Name}, secrets)
}

// build downloads the artifact, and builds the manifests.
func (r *run) build(ctx context.Context) ([]*unstructured.Unstructured, error) {
	archive, err := r.Content.Fetch(ctx, r.plan.reference)
	if err != nil {
		return nil, err
	}
	spec := r.plan.spec
	if post := r.o.Spec.PostBuild; post != nil {
		spec.Substitute = &kustomize.Substitute{Values: r.variables.values, Strict: r.Strict, Always: post.SubstituteStrategy == v1alpha1.SubstituteAlways}
	}
	manifests, err := r.Builder.Build(ctx, kustomize.Request{Tenant: r.o.Namespace, Archive: archive, Spec: spec, Secret: len(r.variables.secrets) > 0})
	if err != nil {
		return nil, err
	}
	utils.SetCommonMetadata(manifests, r.plan.common.Labels, r.plan.common.Annotations)
	return manifests, nil
}

// apply applies the manifests. Before the first object is stored, it writes the names of all objects
// to the inventory.
func (r *run) apply(ctx context.Context, manifests []*unstructured.Unstructured, state *apply.State) (*apply.Result, error) {
	var wanted []apply.Entry
	for _, o := range manifests {
		wanted = append(wanted, apply.EntryOf(o))
	}
	return r.applier.Apply(ctx, manifests, apply.Options{
		Inventory: r.inventory, State: state, Force: r.plan.force, Ignore: r.plan.ignore, Yields: r.yields,
		BeforeWrite: func(ctx context.Context) error {
			added := apply.Without(wanted, r.inventory)
			if len(added) == 0 {
				return nil
			}
			r.setInventory(append(slices.Clone(r.inventory), added...))
			if err := r.save(ctx); err != nil {
				r.records.forget(r.o.UID) // the write may have reached the API server, or not
				return err
			}
			r.records.set(r.o.UID, record{inventory: r.inventory})
			return nil
		},
	})
}

// prune deletes the objects that left the inventory, and sets the inventory.
func (r *run) prune(ctx context.Context, applied []apply.Entry) (deleted []apply.Entry, err error) {
	obsolete := apply.Without(r.inventory, applied)
	if len(obsolete) == 0 || !r.o.Spec.Prune {
		r.setInventory(applied)
		return nil, nil
	}
	// A deletion cannot be undone. So the account must still be there.
	if err := r.tenant.Verify(ctx); err != nil {
		return nil, err
	}
	pruned, err := r.applier.Prune(ctx, obsolete)
	r.setInventory(append(slices.Clone(applied), pruned.Failed...))
	r.records.set(r.o.UID, record{inventory: r.inventory})
	return pruned.Deleted, err
}

// setInventory sets status.inventory if it changes. The status in the program's cache has no
// inventory, so a status without inventory means that the stored one stays.
func (r *run) setInventory(entries []apply.Entry) {
	entries = slices.Clone(entries)
	apply.Sort(entries)
	before := slices.Clone(r.inventory)
	apply.Sort(before)
	if slices.Equal(entries, before) {
		return
	}
	r.inventory = entries
	stored := &v1alpha1.Inventory{Entries: make([]v1alpha1.InventoryEntry, 0, len(entries))}
	for _, e := range entries {
		stored.Entries = append(stored.Entries, v1alpha1.InventoryEntry{ID: e.ID(), Version: e.Version})
	}
	r.o.Status.Inventory = stored
}

// readInventory reads status.inventory from the API server. An entry that cannot be parsed is
// refused: whoever wrote it, its object would stay for ever.
func (k *kind) readInventory(ctx context.Context, o *v1alpha1.Kustomization) ([]apply.Entry, error) {
	whole := &v1alpha1.Kustomization{}
	if err := k.Live.Get(ctx, client.ObjectKeyFromObject(o), whole); err != nil {
		return nil, object.Forbidden(err, "get", "kustomizations", o.Namespace)
	}
	if whole.UID != o.UID {
		return nil, apierrors.NewConflict(v1alpha1.GroupVersion().WithResource("kustomizations").GroupResource(), o.Name, fmt.Errorf("the object was created anew"))
	}
	if whole.Status.Inventory == nil {
		return nil, nil
	}
	var entries []apply.Entry
	for i, stored := range whole.Status.Inventory.Entries {
		e, err := apply.ParseEntry(stored.ID, stored.Version)
		if err != nil {
			return nil, object.Invalid(fmt.Sprintf("status.inventory.entries[%d]", i), "remove the entry, and delete its object by hand", "%w", err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// yields reports whether another Kustomization leaves an object to this one. This is so if the other
// one does not exist, or if its inventory does not have the object.
func (r *run) yields(ctx context.Context, e apply.Entry, other apply.Owner) (bool, error) {
	if other.Namespace != r.o.Namespace {
		return false, nil // nobody may learn what another namespace has
	}
	whole := &v1alpha1.Kustomization{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: other.Namespace, Name: other.Name}, whole)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, object.Forbidden(err, "get", "kustomizations", other.Namespace)
	case whole.Status.Inventory == nil:
		return true, nil
	}
	return !slices.ContainsFunc(whole.Status.Inventory.Entries, func(stored v1alpha1.InventoryEntry) bool { return stored.ID == e.ID() }), nil
}

// variables are the values of spec.postBuild.
type variables struct {
	values  map[string]string
	secrets []string // the values that come from Secrets
}

// readVariables reads the ConfigMaps and Secrets of spec.postBuild as the tenant.
func readVariables(ctx context.Context, tenant client.Reader, o *v1alpha1.Kustomization) (variables, error) {
	post := o.Spec.PostBuild
	if post == nil {
		return variables{}, nil
	}
	v := variables{values: map[string]string{}}
	for i, ref := range post.SubstituteFrom {
		name := client.ObjectKey{Namespace: o.Namespace, Name: ref.Name}
		values, err := readReference(ctx, tenant, ref.Kind, name)
		if apierrors.IsNotFound(err) && ref.Optional {
			continue
		}
		if err != nil {
			return v, &variablesError{field: fmt.Sprintf("spec.postBuild.substituteFrom[%d]", i), kind: ref.Kind, name: ref.Name, err: err}
		}
		maps.Copy(v.values, values)
		if ref.Kind == "Secret" {
			v.secrets = slices.AppendSeq(v.secrets, maps.Values(values))
		}
	}
	maps.Copy(v.values, post.Substitute)
	return v, nil
}

// readReference reads the values of a ConfigMap or a Secret.
func readReference(ctx context.Context, tenant client.Reader, kind string, name client.ObjectKey) (map[string]string, error) {
	switch kind {
	case "ConfigMap":
		o := &corev1.ConfigMap{}
		err := tenant.Get(ctx, name, o)
		return o.Data, err
	case "Secret":
		o := &corev1.Secret{}
		err := tenant.Get(ctx, name, o)
		values := make(map[string]string, len(o.Data))
		for key, value := range o.Data {
			values[key] = string(value)
		}
		return values, err
	default:
		return nil, fmt.Errorf("%q is neither ConfigMap nor Secret", kind)
	}
}
