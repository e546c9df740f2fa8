package object_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	runtimecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	runtimetest "sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// An object may be created while the watch begins. It is then new for some handlers, and in the
// initial list for other handlers. The controller reconciles the object in each case.
func TestObjectIsFoundWhileTheWatchBegins(t *testing.T) {
	const handlers = 3 // handlers that SetupWithManager adds for the kind itself
	for found := range 1 << handlers {
		t.Run(fmt.Sprintf("handlers %03b find it", found), func(t *testing.T) {
			w := newWorld(t)
			o := w.create("tenant-a", "app", nil)
			looked := make(chan struct{}, handlers)
			w.kind.wait = func(context.Context) { looked <- struct{}{} }
			informer := &beginning{FakeInformer: runtimetest.NewFakeInformer(runtimetest.Synced), object: o, found: found}
			informers := &informertest.FakeInformers{Scheme: w.Kube.Scheme(), InformersByGVK: map[schema.GroupVersionKind]cache.SharedIndexInformer{
				v1alpha1.GroupVersion().WithKind(v1alpha1.OCIRepositoryKind): informer,
			}}
			anyName := true
			mgr, err := manager.New(&rest.Config{}, manager.Options{
				Scheme:         w.Kube.Scheme(),
				Metrics:        server.Options{BindAddress: "0"},
				Controller:     config.Controller{SkipNameValidation: &anyName},
				MapperProvider: func(*rest.Config, *http.Client) (apimeta.RESTMapper, error) { return w.Kube.RESTMapper(), nil },
				NewCache:       func(*rest.Config, runtimecache.Options) (runtimecache.Cache, error) { return informers, nil },
				NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return w.Kube, nil },
			})
			must.Succeed(t, err)
			must.Succeed(t, w.r.SetupWithManager(t.Context(), mgr, 1))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- mgr.Start(ctx) }()
			select {
			case <-looked:
			case <-time.After(time.Minute):
				t.Error("nobody looks at the object")
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if n := informer.handlers; n != handlers {
				t.Errorf("the kind has %d handlers, so this test does not try all ways", n)
			}
			if !slices.Equal(w.kind.acted, []string{"app"}) {
				t.Errorf("looked at %v", w.kind.acted)
			}
		})
	}
}

// beginning is an informer that has one object. If bit i of found is set, handler i gets the object
// in the initial list. Otherwise, handler i gets it as a new object.
type beginning struct {
	*runtimetest.FakeInformer

	object client.Object
	found  int

	mu       sync.Mutex // guards the count below, and the FakeInformer's list of handlers
	handlers int
}

func (b *beginning) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	registration, err := b.AddEventHandler(handler)
	handler.OnAdd(b.object, b.found&(1<<b.handlers) != 0)
	b.handlers++
	return registration, err
}
