package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/jsondiff"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldManager is the name with which the objects' fields are owned.
const FieldManager = "lanyard-apply-controller"

// Applier applies and deletes the objects of one owner with the rights of one user.
type Applier struct {
	client client.Client
	served served
	user   User
	owner  Owner
	secret bool
}

// User is the user who sends an Applier's requests.
type User struct {
	// Name names the user in errors.
	Name string
	// Permit is the next step if the API server refuses to let the program act as the user, as a
	// sentence without a full stop.
	Permit string
}

// Owner is the object whose manifests are applied.
type Owner struct {
	// Namespace and Name are those of the object. They become values of labels, so each has at most
	// 63 characters.
	Namespace, Name string
}

// New returns an Applier. The client acts as the user. If secret is true, values of Secrets are in
// manifests of any kind. Then errors have no text of the API server that could repeat a value.
func New(c Client, user User, owner Owner, secret bool) *Applier {
	return &Applier{client: c, served: served{discover: c.Discover}, user: user, owner: owner, secret: secret}
}

// Client is a client of a cluster.
type Client interface {
	client.Client

	// Discover reads from the API server which kinds it serves now. The RESTMapper of a client can
	// have kinds and versions that the API server has no longer.
	Discover() (apimeta.RESTMapper, error)
}

// Options say how [Applier.Apply] works. The zero value applies all objects.
type Options struct {
	// Inventory has the owner's entries. Their objects probably exist: so they are read first, and
	// others are not.
	Inventory []Entry
	// State is what [Applier.Check] has found. Its unchanged objects get no request. Set it only if
	// the manifests are the same as at the last time. Nil means that all objects may have changed.
	State *State
	// Force deletes an object and creates it anew if an immutable field has changed.
	Force bool
	// TakeOver takes objects of the inventory from Flux's Kustomization with the owner's namespace and
	// name. Set TakeOver until all objects were applied once, and after a change or a request of the
	// user. Otherwise Flux has applied the objects again, and Apply refuses them.
	TakeOver bool
	// Ignore has fields that other programs manage.
	Ignore []jsondiff.IgnoreRule
	// Yields reports whether another owner leaves an object to this owner. If it does not, Apply
	// refuses the object with [ReasonOwned]. Nil means that no owner leaves an object.
	Yields func(ctx context.Context, e Entry, other Owner) (bool, error)
	// BeforeWrite is called once, before the first request that stores something. After an error,
	// nothing is stored. Nil does nothing.
	BeforeWrite func(ctx context.Context) error
	// Seen is called with each object as the API server has it: when the object is read, and after it
	// was written. Several goroutines call Seen. Nil does nothing.
	Seen func(o *unstructured.Unstructured)
	// BeforeDelete is called before each deletion that Force needs. After an error, the object is
	// not deleted. Nil does nothing.
	BeforeDelete func(ctx context.Context) error
}

// Result says what [Applier.Apply] has done.
type Result struct {
	// Changes has an action for each object, in the order in which the objects were applied.
	Changes []Change
	// Versions are the versions that the objects have now.
	Versions *Versions

	found map[object.ObjMetadata]version
	uids  map[types.UID]bool
}

func newResult() *Result {
	return &Result{Versions: &Versions{}, found: map[object.ObjMetadata]version{}, uids: map[types.UID]bool{}}
}

// Has reports whether the versions have the object of an entry in its present version.
func (r *Result) Has(e Entry, versions *Versions) bool { return has(r.found, e, versions) }

func has(found map[object.ObjMetadata]version, e Entry, versions *Versions) bool {
	v, ok := found[e.Key]
	return ok && versions.has(e.Key, v.uid, v.resourceVersion)
}

// has reports whether an object with this UID was applied, or is as it was left.
func (r *Result) has(uid types.UID) bool { return r != nil && r.uids[uid] }

// Change is what was done with an object.
type Change struct {
	Entry

	// Action is "created", "configured", "unchanged" or "skipped".
	Action ssa.Action
}

// Entries returns the entries of all objects: the owner's new inventory.
func (r *Result) Entries() []Entry {
	entries := make([]Entry, 0, len(r.Changes))
	for _, c := range r.Changes {
		entries = append(entries, c.Entry)
	}
	Sort(entries)
	return entries
}

