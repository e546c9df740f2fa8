package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa/utils"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The verbs of errors.
const (
	verbApply  = "apply"
	verbGet    = "get"
	verbList   = "list"
	verbDelete = "delete"
)

// probe is the client that package ssa uses. It saves requests and watches over the others:
//
//   - Package ssa reads each object before the object's dry run. For an object that is probably new,
//     the probe sends the dry run in place of the read. The answer says whether the object exists.
//     If not, there is nothing to read, and package ssa gets the answer for its own dry run.
//   - Before the first request that stores something, it calls Options.BeforeWrite.
//   - It refuses to write an object that it could not read, or that belongs to another owner.
//     Package ssa would write it.
//   - It deletes an object only if an immutable field has changed. Package ssa would also delete an
//     object whose manifest is invalid.
//   - It remembers the version of each object, and makes each failure an [*Error].
type probe struct {
	client.Client

	applier *Applier
	options Options
	begin   func(ctx context.Context) error // calls BeforeWrite once
	listed  map[object.ObjMetadata]bool     // the objects of the inventory

	mu      sync.Mutex // guards what follows; never held during I/O
	asked   map[object.ObjMetadata]bool
	wanted  map[object.ObjMetadata]*unstructured.Unstructured
	answers map[object.ObjMetadata]answer  // dry runs that were sent in place of a read
	refused map[object.ObjMetadata]error   // objects that must not be written
	failed  map[object.ObjMetadata]*Error  // failures of the last dry runs
	found   map[object.ObjMetadata]version // the objects as they are now
}

// answer is the result of a dry run.
type answer struct {
	object *unstructured.Unstructured
	err    error
}

// version identifies a state of an object.
type version struct {
	uid             types.UID
	resourceVersion string
}

func newProbe(a *Applier, manifests []*unstructured.Unstructured, options Options) *probe {
	p := &probe{
		Client: a.client, applier: a, options: options,
		listed: map[object.ObjMetadata]bool{}, asked: map[object.ObjMetadata]bool{}, wanted: make(map[object.ObjMetadata]*unstructured.Unstructured, len(manifests)),
		answers: map[object.ObjMetadata]answer{}, refused: map[object.ObjMetadata]error{}, failed: map[object.ObjMetadata]*Error{},
		found: map[object.ObjMetadata]version{},
	}
	for _, e := range a.Canonical(options.Inventory) {
		p.listed[e.Key] = true
	}
	p.begin = once(options.BeforeWrite)
	return p
}

// once returns a function that calls do at its first call. Each call returns the error of do.
func once(do func(context.Context) error) func(context.Context) error {
	var mu sync.Mutex
	var err error
	done := do == nil
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if !done {
			done, err = true, callers(do(ctx))
		}
		return err
	}
}

// want tells the probe of a manifest that package ssa is about to apply.
func (p *probe) want(manifest *unstructured.Unstructured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted[keyOf(manifest)] = manifest
}

// keep reports whether an object is as it was at the last time.
func (p *probe) keep(key object.ObjMetadata, state *State) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := state.unchanged(key)
	if ok {
		p.found[key] = v
	}
	return ok
}

// remember adds the versions of all objects so far.
func (p *probe) remember(result *Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, v := range p.found {
		result.Versions.add(key, v.uid, v.resourceVersion)
		result.found[key], result.uids[v.uid] = v, true
	}
}

// see records the version of an object.
func (p *probe) see(key object.ObjMetadata, o *unstructured.Unstructured) {
	if p.options.Seen != nil {
		p.options.Seen(o)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found[key] = version{o.GetUID(), o.GetResourceVersion()}
}

// Get reads an object, or tries the object's manifest.
func (p *probe) Get(ctx context.Context, name client.ObjectKey, o client.Object, options ...client.GetOption) error {
	existing := o.(*unstructured.Unstructured) //nolint:forcetypeassert // package ssa reads only such objects
	key := object.ObjMetadata{Namespace: name.Namespace, Name: name.Name, GroupKind: existing.GroupVersionKind().GroupKind()}
	p.mu.Lock()
	manifest, exists := p.wanted[key], p.listed[key] || p.asked[key]
	p.asked[key] = true // a second read is a real one
	p.mu.Unlock()
	if !exists && manifest != nil {
		dry := manifest.DeepCopy()
		//nolint:staticcheck // the request must be the one that package ssa would send
		err := p.Client.Patch(ctx, dry, client.Apply, client.DryRunAll, client.ForceOwnership, client.FieldOwner(FieldManager))
		p.mu.Lock()
		p.answers[key] = answer{dry, err}
		p.mu.Unlock()
		switch {
		case apierrors.IsForbidden(err): // a read cannot change that
			return p.refuse(key, p.applier.failure(verbApply, key, err))
		case err == nil && dry.GetResourceVersion() == "":
			return apierrors.NewNotFound(groupResource(key), key.Name)
		}
	}
	if err := p.Client.Get(ctx, name, existing, options...); err != nil {
		if apierrors.IsNotFound(err) {
			return err
		}
		return p.refuse(key, p.applier.failure(verbGet, key, err))
	}
	p.see(key, existing)
	if options := applyOptions(p.options); utils.AnyInMetadata(existing, options.ExclusionSelector) || utils.AnyInMetadata(existing, options.IfNotPresentSelector) {
		p.forget(key) // package ssa skips the object, and does not ask for its dry run
	}
	return p.refuse(key, p.checkOwner(ctx, key, existing))
}

// forget forgets the answer of an object's dry run.
func (p *probe) forget(key object.ObjMetadata) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.answers, key)
}

