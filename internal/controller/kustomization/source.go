package kustomization

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/content"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/memory"
)

// Sources find in the program's cache what Kustomizations depend on: sources with their artifacts, and
// other Kustomizations.
type Sources struct {
	reader    client.Reader
	kinds     []sourceKind
	informers []informer
}

// informer watches the objects of one kind.
type informer struct {
	kind string
	cache.Informer
}

// sourceKind is a kind whose objects can be the source of a Kustomization.
type sourceKind struct {
	name     string
	empty    func() client.Object
	remember toolscache.TransformFunc // keeps only what identifies a source, and the artifact
}

// sourceKinds returns the kinds of sources. ExternalArtifact is Flux's kind.
func sourceKinds(external bool) []sourceKind {
	var all []sourceKind
	for _, kind := range kinds.All().Where(kinds.Kind.KeepsArtifacts) {
		all = append(all, sourceKind{kind.Kind, func() client.Object { return kind.New() }, rememberArtifact(kind)})
	}
	if external {
		all = append(all, sourceKind{v1alpha1.ExternalArtifactKind, func() client.Object { return newExternal() }, rememberExternal})
	}
	return all
}

// NewSources returns the sources in a cache. If external is true, Flux's ExternalArtifacts are among
// them. Then the API server must have this kind.
func NewSources(ctx context.Context, objects cache.Cache, external bool) (*Sources, error) {
	s := &Sources{reader: objects, kinds: sourceKinds(external)}
	watch := func(kind string, o client.Object) error {
		watched, err := objects.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if apimeta.IsNoMatchError(err) && kind == v1alpha1.ExternalArtifactKind {
			return fmt.Errorf("the cluster does not have Flux's kind ExternalArtifact: install Flux 2.7 or newer, or leave out --external-artifacts: %w", err)
		}
		if err != nil {
			return fmt.Errorf("watch objects of kind %s: %w", kind, err)
		}
		s.informers = append(s.informers, informer{kind, watched})
		return nil
	}
	for _, kind := range s.kinds {
		if err := watch(kind.name, kind.empty()); err != nil {
			return nil, err
		}
	}
	return s, watch(v1alpha1.KustomizationKind, &v1alpha1.Kustomization{})
}

// ByObject returns the settings of the program's cache for all sources: of a source, the cache has
// only what identifies the source, and the artifact.
func ByObject(external bool) map[client.Object]cache.ByObject {
	kept := map[client.Object]cache.ByObject{}
	for _, kind := range sourceKinds(external) {
		kept[kind.empty()] = cache.ByObject{Transform: kind.remember}
	}
	return kept
}

// rememberArtifact returns a transform that keeps only the artifact of a source.
func rememberArtifact(kind kinds.Kind) toolscache.TransformFunc {
	return func(stored any) (any, error) {
		whole, err := memory.Kept{}.Remember(stored)
		o, ok := whole.(kinds.Keeper)
		if err != nil || !ok {
			return whole, err // whole is a tombstone of the cache: the watch has missed a deletion
		}
		kept, ok := kind.New().(kinds.Keeper)
		if !ok {
			return nil, fmt.Errorf("objects of kind %s have no artifact", kind.Kind)
		}
		kept.SetNamespace(o.GetNamespace())
		kept.SetName(o.GetName())
		kept.SetUID(o.GetUID())
		kept.SetResourceVersion(o.GetResourceVersion())
		kept.GetArtifactStatus().Artifact = o.GetArtifactStatus().Artifact
		return kept, nil
	}
}

// artifact returns the artifact of a Kustomization's source. The owners are the objects that the URL of
// the artifact may name.
func (s *Sources) artifact(ctx context.Context, o *v1alpha1.Kustomization) (artifact *v1alpha1.Artifact, owners []content.Owner, err error) {
	ref := o.Spec.SourceRef
	i := slices.IndexFunc(s.kinds, func(k sourceKind) bool { return k.name == ref.Kind })
	switch {
	case i < 0 && ref.Kind == v1alpha1.ExternalArtifactKind:
		return nil, nil, object.Invalid("spec.sourceRef.kind", "ask the administrator to set apply.externalArtifacts", "the controller does not read ExternalArtifacts")
	case i < 0:
		return nil, nil, object.Invalid("spec.sourceRef.kind", "write one of "+strings.Join(kinds.All().Sources(), ", "), "%q is no kind of source", ref.Kind)
	}
	found := s.kinds[i].empty()
	err = s.reader.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: ref.Name}, found)
	if apierrors.IsNotFound(err) {
		return nil, nil, &sourceError{ref, "does not exist", "create it, or correct spec.sourceRef"}
	}
	if err != nil {
		return nil, nil, err
	}
	if artifact = artifactOf(found); artifact == nil {
		return nil, nil, &sourceError{ref, "has no artifact yet", "look at its condition Ready"}
	}
	owners = []content.Owner{{Kind: ref.Kind, Namespace: o.Namespace, Name: ref.Name}}
	if external, ok := found.(*unstructured.Unstructured); ok {
		owners = append(owners, sourceOf(external))
	}
	return artifact, owners, nil
}

// artifactOf returns the artifact of a source; nil if there is none.
func artifactOf(source any) *v1alpha1.Artifact {
	switch o := source.(type) {
	case kinds.Keeper:
		return o.GetArtifactStatus().Artifact
	case *unstructured.Unstructured:
		return externalArtifact(o)
	default:
		return nil
	}
}

// sourceError says why a source has no artifact.
type sourceError struct {
	ref       v1alpha1.SourceReference
	says, fix string
}

func (e *sourceError) Error() string {
	return fmt.Sprintf("spec.sourceRef: %s %s %s; %s", e.ref.Kind, e.ref.Name, e.says, e.fix)
}

// Subscribe registers a function that is called when the artifact of a source changes, when a
// Kustomization becomes Ready or applies a revision, and when one of both is deleted. The function
// must return at once.
func (s *Sources) Subscribe(changed func(object.Dependency)) {
	for _, i := range s.informers {
		told := func(o any) {
			if missed, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = missed.Obj
			}
			if source, ok := o.(client.Object); ok {
				changed(object.Dependency{Kind: i.kind, Namespace: source.GetNamespace(), Name: source.GetName()})
			}
		}
		_, _ = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: told,
			UpdateFunc: func(last, next any) {
				if stateOf(last) != stateOf(next) {
					told(next)
				}
			},
			DeleteFunc: told,
		})
	}
}

// stateOf returns what others depend on: a source's artifact and who may own it, or what a
// Kustomization has applied and whether it is Ready.
func stateOf(o any) string {
	if other, ok := o.(*v1alpha1.Kustomization); ok {
		return fmt.Sprint(isReady(other), other.Status.LastAppliedRevision)
	}
	artifact := artifactOf(o)
	if artifact == nil {
		return ""
	}
	owner := content.Owner{}
	if external, ok := o.(*unstructured.Unstructured); ok {
		owner = sourceOf(external)
	}
	return fmt.Sprint(artifact.URL, artifact.Revision, artifact.Digest, artifact.Size, owner)
}
