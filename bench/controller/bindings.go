package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/bench/internal/audit"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/bench/internal/table"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// longLife is the life of tokens during the start and the restart. It is so long that no token
	// becomes due meanwhile.
	longLife = time.Hour
	// shortestRestLife is the least spec.duration of a WorkloadIdentity.
	shortestRestLife = 10 * time.Minute
	// longestRestLife is the largest --token-life. It is less than longLife. So a change from
	// longLife to --token-life changes every identity, and renews all credentials.
	longestRestLife = 45 * time.Minute
	// bindingKind is in the names of bindings, identities and Secrets.
	bindingKind = "binding"
	// inFlight is the allowed difference between the counts of renewals and writes. Some renewals
	// are under way when calls are counted.
	inFlight = 10
)

// bindings measures the identity controller with WorkloadIdentityBindings. Each binding has its own
// identity and its own Secret. Calls are counted in the API server's audit log.
type bindings struct {
	// life is the flag --token-life: the life of tokens while the controller is watched. The
	// controller is at rest then: nobody changes an object, and the controller only renews
	// credentials.
	life time.Duration
	// renewals is the number of times that each credential becomes due while the controller is
	// watched. A credential becomes due after half of its life.
	renewals int
}

func (b *bindings) flags(f *flag.FlagSet) string {
	f.DurationVar(&b.life, "token-life", 10*time.Minute, "life of the tokens while the controller is watched at rest")
	f.IntVar(&b.renewals, "renewals", 2, "how often each credential becomes due at rest")
	return "100,1000,10000"
}

func (b *bindings) check(int) error {
	if b.life < shortestRestLife || b.life > longestRestLife {
		return fmt.Errorf("--token-life is %s, and must be from %s to %s", b.life, shortestRestLife, longestRestLife)
	}
	if b.renewals < 1 {
		return errors.New("--renewals is less than 1: nothing would be counted")
	}
	return nil
}

func (*bindings) cloud(*local.CloudOptions, int) {}

// bindingRun has the results of a run.
type bindingRun struct {
	start     time.Duration // time until all Secrets were written
	restart   time.Duration // time until a new process had read all Secrets
	atRestart calls         // all calls during the restart
	renewed   time.Duration // time from the change of all identities until all credentials were renewed

	window  time.Duration // length of the period that atRest covers
	atRest  counters
	overdue time.Duration // delay of the most overdue credential at the end; 0 if none is due
}

// counters have the controller's API calls, and the resource use of the controller and of the token
// server. They are read before and after the period in which the controller is watched.
type counters struct {
	calls                   calls
	controller, tokenServer metrics.Process
}

// measure starts the controller, starts it again, and changes all identities. Then it watches the
// controller while nobody changes an object.
func (b *bindings) measure(ctx context.Context, w *world) (_ table.Table, err error) {
	user := "system:serviceaccount:" + local.Namespace + ":" + identityController
	log, err := audit.Open(w.Path("cluster", "audit.log"), user)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := createBindings(ctx, w); err != nil {
		return nil, err
	}
	server, err := w.startIssuer(ctx, w.token(bindingKind))
	if err != nil {
		return nil, err
	}
	w.say("the controller starts")
	ready := w.ready(&identityv1.WorkloadIdentityBindingList{}, &identityv1.WorkloadIdentityList{})
	first, err := w.start(ctx, identityController, time.Second, w.called(log, calls{}, secretWrite))
	if err != nil {
		return nil, err
	}
	if err := w.Await(ctx, time.Second, func(ctx context.Context) error { return ready(ctx, first) }); err != nil {
		return nil, err
	}
	w.say("all Secrets are written after %s; the controller starts again", first.done.Round(time.Second))
	if err := first.Stop(ctx); err != nil {
		return nil, err
	}
	stopped, err := readCalls(log)
	if err != nil {
		return nil, err
	}
	controller, err := w.start(ctx, identityController, time.Second, w.called(log, stopped, secretRead))
	if err != nil {
		return nil, err
	}
	restarted, err := readCalls(log)
	if err != nil {
		return nil, err
	}
	r := bindingRun{
		start: first.done, restart: controller.done, atRestart: restarted.since(stopped),
		window: time.Duration(b.renewals) * b.life / 2,
	}
	w.say("all Secrets are read after %s; all identities change", r.restart.Round(time.Second))
	if r.renewed, err = b.changeAll(ctx, w, w.called(log, restarted, statusWrite)); err != nil {
		return nil, err
	}
	w.say("all credentials are renewed after %s; watching for %s", r.renewed.Round(time.Second), r.window)
	before, after, err := beforeAfter(ctx, r.window, func(ctx context.Context) (counters, error) {
		return count(ctx, w, log, controller, server)
	})
	if err != nil {
		return nil, err
	}
	r.atRest = counters{
		calls:       after.calls.since(before.calls),
		controller:  after.controller.Since(before.controller),
		tokenServer: after.tokenServer.Since(before.tokenServer),
	}
	if r.overdue, err = overdue(ctx, w.Client()); err != nil {
		return nil, err
	}
	return r.table(w.n), r.check()
}

