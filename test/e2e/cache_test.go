package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// exchanges returns the calls that granted a session to a subject. It ignores calls up to the given
// journal number.
func exchanges(subject string, after uint64) []journal.Call {
	return world.Cloud().Journal().Calls(journal.Filter{
		Service: "sts", Operation: "AssumeRoleWithWebIdentity", Subject: subject, Verdict: journal.Granted, After: after,
	})
}

// resolutions returns the calls in which a role read the tenant's manifests. It ignores calls up to
// the given journal number.
func resolutions(tn *tenant, role string, after uint64) []journal.Call {
	var calls []journal.Call
	for _, c := range world.Cloud().Journal().Calls(journal.Filter{Operation: "ecr:BatchGetImage", Verdict: journal.Granted, After: after}) {
		if strings.HasSuffix(c.Resource, "repository/"+tn.namespace+"/app") && strings.Contains(c.Principal, ":assumed-role/"+role+"/") {
			calls = append(calls, c)
		}
	}
	return calls
}

// awaitKnown waits until the controller has seen all ServiceAccounts that exist now. The controller
// sees accounts in order, and caches tokens only for accounts that it has seen. So it has seen all
// accounts once it caches a token of the last one.
func (tn *tenant) awaitKnown(t *testing.T) {
	t.Helper()
	const last = "last"
	subject := "system:serviceaccount:" + tn.namespace + ":" + last
	putRole(t, tn.namespace+"-"+last, subject, tn.namespace+"/app")
	tn.putAccount(t, last, roleARN(tn.namespace+"-"+last))
	o := tn.object(last)
	o.Spec.ServiceAccountName = last
	o.Spec.Interval.Duration = time.Hour
	create(t, o)
	await(t, o, "the artifact", pulled)
	eventually(t, "the accounts are known", func(context.Context) error {
		before := len(exchanges(subject, 0))
		at := request(t, o)
		await(t, o, "the request is handled", handled(at))
		return wantf(len(exchanges(subject, 0)) == before, "no token is kept yet")
	})
	must(t, "delete an object", objects.Delete(t.Context(), o))
}

