package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	objectsPerAccount = 10
	// minAccounts live in two namespaces.
	minAccounts = 20
	// restarts and repetitions are as many as give steady figures.
	restarts, repetitions = 5, 3
	// otherRegion is where STS hangs: for the tenant whose registry is there.
	otherRegion = "us-east-1"
)

// figures are what one program needed. Times are in seconds, and what is at rest is for each
// reconciliation.
type figures struct {
	startTime, startCPU, startCalls                        float64 // all Ready from an empty store
	restCPU, restRequests, restMemory, insecureConnections float64
	largeTime, largeCPU                                    float64
	ready, restart                                         float64
	hanging                                                float64
	awsCPU                                                 float64
}

// The cases, each of which fills rows of the table.
const (
	caseReady    = "ready after start"
	caseEmpty    = "from an empty store"
	caseRest     = "at rest, and restart"
	caseInsecure = "insecure registry"
	caseLarge    = "large artifact"
	caseHanging  = "one tenant's STS hangs"
	caseAWS      = "AWS"
)

// course is the way of one program through all cases.
type course struct {
	*lab
	program

	store    string
	reserved *local.Reservation // of listen
	listen   [3]string          // addresses of artifacts, metrics and health
	process  *process           // nil between two cases
	figures  figures
}

func newCourse(ctx context.Context, l *lab, p program) (*course, error) {
	c := &course{lab: l, program: p, store: filepath.Join(l.dir, p.name)}
	// A restart keeps its addresses, as behind a Service: the artifacts' URLs stay what they are. They
	// are reserved until the measurement ends.
	var err error
	if c.reserved, err = local.Reserve(len(c.listen)); err != nil {
		return nil, err
	}
	c.listen = [3]string(c.reserved.Addresses)
	return c, c.installCRDs(ctx)
}

// measure takes the programs through the cases. In each round of each case the programs take turns,
// so that they meet the machine at the same speed, and only one of them runs.
func measure(ctx context.Context, l *lab, courses []*course) error {
	for _, step := range []struct {
		name   string
		rounds int
		run    func(*course, context.Context) error
	}{
		{caseReady, 1, (*course).readyAfterStart},
		{caseEmpty, repetitions, (*course).fromEmptyStore},
		{caseRest, 1, (*course).atRestAndRestart},
		{caseInsecure, 1, (*course).insecure},
		{caseLarge, 1, (*course).large},
		{caseHanging, 1, (*course).oneHangs},
		{caseAWS, 1, (*course).aws},
	} {
		if !l.measures(step.name) {
			continue
		}
		for range step.rounds {
			for _, c := range courses {
				l.say("%s: %s", c.name, step.name)
				if err := c.take(ctx, step.run); err != nil {
					return fmt.Errorf("%s: %s (logs in %s): %w", c.name, step.name, l.dir, err)
				}
			}
		}
	}
	return nil
}

// take runs one case, which leaves neither objects nor a process behind.
func (c *course) take(ctx context.Context, run func(*course, context.Context) error) (err error) {
	defer func() { err = errors.Join(err, c.end()) }()
	if err := run(c, ctx); err != nil {
		return err
	}
	return c.clear(ctx)
}

// measures reports whether the user wants a case.
func (s settings) measures(name string) bool { return strings.Contains(name, s.only) }

// readyAfterStart is the median of several starts without objects.
func (c *course) readyAfterStart(ctx context.Context) error {
	var times []float64
	for range restarts {
		if err := c.restart(ctx); err != nil {
			return err
		}
		times = append(times, c.process.ready.Seconds())
	}
	slices.Sort(times)
	c.figures.ready = times[len(times)/2]
	return nil
}

// fromEmptyStore starts beside objects with an empty store, and keeps the round that took the
// least.
func (c *course) fromEmptyStore(ctx context.Context) error {
	if err := os.RemoveAll(c.store); err != nil {
		return err
	}
	if err := c.create(ctx, c.objects, c.spec(c.registry.url(c.registry.secure, smallRepository))); err != nil {
		return err
	}
	begin := time.Now()
	if err := c.restart(ctx); err != nil {
		return err
	}
	if err := c.awaitReady(ctx, c.objects); err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	used, err := c.process.usage(ctx)
	if err != nil {
		return err
	}
	f := &c.figures
	if f.startTime == 0 {
		f.startTime, f.startCPU, f.startCalls = math.Inf(1), math.Inf(1), math.Inf(1)
	}
	f.startTime = min(f.startTime, took)
	f.startCPU = min(f.startCPU, used.CPU.Seconds())
	f.startCalls = min(f.startCalls, used.Calls/float64(c.objects))
	return nil
}

