package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	objectsPerAccount = 10
	// startTimeout bounds the time until all objects are pulled.
	startTimeout = 30 * time.Minute
	// scrapeTimeout bounds one reading of metrics.
	scrapeTimeout = 30 * time.Second
)

// result is the result of one run.
type result struct {
	objects, identities int
	start               time.Duration // until all objects were pulled
	startAPI            float64       // calls to the Kubernetes API until then

	window       time.Duration // the time in which the following was counted
	used         metrics.Process
	apiForTokens float64 // the part of used.Calls for proofs: reads of a ServiceAccount and requests for its token
	exchanges    float64 // which the source of the credentials has granted
	needed       float64 // exchanges, if each identity's token is refreshed exactly when it is due

	words  words
	source *metrics.Process // of the program that makes the credentials; nil if a cloud does
}

// perNeeded returns exchanges per needed exchange: 1 if each identity's token was refreshed exactly
// when it was due.
func (r result) perNeeded() float64 { return r.exchanges / r.needed }

// check fails if the cache did not behave as the table claims. A token is refreshed at its first
// use after it became due, a little late, so that slightly less than one is expected.
func (r result) check() error {
	if ratio := r.perNeeded(); ratio < 0.85 || ratio > 1.02 {
		return fmt.Errorf("%d objects: %.0f exchanges where %.0f were due", r.objects, r.exchanges, r.needed)
	}
	return nil
}

func measure(ctx context.Context, s settings, n int, progress io.Writer) (_ result, err error) {
	owners := s.owners(n)
	cluster, stop, err := stage.Start(ctx, s.controlPlane, func(o *local.CloudOptions) { owners.prepare(&o.Config) })
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	defer owners.close()
	if err := owners.install(ctx, cluster, map[string]any{"tokenCache": map[string]any{"maxDuration": s.tokenLife.String()}}); err != nil {
		return result{}, err
	}
	if err := populate(ctx, cluster.Client(), s, n, owners); err != nil {
		return result{}, err
	}
	_, _ = fmt.Fprintln(progress, "  objects are created; the controller starts")

	begin := time.Now()
	controller, err := cluster.StartProgram(ctx, local.ProgramOptions{Workload: "lanyard-controller", Binary: s.controller})
	if err != nil {
		return result{}, err
	}
	if err := awaitPulled(ctx, cluster, n); err != nil {
		return result{}, err
	}
	r := result{objects: n, identities: owners.count(), words: owners.words(), start: time.Since(begin), window: s.window}
	own := http.Client{Transport: &http.Transport{}, Timeout: scrapeTimeout} // no proxy
	defer own.CloseIdleConnections()
	admin, err := rest.HTTPClientFor(cluster.Config())
	if err != nil {
		return result{}, err
	}
	defer admin.CloseIdleConnections()
	started, err := metrics.ScrapeProcess(ctx, &own, controller.URL("metrics"))
	if err != nil {
		return result{}, err
	}
	r.startAPI = started.Calls
	_, _ = fmt.Fprintf(progress, "  all are pulled after %s; watching for %s\n", r.start.Round(time.Second), s.window)

	// One interval spreads the objects that began together.
	if err := fleet.Sleep(ctx, s.interval); err != nil {
		return result{}, err
	}
	before, err := lookAt(ctx, &own, controller, admin, cluster, owners)
	if err != nil {
		return result{}, err
	}
	if err := fleet.Sleep(ctx, s.window); err != nil {
		return result{}, err
	}
	after, err := lookAt(ctx, &own, controller, admin, cluster, owners)
	if err != nil {
		return result{}, err
	}
	r.exchanges, r.source = after.source.exchanges-before.source.exchanges, after.source.since(before.source)
	r.needed = float64(owners.count()) * s.window.Seconds() / s.due().Seconds()
	r.used, r.apiForTokens = after.controller.Since(before.controller), after.proofs-before.proofs
	return r, r.check()
}

// looked is what was counted until now.
type looked struct {
	controller metrics.Process
	proofs     float64 // calls for proofs
	source     source
}

func lookAt(
	ctx context.Context, own *http.Client, controller *local.Program, admin *http.Client, cluster *local.Cluster, owners owners,
) (l looked, err error) {
	if l.controller, err = metrics.ScrapeProcess(ctx, own, controller.URL("metrics")); err != nil {
		return l, err
	}
	samples, err := metrics.Scrape(ctx, admin, cluster.Config().Host)
	if err != nil {
		return l, err
	}
	l.proofs = owners.proofs(samples)
	l.source, err = owners.source(ctx, own)
	return l, err
}

// populate creates the objects, as the administrator.
func populate(ctx context.Context, c client.Client, s settings, n int, owners owners) error {
	return fleet.Create(ctx, c, n, func(i int) client.Object {
		namespace, account := fleet.Names(i / objectsPerAccount)
		o := &v1alpha1.OCIRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "object-" + strconv.Itoa(i)},
			Spec:       v1alpha1.OCIRepositorySpec{Ref: &v1alpha1.OCIRepositoryRef{Tag: fleet.Tag}, Schedule: v1alpha1.Schedule{Interval: metav1.Duration{Duration: s.interval}}},
		}
		owners.prove(&o.Spec, account)
		return o
	})
}

func awaitPulled(ctx context.Context, cluster *local.Cluster, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not all objects were pulled within %s", startTimeout))
	defer cancel()
	for {
		if err := cluster.Err(); err != nil {
			return err
		}
		ready, err := fleet.Ready(ctx, cluster.Client(), &v1alpha1.OCIRepositoryList{})
		if err != nil || ready == n {
			return err
		}
		if err := fleet.Sleep(ctx, time.Second); err != nil {
			return fmt.Errorf("%d of %d objects are pulled: %w", ready, n, err)
		}
	}
}
