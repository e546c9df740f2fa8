package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/bench/internal/table"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// pokeEvery is the time between two uses of each credential while refreshes are counted.
const pokeEvery = time.Minute

// awsClusters measures the identity controller with AWSClusters. It counts the calls of AWS STS in
// the journal of the local cloud.
type awsClusters struct {
	// identities is the number of roles that the AWSClusters share.
	identities int
	// tokenLife is --token-cache-max-duration. With a short life, refreshes come within minutes.
	tokenLife time.Duration
	// rest is how long the controller is watched while nobody changes an object.
	rest time.Duration
}

func (a *awsClusters) flags(f *flag.FlagSet) string {
	f.IntVar(&a.identities, "identities", 200, "number of roles that the AWSClusters share")
	f.DurationVar(&a.tokenLife, "token-life", 10*time.Minute, "time after which a credential is got anew at the latest")
	f.DurationVar(&a.rest, "rest", 2*time.Minute, "how long the controller is watched at rest")
	return "200,10000"
}

func (a *awsClusters) check(n int) error {
	if a.identities < 1 || n < a.identities {
		return errors.New("--identities must be from 1 to the number of AWSClusters")
	}
	if a.tokenLife < 5*pokeEvery {
		return fmt.Errorf("--token-life is less than %s: credentials would end unused", 5*pokeEvery)
	}
	return nil
}

// earliestDue returns the least age at which a credential in use is refreshed. A refresh is due
// after four fifths of the credential's life, plus or minus a twentieth of this life.
func (a *awsClusters) earliestDue() time.Duration { return a.tokenLife * 75 / 100 }

func (a *awsClusters) cloud(o *local.CloudOptions, _ int) { fleet.AddUser(o, "owner", a.identities) }

func (a *awsClusters) measure(ctx context.Context, w *world) (table.Table, error) {
	if err := a.create(ctx, w); err != nil {
		return nil, err
	}
	w.say("objects are created; the controller starts")
	controller, err := w.start(ctx, identityController, time.Second,
		w.seen(`controller="awscluster"`), w.ready(&infrav1.AWSClusterList{}))
	if err != nil {
		return nil, err
	}
	all, startExchanges := w.Cloud().Journal(), len(exchanges(w, 0))
	ready := all.Last()
	start, err := w.usage(ctx, controller)
	if err != nil {
		return nil, err
	}
	w.say("all are ready after %s and %d exchanges; watching", controller.done.Round(time.Second), startExchanges)
	// For a minute after the start, the controller still counts the users of the identities. Wait a
	// minute, so that this work is not measured as work at rest.
	if err := stage.Sleep(ctx, time.Minute); err != nil {
		return nil, err
	}
	before, after, err := beforeAfter(ctx, a.rest, func(ctx context.Context) (metrics.Process, error) {
		return w.usage(ctx, controller)
	})
	if err != nil {
		return nil, err
	}
	if err := a.refreshAll(ctx, w, ready); err != nil {
		return nil, err
	}
	if lost := all.Dropped(); lost > 0 {
		return nil, fmt.Errorf("the journal has forgotten %d calls", lost)
	}
	atRest, lifeExchanges, early := after.Since(before), len(exchanges(w, ready)), a.early(exchanges(w, 0))

	t := table.New("AWSClusters", w.n)
	t.Row("identities (AWSClusterRoleIdentities, each with a role)", "%d", a.identities)
	t.Seconds("start: all clusters ready after", controller.done)
	t.Row("start: exchanges at AWS STS (AssumeRole)", "%d", startExchanges)
	t.Row("start: calls to the Kubernetes API per cluster", "%.1f", start.Calls/float64(w.n))
	t.Seconds("start: CPU", start.CPU)
	t.Memory("at rest: ", atRest)
	t.Row("at rest: CPU", "%.2f %% of a core", 100*atRest.CPU.Seconds()/a.rest.Seconds())
	t.Row("at rest: reconciliations per minute", "%.1f", atRest.Reconciliations/a.rest.Minutes())
	t.Row("at rest: calls to the Kubernetes API per minute", "%.1f", atRest.Calls/a.rest.Minutes())
	t.Row("one more life of each credential: exchanges at AWS STS", "%d", lifeExchanges)
	t.Row("all calls of AWS STS until then", "%d", len(all.Calls(journal.Filter{Service: "sts"})))
	t.Row("exchanges before a credential was due", "%d", early)

	if early > 0 {
		return t, fmt.Errorf("%d exchanges before a credential was due", early)
	}
	// Check the exchanges only if the start is shorter than earliestDue: a longer start includes
	// the first refreshes.
	if controller.done < a.earliestDue() && startExchanges != a.identities {
		return t, fmt.Errorf("%d exchanges at the start for %d identities", startExchanges, a.identities)
	}
	return t, nil
}

