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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// The programs that bindings need.
const (
	tokenServer        = "lanyard-token-server"
	identityController = "lanyard-identity-controller"
	discovery          = "lanyard-discovery"
)

const (
	bindingsPerNamespace = 100
	// longLife is the life of the tokens until the restart is over: none becomes due meanwhile.
	longLife = time.Hour
	// timeout bounds each step but the one that is watched at rest.
	timeout = 25 * time.Minute
	// interval is the pause between two looks at something that is awaited.
	interval = time.Second
	// inFlight are the calls that a renewal may have ahead when the calls are counted, for each of the
	// controller's workers.
	inFlight = 10
)

// result is the result of one run.
type result struct {
	bindings int

	start time.Duration // until all Secrets were written

	restart   time.Duration // until a new process had read all Secrets
	atRestart calls         // until then

	renewal time.Duration // until all credentials were renewed, after all identities had changed

	window                  time.Duration // the time in which the following was counted
	atRest                  calls
	late                    time.Duration // the longest that a renewal is overdue at the end
	controller, tokenServer metrics.Process
}

// check fails if the controller has written what it should not have.
func (r result) check() error {
	if n := r.atRestart.written(); n > 0 {
		return fmt.Errorf("a restart has written %d times", n)
	}
	for what, n := range map[string]int{"Secrets": r.atRest.secrets(), "statuses": r.atRest.statuses()} {
		if n > r.atRest.renewals()+inFlight || n < r.atRest.renewals()-inFlight {
			return fmt.Errorf("%d writes of %s for %d renewals", n, what, r.atRest.renewals())
		}
	}
	return nil
}

// world is the cluster of one run.
type world struct {
	*local.Cluster

	settings settings
	typed    *kubernetes.Clientset
	http     *http.Client
	log      *auditLog
	progress io.Writer
	n        int
}

func measure(ctx context.Context, s settings, n int, progress io.Writer) (_ result, err error) {
	cluster, stop, err := stage.Start(ctx, s.controlPlane)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	typed, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		return result{}, err
	}
	log, err := openAuditLog(cluster.Path("cluster", "audit.log"), "system:serviceaccount:"+local.Namespace+":"+identityController)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	w := world{
		Cluster: cluster, settings: s, typed: typed, log: log, progress: progress, n: n,
		http: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}, // no proxy
	}
	defer w.http.CloseIdleConnections()
	if err := w.populate(ctx); err != nil {
		return result{}, err
	}
	return w.measure(ctx)
}

// populate installs the chart, and creates identities and bindings, as the administrator.
func (w *world) populate(ctx context.Context) error {
	var namespaces []string
	for i := 0; i < w.n; i += bindingsPerNamespace {
		namespaces = append(namespaces, namespace(i))
	}
	err := fleet.Create(ctx, w.Client(), len(namespaces), func(i int) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaces[i]}}
	})
	if err != nil {
		return err
	}
	shortest := min(w.settings.life, 10*time.Minute).String() // the chart takes no minDuration over ten minutes
	err = w.InstallChart(ctx, local.WithIssuer(namespaces, map[string]any{
		"issuer":   map[string]any{"tokens": map[string]any{"minDuration": shortest}},
		"identity": map[string]any{"bindings": true},
	}))
	if err != nil {
		return err
	}
	err = fleet.Create(ctx, w.Client(), w.n, func(i int) client.Object {
		identity := fleet.WorkloadIdentity(namespace(i), name(i))
		identity.Spec.Duration = &metav1.Duration{Duration: longLife}
		return identity
	})
	if err != nil {
		return err
	}
	return fleet.Create(ctx, w.Client(), w.n, func(i int) client.Object {
		return &identityv1.WorkloadIdentityBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace(i), Name: name(i)},
			Spec: identityv1.WorkloadIdentityBindingSpec{
				WorkloadIdentity: &identityv1.WorkloadIdentityReference{Name: name(i)},
				Store:            identityv1.BindingStore{SecretRef: identityv1.BindingSecretReference{Name: name(i)}},
			},
		}
	})
}

func namespace(i int) string { return fmt.Sprintf("scale-%03d", i/bindingsPerNamespace) }

func name(i int) string { return fmt.Sprintf("binding-%05d", i) }

// measure starts the controller, starts it again, changes all identities, and then watches it.
func (w *world) measure(ctx context.Context) (result, error) {
	r := result{bindings: w.n, window: w.settings.window()}
	server, err := w.start(ctx, tokenServer)
	if err != nil {
		return r, err
	}
	if _, err := w.start(ctx, discovery); err != nil {
		return r, err
	}
	if err := fleet.Await(ctx, timeout, interval, w.token); err != nil { // keys are published
		return r, err
	}
	w.say("the controller starts")
	began := time.Now()
	controller, err := w.start(ctx, identityController)
	if err != nil {
		return r, err
	}
	if err := w.awaitCalls(ctx, calls{}, calls.secrets); err != nil {
		return r, err
	}
	r.start = time.Since(began)
	if err := fleet.Await(ctx, timeout, interval, w.ready); err != nil {
		return r, err
	}
	w.say("all Secrets are written after %s; the controller starts again", r.start.Round(time.Second))
	if controller, err = w.startAgain(ctx, controller, &r); err != nil {
		return r, err
	}
	w.say("all Secrets are read after %s; all identities change", r.restart.Round(time.Second))
	if err := w.changeAll(ctx, &r); err != nil {
		return r, err
	}
	w.say("all credentials are renewed after %s; watching for %s", r.renewal.Round(time.Second), r.window)
	if err := w.watch(ctx, controller, server, &r); err != nil {
		return r, err
	}
	return r, r.check()
}