// atRestAndRestart watches at rest, and starts again with the store kept.
func (c *course) atRestAndRestart(ctx context.Context) error {
	if err := c.create(ctx, c.objects, c.spec(c.registry.url(c.registry.secure, smallRepository))); err != nil {
		return err
	}
	if err := c.restart(ctx); err != nil {
		return err
	}
	if err := c.awaitReady(ctx, c.objects); err != nil {
		return err
	}
	rest, err := c.rest(ctx, c.objects)
	if err != nil {
		return err
	}
	c.figures.restCPU, c.figures.restRequests, c.figures.restMemory = rest.cpu, rest.requests, rest.memory
	if err := c.end(); err != nil {
		return err
	}
	begin := time.Now()
	if err := c.restart(ctx); err != nil {
		return err
	}
	err = c.await(ctx, 100*time.Millisecond, func(ctx context.Context) (bool, error) {
		used, err := c.process.usage(ctx)
		return used.Reconciliations >= float64(c.objects), err
	})
	c.figures.restart = time.Since(begin).Seconds()
	return err
}

// insecure counts connections to a registry without TLS.
func (c *course) insecure(ctx context.Context) error {
	if err := c.restart(ctx); err != nil {
		return err
	}
	spec := c.spec(c.registry.url(c.registry.plain, smallRepository))
	n := min(200, c.objects)
	if err := c.create(ctx, n, func(i int) map[string]any {
		s := spec(i)
		s["insecure"] = true
		return s
	}); err != nil {
		return err
	}
	if err := c.awaitReady(ctx, n); err != nil {
		return err
	}
	rest, err := c.rest(ctx, n)
	c.figures.insecureConnections = rest.connections
	return err
}

// large is the mean of several objects, one after the other.
func (c *course) large(ctx context.Context) error {
	if err := c.restart(ctx); err != nil {
		return err
	}
	for range repetitions {
		before, err := c.process.usage(ctx)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := c.create(ctx, 1, c.spec(c.registry.url(c.registry.secure, largeRepository))); err != nil {
			return err
		}
		if err := c.awaitReady(ctx, 1); err != nil {
			return err
		}
		c.figures.largeTime += time.Since(begin).Seconds() / repetitions
		after, err := c.process.usage(ctx)
		if err != nil {
			return err
		}
		c.figures.largeCPU += after.Since(before).CPU.Seconds() / repetitions
		if err := c.clear(ctx); err != nil {
			return err
		}
	}
	return nil
}

// oneHangs asks for reconciliations of a tenant while another tenant's exchange hangs, and keeps
// the slowest.
func (c *course) oneHangs(ctx context.Context) error {
	const tenant, other = 0, minAccounts - 1 // in different namespaces
	if err := c.restart(ctx); err != nil {
		return err
	}
	if err := c.create(ctx, 1, func(int) map[string]any { return c.awsSpec(tenant, local.Region) }); err != nil {
		return err
	}
	if err := c.awaitReady(ctx, 1); err != nil {
		return err
	}
	faults := c.cluster.Cloud().Faults()
	if _, err := faults.Add(fault.Fault{
		ID: "hang", Host: "sts." + otherRegion + ".amazonaws.com", Kind: fault.Latency, Delay: 5 * time.Minute,
	}); err != nil {
		return err
	}
	defer faults.Remove("hang")
	namespace, _ := fleet.Names(other)
	hanging := c.object(namespace, "hanging")
	hanging.Object["spec"] = c.awsSpec(other, otherRegion)
	if err := c.cluster.Client().Create(ctx, hanging); err != nil {
		return err
	}
	if err := fleet.Sleep(ctx, 3*time.Second); err != nil { // its exchange is under way then
		return err
	}
	for i := range repetitions {
		took, err := c.reconcileNow(ctx, strconv.Itoa(i))
		if err != nil {
			return err
		}
		c.figures.hanging = max(c.figures.hanging, took.Seconds())
	}
	return nil
}

// reconcileNow asks for a reconciliation of the first object and returns when it is done.
func (c *course) reconcileNow(ctx context.Context, request string) (time.Duration, error) {
	o := c.object(objectName(0))
	if err := c.cluster.Client().Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return 0, err
	}
	patch := client.MergeFrom(o.DeepCopy())
	o.SetAnnotations(map[string]string{c.request: request})
	begin := time.Now()
	if err := c.cluster.Client().Patch(ctx, o, patch); err != nil {
		return 0, err
	}
	err := c.await(ctx, 5*time.Millisecond, func(ctx context.Context) (bool, error) {
		if err := c.cluster.Client().Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return false, err
		}
		handled, _, err := unstructured.NestedString(o.Object, "status", "lastHandledReconcileAt")
		return handled == request, err
	})
	return time.Since(begin), err
}

// aws has many accounts at rest, with ten objects each.
func (c *course) aws(ctx context.Context) error {
	if err := c.restart(ctx); err != nil {
		return err
	}
	if err := c.create(ctx, c.objects, func(i int) map[string]any { return c.awsSpec(i/objectsPerAccount, local.Region) }); err != nil {
		return err
	}
	if err := c.awaitReady(ctx, c.objects); err != nil {
		return err
	}
	rest, err := c.rest(ctx, c.objects)
	c.figures.awsCPU = rest.cpu
	return err
}

// atRest is what each reconciliation needs, and the memory in the end.
type atRest struct{ cpu, requests, connections, memory float64 }

