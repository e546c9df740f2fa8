package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/bench/internal/table"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// objects is the scenario that measures lanyard-controller with OCIRepositories.
type objects struct {
	// certificates selects a SPIFFE certificate for each object, instead of a role at AWS.
	certificates bool
	// interval is spec.interval of all objects.
	interval time.Duration
	// tokenLife is --token-cache-max-duration. With a short life, refreshes come within minutes.
	tokenLife time.Duration
	// refreshes is how often each token becomes due in the window.
	refreshes int
}

func (o *objects) flags(f *flag.FlagSet) string {
	f.BoolVar(&o.certificates, "certificates", false, "each object has a SPIFFE certificate, instead of a role at AWS")
	f.DurationVar(&o.interval, "interval", time.Minute, "interval of each object")
	f.DurationVar(&o.tokenLife, "token-life", 5*time.Minute, "time after which a token is got anew at the latest")
	f.IntVar(&o.refreshes, "refreshes", 2, "how often each token becomes due while the controller is watched at rest")
	return "100,1000,10000"
}

func (o *objects) check(n int) error {
	if n < fleet.ObjectsPerAccount {
		return fmt.Errorf("--sizes: there must be at least %d objects", fleet.ObjectsPerAccount)
	}
	if o.interval > o.tokenLife-o.due() {
		return errors.New("--interval is longer than a fifth of --token-life: tokens would end unused")
	}
	if o.refreshes < 1 {
		return errors.New("--refreshes is less than 1: nothing would be counted")
	}
	return nil
}

// due returns the age at which a token in use is refreshed: four fifths of its life.
func (o *objects) due() time.Duration { return o.tokenLife * 4 / 5 }

func (o *objects) cloud(options *local.CloudOptions, n int) {
	if !o.certificates {
		fleet.AddRoles(options, n/fleet.ObjectsPerAccount)
	}
}

func (o *objects) measure(ctx context.Context, w *world) (table.Table, error) {
	values := map[string]any{"tokenCache": map[string]any{"maxDuration": o.tokenLife.String()}}
	install := installRoles
	if o.certificates {
		install = installCertificates
	}
	c, err := install(ctx, w, values)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := o.create(ctx, w, c); err != nil {
		return nil, err
	}
	w.say("objects are created; the controller starts")
	controller, err := w.start(ctx, "lanyard-controller", time.Second, w.seen(), w.ready(&v1alpha1.OCIRepositoryList{}))
	if err != nil {
		return nil, err
	}
	start, err := w.usage(ctx, controller)
	if err != nil {
		return nil, err
	}
	window := time.Duration(o.refreshes) * o.due()
	w.say("all are pulled after %s; watching for %s", controller.done.Round(time.Second), window)
	// All reconciliations began together. Wait for one interval, so that jitter spreads them a
	// little.
	if err := stage.Sleep(ctx, o.interval); err != nil {
		return nil, err
	}
	before, after, err := beforeAfter(ctx, window, func(ctx context.Context) (counts, error) {
		return c.count(ctx, w, controller)
	})
	if err != nil {
		return nil, err
	}
	used, exchanges := after.controller.Since(before.controller), after.exchanges-before.exchanges
	due := float64(c.identities * o.refreshes)

	t := table.New("objects", w.n)
	t.Row("identities ("+c.identitiesName+")", "%d", c.identities)
	t.Seconds("start: all objects pulled after", controller.done)
	t.Row("start: calls to the Kubernetes API per object", "%.1f", start.Calls/float64(w.n))
	t.Memory("at rest: ", used)
	t.CPU("at rest: ", used, window)
	t.Row("at rest: reconciliations per second", "%.1f", used.Reconciliations/window.Seconds())
	t.Each("at rest: CPU per reconciliation", used.CPU, int(used.Reconciliations))
	t.Row("at rest: calls to the Kubernetes API per minute", "%.1f", used.Calls/window.Minutes())
	t.Row(c.proofsName, "%.1f", (after.proofs-before.proofs)/window.Minutes())
	if c.tokenServer != nil {
		server := after.tokenServer.Since(before.tokenServer)
		t.Resident("at rest: the token server's ", server)
		t.CPU("at rest: the token server's ", server, window)
	}
	t.Row("at rest: "+c.exchangesName, "%.0f", exchanges)
	t.Row("at rest: exchanges that were due", "%.0f", due)
	t.Row("at rest: exchanges for each one due", "%.3f", exchanges/due)
	// A token is refreshed at its first use after the refresh is due. So slightly fewer exchanges
	// happen than were due.
	if exchanges < 0.85*due || exchanges > 1.02*due {
		err = fmt.Errorf("%.0f exchanges where %.0f were due", exchanges, due)
	}
	return t, err
}

// create creates the objects.
func (o *objects) create(ctx context.Context, w *world, c *credentials) error {
	return fleet.Create(ctx, w.Client(), w.n, func(i int) client.Object {
		object := &v1alpha1.OCIRepository{ObjectMeta: fleet.Meta("object", i), Spec: v1alpha1.OCIRepositorySpec{
			Ref:      &v1alpha1.OCIRepositoryRef{Tag: fleet.Tag},
			Schedule: v1alpha1.Schedule{Interval: metav1.Duration{Duration: o.interval}},
		}}
		c.complete(&object.Spec, fleet.Account(i/fleet.ObjectsPerAccount).Name)
		return object
	})
}

// counts are the counters of all programs at one time.
type counts struct {
	controller, tokenServer metrics.Process
	proofs                  float64 // Kubernetes API calls that credentials.proofs counts
	exchanges               float64 // credentials that were made
}

// count reads all counters.
func (c *credentials) count(ctx context.Context, w *world, controller *program) (n counts, err error) {
	if n.controller, err = w.usage(ctx, controller); err != nil {
		return n, err
	}
	page, err := w.Typed.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return n, err
	}
	n.proofs = c.proofs(metrics.Parse(page))
	if c.tokenServer == nil {
		n.exchanges = grantedByAWS(w.Cloud())
		return n, nil
	}
	samples, err := w.samples(ctx, c.tokenServer)
	n.tokenServer, n.exchanges = samples.Process(), samples.Sum("lanyard_svids_minted_total")
	return n, err
}

// grantedByAWS returns the number of exchanges that AWS STS has granted.
func grantedByAWS(cloud *local.Cloud) float64 {
	granted := 0.0
	for _, total := range cloud.Journal().Totals() {
		if total.Service == "sts" && total.Operation == "AssumeRoleWithWebIdentity" && total.Code == "" {
			granted += float64(total.Count)
		}
	}
	return granted
}