// create installs the chart, and creates the identities and the AWSClusters.
func (a *awsClusters) create(ctx context.Context, w *world) error {
	err := w.InstallChart(ctx, map[string]any{
		"identity":   map[string]any{"awsIdentities": true},
		"rbac":       map[string]any{"tenantNamespaces": []any{}},
		"tokenCache": map[string]any{"maxDuration": a.tokenLife.String()},
	})
	if err != nil {
		return err
	}
	if _, err := fleet.Namespaces(ctx, w.Client(), w.n); err != nil {
		return err
	}
	lent := identityv1.AWSClusterIdentitySpec{AllowedNamespaces: &identityv1.AllowedNamespaces{
		Selector: &identityv1.NamespaceSelector{MatchLabels: fleet.Labels()},
	}}
	if err := w.Client().Create(ctx, &identityv1.AWSClusterControllerIdentity{
		ObjectMeta: metav1.ObjectMeta{Name: identityv1.DefaultControllerIdentity},
		Spec:       identityv1.AWSClusterControllerIdentitySpec{AWSClusterIdentitySpec: lent},
	}); err != nil {
		return err
	}
	if err := fleet.Create(ctx, w.Client(), a.identities, func(i int) client.Object {
		role := identityv1.AWSRoleSpec{RoleARN: fleet.ARN(fleet.Role(i))}
		return &identityv1.AWSClusterRoleIdentity{
			ObjectMeta: metav1.ObjectMeta{Name: fleet.Role(i)},
			Spec:       identityv1.AWSClusterRoleIdentitySpec{AWSClusterIdentitySpec: lent, AWSRoleSpec: role},
		}
	}); err != nil {
		return err
	}
	return fleet.Create(ctx, w.Client(), w.n, func(i int) client.Object { return a.cluster(i) })
}

// cluster returns the i-th AWSCluster. The AWSClusters of one identity are in several regions.
func (a *awsClusters) cluster(i int) *infrav1.AWSCluster {
	regions := []string{"eu-west-1", "eu-central-1", "us-east-1"}
	role := fleet.Role(i % a.identities)
	return &infrav1.AWSCluster{ObjectMeta: fleet.Meta("cluster", i), Spec: infrav1.AWSClusterSpec{
		Region:      regions[i/a.identities%len(regions)],
		IdentityRef: &meta.AWSIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: role},
	}}
}

// refreshAll uses all credentials until each of them has been refreshed. The parameter since is a
// number in the cloud's journal: only refreshes with a greater number count.
func (a *awsClusters) refreshAll(ctx context.Context, w *world, since uint64) error {
	longest := a.tokenLife + 2*pokeEvery
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("it takes longer than %s", longest))
	defer cancel()
	group, using := errgroup.WithContext(ctx)
	group.Go(func() error { return a.poke(using, w) })
	group.Go(func() error {
		defer cancel()
		return w.Await(using, time.Second, func(context.Context) error {
			refreshed := map[string]bool{}
			for _, call := range exchanges(w, since) {
				refreshed[call.Role] = true
			}
			if len(refreshed) < a.identities {
				return fmt.Errorf("%d of %d credentials are refreshed", len(refreshed), a.identities)
			}
			return nil
		})
	})
	return group.Wait()
}

// poke requests reconciliations, until ctx ends: every minute, one AWSCluster of each identity.
// Without these requests, an AWSCluster uses its credential only every ten minutes. A credential is
// refreshed only when it is used.
func (a *awsClusters) poke(ctx context.Context, w *world) error {
	for i := 0; stage.Sleep(ctx, pokeEvery/time.Duration(a.identities)) == nil; i = (i + 1) % a.identities {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`,
			meta.ReconcileRequestedAnnotation, time.Now().UTC().Format(time.RFC3339Nano))
		err := w.Client().Patch(ctx, a.cluster(i), client.RawPatch(types.MergePatchType, patch))
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// exchanges returns the granted calls of AssumeRole, oldest first. The parameter after is a number
// in the cloud's journal: only calls with a greater number are returned.
func exchanges(w *world, after uint64) []journal.Call {
	return w.Cloud().Journal().Calls(journal.Filter{
		Service: "sts", Operation: "AssumeRole", Verdict: journal.Granted, After: after,
	})
}

// early counts the exchanges that came too soon: less than earliestDue after the previous exchange
// of the same role.
func (a *awsClusters) early(exchanges []journal.Call) (n int) {
	last := map[string]time.Time{}
	for _, call := range exchanges {
		if before, known := last[call.Role]; known && call.Time.Sub(before) < a.earliestDue() {
			n++
		}
		last[call.Role] = call.Time
	}
	return n
}
