package kustomization

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/content"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/expression"
	"github.com/lanyard-dev/lanyard/internal/impersonation"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/kubeconfig"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
)

// Options configure the reconciler. All fields except DefaultServiceAccount are required.
type Options struct {
	// Clients act as the tenants' accounts.
	Clients *impersonation.Clients
	// Clusters are other clusters, which spec.kubeConfig names.
	Clusters *kubeconfig.Clusters
	// Live reads Kustomizations with their inventories, and Secrets with kubeconfig files, from the API
	// server.
	Live client.Reader
	// Sources have the artifacts.
	Sources *Sources
	// Content downloads artifacts.
	Content *content.Client
	// Builder builds manifests.
	Builder *kustomize.Builder
	// Expressions evaluates the tenants' CEL expressions.
	Expressions *expression.Evaluator
	// Records remember what was applied. The frame must forget objects that are gone:
	// object.Shared.Forgetter must be these records.
	Records *Records
	// Decryption decrypts the data keys of encrypted files.
	Decryption Decryption
	// DefaultServiceAccount is the name of the account for Kustomizations that name no account. Each
	// uses the account with this name in its own namespace. Empty: such Kustomizations are refused.
	DefaultServiceAccount string
	// Strict refuses variables that have neither a value nor a default.
	Strict bool
}

// Reconciler reconciles Kustomizations.
type Reconciler = object.Reconciler[*v1alpha1.Kustomization, plan]

// New makes the reconciler.
func New(shared *object.Shared, options Options) *Reconciler {
	return object.New(shared, v1alpha1.KustomizationKind, &kind{options})
}

// kind implements object.Kind.
type kind struct{ Options }

var _ object.Kind[*v1alpha1.Kustomization, plan] = (*kind)(nil)

// Empty implements object.Definition.
func (*kind) Empty() (*v1alpha1.Kustomization, client.ObjectList) {
	return &v1alpha1.Kustomization{}, kinds.Kustomization().NewList().(client.ObjectList)
}

// View implements object.Definition. Each object gets the finalizer, because its objects must be
// deleted with it.
func (k *kind) View(o *v1alpha1.Kustomization) object.View {
	view := object.View{
		Suspend: o.Spec.Suspend, Finalizer: true, SlowFinalizer: true, Interval: o.Spec.Interval.Duration, Timeout: &metav1.Duration{Duration: timeoutOf(o)},
		DependsOn: []object.Dependency{{Kind: o.Spec.SourceRef.Kind, Namespace: o.Namespace, Name: o.Spec.SourceRef.Name}},
	}
	for _, ref := range o.Spec.DependsOn {
		view.DependsOn = append(view.DependsOn, object.Dependency{Kind: v1alpha1.KustomizationKind, Namespace: o.Namespace, Name: ref.Name})
	}
	if subject := k.Decryption.subject(o); !subject.IsZero() {
		view.DependsOn = append(view.DependsOn, object.DependencyOn(subject))
	}
	if o.Spec.RetryInterval != nil {
		view.RetryWithin = o.Spec.RetryInterval.Duration
	}
	return view
}

// shortTimeout is the shortest default of spec.timeout. The default is shorter than the interval by
// this time.
const shortTimeout = 30 * time.Second

// timeoutOf returns spec.timeout, or its default.
func timeoutOf(o *v1alpha1.Kustomization) time.Duration {
	if o.Spec.Timeout != nil {
		return o.Spec.Timeout.Duration
	}
	return min(max(o.Spec.Interval.Duration-shortTimeout, shortTimeout), object.MaxTimeout)
}

// Remember is a transform for the program's cache. It leaves out inventories, which can be larger
// than all else of the object. The kind reads an inventory from the API server when it needs one.
func Remember(stored any) (any, error) {
	if o, ok := stored.(*v1alpha1.Kustomization); ok {
		o.Status.Inventory = nil
	}
	return object.Remember(stored)
}