// Changed returns the objects that were created or configured.
func (r *Result) Changed() []Change {
	var changed []Change
	for _, c := range r.Changes {
		if c.Action == ssa.CreatedAction || c.Action == ssa.ConfiguredAction {
			changed = append(changed, c)
		}
	}
	return changed
}

// concurrency is how many dry runs of one owner run at once.
const concurrency = 4

// Apply makes the objects of the cluster equal to the manifests. It changes the manifests: it adds
// the owner's labels, and writes empty values as the API server does.
//
// CustomResourceDefinitions, Namespaces and ClusterRoles come first, then Roles and classes such as
// StorageClasses, and then all others. Apply tries all objects of a stage before it writes the first
// of them. Only the owners of fields are corrected while objects are tried: kubectl and Flux lose
// theirs. The result is never nil; after an error, it has the objects of the finished stages. The
// error is an [*Error] or the cause of ctx.
func (a *Applier) Apply(ctx context.Context, manifests []*unstructured.Unstructured, options Options) (*Result, error) {
	result := newResult()
	if err := a.prepare(manifests); err != nil {
		return result, err
	}
	placed := make(map[object.ObjMetadata]bool, len(manifests))
	p, manager := a.manager(manifests, options)
	defer a.served.forget() // new kinds may be among the objects
	for _, stage := range stagesOf(manifests) {
		if err := a.place(stage, placed); err != nil {
			return result, err
		}
		if err := a.applyStage(ctx, manager, p, stage, options, result); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return result, cause
			}
			return result, err
		}
		p.remember(result)
	}
	return result, nil
}

// manager returns package ssa's manager, and the client that the manager uses. It adds the owner's
// labels to the manifests.
func (a *Applier) manager(manifests []*unstructured.Unstructured, options Options) (*probe, *ssa.ResourceManager) {
	p := newProbe(a, manifests, options)
	manager := ssa.NewResourceManager(p, nil, ssa.Owner{Field: FieldManager, Group: Group})
	manager.SetConcurrency(concurrency)
	manager.SetOwnerLabels(manifests, a.owner.Name, a.owner.Namespace)
	return p, manager
}

// prepare checks the manifests, and writes empty values as the API server does.
func (a *Applier) prepare(manifests []*unstructured.Unstructured) error {
	seen := map[object.ObjMetadata]bool{}
	for _, o := range manifests {
		key := keyOf(o)
		switch {
		case !isKind(o.GroupVersionKind()) || !isObject(o.GroupVersionKind()):
			return a.refuse(ReasonUnknownKind, key, fmt.Sprintf("%.300q, %.300q is no kind of objects", o.GetAPIVersion(), o.GetKind()), "correct apiVersion and kind")
		case object.RBACGroupKind[key.GroupKind] && strings.Contains(key.Name, "__"):
			return a.refuse(ReasonInvalid, key, "an inventory cannot name the object", "choose a name without two underscores in a row")
		case seen[key]:
			return a.twice(key)
		}
		seen[key] = true
	}
	for _, o := range manifests {
		withoutFluxLabels(o)
		if err := normalize.UnstructuredList([]*unstructured.Unstructured{o}); err != nil {
			return a.failure(verbApply, keyOf(o), err)
		}
	}
	return nil
}

// withoutFluxLabels removes the labels with which Flux marks its objects. They are in manifests that
// somebody has read from a cluster.
func withoutFluxLabels(o *unstructured.Unstructured) {
	labels := o.GetLabels()
	before := len(labels)
	for _, name := range fluxLabels() {
		delete(labels, name)
	}
	if len(labels) < before {
		o.SetLabels(labels)
	}
}

// isObject reports whether the kind has objects. Kubernetes' API groups also have kinds of answers and
// of options, such as Status, with which package ssa cannot work.
func isObject(kind schema.GroupVersionKind) bool {
	known, err := scheme.Scheme.New(kind)
	if err != nil {
		return true // a kind of a CustomResourceDefinition
	}
	_, ok := known.(metav1.Object)
	return ok
}

