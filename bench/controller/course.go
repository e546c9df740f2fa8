package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// controller is lanyard-controller or Flux's source-controller.
type controller struct {
	name, binary, crds string
	// apiVersion is the version of the controller's OCIRepository.
	apiVersion string
	// request is the annotation that asks for a reconciliation.
	request string
	// args returns the controller's flags, with the folder of the artifacts, and with three
	// addresses to listen on: for artifacts, metrics and health.
	args func(store string, listen []string) []string
}

func (l *lab) controllers() []controller {
	lanyard := controller{
		name: "lanyard", binary: l.Binary("lanyard-controller"), crds: l.crds,
		apiVersion: "toolkit.lanyard.dev/v1alpha1", request: "lanyard.dev/reconcile-requested-at",
		args: func(store string, listen []string) []string {
			return []string{
				"--storage-path=" + store, "--artifact-listen-address=" + listen[0],
				"--artifact-base-url=http://" + listen[0], "--metrics-address=" + listen[1],
				"--health-address=" + listen[2], "--concurrent=10", "--kubeconfig=" + l.kubeconfig,
				"--allowed-endpoint-hosts=" + strings.Join(l.registry.hosts(), ","),
			}
		},
	}
	if l.onlyOurs {
		return []controller{lanyard}
	}
	return []controller{lanyard, {
		name: "flux", binary: l.Binary("flux-source-controller"), crds: l.fluxCRDs,
		apiVersion: "source.toolkit.fluxcd.io/v1", request: "reconcile.fluxcd.io/requestedAt",
		args: func(store string, listen []string) []string {
			return []string{
				"--storage-path=" + store, "--storage-addr=" + listen[0], "--storage-adv-addr=" + listen[0],
				"--metrics-addr=" + listen[1], "--health-addr=" + listen[2], "--concurrent=10",
				"--feature-gates=ObjectLevelWorkloadIdentity=true", "--token-cache-max-size=10000",
			}
		},
	}}
}

// course runs all cases of the benchmark with one controller, and keeps the measured figures.
type course struct {
	*lab
	controller

	store    string
	reserved *local.Reservation // addresses for artifacts, metrics and health
	process  *process           // nil between two cases
	figures  map[figure]float64
}

// process is a running controller.
type process struct {
	ready time.Duration // from the start until it was ready
	stop  func()
}

// newCourse installs the CRDs of a controller and reserves addresses until the measurement ends. A
// restarted controller has the same addresses, so that the URLs of artifacts do not change. In
// production, a Service has this effect.
func newCourse(ctx context.Context, l *lab, c controller) (*course, error) {
	files, err := filepath.Glob(filepath.Join(c.crds, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var crds []*unstructured.Unstructured
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // a folder of the caller's choice
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &o.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		crds = append(crds, o)
	}
	if err := l.Install(ctx, crds); err != nil {
		return nil, err
	}
	reserved, err := local.Reserve(3)
	return &course{
		lab: l, controller: c, store: l.Path("store", c.name), reserved: reserved, figures: map[figure]float64{},
	}, err
}

// restart starts the controller anew with the same store, and returns when it is ready.
func (c *course) restart(ctx context.Context) error {
	c.end()
	if err := os.MkdirAll(c.store, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(c.store+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the process writes it
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	args := c.args(c.store, c.reserved.Addresses)
	cmd := exec.CommandContext(life, c.binary, args...) //nolint:gosec // the program is the caller's choice
	cmd.Env, cmd.Stdout, cmd.Stderr = slices.Concat(os.Environ(), c.env), log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second // from SIGTERM until the process is killed
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		cancel()
		return err
	}
	ended, end := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		end(fmt.Errorf("the controller has ended: %v", cmd.Wait())) //nolint:errorlint // it may be nil
	}()
	c.process = &process{stop: func() { cancel(); <-done }}
	err = c.Await(ended, 2*time.Millisecond, func(ctx context.Context) error {
		_, err := metrics.Read(ctx, c.Direct, "http://"+c.reserved.Addresses[2]+"/readyz")
		return err
	})
	c.process.ready = time.Since(begin)
	return err
}

// end stops the controller if it runs.
func (c *course) end() {
	if c.process != nil {
		c.process.stop()
		c.process = nil
	}
}

// processUsage returns what the controller has used since its start.
func (c *course) processUsage(ctx context.Context) (metrics.Process, error) {
	samples, err := metrics.Read(ctx, c.Direct, "http://"+c.reserved.Addresses[1]+"/metrics")
	return samples.Process(), err
}

// spec returns a function that makes the specs of objects. All objects pull from the same
// repository, without a credential.
func (c *course) spec(server *httptest.Server, repository string) func(int) map[string]any {
	return func(int) map[string]any {
		return map[string]any{
			"url": c.registry.url(server, repository), "ref": map[string]any{"tag": fleet.Tag},
			"interval": c.interval.String(), "insecure": server == c.registry.plain,
		}
	}
}

// awsSpec returns a function that makes the spec of the i-th object. The object pulls from the
// registry of a region. It acts as the AWS role of its ServiceAccount.
func (c *course) awsSpec(region string) func(int) map[string]any {
	return func(i int) map[string]any {
		return map[string]any{
			"url": fleet.URL(region), "ref": map[string]any{"tag": fleet.Tag}, "interval": c.interval.String(),
			"provider": "aws", "serviceAccountName": fleet.Account(i / fleet.ObjectsPerAccount).Name,
		}
	}
}

// object returns the i-th object.
func (c *course) object(i int, spec map[string]any) *unstructured.Unstructured {
	meta := fleet.Meta("object", i)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": c.apiVersion, "kind": "OCIRepository", "spec": spec,
		"metadata": map[string]any{"namespace": meta.Namespace, "name": meta.Name},
	}}
}

