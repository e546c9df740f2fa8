package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/bench/internal/table"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// minAccounts is the least number of accounts. It makes sure that there are two namespaces with
	// objects, which oneHangs needs.
	minAccounts = 20
	// restarts and repetitions are numbers of measurements, high enough for steady figures.
	restarts, repetitions = 5, 3
	// otherRegion is the region whose STS hangs.
	otherRegion = "us-east-1"

	smallRepository = "bench/small"
	largeRepository = "bench/large"
)

// flux measures lanyard-controller beside Flux's source-controller. Both use the same control
// plane, the same registry and the same cloud. Both have ten workers, no leader election, and
// otherwise their own defaults. They run as one ServiceAccount that may do everything.
type flux struct {
	crds, fluxCRDs   string // folders of the CRDs
	onlyOurs         bool
	only             string // measure only cases whose name contains this text
	interval, window time.Duration
}

func (f *flux) flags(flags *flag.FlagSet) string {
	flags.StringVar(&f.crds, "crds", "../config/crd", "folder of Lanyard's CRDs")
	flags.StringVar(&f.fluxCRDs, "flux-crds", "", "folder of Flux's CRDs, config/crd/bases of the module")
	flags.BoolVar(&f.onlyOurs, "only-ours", false, "leave Flux out, and targets that need it")
	flags.StringVar(&f.only, "only", "", "measure only cases with this in their name, such as AWS")
	flags.DurationVar(&f.interval, "interval", time.Minute, "interval of each object")
	flags.DurationVar(&f.window, "window", 2*time.Minute, "how long a controller is watched at rest")
	return "1000"
}

func (f *flux) check(int) error {
	if f.window <= 0 || f.window%f.interval != 0 {
		// Objects that were reconciled together stay nearly together, because both controllers vary
		// an interval by only about 5 %. A window that ends within an interval could contain the
		// reconciliations of all objects or of none.
		return errors.New("--window must be a multiple of --interval")
	}
	return nil
}

func (*flux) cloud(o *local.CloudOptions, n int) { fleet.AddRoles(o, accountsOf(n)) }

// accountsOf returns the number of ServiceAccounts for n objects.
func accountsOf(n int) int { return max(minAccounts, n/fleet.ObjectsPerAccount) }

// measure measures each case with each controller. In each round of a case, one controller runs
// right after the other, so that the machine is about equally fast for both.
func (f *flux) measure(ctx context.Context, w *world) (table.Table, error) {
	registry := startRegistry(distribution(ctx), tls.NoClientCert)
	defer registry.close()
	l := &lab{world: w, flux: f, registry: registry, kubeconfig: w.Path("bench.kubeconfig")}
	if err := l.furnish(ctx); err != nil {
		return nil, err
	}
	var courses []*course
	for _, c := range l.controllers() {
		course, err := newCourse(ctx, l, c)
		if err != nil {
			return nil, err
		}
		courses = append(courses, course)
	}
	for _, step := range []struct {
		name   string
		rounds int
		run    func(*course, context.Context) error
	}{
		{"ready after start", 1, (*course).readyAfterStart},
		{"from an empty store", repetitions, (*course).fromEmptyStore},
		{"at rest, and restart", 1, (*course).atRestAndRestart},
		{"insecure registry", 1, (*course).insecure},
		{"large artifact", 1, (*course).large},
		{"one tenant's STS hangs", 1, (*course).oneHangs},
		{"AWS", 1, (*course).aws},
	} {
		if !strings.Contains(step.name, f.only) {
			continue
		}
		for i := range step.rounds * len(courses) {
			c := courses[i%len(courses)]
			w.say("%s: %s", c.name, step.name)
			if err := c.take(ctx, step.run); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", c.name, step.name, err)
			}
		}
	}
	return compare(courses)
}

// lab has everything that the controllers share.
type lab struct {
	*world
	*flux

	registry   *registry
	watching   client.WithWatch // client of the administrator
	kubeconfig string           // path of the kubeconfig file
	env        []string         // environment of the controllers
}

