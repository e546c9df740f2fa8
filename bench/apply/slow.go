package main

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/bench/internal/stage"
)

const (
	// slowNamespace is the namespace of the slow tenant.
	slowNamespace = "tenant-slow"
	// slowObjects is how many objects the slow tenant has.
	slowObjects = 20
	// slowPairs is how many pairs of objects are in the artifact of the slow tenant. The time to build
	// grows with the square of this number.
	slowPairs = 1000
	// samples is how many reconciliations of other tenants are timed, and sampling is the longest time
	// for all of them.
	samples  = 200
	sampling = 2 * time.Minute
)

// delays are the times from requests until the objects were reconciled, the shortest first.
type delays []time.Duration

// quantile returns the time that the fraction q of the reconciliations did not exceed.
func (d delays) quantile(q float64) time.Duration {
	return d[max(0, int(math.Ceil(q*float64(len(d))))-1)]
}

// others has the delays of other tenants' objects.
type others struct{ alone, besideBuilds, besideHanging delays }

// hangingServer is an API server that answers nothing.
type hangingServer struct {
	*httptest.Server

	asked atomic.Int64 // number of requests
}

func startHanging() *hangingServer {
	s := &hangingServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		<-r.Context().Done()
	}))
	return s
}

// kubeconfig returns a kubeconfig file for the server.
func (s *hangingServer) kubeconfig() string {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: c}}]\n"+
		"clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\nusers: [{name: c, user: {token: secret}}]\n",
		s.URL, base64.StdEncoding.EncodeToString(authority))
}

// slowManifests returns the files of an artifact that takes seconds to build: each Deployment names
// a ConfigMap, and all names get a prefix.
func slowManifests() map[string]string {
	var text strings.Builder
	for i := range slowPairs {
		fmt.Fprintf(&text, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c-%d, namespace: %s}\n---\n", i, slowNamespace)
		fmt.Fprintf(&text, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: c-%d, namespace: %s}\n"+
			"spec: {template: {spec: {containers: [{name: a, envFrom: [{configMapRef: {name: c-%d}}]}]}}}\n---\n", i, slowNamespace, i)
	}
	return map[string]string{"all.yaml": text.String(), "kustomization.yaml": "namePrefix: x-\nresources: [all.yaml]\n"}
}

// besideSlow measures other tenants' objects while one tenant's builds are slow, and while this
// tenant's API server hangs. The slow tenant's account has no rights, so nothing of the tenant is
// applied.
func (w *world) besideSlow(ctx context.Context, watching client.WithWatch, a *artifacts, hanging *hangingServer) (o others, err error) {
	w.say("%d reconciliations are timed, one after another", samples)
	if o.alone, err = w.sample(ctx, watching, "alone"); err != nil {
		return o, err
	}
	if err := w.createSlow(ctx, a, hanging); err != nil {
		return o, err
	}
	w.say("another tenant builds %d artifacts, which take seconds each", slowObjects)
	before := a.fetches.Load()
	if err := w.each(ctx, "build", nil); err != nil {
		return o, err
	}
	if err := w.await(ctx, "no slow build has begun", func() bool { return a.fetches.Load() > before }); err != nil {
		return o, err
	}
	if o.besideBuilds, err = w.sample(ctx, watching, "builds"); err != nil {
		return o, err
	}
	w.say("the other tenant's builds end")
	if err := w.deleteSlow(ctx); err != nil {
		return o, err
	}
	w.say("another tenant has %d objects for an API server that hangs", slowObjects)
	if err := w.each(ctx, "hang", map[string]any{"secretRef": map[string]any{"name": "kubeconfig"}}); err != nil {
		return o, err
	}
	if err := w.await(ctx, "the server that hangs gets no request", func() bool { return hanging.asked.Load() > 0 }); err != nil {
		return o, err
	}
	o.besideHanging, err = w.sample(ctx, watching, "hanging")
	return o, err
}

