package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clientconfig "k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/bench/internal/audit"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// rounds is the number of reconciliations of each object at rest.
	rounds = 3
	// pause is the time in which the program finishes its work after the last status.
	pause = 10 * time.Second
	// rest is the pause before memory is read. By then, the garbage collector has freed what only the
	// reconciliations needed.
	rest = 2*time.Minute + 10*time.Second
)

// results has the figures of one program.
type results struct {
	took        time.Duration // from the start until all objects were ready
	fromNothing reading       // after this time
	atRest      reading       // what all rounds have used
	rested      metrics.Kernel
	undone      time.Duration // a reconciliation that undoes changes of others
	others      others        // reconciliations beside a slow tenant's
}

// reading has everything that a program has used.
type reading struct {
	kernel          metrics.Kernel
	requests        audit.Counts
	fetches         int64   // of artifacts
	reconciliations float64 // as the program's metric counts them
}

// since returns what was used since an earlier reading. The memory is that of the later reading.
func (r reading) since(before reading) reading {
	r.kernel.CPU -= before.kernel.CPU
	r.requests = r.requests.Since(before.requests)
	r.fetches -= before.fetches
	r.reconciliations -= before.reconciliations
	return r
}

// measure measures a program.
func measure(ctx context.Context, w *world) (r results, err error) {
	a, err := serveArtifacts(w.n)
	if err != nil {
		return r, err
	}
	defer a.server.Close()
	hanging := startHanging()
	defer hanging.Close()
	if err := w.furnish(ctx, a); err != nil {
		return r, err
	}
	kubeconfig := w.Path("bench.kubeconfig")
	if err := w.WritePeerKubeconfig(ctx, kubeconfig); err != nil {
		return r, err
	}
	log, err := audit.Open(w.Path("cluster", "audit.log"), stage.PeerUser)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	config := clientconfig.CopyConfig(w.Config())
	config.QPS = -1 // a limit would make reconciliations seem longer
	watching, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return r, err
	}
	listen, err := local.Reserve(2)
	if err != nil {
		return r, err
	}
	defer listen.Release()

	w.say("all objects exist; the program starts")
	begin := time.Now()
	peer, err := w.StartPeer(ctx, stage.PeerOptions{
		Binary: w.Binary(w.binary), Args: w.args(listen.Addresses, kubeconfig, strings.TrimPrefix(a.server.URL, "http://"), strings.TrimPrefix(hanging.URL, "https://")), Log: w.Path(w.binary + ".log"), Health: listen.Addresses[1],
		Env: []string{"KUBECONFIG=" + kubeconfig, "RUNTIME_NAMESPACE=default"},
	})
	if err != nil {
		return r, err
	}
	defer peer.Stop()
	read := func() (now reading, err error) {
		now.fetches = a.fetches.Load()
		if now.kernel, err = metrics.ReadTree(peer.PID); err != nil {
			return now, err
		}
		if now.requests, err = log.Read(); err != nil {
			return now, err
		}
		samples, err := metrics.Read(ctx, w.Direct, "http://"+listen.Addresses[0]+"/metrics")
		now.reconciliations = samples.Process().Reconciliations
		return now, err
	}
	if err := w.AwaitObjects(ctx, watching, w.list(), w.n, stage.IsReady); err != nil {
		return r, err
	}
	r.took = time.Since(begin)
	if r.fromNothing, err = read(); err != nil {
		return r, err
	}

	w.say("all objects are ready after %s; each is reconciled %d times", r.took.Round(time.Second/10), rounds)
	if err := stage.Sleep(ctx, pause); err != nil {
		return r, err
	}
	before, err := read()
	if err != nil {
		return r, err
	}
	for round := range rounds {
		if err := w.reconcileAll(ctx, watching, "round-"+strconv.Itoa(round)); err != nil {
			return r, err
		}
	}
	if err := stage.Sleep(ctx, pause); err != nil {
		return r, err
	}
	after, err := read()
	if err != nil {
		return r, err
	}
	r.atRest = after.since(before)
	if err := stage.Sleep(ctx, rest); err != nil {
		return r, err
	}
	if r.rested, err = metrics.ReadTree(peer.PID); err != nil {
		return r, err
	}
	if r.undone, err = w.timeUndo(ctx, watching); err != nil {
		return r, err
	}
	r.others, err = w.besideSlow(ctx, watching, a, hanging)
	return r, err
}

// reconcileAll asks for a reconciliation of each object, and waits until all are done.
func (w *world) reconcileAll(ctx context.Context, watching client.WithWatch, request string) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, w.request, request))
	err := fleet.Each(ctx, w.n, func(ctx context.Context, i int) error {
		return w.Client().Patch(ctx, object(w.applyVersion, w.applyKind, i), patch)
	})
	if err != nil {
		return err
	}
	return w.AwaitObjects(ctx, watching, w.list(), w.n, func(o *unstructured.Unstructured) bool {
		handled, _, _ := unstructured.NestedString(o.Object, "status", "lastHandledReconcileAt")
		return handled == request && stage.IsReady(o)
	})
}
