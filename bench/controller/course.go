package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
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
	process  *stage.Peer        // nil between two cases
	figures  map[figure]float64
}

// newCourse installs the CRDs of a controller and reserves addresses until the measurement ends. A
// restarted controller has the same addresses, so that the URLs of artifacts do not change. In
// production, a Service has this effect.
func newCourse(ctx context.Context, l *lab, c controller) (*course, error) {
	if err := l.InstallCRDs(ctx, c.crds); err != nil {
		return nil, err
	}
	reserved, err := local.Reserve(3)
	return &course{
		lab: l, controller: c, store: l.Path("store", c.name), reserved: reserved, figures: map[figure]float64{},
	}, err
}

// restart starts the controller anew with the same store, and returns when it is ready.
func (c *course) restart(ctx context.Context) (err error) {
	c.end()
	if err := os.MkdirAll(c.store, 0o700); err != nil {
		return err
	}
	c.process, err = c.StartPeer(ctx, stage.PeerOptions{
		Binary: c.binary, Args: c.args(c.store, c.reserved.Addresses), Env: c.env, Log: c.store + ".log",
		Health: c.reserved.Addresses[2],
	})
	return err
}

// end stops the controller if it runs.
func (c *course) end() {
	if c.process != nil {
		c.process.Stop()
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

// awaitReady waits until n objects are ready.
func (c *course) awaitReady(ctx context.Context, n int) error {
	return c.AwaitObjects(ctx, c.watching, c.list(), n, stage.IsReady)
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