// list returns an empty list of objects.
func (c *course) list() *unstructured.UnstructuredList {
	return &unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": c.apiVersion, "kind": "OCIRepositoryList",
	}}
}

func (c *course) create(ctx context.Context, n int, spec func(int) map[string]any) error {
	return fleet.Create(ctx, c.Client(), n, func(i int) client.Object { return c.object(i, spec(i)) })
}

// clear deletes all objects and waits until the controller has removed its finalizers.
func (c *course) clear(ctx context.Context) error {
	objects := c.list()
	if err := c.Client().List(ctx, objects); err != nil {
		return err
	}
	for i := range objects.Items {
		if err := c.Client().Delete(ctx, &objects.Items[i]); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return c.Await(ctx, time.Second/4, func(ctx context.Context) error {
		left := c.list()
		err := c.Client().List(ctx, left)
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d objects are left", len(left.Items))
		}
		return err
	})
}

// awaitReady waits until n objects are ready. It watches them: repeated lists of all objects would
// need as much CPU as a controller. After some time, the API server ends the watch, and Await
// starts a new one.
func (c *course) awaitReady(ctx context.Context, n int) error {
	return c.Await(ctx, 10*time.Millisecond, func(ctx context.Context) error {
		watcher, err := c.watching.Watch(ctx, c.list()) // the watch sends the present objects first
		if err != nil {
			return err
		}
		defer watcher.Stop()
		ready := map[string]bool{}
		for event := range watcher.ResultChan() {
			o, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				return apierrors.FromObject(event.Object)
			}
			name := o.GetNamespace() + "/" + o.GetName()
			if delete(ready, name); event.Type != watch.Deleted && isReady(o) {
				ready[name] = true
			}
			if len(ready) == n {
				return nil
			}
		}
		return fmt.Errorf("%d of %d objects are ready", len(ready), n)
	})
}

func isReady(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		fields, _ := c.(map[string]any)
		return fields["type"] == "Ready" && fields["status"] == "True"
	})
}

// reconcileNow asks for a reconciliation of the first object and returns the time until it is done.
func (c *course) reconcileNow(ctx context.Context, request string) (time.Duration, error) {
	o := c.object(0, nil)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, c.request, request)
	begin := time.Now()
	if err := c.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return 0, err
	}
	err := c.Await(ctx, 5*time.Millisecond, func(ctx context.Context) error {
		if err := c.Client().Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		handled, _, err := unstructured.NestedString(o.Object, "status", "lastHandledReconcileAt")
		if err == nil && handled != request {
			err = errors.New("the request is not handled")
		}
		return err
	})
	return time.Since(begin), err
}
