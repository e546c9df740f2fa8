package main

import (
	"context"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	identityController = "lanyard-identity-controller"
	tokenServer        = "lanyard-token-server"
	discovery          = "lanyard-discovery"
)

// world is the cluster of one run.
type world struct {
	*stage.World

	n        int // number of objects
	progress io.Writer
}

func (w *world) say(format string, args ...any) {
	_, _ = fmt.Fprintf(w.progress, "  "+format+"\n", args...)
}

// look is a check. It returns an error until an expected change has happened.
type look func(ctx context.Context, p *program) error

// program is a running program.
type program struct {
	*local.Program

	ready time.Duration // from the start until the program was ready
	done  time.Duration // from the start until all checks had succeeded
}

// start starts a program, and then performs the checks in looks, one after the other. It repeats
// each check until the check succeeds, with a pause between two calls.
func (w *world) start(ctx context.Context, name string, pause time.Duration, looks ...look) (p *program, err error) {
	began := time.Now()
	p = &program{}
	if p.Program, err = w.StartProgram(ctx, local.ProgramOptions{Workload: name, Binary: w.Binary(name)}); err != nil {
		return nil, err
	}
	p.ready = time.Since(began)
	for _, look := range looks {
		err := w.Await(ctx, pause, func(ctx context.Context) error { return look(ctx, p) })
		if err != nil {
			return nil, err
		}
	}
	p.done = time.Since(began)
	return p, nil
}

// startIssuer starts the token server and the program that publishes its keys. Then it waits until
// the given [look] succeeds.
func (w *world) startIssuer(ctx context.Context, working look) (*program, error) {
	server, err := w.start(ctx, tokenServer, time.Second)
	if err != nil {
		return nil, err
	}
	_, err = w.start(ctx, discovery, time.Second, working)
	return server, err
}

// samples reads the metrics of a program.
func (w *world) samples(ctx context.Context, p *program) (metrics.Samples, error) {
	return metrics.Read(ctx, w.Direct, p.URL("metrics")+"/metrics")
}

// usage returns what a program has used since its start.
func (w *world) usage(ctx context.Context, p *program) (metrics.Process, error) {
	samples, err := w.samples(ctx, p)
	return samples.Process(), err
}

// beforeAfter reads a value, waits until the window has passed, and reads the value again.
func beforeAfter[T any](
	ctx context.Context, window time.Duration, read func(context.Context) (T, error),
) (before, after T, err error) {
	if before, err = read(ctx); err != nil {
		return before, after, err
	}
	if err := stage.Sleep(ctx, window); err != nil {
		return before, after, err
	}
	after, err = read(ctx)
	return before, after, err
}

// seen returns a [look] for a program. The look fails until the program has made at least as many
// reconciliations as there are objects. If labels are given, only reconciliations with all of these
// labels count. The look reads the program's metrics. This slows the program much less than listing
// all objects would.
func (w *world) seen(labels ...string) look {
	return func(ctx context.Context, p *program) error {
		samples, err := w.samples(ctx, p)
		if err != nil {
			return err
		}
		if n := samples.Sum("controller_runtime_reconcile_total", labels...); n < float64(w.n) {
			return fmt.Errorf("%.0f of %d objects are reconciled", n, w.n)
		}
		return nil
	}
}

// ready returns a check of the type [look]. For each given list, the check reads the objects of the
// list's type. It fails until w.n objects of each type are ready.
func (w *world) ready(lists ...client.ObjectList) look {
	return func(ctx context.Context, _ *program) error {
		for _, list := range lists {
			ready, err := fleet.Ready(ctx, w.Client(), list)
			if err != nil {
				return err
			}
			if ready < w.n {
				return fmt.Errorf("%d of %d objects are ready (%T)", ready, w.n, list)
			}
		}
		return nil
	}
}

// createIdentities creates n WorkloadIdentities. Each WorkloadIdentity gets tokens for the AWS role
// of the same name.
func (w *world) createIdentities(ctx context.Context, kind string, life *metav1.Duration) error {
	return fleet.Create(ctx, w.Client(), w.n, func(i int) client.Object {
		meta := fleet.Meta(kind, i)
		config := &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"iamRoleARN":%q}`, fleet.ARN(meta.Name))}
		return &identityv1.WorkloadIdentity{ObjectMeta: meta, Spec: identityv1.WorkloadIdentitySpec{
			Audiences: []string{"sts.amazonaws.com"}, Duration: life,
			TargetSystem: identityv1.TargetSystem{Type: "aws", ProviderConfig: config},
		}}
	})
}

// token returns a check of the type [look]. The check fails until the token server makes a token of
// the last WorkloadIdentity.
func (w *world) token(kind string) look {
	last := fleet.Meta(kind, w.n-1)
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/workloadidentities/%s/token",
		tokenv1.Group, tokenv1.Version, last.Namespace, last.Name)
	body := []byte(`{"apiVersion":"token.lanyard.dev/v1alpha1","kind":"TokenRequest"}`)
	return func(ctx context.Context, _ *program) error {
		request := w.Typed.RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body)
		return request.MaxRetries(0).Do(ctx).Error()
	}
}