// furnish creates the accounts, the artifacts and the files that the controllers need.
func (l *lab) furnish(ctx context.Context) (err error) {
	if l.watching, err = client.NewWithWatch(l.Config(), client.Options{}); err != nil {
		return err
	}
	if err := l.WritePeerKubeconfig(ctx, l.kubeconfig); err != nil {
		return err
	}
	if err := fleet.Publish(ctx, l.Cloud()); err != nil {
		return err
	}
	for repository, files := range map[string]int{smallRepository: 3, largeRepository: 2000} {
		folder := l.Path("pushed", repository)
		if err := writeManifests(folder, files); err != nil {
			return err
		}
		if err := l.registry.push(ctx, repository, folder); err != nil {
			return err
		}
	}
	authorities := l.Path("authorities.pem")
	if err := l.registry.trust(l.Cloud().CAPEM(), authorities); err != nil {
		return err
	}
	l.env = append(l.Cloud().Cloud.Env(authorities), "KUBECONFIG="+l.kubeconfig, "RUNTIME_NAMESPACE=default")
	accounts := accountsOf(l.n)
	if _, err := fleet.Namespaces(ctx, l.Client(), accounts*fleet.ObjectsPerAccount); err != nil {
		return err
	}
	return fleet.Accounts(ctx, l.Client(), accounts)
}

// take runs one case. Then it deletes all objects and stops the controller.
func (c *course) take(ctx context.Context, run func(*course, context.Context) error) error {
	defer c.end()
	if err := run(c, ctx); err != nil {
		return err
	}
	return c.clear(ctx)
}

// readyAfterStart starts the controller several times, without objects, and measures the median
// time until it is ready.
func (c *course) readyAfterStart(ctx context.Context) error {
	var times []float64
	for range restarts {
		if err := c.restart(ctx); err != nil {
			return err
		}
		times = append(times, c.process.Ready.Seconds())
	}
	slices.Sort(times)
	c.figures[readyTime] = times[len(times)/2]
	return nil
}

// fromEmptyStore measures a start with objects and an empty store. Of all rounds, the lowest
// figures count.
func (c *course) fromEmptyStore(ctx context.Context) error {
	if err := os.RemoveAll(c.store); err != nil {
		return err
	}
	took, err := c.startWith(ctx, c.n, c.spec(c.registry.secure, smallRepository))
	if err != nil {
		return err
	}
	used, err := c.processUsage(ctx)
	if err != nil {
		return err
	}
	for f, value := range map[figure]float64{
		startTime: took.Seconds(), startCPU: used.CPU.Seconds(), startCalls: used.Calls / float64(c.n),
	} {
		if least, known := c.figures[f]; !known || value < least {
			c.figures[f] = value
		}
	}
	return nil
}

// atRestAndRestart watches the controller while nobody changes an object. Then it starts the
// controller again with the same store.
func (c *course) atRestAndRestart(ctx context.Context) error {
	if _, err := c.startWith(ctx, c.n, c.spec(c.registry.secure, smallRepository)); err != nil {
		return err
	}
	rest, err := c.rest(ctx, c.n)
	if err != nil {
		return err
	}
	c.figures[restCPU], c.figures[restRequests], c.figures[restMemory] = rest.cpu, rest.requests, rest.memory
	c.end()
	begin := time.Now()
	if err := c.restart(ctx); err != nil {
		return err
	}
	err = c.Await(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		used, err := c.processUsage(ctx)
		if err == nil && used.Reconciliations < float64(c.n) {
			err = fmt.Errorf("%.0f of %d objects are reconciled", used.Reconciliations, c.n)
		}
		return err
	})
	c.figures[restartTime] = time.Since(begin).Seconds()
	return err
}

// insecure measures how many connections a reconciliation makes to a registry without TLS.
func (c *course) insecure(ctx context.Context) error {
	n := min(200, c.n)
	if _, err := c.startWith(ctx, n, c.spec(c.registry.plain, smallRepository)); err != nil {
		return err
	}
	rest, err := c.rest(ctx, n)
	c.figures[connections] = rest.connections
	return err
}