// refuse makes all writes of an object fail with err, unless err is nil.
func (p *probe) refuse(key object.ObjMetadata, err error) error {
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refused[key] = err
	}
	return err
}

// checkOwner returns an error if the object belongs to another owner, or to a Kustomization of Flux.
// Objects of Flux's Kustomization with the owner's namespace and name are taken over, since their
// manifests were moved. Apply removes Flux's labels. If an object of the inventory has them again, both
// apply the object.
func (p *probe) checkOwner(ctx context.Context, key object.ObjMetadata, existing *unstructured.Unstructured) error {
	labels := existing.GetLabels()
	if flux, ok := fluxOwner(existing); ok && (flux != p.applier.owner || p.listed[key] && !p.options.TakeOver) {
		return p.applier.ownedByFlux(key, flux)
	}
	other := Owner{Namespace: labels[namespaceLabel], Name: labels[nameLabel]}
	if other == p.applier.owner || other.Name == "" || other.Namespace == "" {
		return nil
	}
	if p.options.Yields != nil {
		yields, err := p.options.Yields(ctx, Entry{key, existing.GroupVersionKind().Version}, other)
		if yields || err != nil {
			return callers(err)
		}
	}
	return p.applier.owned(key, other)
}

// fluxOwner returns the Kustomization of Flux that applies an object. Labels of Flux on a merged object
// say nothing: they stay when the object is moved.
func fluxOwner(existing *unstructured.Unstructured) (flux Owner, ok bool) {
	labels := existing.GetLabels()
	flux = Owner{Namespace: labels[fluxNamespaceLabel], Name: labels[fluxNameLabel]}
	return flux, flux.Namespace != "" && flux.Name != "" && !utils.AnyInMetadata(existing, mergeSelector())
}

// Patch sends a patch, or returns the answer of a dry run that was sent before.
func (p *probe) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	manifest := o.(*unstructured.Unstructured) //nolint:forcetypeassert // package ssa patches only such objects
	key := keyOf(manifest)
	p.mu.Lock()
	refused := p.refused[key]
	p.mu.Unlock()
	if refused != nil {
		return refused
	}
	if isDryRun(options) {
		err := p.dryRun(ctx, key, manifest, patch, options)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed[key], _ = errors.AsType[*Error](err)
		return err
	}
	if err := p.begin(ctx); err != nil {
		return err
	}
	if err := p.Client.Patch(ctx, manifest, patch, options...); err != nil {
		return p.applier.failure(verbApply, key, err)
	}
	p.see(key, manifest)
	return nil
}

// dryRun returns the answer of a dry run that was sent before, or sends a dry run.
func (p *probe) dryRun(ctx context.Context, key object.ObjMetadata, manifest *unstructured.Unstructured, patch client.Patch, options []client.PatchOption) error {
	p.mu.Lock()
	known, tried := p.answers[key]
	delete(p.answers, key)
	p.mu.Unlock()
	err := known.err
	if tried && err == nil {
		known.object.DeepCopyInto(manifest)
		return nil
	}
	if !tried {
		err = p.Client.Patch(ctx, manifest, patch, options...)
	}
	if err != nil {
		return p.applier.failure(verbApply, key, err)
	}
	return nil
}

// failure returns the failure of an object's last dry run, or nil.
func (p *probe) failure(key object.ObjMetadata) *Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[key]
}

// Delete deletes an object that must be created anew. It deletes no other object of the same name.
func (p *probe) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	key := keyOf(o.(*unstructured.Unstructured)) //nolint:forcetypeassert // package ssa deletes only such objects
	why := p.failure(key)
	switch {
	case why == nil:
		return fmt.Errorf("%s is not deleted: its dry run did not fail", describe(key))
	case why.Reason != ReasonImmutable:
		return why
	}
	if err := p.begin(ctx); err != nil {
		return err
	}
	if p.options.BeforeDelete != nil {
		if err := p.options.BeforeDelete(ctx); err != nil {
			return callers(err)
		}
	}
	uid := o.GetUID()
	if err := p.Client.Delete(ctx, o, append(options, client.Preconditions{UID: &uid})...); err != nil {
		return p.applier.failure(verbDelete, key, err)
	}
	return nil
}

func isDryRun(options []client.PatchOption) bool {
	all := client.PatchOptions{}
	all.ApplyOptions(options)
	return len(all.DryRun) > 0 && all.DryRun[0] == metav1.DryRunAll
}

// groupResource returns what the API server's own errors name in place of a kind.
func groupResource(key object.ObjMetadata) schema.GroupResource {
	return schema.GroupResource{Group: key.GroupKind.Group, Resource: strings.ToLower(key.GroupKind.Kind)}
}