func (a *Applier) twice(key object.ObjMetadata) error {
	return a.refuse(ReasonInvalid, key, "two manifests are this object", "remove one of them")
}

// refuse returns the error for a manifest that no API server needs to judge.
func (a *Applier) refuse(reason Reason, key object.ObjMetadata, what, fix string) error {
	return &Error{Reason: reason, Verb: verbApply, Key: key, User: a.user.Name, Err: errors.New(what), Fix: fix, text: what}
}

// place removes the namespace of cluster-scoped objects, and refuses other objects without a
// namespace. The map placed has the objects of earlier stages, and gets those of this stage.
func (a *Applier) place(stage []*unstructured.Unstructured, placed map[object.ObjMetadata]bool) error {
	for _, o := range stage {
		mapping, err := a.client.RESTMapper().RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		if err != nil {
			return a.failure(verbApply, keyOf(o), err)
		}
		switch {
		case mapping.Scope.Name() == apimeta.RESTScopeNameRoot:
			o.SetNamespace("")
		case o.GetNamespace() == "":
			return a.refuse(ReasonNoNamespace, keyOf(o), "the manifest has no namespace", "add metadata.namespace, or set spec.targetNamespace")
		}
		if key := keyOf(o); placed[key] {
			return a.twice(key)
		}
		placed[keyOf(o)] = true
	}
	return nil
}

// stagesOf sorts the manifests into the stages of Apply. A stage may be empty.
func stagesOf(manifests []*unstructured.Unstructured) [3][]*unstructured.Unstructured {
	var stages [3][]*unstructured.Unstructured
	for _, o := range manifests {
		i := 2
		switch {
		case utils.IsClusterDefinition(o):
			i = 0
		case utils.IsClassDefinition(o), isRole(o):
			i = 1
		}
		stages[i] = append(stages[i], o)
	}
	return stages
}

// isRole reports whether a manifest is a Role. The API server refuses a RoleBinding whose Role does not
// exist, unless the user has the verb bind for the Role. So the Role must come first.
func isRole(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().GroupKind() == schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}
}

// applyStage applies the objects of one stage, and adds them to the result.
func (a *Applier) applyStage(
	ctx context.Context, manager *ssa.ResourceManager, p *probe, stage []*unstructured.Unstructured, options Options, result *Result,
) error {
	var todo []*unstructured.Unstructured
	for _, o := range stage {
		if p.keep(keyOf(o), options.State) {
			result.Changes = append(result.Changes, Change{EntryOf(o), ssa.UnchangedAction})
			continue
		}
		p.want(o)
		todo = append(todo, o)
	}
	if len(todo) == 0 {
		return nil
	}
	set, err := manager.ApplyAll(ctx, todo, applyOptions(options))
	if err != nil {
		return a.failureOf(err)
	}
	var definitions []*unstructured.Unstructured
	for i, entry := range set.Entries {
		change := Change{Entry{entry.ObjMetadata, entry.GroupVersion}, entry.Action}
		if change.Key.Name == "" {
			return fmt.Errorf("package ssa does not say what became of %s", describe(keyOf(todo[i])))
		}
		result.Changes = append(result.Changes, change)
		if utils.IsCRD(todo[i]) && entry.Action != ssa.UnchangedAction && entry.Action != ssa.SkippedAction {
			definitions = append(definitions, todo[i])
		}
	}
	return a.established(ctx, definitions)
}

// failureOf returns the cause of an error of package ssa. Errors of package ssa itself can have the
// whole object in their text, so they are not shown.
func (a *Applier) failureOf(err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if own, ok := errors.AsType[*callersError](err); ok {
		return own.error
	}
	const text = "an object of the cluster cannot be compared with its manifest"
	return &Error{Reason: ReasonInvalid, Verb: verbApply, User: a.user.Name, Err: err, text: text, Fix: "correct the paths of spec.ignore, which must not remove what identifies an object"}
}

// callersError is an error of a function in [Options].
type callersError struct{ error }

func (e *callersError) Unwrap() error { return e.error }

