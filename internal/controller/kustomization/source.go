package kustomization

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/memory"
)

// Sources find in the program's cache what Kustomizations depend on: sources with their artifacts, and
// other Kustomizations.
type Sources struct {
	reader    client.Reader
	informers []informer
}

// informer watches the sources of one kind.
type informer struct {
	kind kinds.Kind
	cache.Informer
}

// sourceKinds returns the kinds whose objects can be the source of a Kustomization.
func sourceKinds() kinds.Table { return kinds.All().Where(kinds.Kind.KeepsArtifacts) }

// NewSources returns the sources in a cache.
func NewSources(ctx context.Context, reader client.Reader, informers cache.Informers) (*Sources, error) {
	s := &Sources{reader: reader}
	for _, kind := range sourceKinds() {
		watched, err := informers.GetInformer(ctx, kind.New(), cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch objects of kind %s: %w", kind.Kind, err)
		}
		s.informers = append(s.informers, informer{kind, watched})
	}
	watched, err := informers.GetInformer(ctx, &v1alpha1.Kustomization{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch objects of kind %s: %w", v1alpha1.KustomizationKind, err)
	}
	s.informers = append(s.informers, informer{kinds.Kustomization(), watched})
	return s, nil
}

// ByObject returns the settings of the program's cache for all sources: of a source, the cache has
// only what identifies the source, and the artifact.
func ByObject() map[client.Object]cache.ByObject {
	kept := map[client.Object]cache.ByObject{}
	for _, kind := range sourceKinds() {
		kept[kind.New()] = cache.ByObject{Transform: rememberArtifact(kind)}
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

// artifact returns the artifact of a Kustomization's source.
func (s *Sources) artifact(ctx context.Context, o *v1alpha1.Kustomization) (*v1alpha1.Artifact, error) {
	ref := o.Spec.SourceRef
	kind, ok := sourceKinds().Named(ref.Kind)
	if !ok {
		return nil, object.Invalid("spec.sourceRef.kind", "use one of "+fmt.Sprint(sourceKinds().Names()), "%q is no kind of source", ref.Kind)
	}
	found := kind.New().(kinds.Keeper) //nolint:forcetypeassert // sourceKinds has only such kinds
	err := s.reader.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: ref.Name}, found)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &sourceError{ref, "does not exist", "create it, or correct spec.sourceRef"}
	case err != nil:
		return nil, err
	case found.GetArtifactStatus().Artifact == nil:
		return nil, &sourceError{ref, "has no artifact yet", "look at its condition Ready"}
	}
	return found.GetArtifactStatus().Artifact, nil
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
				changed(object.Dependency{Kind: i.kind.Kind, Namespace: source.GetNamespace(), Name: source.GetName()})
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

// stateOf returns what others depend on: the URL and the revision of a source's artifact, or what a
// Kustomization has applied and whether it is Ready.
func stateOf(o any) [2]string {
	switch o := o.(type) {
	case *v1alpha1.Kustomization:
		return [2]string{fmt.Sprint(isReady(o)), o.Status.LastAppliedRevision}
	case kinds.Keeper:
		if artifact := o.GetArtifactStatus().Artifact; artifact != nil {
			return [2]string{artifact.URL, artifact.Revision}
		}
	}
	return [2]string{}
}
