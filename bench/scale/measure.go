package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
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

	window          time.Duration // the time in which the following was counted
	resident, heap  float64       // bytes, at its end
	cpu             time.Duration
	reconciliations float64
	api             float64 // calls to the Kubernetes API
	apiForTokens    float64 // the part of api for proofs: reads of a ServiceAccount and requests for its token
	exchanges       float64 // which the source of the credentials has granted
	needed          float64 // exchanges, if each identity's token is refreshed exactly when it is due

	words  words
	source *process // of the program that makes the credentials; nil if a cloud does
}

// process is what a program needed in the window.
type process struct {
	resident float64 // bytes, at its end
	cpu      time.Duration
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
	cfg, err := local.ParseCloud("cloud.yaml", examples.Cloud())
	if err != nil {
		return result{}, err
	}
	owners := s.owners(n)
	owners.prepare(&cfg)
	cluster, stop, err := stage.Start(ctx, s.controlPlane, local.CloudOptions{Config: cfg})
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
	started, err := metrics.Scrape(ctx, &own, controller.URL("metrics"))
	if err != nil {
		return result{}, err
	}
	r.startAPI = started.Sum("rest_client_requests_total")
	_, _ = fmt.Fprintf(progress, "  all are pulled after %s; watching for %s\n", r.start.Round(time.Second), s.window)

	// One interval spreads the objects that began together.
	if err := fleet.Sleep(ctx, s.interval); err != nil {
		return result{}, err
	}
	before, err := metrics.Scrape(ctx, &own, controller.URL("metrics"))
	if err != nil {
		return result{}, err
	}
	serverBefore, err := metrics.Scrape(ctx, admin, cluster.Config().Host)
	if err != nil {
		return result{}, err
	}
	sourceBefore, err := owners.source(ctx, &own)
	if err != nil {
		return result{}, err
	}
	if err := fleet.Sleep(ctx, s.window); err != nil {
		return result{}, err
	}
	after, err := metrics.Scrape(ctx, &own, controller.URL("metrics"))
	if err != nil {
		return result{}, err
	}
	serverAfter, err := metrics.Scrape(ctx, admin, cluster.Config().Host)
	if err != nil {
		return result{}, err
	}
	sourceAfter, err := owners.source(ctx, &own)
	if err != nil {
		return result{}, err
	}
	r.exchanges, r.source = sourceAfter.exchanges-sourceBefore.exchanges, sourceAfter.since(sourceBefore)
	r.needed = float64(owners.count()) * s.window.Seconds() / s.due().Seconds()
	r.resident, r.heap = after.Sum("process_resident_memory_bytes"), after.Sum("go_memstats_heap_inuse_bytes")
	r.cpu = time.Duration((after.Sum("process_cpu_seconds_total") - before.Sum("process_cpu_seconds_total")) * float64(time.Second))
	r.reconciliations = after.Sum("controller_runtime_reconcile_total") - before.Sum("controller_runtime_reconcile_total")
	r.api = after.Sum("rest_client_requests_total") - before.Sum("rest_client_requests_total")
	r.apiForTokens = owners.proofs(serverAfter) - owners.proofs(serverBefore)
	return r, r.check()
}

// populate creates the objects, as the administrator.
func populate(ctx context.Context, c client.Client, s settings, n int, owners owners) error {
	return fleet.Create(ctx, c, n, func(i int) client.Object {
		namespace, account := fleet.Names(i / objectsPerAccount)
		o := &v1alpha1.OCIRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "object-" + strconv.Itoa(i)},
			Spec:       v1alpha1.OCIRepositorySpec{Ref: &v1alpha1.OCIRepositoryRef{Tag: fleet.Tag}, Interval: metav1.Duration{Duration: s.interval}},
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
		var list v1alpha1.OCIRepositoryList
		if err := cluster.Client().List(ctx, &list); err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if apimeta.IsStatusConditionTrue(list.Items[i].Status.Conditions, "Ready") {
				ready++
			}
		}
		if ready == n {
			return nil
		}
		if err := fleet.Sleep(ctx, time.Second); err != nil {
			return fmt.Errorf("%d of %d objects are pulled: %w", ready, n, err)
		}
	}
}