// createSlow creates the namespace of the slow tenant, with its source and its kubeconfig file.
func (w *world) createSlow(ctx context.Context, a *artifacts, hanging *hangingServer) error {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: slowNamespace, Name: name} }
	source := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": w.sourceVersion, "kind": w.sourceKind, "metadata": map[string]any{"namespace": slowNamespace, "name": slowName},
		"spec": map[string]any{"url": "oci://registry.example.com/slow", "ref": map[string]any{"tag": "1.4.2"}, "interval": interval.String()},
	}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: slowNamespace}},
		&corev1.ServiceAccount{ObjectMeta: named(applier)},
		&corev1.Secret{ObjectMeta: named("kubeconfig"), StringData: map[string]string{"value": hanging.kubeconfig()}},
		source,
	} {
		if err := w.Client().Create(ctx, o); err != nil {
			return err
		}
	}
	source.Object["status"] = a.statusAt(slowPath)
	return w.Client().Status().Update(ctx, source)
}

// each creates the objects of the slow tenant. The kubeconfig is the value of spec.kubeConfig; nil
// for none.
func (w *world) each(ctx context.Context, prefix string, kubeconfig map[string]any) error {
	for i := range slowObjects {
		o := w.slow()
		o.SetName(fmt.Sprintf("%s-%d", prefix, i))
		spec := map[string]any{
			"sourceRef": map[string]any{"kind": w.sourceKind, "name": slowName}, "path": "./", "prune": true, "interval": interval.String(),
			"serviceAccountName": applier, "timeout": "1m",
		}
		if kubeconfig != nil {
			spec["kubeConfig"] = kubeconfig
		} else {
			spec["nameSuffix"] = fmt.Sprint("-", i) // so that each object has a build of its own
		}
		o.Object["spec"] = spec
		if err := w.Client().Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// slow returns an object of the slow tenant without a name.
func (w *world) slow() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": w.applyVersion, "kind": w.applyKind}}
	o.SetNamespace(slowNamespace)
	return o
}

// deleteSlow deletes the objects of the slow tenant, and waits until they are gone.
func (w *world) deleteSlow(ctx context.Context) error {
	if err := w.Client().DeleteAllOf(ctx, w.slow(), client.InNamespace(slowNamespace)); err != nil {
		return err
	}
	return w.await(ctx, "objects of the slow tenant stay", func() bool {
		list := w.list()
		return w.Client().List(ctx, list, client.InNamespace(slowNamespace)) == nil && len(list.Items) == 0
	})
}

// await waits until a condition holds. The text says what is wrong until then.
func (w *world) await(ctx context.Context, text string, holds func() bool) error {
	return w.Await(ctx, 100*time.Millisecond, func(context.Context) error {
		if holds() {
			return nil
		}
		return errors.New(text)
	})
}

// sample asks for reconciliations of other tenants' objects, one after another, and returns their
// delays. The last reconciliation may not have ended when the time is over. It counts with its time
// so far.
func (w *world) sample(ctx context.Context, watching client.WithWatch, request string) (delays, error) {
	limited, cancel := context.WithTimeout(ctx, sampling)
	defer cancel()
	var all delays
	for i := 0; i < samples && limited.Err() == nil; i++ {
		took, err := w.reconcile(limited, watching, object(w.applyVersion, w.applyKind, i%w.n), fmt.Sprintf("%s-%d", request, i))
		if err != nil && limited.Err() == nil {
			return nil, err
		}
		all = append(all, took)
	}
	slices.Sort(all)
	return all, ctx.Err()
}

// reconcile asks for a reconciliation of an object, and returns how long it took. After an error,
// this is the time until the error.
func (w *world) reconcile(ctx context.Context, watching client.WithWatch, o *unstructured.Unstructured, request string) (took time.Duration, err error) {
	watcher, err := watching.Watch(ctx, w.list(), client.InNamespace(o.GetNamespace()), client.MatchingFields{"metadata.name": o.GetName()})
	if err != nil {
		return 0, err
	}
	defer watcher.Stop()
	began := time.Now()
	defer func() { took = time.Since(began) }()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, w.request, request))
	if err := watching.Patch(ctx, o, patch); err != nil {
		return 0, err
	}
	for event := range watcher.ResultChan() {
		now, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		handled, _, _ := unstructured.NestedString(now.Object, "status", "lastHandledReconcileAt")
		if handled == request && stage.IsReady(now) {
			return 0, nil
		}
	}
	return 0, errors.New("the watch has ended")
}