// callers marks an error of a function in [Options].
func callers(err error) error {
	if err == nil {
		return nil
	}
	return &callersError{err}
}

// definitionPatience is how long Apply waits until the API server serves a new kind.
const definitionPatience = 30 * time.Second

// established waits until the API server serves the kinds of these CustomResourceDefinitions.
func (a *Applier) established(ctx context.Context, definitions []*unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, definitionPatience)
	defer cancel()
	for _, o := range definitions {
		for {
			served, err := a.serves(ctx, o)
			if err != nil {
				return a.failure(verbGet, keyOf(o), err)
			}
			if served {
				break
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return a.failure(verbGet, keyOf(o), fmt.Errorf("the API server does not serve its kind yet: %w", ctx.Err()))
			}
		}
	}
	return nil
}

// serves reports whether the API server serves the kind of a CustomResourceDefinition. The API server
// lists a kind some time after the definition is established.
func (a *Applier) serves(ctx context.Context, definition *unstructured.Unstructured) (bool, error) {
	now := EntryOf(definition).empty()
	if err := a.client.Get(ctx, client.ObjectKeyFromObject(definition), now); err != nil {
		return false, err
	}
	if found, err := status.Compute(now); err != nil || found.Status != status.CurrentStatus {
		return false, nil //nolint:nilerr // the status may get another shape
	}
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		if version["served"] != true {
			continue
		}
		_, err := a.client.RESTMapper().RESTMapping(schema.GroupKind{Group: group, Kind: kind}, name)
		if apimeta.IsNoMatchError(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// applyOptions returns the options of package ssa.
func applyOptions(options Options) ssa.ApplyOptions {
	o := ssa.DefaultApplyOptions()
	o.Force = options.Force
	o.DriftIgnoreRules = options.Ignore
	o.ExclusionSelector = selector(pair{reconcileName, "disabled"}, pair{ssaName, "Ignore"})
	o.IfNotPresentSelector = selector(pair{ssaName, "IfNotPresent"})
	o.ForceSelector = selector(pair{forceName, "Enabled"})
	// The fields that kubectl and Flux have written become Lanyard's. So a field that the manifest
	// does not have is removed.
	o.Cleanup = ssa.ApplyCleanupOptions{
		Annotations: []string{corev1.LastAppliedConfigAnnotation},
		Labels:      fluxLabels(),
		FieldManagers: []ssa.FieldManager{
			{Name: "kustomize-controller", ExactMatch: true, OperationType: metav1.ManagedFieldsOperationApply},
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: "before-first-apply", OperationType: metav1.ManagedFieldsOperationUpdate},
		},
		Exclusions: mergeSelector(),
	}
	return o
}

// mergeSelector selects objects in which the fields of others stay.
func mergeSelector() map[string]string { return selector(pair{ssaName, "Merge"}) }

// Labels and annotations of objects. Each exists in Lanyard's group and in Flux's.
const (
	// Group is the prefix of the owner's labels, and of the annotations.
	Group     = "kustomize.toolkit.lanyard.dev"
	fluxGroup = "kustomize.toolkit.fluxcd.io"

	nameLabel          = Group + "/name"
	namespaceLabel     = Group + "/namespace"
	fluxNameLabel      = fluxGroup + "/name"
	fluxNamespaceLabel = fluxGroup + "/namespace"

	reconcileName = "reconcile"
	ssaName       = "ssa"
	forceName     = "force"
	pruneName     = "prune"
)

func fluxLabels() []string { return []string{fluxNameLabel, fluxNamespaceLabel} }

func annotation(name string) string { return Group + "/" + name }

// pair is the name of an annotation, without its group, and a value.
type pair struct{ name, value string }

// selector returns the labels or annotations that select an object.
func selector(pairs ...pair) map[string]string {
	selects := map[string]string{}
	for _, p := range pairs {
		selects[Group+"/"+p.name], selects[fluxGroup+"/"+p.name] = p.value, p.value
	}
	return selects
}

// labels returns the labels of the owner's objects.
func (a *Applier) labels() map[string]string {
	return map[string]string{nameLabel: a.owner.Name, namespaceLabel: a.owner.Namespace}
}