// rest watches that number of objects for the window, after an interval over which they spread.
func (c *course) rest(ctx context.Context, number int) (atRest, error) {
	if err := fleet.Sleep(ctx, c.interval); err != nil {
		return atRest{}, err
	}
	before, err := c.process.usage(ctx)
	if err != nil {
		return atRest{}, err
	}
	requests, connections := c.registry.requests.Load(), c.registry.connections.Load()
	if err := fleet.Sleep(ctx, c.window); err != nil {
		return atRest{}, err
	}
	after, err := c.process.usage(ctx)
	used := after.Since(before)
	// An object that finds no worker free counts as reconciled, although nothing was done for it.
	n := min(used.Reconciliations, float64(number)*c.window.Seconds()/c.interval.Seconds())
	if err == nil && n == 0 {
		err = errors.New("nothing was reconciled")
	}
	return atRest{
		cpu:         used.CPU.Seconds() / n,
		requests:    float64(c.registry.requests.Load()-requests) / n,
		connections: float64(c.registry.connections.Load()-connections) / n,
		memory:      used.Resident,
	}, err
}

// restart starts the program anew; the store stays.
func (c *course) restart(ctx context.Context) (err error) {
	if err := c.end(); err != nil {
		return err
	}
	c.process, err = c.start(ctx, c.lab, c.store, c.listen)
	return err
}

func (c *course) end() error {
	if c.process == nil {
		return nil
	}
	process := c.process
	c.process = nil
	return process.stop()
}

// spec is that of an object without credentials.
func (c *course) spec(url string) func(int) map[string]any {
	return func(int) map[string]any {
		return map[string]any{"url": url, "ref": map[string]any{"tag": tag}, "interval": c.interval.String()}
	}
}

// awsSpec is that of an object of the i-th account.
func (c *course) awsSpec(i int, region string) map[string]any {
	_, account := fleet.Names(i)
	return map[string]any{
		"url": fleet.URL(region), "ref": map[string]any{"tag": fleet.Tag}, "interval": c.interval.String(),
		"provider": "aws", "serviceAccountName": account,
	}
}

// objectName is where the i-th object lives: beside its account.
func objectName(i int) (namespace, name string) {
	namespace, _ = fleet.Names(i / objectsPerAccount)
	return namespace, "object-" + strconv.Itoa(i)
}

func (c *course) object(namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(c.kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func (c *course) create(ctx context.Context, n int, spec func(int) map[string]any) error {
	return fleet.Create(ctx, c.cluster.Client(), n, func(i int) client.Object {
		o := c.object(objectName(i))
		o.Object["spec"] = spec(i)
		return o
	})
}

func (c *course) list(ctx context.Context) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(c.kind)
	err := c.cluster.Client().List(ctx, list)
	return list.Items, err
}

// awaitReady returns when n objects are ready. It watches them: to list all of them time and again
// would take as much from the two cores as a controller does.
func (c *course) awaitReady(ctx context.Context, n int) error {
	ctx, cancel := within(ctx)
	defer cancel()
	for {
		if err := c.cluster.Err(); err != nil {
			return err
		}
		all, err := c.watchReady(ctx, n)
		if all || err != nil {
			return err
		}
	}
}

// watchReady is awaitReady until the watch ends, as the API server ends each watch now and then.
func (c *course) watchReady(ctx context.Context, n int) (all bool, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(c.kind)
	watcher, err := c.watching.Watch(ctx, list) // begins with the objects that there are
	if err != nil {
		return false, err
	}
	defer watcher.Stop()
	ready := map[string]bool{}
	for event := range watcher.ResultChan() {
		o, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return false, apierrors.FromObject(event.Object)
		}
		name := o.GetNamespace() + "/" + o.GetName()
		if delete(ready, name); event.Type != watch.Deleted && isTrue(o, "Ready") {
			ready[name] = true
		}
		if len(ready) == n {
			return true, nil
		}
	}
	return false, context.Cause(ctx)
}

func isTrue(o *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		fields, _ := c.(map[string]any)
		return fields["type"] == condition && fields["status"] == "True"
	})
}

// clear deletes all objects and waits until the program has let them go.
func (c *course) clear(ctx context.Context) error {
	objects, err := c.list(ctx)
	if err != nil {
		return err
	}
	for i := range objects {
		if err := c.cluster.Client().Delete(ctx, &objects[i]); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return c.await(ctx, time.Second/4, func(ctx context.Context) (bool, error) {
		left, err := c.list(ctx)
		return len(left) == 0, err
	})
}

// installCRDs applies the program's CRDs and waits until its kind is served.
func (c *course) installCRDs(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(c.crds, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // a folder of the caller's choice
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &o.Object); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := c.cluster.Client().Create(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return c.await(ctx, time.Second/4, func(ctx context.Context) (bool, error) {
		served := &unstructured.Unstructured{}
		served.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		name := client.ObjectKey{Name: "ocirepositories." + c.kind.Group}
		err := c.cluster.Client().Get(ctx, name, served)
		return err == nil && isTrue(served, "Established"), err
	})
}
