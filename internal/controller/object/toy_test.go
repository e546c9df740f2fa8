package object_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// toy is a kind that fetches nothing and stores nothing. Its objects are of type OCIRepository; it
// uses only a few of their fields.
type toy struct {
	act  func(o *v1alpha1.OCIRepository) (news string, err error) // nil: Act does nothing
	wait func(ctx context.Context)                                // runs before act; may be nil
	// saves runs in place of act, with the function that writes the status; may be nil.
	saves      func(ctx context.Context, o *v1alpha1.OCIRepository, save func(context.Context) error) error
	note       string // text of the News
	warning    object.Warning
	report     error
	finalize   error
	finalizing func() // runs in Finalize; may be nil

	slowFinalizer bool // value of View.SlowFinalizer

	startWithin time.Duration // value of View.StartWithin for each object that is not suspended
	retryWithin time.Duration

	acted     []string // names of the objects for which Act ran
	outcomes  []object.Outcome
	finalized []string
	timely    bool // the last call of Finalize had a deadline
}

var errOdd = errors.New("odd")

func (*toy) Empty() (*v1alpha1.OCIRepository, client.ObjectList) {
	return &v1alpha1.OCIRepository{}, &v1alpha1.OCIRepositoryList{}
}

func (k *toy) View(o *v1alpha1.OCIRepository) object.View {
	v := object.View{Suspend: o.Spec.Suspend, Finalizer: !o.Spec.Insecure, Interval: o.Spec.Interval.Duration, Timeout: o.Spec.Timeout}
	v.RetryWithin, v.SlowFinalizer = k.retryWithin, k.slowFinalizer
	if !o.Spec.Suspend {
		v.StartWithin = k.startWithin
	}
	if name := o.Spec.ServiceAccountName; name != "" {
		v.DependsOn = append(v.DependsOn, object.Dependency{Kind: "ServiceAccount", Namespace: o.Namespace, Name: name})
	}
	if o.Spec.SecretRef != nil { // SecretRef names a cluster-scoped dependency
		v.DependsOn = append(v.DependsOn, object.Dependency{Kind: "Cluster", Name: o.Spec.SecretRef.Name})
	}
	return v
}

func (*toy) Decide(_ context.Context, o *v1alpha1.OCIRepository) (string, error) {
	if o.Spec.URL == "" {
		return "", object.Invalid("spec.url", "write one", "it is empty")
	}
	return o.Spec.URL, nil
}

func (k *toy) Act(ctx context.Context, o *v1alpha1.OCIRepository, plan string, save func(context.Context) error) (object.News, error) {
	if plan != o.Spec.URL {
		return object.News{}, errors.New("the plan is another object's")
	}
	k.acted = append(k.acted, o.Name)
	if k.wait != nil {
		k.wait(ctx)
	}
	if k.saves != nil {
		return object.News{}, k.saves(ctx, o, save)
	}
	if k.act == nil {
		return object.News{}, nil
	}
	news, err := k.act(o)
	return object.News{Reason: news, Note: k.note, Warning: k.warning}, err
}

func (k *toy) Report(_ context.Context, o *v1alpha1.OCIRepository, outcome object.Outcome) (string, error) {
	k.outcomes = append(k.outcomes, outcome)
	return o.Status.LastHandledReconcileAt, k.report
}

func (k *toy) Finalize(ctx context.Context, o *v1alpha1.OCIRepository) error {
	k.finalized = append(k.finalized, o.Name)
	_, k.timely = ctx.Deadline()
	if k.finalizing != nil {
		k.finalizing()
	}
	return k.finalize
}

func (*toy) Explain(err error) (object.Failure, bool) {
	if f, ok := object.TimedOut(err, "Slow"); ok {
		return f, true
	}
	if errors.Is(err, errUnusable) {
		return object.Failure{Reason: "Unusable", AtInterval: true}, true
	}
	if errors.Is(err, errPending) {
		return object.Failure{Reason: meta.ReasonProgressing, Waiting: true, RetryAfter: 3 * time.Second}, true
	}
	return object.Failure{Reason: "Odd", Message: "that was odd"}, errors.Is(err, errOdd)
}

var (
	errUnusable = errors.New("what was found is unusable")
	errPending  = errors.New("others have work to do")
)

// world has an [object.Reconciler] whose kind is the toy.
type world struct {
	*controllertest.World[*v1alpha1.OCIRepository]

	r    *object.Reconciler[*v1alpha1.OCIRepository, string]
	kind *toy
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: controllertest.New[*v1alpha1.OCIRepository](t, "", store.Options{}), kind: &toy{}}
	w.Start(func() reconcile.Reconciler {
		w.r = object.New(w.Shared.Shared.Shared, v1alpha1.OCIRepositoryKind, w.kind)
		return w.r
	})
	w.Index = w.r.Index
	return w
}

// fails makes Act cycle through errs. Each object starts with the first error.
func (w *world) fails(errs ...error) {
	n := map[string]int{}
	w.kind.act = func(o *v1alpha1.OCIRepository) (string, error) {
		n[o.Name]++
		return "", errs[(n[o.Name]-1)%len(errs)]
	}
}

func (w *world) create(namespace, name string, edit func(*v1alpha1.OCIRepository)) *v1alpha1.OCIRepository {
	w.T.Helper()
	return w.Create(&v1alpha1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.OCIRepositorySpec{
			URL:            "oci://registry.example.com/app",
			Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: 10 * time.Minute}},
			RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{ServiceAccountName: "puller"}},
		},
	}, edit)
}

// newQueue returns a controller's queue, which is shut down when the test ends.
func newQueue(t *testing.T) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	return queue
}

// reconcile reconciles the object once, and checks the rules that hold for all reconciled objects.
func (w *world) reconcile(o *v1alpha1.OCIRepository) reconcile.Result {
	w.T.Helper()
	_, result := w.Reconcile(o)
	return result
}

func (w *world) ready(o *v1alpha1.OCIRepository) metav1.Condition {
	return controllertest.Ready(w.Get(o))
}

// change reports to the subscribers that an account has changed.
func (w *world) change(namespace, name string) {
	w.T.Helper()
	subject, err := auth.ServiceAccount(namespace, name)
	if err != nil {
		w.T.Fatal(err)
	}
	w.Accounts.Tell(subject)
}

// remembering returns the function Get of a cache that may be behind. While *behind is true, Get
// returns the old version in before.
func remembering(before *v1alpha1.OCIRepository, behind *bool) func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
	return func(ctx context.Context, c client.WithWatch, key client.ObjectKey, read client.Object, opts ...client.GetOption) error {
		if *behind {
			before.DeepCopyInto(read.(*v1alpha1.OCIRepository))
			return nil
		}
		return c.Get(ctx, key, read, opts...)
	}
}