// large measures several objects with a large artifact, one after the other. The figures are means.
func (c *course) large(ctx context.Context) error {
	if err := c.restart(ctx); err != nil {
		return err
	}
	for range repetitions {
		before, err := c.processUsage(ctx)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := c.create(ctx, 1, c.spec(c.registry.secure, largeRepository)); err != nil {
			return err
		}
		if err := c.awaitReady(ctx, 1); err != nil {
			return err
		}
		c.figures[largeTime] += time.Since(begin).Seconds() / repetitions
		after, err := c.processUsage(ctx)
		if err != nil {
			return err
		}
		c.figures[largeCPU] += after.Since(before).CPU.Seconds() / repetitions
		if err := c.clear(ctx); err != nil {
			return err
		}
	}
	return nil
}

// oneHangs measures reconciliations of a tenant while another tenant's exchange hangs. The slowest
// reconciliation counts.
func (c *course) oneHangs(ctx context.Context) error {
	const other = (minAccounts - 1) * fleet.ObjectsPerAccount // index of an object in another namespace than object 0
	if _, err := c.startWith(ctx, 1, c.awsSpec(local.Region)); err != nil {
		return err
	}
	faults := c.Cloud().Faults()
	if _, err := faults.Add(fault.Fault{
		ID: "hang", Host: "sts." + otherRegion + ".amazonaws.com", Kind: fault.Latency, Delay: 5 * time.Minute,
	}); err != nil {
		return err
	}
	defer faults.Remove("hang")
	if err := c.Client().Create(ctx, c.object(other, c.awsSpec(otherRegion)(other))); err != nil {
		return err
	}
	if err := stage.Sleep(ctx, 3*time.Second); err != nil { // by then, the exchange has begun
		return err
	}
	for i := range repetitions {
		took, err := c.reconcileNow(ctx, strconv.Itoa(i))
		if err != nil {
			return err
		}
		c.figures[hangingTime] = max(c.figures[hangingTime], took.Seconds())
	}
	return nil
}

// aws measures the CPU time per reconciliation for objects that pull from a registry of AWS. Nobody
// changes an object meanwhile. Ten objects share each ServiceAccount.
func (c *course) aws(ctx context.Context) error {
	if _, err := c.startWith(ctx, c.n, c.awsSpec(local.Region)); err != nil {
		return err
	}
	rest, err := c.rest(ctx, c.n)
	c.figures[awsCPU] = rest.cpu
	return err
}

// startWith creates n objects, starts the controller, and returns the time from its start until all
// objects are ready.
func (c *course) startWith(ctx context.Context, n int, spec func(int) map[string]any) (time.Duration, error) {
	c.end()
	if err := c.create(ctx, n, spec); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := c.restart(ctx); err != nil {
		return 0, err
	}
	err := c.awaitReady(ctx, n)
	return time.Since(begin), err
}

// atRest has the mean costs of a reconciliation while nobody changes an object, and the memory at
// the end.
type atRest struct{ cpu, requests, connections, memory float64 }

// rest measures the controller with n objects that nobody changes. It waits for one interval, in
// which jitter spreads the reconciliations a little. Then it watches the controller during the
// window.
func (c *course) rest(ctx context.Context, n int) (atRest, error) {
	type reading struct {
		used                  metrics.Process
		requests, connections int64
	}
	if err := stage.Sleep(ctx, c.interval); err != nil {
		return atRest{}, err
	}
	before, after, err := beforeAfter(ctx, c.window, func(ctx context.Context) (reading, error) {
		used, err := c.processUsage(ctx)
		return reading{used, c.registry.requests.Load(), c.registry.connections.Load()}, err
	})
	used := after.used.Since(before.used)
	// The controller's metric also counts a reconciliation that was put off because no worker was
	// free for the object. So bound the count by one reconciliation per object and interval.
	done := min(used.Reconciliations, float64(n)*c.window.Seconds()/c.interval.Seconds())
	if err == nil && done == 0 {
		err = errors.New("nothing was reconciled")
	}
	return atRest{
		cpu:         used.CPU.Seconds() / done,
		requests:    float64(after.requests-before.requests) / done,
		connections: float64(after.connections-before.connections) / done,
		memory:      used.Resident,
	}, err
}
