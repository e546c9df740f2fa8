package apply

import (
	"context"
	"errors"
	"sort"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Effect is what [Applier.Apply] and [Applier.Prune] would do with an object.
type Effect string

// The effects.
const (
	// EffectCreated means that the object does not exist yet.
	EffectCreated Effect = "created"
	// EffectChanged means that some fields change.
	EffectChanged Effect = "changed"
	// EffectRecreated means that the object is deleted and created anew: a field changes that cannot
	// be changed, and [Options.Force] or an annotation allows the deletion.
	EffectRecreated Effect = "recreated"
	// EffectDeleted means that the object is no longer wanted.
	EffectDeleted Effect = "deleted"
	// EffectLeft means that the object is no longer wanted, and stays.
	EffectLeft Effect = "left alone"
	// EffectSkipped means that an annotation of the object or of its manifest forbids a change.
	EffectSkipped Effect = "skipped"
	// EffectUnchanged means that the object is as wanted.
	EffectUnchanged Effect = "unchanged"
)

// Writes reports whether the cluster would change.
func (e Effect) Writes() bool {
	return e == EffectCreated || e == EffectChanged || e == EffectRecreated || e == EffectDeleted
}

// Difference says what would happen to an object. Its values are masked if they may be secret.
type Difference struct {
	Entry

	// Effect is what would happen.
	Effect Effect
	// Changes are the fields that change, if Effect is [EffectChanged].
	Changes []FieldChange
}

// errDryRun is the cause for which nothing is written during [Applier.Diff].
var errDryRun = errors.New("a comparison never writes")

// Diff says what [Applier.Apply] would do with the manifests, and then [Applier.Prune] with the
// other objects of the inventory. If prune is false, the other objects stay. Diff only reads objects
// and sends dry runs. It changes the manifests, as Apply does. The error is an [*Error] or the cause
// of ctx.
//
// The API server refuses the dry run of an object whose kind or namespace does not exist, and of a
// RoleBinding whose role does not exist. If the kind, the namespace or the role would be created too,
// the object counts as created.
func (a *Applier) Diff(ctx context.Context, manifests []*unstructured.Unstructured, options Options, prune bool) ([]Difference, error) {
	if err := a.prepare(manifests); err != nil {
		return nil, err
	}
	options.BeforeWrite = func(context.Context) error { return errDryRun }
	d := &differ{Applier: a, options: options, created: map[object.ObjMetadata]bool{}, defined: map[schema.GroupKind]bool{}}
	d.probe, d.manager = a.manager(manifests, options)
	var all []Difference
	placed := make(map[object.ObjMetadata]bool, len(manifests))
	for _, stage := range stagesOf(manifests) {
		found, err := d.stage(ctx, stage, placed)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return nil, cause
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	obsolete, err := d.obsolete(ctx, all, prune)
	return append(all, obsolete...), err
}

// differ is one call of [Applier.Diff].
type differ struct {
	*Applier

	options Options
	probe   *probe
	manager *ssa.ResourceManager
	// created are the objects that would be created, and defined are the kinds that their
	// CustomResourceDefinitions define. They are written between stages.
	created map[object.ObjMetadata]bool
	defined map[schema.GroupKind]bool
}

// stage compares the objects of one stage.
func (d *differ) stage(ctx context.Context, stage []*unstructured.Unstructured, placed map[object.ObjMetadata]bool) ([]Difference, error) {
	sort.Sort(ssa.SortableUnstructureds(stage))
	found := make([]Difference, len(stage))
	for i, o := range stage {
		if d.isDefined(o) {
			found[i] = Difference{Entry: EntryOf(o), Effect: EffectCreated}
			continue
		}
		if err := d.place(stage[i:i+1], placed); err != nil {
			return nil, err
		}
		d.probe.want(o)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for i, o := range stage {
		if found[i].Effect == "" {
			group.Go(func() (err error) {
				found[i], err = d.try(ctx, o)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, o := range stage {
		if found[i].Effect != EffectCreated {
			continue
		}
		d.created[found[i].Key] = true
		if utils.IsCRD(o) {
			group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
			d.defined[schema.GroupKind{Group: group, Kind: kind}] = true
		}
	}
	return found, nil
}

// isDefined reports whether the kind of an object would be created, and does not exist yet.
func (d *differ) isDefined(o *unstructured.Unstructured) bool {
	kind := o.GroupVersionKind()
	if !d.defined[kind.GroupKind()] {
		return false
	}
	_, err := d.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	return apimeta.IsNoMatchError(err)
}

// try sends the dry run of one manifest, and compares the answer with the object.
func (d *differ) try(ctx context.Context, manifest *unstructured.Unstructured) (Difference, error) {
	found := Difference{Entry: EntryOf(manifest)}
	o := applyOptions(d.options)
	set, live, merged, err := d.manager.Diff(ctx, manifest, ssa.DiffOptions{
		Exclusions: o.ExclusionSelector, IfNotPresentSelector: o.IfNotPresentSelector,
		Force: o.Force, ForceSelector: o.ForceSelector, DriftIgnoreRules: o.DriftIgnoreRules,
	})
	if err != nil {
		err = d.failureOf(err)
		if failed, ok := errors.AsType[*Error](err); ok && d.created[missing(failed.Reason, manifest)] {
			found.Effect = EffectCreated
			return found, nil
		}
		return found, err
	}
	switch set.Action {
	case ssa.CreatedAction:
		found.Effect = EffectCreated
		if failed := d.probe.failure(found.Key); failed != nil {
			if failed.Reason != ReasonImmutable { // package ssa would delete it for other mistakes too
				return found, failed
			}
			found.Effect = EffectRecreated
		}
	case ssa.ConfiguredAction:
		found.Effect = EffectChanged
		if found.Changes, err = compare(live, merged); err != nil {
			return found, d.failureOf(err)
		}
		if d.hides(found.Key) {
			for i := range found.Changes {
				found.Changes[i].mask()
			}
		}
	case ssa.SkippedAction:
		found.Effect = EffectSkipped
	default:
		found.Effect = EffectUnchanged
	}
	return found, nil
}

// missing returns the object for whose absence the API server refused a manifest. It is zero if the
// reason is another.
func missing(reason Reason, manifest *unstructured.Unstructured) object.ObjMetadata {
	switch reason {
	case ReasonNoNamespace:
		return object.ObjMetadata{Name: manifest.GetNamespace(), GroupKind: schema.GroupKind{Kind: "Namespace"}}
	case ReasonNoRole:
		ref, _, _ := unstructured.NestedStringMap(manifest.Object, "roleRef")
		role := object.ObjMetadata{Name: ref["name"], GroupKind: schema.GroupKind{Group: rbacv1.GroupName, Kind: ref["kind"]}}
		if role.GroupKind.Kind == "Role" {
			role.Namespace = manifest.GetNamespace()
		}
		return role
	default:
		return object.ObjMetadata{}
	}
}

// obsolete returns the objects of the inventory that have no manifest any more.
func (d *differ) obsolete(ctx context.Context, wanted []Difference, prune bool) ([]Difference, error) {
	result := newResult()
	d.probe.remember(result)
	var entries []Entry
	for _, w := range wanted {
		entries = append(entries, w.Entry)
	}
	var all []Difference
	for _, e := range deletionOrder(Without(d.Canonical(d.options.Inventory), entries)) {
		o, left, err := d.prunable(ctx, e, result)
		switch {
		case err != nil:
			return nil, err
		case o != nil && prune:
			all = append(all, Difference{Entry: e, Effect: EffectDeleted})
		case o != nil || left:
			all = append(all, Difference{Entry: e, Effect: EffectLeft})
		}
	}
	return all, nil
}