// count reads all counters.
func count(ctx context.Context, w *world, log *audit.Log, controller, server *program) (c counters, err error) {
	if c.calls, err = readCalls(log); err != nil {
		return c, err
	}
	if c.controller, err = w.usage(ctx, controller); err != nil {
		return c, err
	}
	c.tokenServer, err = w.usage(ctx, server)
	return c, err
}

func (r bindingRun) table(n int) table.Table {
	made, controller, server := r.atRest.calls, r.atRest.controller, r.atRest.tokenServer
	perRenewal := func(k kind) float64 { return float64(made[k]) / float64(made[renewal]) }
	t := table.New("bindings, each with an identity and a Secret", n)
	t.Seconds("start: all Secrets written after", r.start)
	t.Seconds("restart: all Secrets read after", r.restart)
	t.Row("restart: writes of Secrets and bindings", "%d", r.writtenAtRestart())
	t.Seconds("all identities changed: all credentials renewed after", r.renewed)
	t.Seconds("at rest: watched for", r.window)
	t.Row("at rest: renewals", "%d", made[renewal])
	t.Seconds("at rest: longest delay of a renewal", r.overdue)
	t.Row("at rest: writes of the Secret per renewal", "%.3f", perRenewal(secretWrite))
	t.Row("at rest: writes of the binding's status per renewal", "%.3f", perRenewal(statusWrite))
	others := made[otherWrite] + made[bindingWrite]
	t.Row("at rest: all other writes of the controller, without its lease", "%d", others)
	t.Row("at rest: calls to the Kubernetes API per renewal", "%.3f", perRenewal(anyCall))
	t.Memory("at rest: identity controller, ", controller)
	t.CPU("at rest: identity controller, ", controller, r.window)
	t.Each("at rest: identity controller, CPU per renewal", controller.CPU, made[renewal])
	t.Resident("at rest: token server, ", server)
	t.CPU("at rest: token server, ", server, r.window)
	return t
}

// writtenAtRestart counts the writes of Secrets and bindings during the restart.
func (r bindingRun) writtenAtRestart() int {
	return r.atRestart[secretWrite] + r.atRestart[statusWrite] + r.atRestart[bindingWrite]
}

// check fails if the restart has written anything. It also fails if the number of writes does not
// match the number of renewals while the controller was watched.
func (r bindingRun) check() error {
	if n := r.writtenAtRestart(); n > 0 {
		return fmt.Errorf("a restart has written %d times", n)
	}
	renewals := r.atRest.calls[renewal]
	for what, k := range map[string]kind{"Secrets": secretWrite, "statuses": statusWrite} {
		if n := r.atRest.calls[k]; n > renewals+inFlight || n < renewals-inFlight {
			return fmt.Errorf("%d writes of %s for %d renewals", n, what, renewals)
		}
	}
	return nil
}

// createBindings installs the chart, and creates identities and bindings.
func createBindings(ctx context.Context, w *world) error {
	namespaces, err := fleet.Namespaces(ctx, w.Client(), w.n)
	if err != nil {
		return err
	}
	values := map[string]any{"identity": map[string]any{"bindings": true}}
	if err := w.InstallChart(ctx, local.WithIssuer(namespaces, values)); err != nil {
		return err
	}
	if err := w.createIdentities(ctx, bindingKind, &metav1.Duration{Duration: longLife}); err != nil {
		return err
	}
	return fleet.Create(ctx, w.Client(), w.n, func(i int) client.Object {
		meta := fleet.Meta(bindingKind, i)
		return &identityv1.WorkloadIdentityBinding{ObjectMeta: meta, Spec: identityv1.WorkloadIdentityBindingSpec{
			WorkloadIdentity: &identityv1.WorkloadIdentityReference{Name: meta.Name},
			Store:            identityv1.BindingStore{SecretRef: identityv1.BindingSecretReference{Name: meta.Name}},
		}}
	})
}

// changeAll sets the token life of all identities to b.life. Then it calls the function renewed
// until that function returns no error. It returns how long all of this took.
func (b *bindings) changeAll(ctx context.Context, w *world, renewed look) (time.Duration, error) {
	began := time.Now()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"duration":%q}}`, b.life))
	err := fleet.Each(ctx, w.n, func(ctx context.Context, i int) error {
		return w.Client().Patch(ctx, &identityv1.WorkloadIdentity{ObjectMeta: fleet.Meta(bindingKind, i)}, patch)
	})
	if err == nil {
		err = w.Await(ctx, time.Second, func(ctx context.Context) error { return renewed(ctx, nil) })
	}
	return time.Since(began), err
}

// called returns a [look] that succeeds once the API server's log has as many new calls of the
// given kind as there are bindings.
func (w *world) called(log *audit.Log, before calls, k kind) look {
	return func(context.Context, *program) error {
		now, err := readCalls(log)
		if made := now.since(before)[k]; err == nil && made < w.n {
			err = fmt.Errorf("%d of %d bindings are seen", made, w.n)
		}
		return err
	}
}

// overdue returns for how long the most overdue credential has been due. It is 0 if none is due.
func overdue(ctx context.Context, c client.Client) (longest time.Duration, err error) {
	var list identityv1.WorkloadIdentityBindingList
	err = c.List(ctx, &list)
	for i := range list.Items {
		if at := list.Items[i].Status.RenewAt; at != nil {
			longest = max(longest, time.Since(at.Time))
		}
	}
	return longest, err
}