// TestOneExchange reconciles a hundred objects of one ServiceAccount for three intervals. All of
// them together must make only one exchange at the cloud.
func TestOneExchange(t *testing.T) {
	beside(t)
	const count, rounds = 100, 3
	tn := newTenant(t, "hundred")
	tn.pushFile(t, "1.0.0", "app")
	tn.awaitKnown(t)
	begin := world.Cloud().Journal().Last()
	for i := range count {
		o := tn.object(fmt.Sprintf("app-%02d", i))
		o.Spec.Interval.Duration = 2 * time.Second
		create(t, o)
	}
	var list v1alpha1.OCIRepositoryList
	eventually(t, "all are pulled", func(ctx context.Context) error {
		if err := objects.List(ctx, &list, client.InNamespace(tn.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if err := pulled(&list.Items[i]); err != nil {
				return fmt.Errorf("%s: %w", list.Items[i].Name, err)
			}
		}
		return nil
	})
	// Each reconciliation resolves the tag at the registry once, so these requests count the
	// reconciliations.
	eventually(t, "three intervals of all", func(context.Context) error {
		n := len(resolutions(tn, tn.namespace, begin))
		return wantf(n >= count*(rounds+1), "the registry was asked %d times of %d", n, count*(rounds+1))
	})
	if calls := exchanges(tn.subject, begin); len(calls) != 1 {
		t.Errorf("%d objects made %d sessions; want 1", count, len(calls))
	}
	tokens := 0
	for _, c := range world.Cloud().Journal().Calls(journal.Filter{Service: "ecr", Operation: "GetAuthorizationToken", After: begin}) {
		if strings.Contains(c.Principal, ":assumed-role/"+tn.namespace+"/") {
			tokens++
		}
	}
	if tokens != 1 {
		t.Errorf("%d objects made %d tokens of ECR; want 1", count, tokens)
	}
	if calls := world.Cloud().Journal().Calls(journal.Filter{Service: "sts", Subject: tn.subject, Verdict: journal.Refused, After: begin}); len(calls) > 0 {
		t.Errorf("STS refused: %+v", calls)
	}
}

// TestAccountChanges changes a ServiceAccount while its tokens are cached. After each change, the
// controller must not use the cached tokens.
func TestAccountChanges(t *testing.T) {
	beside(t)
	tn := newTenant(t, "changes")
	tn.pushFile(t, "1.0.0", "app")
	other := tn.namespace + "-other"
	putRole(t, other, tn.subject, tn.namespace+"/app")
	o := tn.object("app")
	o.Spec.Interval.Duration = time.Hour // so long that only changes of the account cause reconciliations
	create(t, o)
	await(t, o, "the artifact", pulled)
	if o.Status.Identity.CloudIdentity != tn.role {
		t.Fatalf("it was pulled as %s; want %s", o.Status.Identity.CloudIdentity, tn.role)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: puller}}

	t.Run("annotation changed", func(t *testing.T) {
		tn.awaitKnown(t)
		changed := world.Cloud().Journal().Last()
		patch(t, account, func(a *corev1.ServiceAccount) { a.Annotations[roleAnnotation] = roleARN(other) })
		await(t, o, "a pull as the new role", func(o *v1alpha1.OCIRepository) error {
			if err := pulled(o); err != nil {
				return err
			}
			return wantf(o.Status.Identity.CloudIdentity == roleARN(other), "it was pulled as %s", o.Status.Identity.CloudIdentity)
		})
		if calls := resolutions(tn, other, changed); len(calls) == 0 {
			t.Error("the registry was not read as the new role")
		}
		if calls := resolutions(tn, tn.namespace, changed); len(calls) > 0 {
			t.Errorf("the old role was used after the change: %+v", calls)
		}
		if calls := exchanges(tn.subject, changed); len(calls) != 1 || calls[0].Role != roleARN(other) {
			t.Errorf("the change made the exchanges %+v; want one for %s", calls, roleARN(other))
		}
	})
	t.Run("account deleted", func(t *testing.T) {
		must(t, "delete the account", objects.Delete(t.Context(), account))
		await(t, o, "the refusal", failing("SubjectNotFound", "create ServiceAccount "+tn.namespace+"/"+puller))
		gone := world.Cloud().Journal().Last()
		if o.Status.Identity != nil {
			t.Errorf("status.identity is still %+v", o.Status.Identity)
		}
		// Request several reconciliations. None of them may use a token of the deleted account,
		// which the controller may still have in its cache.
		for range 3 {
			at := request(t, o)
			await(t, o, "the request is handled", handled(at))
			must(t, "still refused", failing("SubjectNotFound")(o))
		}
		if calls := resolutions(tn, other, gone); len(calls) > 0 {
			t.Errorf("the registry was read without an account: %+v", calls)
		}
		if o.Status.Artifact == nil {
			t.Error("the artifact that was fetched is no longer served")
		}
	})
	t.Run("account created again", func(t *testing.T) {
		again := world.Cloud().Journal().Last()
		tn.putAccount(t, puller, roleARN(other))
		await(t, o, "the artifact", pulled)
		// The controller does not cache a token that it got before it saw the new account. So there
		// may be two exchanges.
		if calls := exchanges(tn.subject, again); len(calls) == 0 || len(calls) > 2 {
			t.Errorf("the new account made %d exchanges; a token of the old one must not be used", len(calls))
		}
	})
	t.Run("annotation removed", func(t *testing.T) {
		patch(t, account, func(a *corev1.ServiceAccount) { delete(a.Annotations, roleAnnotation) })
		await(t, o, "the refusal", failing("IdentityMissing", roleAnnotation, puller))
	})
}

// TestTrustRevoked removes a role's trust while a token of the role is cached. The token is used
// until its refresh is refused; then it is dropped. The test's controller caches tokens for at most
// twelve seconds, so that the refresh comes soon.
func TestTrustRevoked(t *testing.T) {
	beside(t)
	s := takeShard(t)
	s.start(t, "revoked", map[string]any{"tokenCache": map[string]any{"maxDuration": "12s"}})
	tn := s.newTenant(t, "revoked")
	tn.pushFile(t, "1.0.0", "app")
	o := tn.object("app")
	create(t, o)
	await(t, o, "the artifact", pulled)

	revoked := world.Cloud().Journal().Last()
	must(t, "revoke the trust", world.Cloud().AWS().PutTrustPolicy(local.Account, tn.namespace, trust("system:serviceaccount:elsewhere:puller")))
	await(t, o, "the refusal", failing("TrustRefused", tn.role, tn.subject))
	if len(resolutions(tn, tn.namespace, revoked)) == 0 {
		t.Error("the token that is kept did not serve until its refresh")
	}
	refused := world.Cloud().Journal().Last()
	at := request(t, o)
	await(t, o, "the request is handled", handled(at))
	must(t, "still refused", failing("TrustRefused")(o))
	if calls := resolutions(tn, tn.namespace, refused); len(calls) > 0 {
		t.Errorf("a token was used after its refresh was refused: %+v", calls)
	}
	if calls := exchanges(tn.subject, revoked); len(calls) > 0 {
		t.Errorf("a revoked subject was granted %+v", calls)
	}

	tn.putRole(t)
	at = request(t, o) // a requested reconciliation ignores the cached failure
	await(t, o, "the request is handled", handled(at))
	must(t, "pulled again at once", pulled(o))
}