// startAgain replaces the controller by one that remembers nothing, and waits until it has read all
// Secrets.
func (w *world) startAgain(ctx context.Context, controller *local.Program, r *result) (*local.Program, error) {
	if err := controller.Stop(ctx); err != nil {
		return nil, err
	}
	before, err := w.log.read()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if controller, err = w.start(ctx, identityController); err != nil {
		return nil, err
	}
	if err := w.awaitCalls(ctx, before, calls.reads); err != nil {
		return nil, err
	}
	after, err := w.log.read()
	r.restart, r.atRestart = time.Since(began), after.since(before)
	return controller, err
}

// changeAll has all identities' tokens live for as long as they do at rest, and waits until all
// credentials are renewed.
func (w *world) changeAll(ctx context.Context, r *result) error {
	before, err := w.log.read()
	if err != nil {
		return err
	}
	change := fmt.Appendf(nil, `{"spec":{"duration":%q}}`, w.settings.life)
	began := time.Now()
	err = fleet.Each(ctx, w.n, func(ctx context.Context, i int) error {
		o := &identityv1.WorkloadIdentity{ObjectMeta: metav1.ObjectMeta{Namespace: namespace(i), Name: name(i)}}
		return w.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, change))
	})
	if err != nil {
		return err
	}
	err = w.awaitCalls(ctx, before, calls.statuses)
	r.renewal = time.Since(began)
	return err
}

// watch counts what happens at rest.
func (w *world) watch(ctx context.Context, controller, server *local.Program, r *result) error {
	before, err := w.log.read()
	if err != nil {
		return err
	}
	controllerBefore, serverBefore, err := w.usage(ctx, controller, server)
	if err != nil {
		return err
	}
	if err := fleet.Sleep(ctx, r.window); err != nil {
		return err
	}
	controllerAfter, serverAfter, err := w.usage(ctx, controller, server)
	if err != nil {
		return err
	}
	r.controller, r.tokenServer = controllerAfter.Since(controllerBefore), serverAfter.Since(serverBefore)
	after, err := w.log.read()
	if err != nil {
		return err
	}
	r.atRest = after.since(before)
	r.late, err = w.late(ctx)
	return err
}

// usage reads what the two processes have used.
func (w *world) usage(ctx context.Context, controller, server *local.Program) (ofController, ofServer metrics.Process, err error) {
	if ofController, err = metrics.ScrapeProcess(ctx, w.http, controller.URL("metrics")); err != nil {
		return ofController, ofServer, err
	}
	ofServer, err = metrics.ScrapeProcess(ctx, w.http, server.URL("metrics"))
	return ofController, ofServer, err
}

// late returns by how much the renewal is overdue that is overdue the most.
func (w *world) late(ctx context.Context) (time.Duration, error) {
	var list identityv1.WorkloadIdentityBindingList
	if err := w.Client().List(ctx, &list); err != nil {
		return 0, err
	}
	now, late := time.Now(), time.Duration(0)
	for i := range list.Items {
		if at := list.Items[i].Status.RenewAt; at != nil {
			late = max(late, now.Sub(at.Time))
		}
	}
	return late, nil
}

func (w *world) say(format string, args ...any) {
	_, _ = fmt.Fprintf(w.progress, "  "+format+"\n", args...)
}

func (w *world) start(ctx context.Context, program string) (*local.Program, error) {
	return w.StartProgram(ctx, local.ProgramOptions{Workload: program, Binary: filepath.Join(w.settings.programs, program)})
}

// awaitCalls waits until as many calls of a kind were made since earlier ones as there are
// bindings.
func (w *world) awaitCalls(ctx context.Context, before calls, kind func(calls) int) error {
	return fleet.Await(ctx, timeout, interval, func(context.Context) error {
		now, err := w.log.read()
		if err != nil {
			return err
		}
		if made := kind(now.since(before)); made < w.n {
			return fmt.Errorf("%d of %d bindings are seen", made, w.n)
		}
		return nil
	})
}

// token asks for a token of the last identity.
func (w *world) token(ctx context.Context) error {
	return fleet.RequestToken(ctx, w.typed, namespace(w.n-1), name(w.n-1))
}

// ready fails while a binding or an identity is not ready.
func (w *world) ready(ctx context.Context) error {
	bound, err := fleet.Ready(ctx, w.Client(), &identityv1.WorkloadIdentityBindingList{})
	if err != nil {
		return err
	}
	identities, err := fleet.Ready(ctx, w.Client(), &identityv1.WorkloadIdentityList{})
	if missing := 2*w.n - bound - identities; err == nil && missing > 0 {
		err = fmt.Errorf("%d bindings and identities are not ready", missing)
	}
	return err
}
