package main

import (
	"context"
	"flag"
	"time"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/bench/internal/table"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// identities measures the token server and the identity controller with WorkloadIdentities. Each
// namespace has a hundred of them.
type identities struct{}

func (*identities) flags(*flag.FlagSet) string { return "100,1000,10000" }

func (*identities) check(int) error { return nil }

func (*identities) cloud(*local.CloudOptions, int) {}

func (*identities) measure(ctx context.Context, w *world) (table.Table, error) {
	const (
		kind  = "identity"
		pause = 100 * time.Millisecond
		// rest is the pause before memory is read. By then, the garbage collector has freed what
		// only the start needed.
		rest = 2*time.Minute + 10*time.Second
	)
	if err := w.InstallChart(ctx, local.WithIssuer(nil, nil)); err != nil {
		return nil, err
	}
	if _, err := fleet.Namespaces(ctx, w.Client(), w.n); err != nil {
		return nil, err
	}
	if err := w.createIdentities(ctx, kind, nil); err != nil {
		return nil, err
	}
	w.say("identities are created; the programs start")

	// The first token server creates the keys. The second one is measured: it finds them published,
	// and can make tokens at once.
	first, err := w.startIssuer(ctx, w.token(kind))
	if err != nil {
		return nil, err
	}
	if err := first.Stop(ctx); err != nil {
		return nil, err
	}
	server, err := w.start(ctx, tokenServer, pause, w.token(kind))
	if err != nil {
		return nil, err
	}
	// The first controller writes all statuses. The second controller finds the statuses up to
	// date.
	writer, err := w.start(ctx, identityController, pause, w.seen(), w.ready(&identityv1.WorkloadIdentityList{}))
	if err != nil {
		return nil, err
	}
	if err := writer.Stop(ctx); err != nil {
		return nil, err
	}
	again, err := w.start(ctx, identityController, pause, w.seen())
	if err != nil {
		return nil, err
	}
	if err := stage.Sleep(ctx, rest); err != nil {
		return nil, err
	}
	ofServer, err := w.usage(ctx, server)
	if err != nil {
		return nil, err
	}
	ofController, err := w.usage(ctx, again)
	if err != nil {
		return nil, err
	}
	t := table.New("WorkloadIdentities", w.n)
	t.Hundredths("token server: ready after", server.ready)
	t.Hundredths("token server: first token after", server.done)
	t.Memory("token server: ", ofServer)
	t.Hundredths("identity controller: all new identities have their status after", writer.done)
	t.Hundredths("identity controller, started again: ready after", again.ready)
	t.Hundredths("identity controller, started again: all identities seen after", again.done)
	t.Memory("identity controller, started again: ", ofController)
	return t, nil
}
