package source_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// toy is a kind of source whose objects are of type OCIRepository. The function in its field fetch
// does the work of Fetch.
type toy struct {
	fetch   func(o *v1alpha1.OCIRepository, call source.Call) error // nil: Fetch does nothing
	fetched []string                                                // names of the fetched objects
	calls   []source.Call                                           // arguments of Decide
}

func (k *toy) Decide(o *v1alpha1.OCIRepository, call source.Call) (string, error) {
	k.calls = append(k.calls, call)
	if o.Spec.URL == "" {
		return "", object.Invalid("spec.url", "write one", "it is empty")
	}
	return o.Spec.URL, nil
}

func (k *toy) Fetch(_ context.Context, o *v1alpha1.OCIRepository, _ string, call source.Call) error {
	k.fetched = append(k.fetched, o.Name)
	if k.fetch == nil {
		return nil
	}
	return k.fetch(o, call)
}

var errOdd = errors.New("odd")

func (*toy) Explain(err error) (object.Failure, bool) {
	return object.Failure{Reason: "Odd", Message: "that was odd"}, errors.Is(err, errOdd)
}

// world has a [source.Reconciler] whose kind is the toy.
type world struct {
	*controllertest.World[*v1alpha1.OCIRepository]

	kind *toy
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, store.Options{})
}

func newWorldWith(t *testing.T, options store.Options) *world {
	t.Helper()
	w := &world{World: controllertest.New[*v1alpha1.OCIRepository](t, serviceHost, options), kind: &toy{}}
	w.Start(func() reconcile.Reconciler { return source.New(w.Shared, kinds.OCIRepository(), w.kind) })
	return w
}

// named returns [kinds.OCIRepository] with the field Kind set to name. The type of its objects is
// still OCIRepository.
func named(name string) kinds.Kind {
	entry := kinds.OCIRepository()
	entry.Kind = name
	return entry
}

func (w *world) create(namespace, name string, edit func(*v1alpha1.OCIRepository)) *v1alpha1.OCIRepository {
	w.T.Helper()
	return w.Create(&v1alpha1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.OCIRepositorySpec{
			URL:            "oci://registry.example.com/app",
			Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: 10 * time.Minute}},
			RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: "aws", ServiceAccountName: "puller"}},
		},
	}, edit)
}

// reconcile reconciles the object once, and checks the rules that hold for all objects.
func (w *world) reconcile(o *v1alpha1.OCIRepository) reconcile.Result {
	w.T.Helper()
	_, result := w.Reconcile(o)
	return result
}

func (w *world) ready(o *v1alpha1.OCIRepository) metav1.Condition {
	return controllertest.Ready(w.Get(o))
}

// finds makes each fetch find an artifact of this revision and store it.
func (w *world) finds(revision string) { w.findsContent(revision, "content of "+revision) }

func (w *world) findsContent(revision, content string) {
	w.kind.fetch = func(o *v1alpha1.OCIRepository, call source.Call) error {
		artifact, err := w.Shared.Artifacts.Put(w.T.Context(), call.Owner, o.Status.Artifact, revision, func(out io.Writer) error {
			_, err := io.WriteString(out, content)
			return err
		})
		if err == nil {
			o.Status.Artifact = artifact
		}
		return err
	}
}

// fails makes each fetch return the error.
func (w *world) fails(err error) {
	w.kind.fetch = func(*v1alpha1.OCIRepository, source.Call) error { return err }
}

// published returns the condition ExternalArtifactPublished, or the zero value if there is none.
func (w *world) published(o *v1alpha1.OCIRepository) metav1.Condition {
	return controllertest.Condition(w.Get(o), meta.ConditionExternalArtifactPublished)
}
