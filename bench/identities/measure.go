package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// The programs that are measured, and what they need.
const (
	tokenServer        = "lanyard-token-server"
	identityController = "lanyard-identity-controller"
	discovery          = "lanyard-discovery"
)

const (
	identitiesPerNamespace = 100
	// timeout bounds each step.
	timeout = 10 * time.Minute
	// interval is the pause between two looks at something that is awaited.
	interval = 100 * time.Millisecond
	// rest is the pause before memory is read: the garbage of the start is collected by then.
	rest = 2*time.Minute + 10*time.Second
)

// process is what was measured of a process.
type process struct {
	metrics.Process // at rest

	ready time.Duration // from its start
}

// result is the result of one run. Durations begin with the start of the process.
type result struct {
	identities int

	tokenServer process
	firstToken  time.Duration

	allNew     time.Duration // until all identities had their first status
	controller process       // of a process that finds all statuses as they should be
	allSeen    time.Duration // until it had looked at all identities
}

// world is the cluster of one run.
type world struct {
	*local.Cluster

	settings settings
	typed    *kubernetes.Clientset
	http     *http.Client
	n        int
}

func measure(ctx context.Context, s settings, n int, progress io.Writer) (_ result, err error) {
	cluster, stop, err := stage.Start(ctx, s.controlPlane)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := cluster.InstallChart(ctx, local.WithIssuer(nil, nil)); err != nil {
		return result{}, err
	}
	typed, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		return result{}, err
	}
	w := world{Cluster: cluster, settings: s, typed: typed, http: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}, n: n}
	defer w.http.CloseIdleConnections()
	if err := w.populate(ctx); err != nil {
		return result{}, err
	}
	_, _ = fmt.Fprintln(progress, "  identities are created; the programs start")
	return w.measure(ctx)
}

// populate creates the identities, as the administrator.
func (w *world) populate(ctx context.Context) error {
	if err := fleet.Create(ctx, w.Client(), (w.n+identitiesPerNamespace-1)/identitiesPerNamespace, func(i int) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(i * identitiesPerNamespace)}}
	}); err != nil {
		return err
	}
	return fleet.Create(ctx, w.Client(), w.n, func(i int) client.Object { return fleet.WorkloadIdentity(namespace(i), name(i)) })
}

func namespace(i int) string { return fmt.Sprintf("scale-%03d", i/identitiesPerNamespace) }

func name(i int) string { return fmt.Sprintf("identity-%05d", i) }

func (w *world) measure(ctx context.Context) (result, error) {
	r := result{identities: w.n}
	// The first start makes the keys, and has them published. The second one is measured.
	first, _, err := w.start(ctx, tokenServer)
	if err != nil {
		return r, err
	}
	if _, _, err := w.start(ctx, discovery); err != nil {
		return r, err
	}
	if err := fleet.Await(ctx, timeout, interval, w.token); err != nil {
		return r, err
	}
	if err := first.Stop(ctx); err != nil {
		return r, err
	}
	began := time.Now()
	server, ready, err := w.start(ctx, tokenServer)
	if err != nil {
		return r, err
	}
	if err := fleet.Await(ctx, timeout, interval, w.token); err != nil {
		return r, err
	}
	r.tokenServer.ready, r.firstToken = ready, time.Since(began)

	began = time.Now()
	controller, _, err := w.start(ctx, identityController)
	if err != nil {
		return r, err
	}
	for _, look := range []func(context.Context) error{
		func(ctx context.Context) error { return w.seen(ctx, controller) }, // cheap, so that waiting does not slow the controller
		w.statuses,
	} {
		if err := fleet.Await(ctx, timeout, interval, look); err != nil {
			return r, err
		}
	}
	r.allNew = time.Since(began)
	if err := controller.Stop(ctx); err != nil {
		return r, err
	}
	began = time.Now()
	if controller, r.controller.ready, err = w.start(ctx, identityController); err != nil {
		return r, err
	}
	if err := fleet.Await(ctx, timeout, interval, func(ctx context.Context) error { return w.seen(ctx, controller) }); err != nil {
		return r, err
	}
	r.allSeen = time.Since(began)

	if err := fleet.Sleep(ctx, rest); err != nil {
		return r, err
	}
	if r.tokenServer.Process, err = metrics.ScrapeProcess(ctx, w.http, server.URL("metrics")); err != nil {
		return r, err
	}
	r.controller.Process, err = metrics.ScrapeProcess(ctx, w.http, controller.URL("metrics"))
	return r, err
}

// start starts a program, and returns how long it took to be ready.
func (w *world) start(ctx context.Context, program string) (*local.Program, time.Duration, error) {
	began := time.Now()
	p, err := w.StartProgram(ctx, local.ProgramOptions{Workload: program, Binary: filepath.Join(w.settings.programs, program)})
	return p, time.Since(began), err
}

// token asks for a token of the last identity.
func (w *world) token(ctx context.Context) error {
	return fleet.RequestToken(ctx, w.typed, namespace(w.n-1), name(w.n-1))
}

// statuses fails while an identity is not ready.
func (w *world) statuses(ctx context.Context) error {
	ready, err := fleet.Ready(ctx, w.Client(), &identityv1.WorkloadIdentityList{})
	if err == nil && ready < w.n {
		err = fmt.Errorf("%d of %d identities are ready", ready, w.n)
	}
	return err
}

// seen fails while the controller has not looked at all identities.
func (w *world) seen(ctx context.Context, controller *local.Program) error {
	used, err := metrics.ScrapeProcess(ctx, w.http, controller.URL("metrics"))
	if err != nil {
		return err
	}
	if used.Reconciliations < float64(w.n) {
		return fmt.Errorf("%.0f of %d identities are seen", used.Reconciliations, w.n)
	}
	return nil
}
