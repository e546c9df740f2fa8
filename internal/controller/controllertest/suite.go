package controllertest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// Case is one object of a kind in its own test world. The conformance suite changes this world with
// the functions of the case. All fields are required unless their comments say otherwise.
type Case[O object.Object] struct {
	// Kube is the API server as users see it.
	Kube client.Client
	// Object is an object that is stored and was never reconciled. Its first reconciliation
	// succeeds.
	Object O
	// Lent says that the identity is not the tenant's own. With such an identity, a tenant's
	// request to reconcile must not cut short the pause after a failure.
	Lent bool
	// Reconciler returns the reconciler of the running process.
	Reconciler func() Reconciler[O]
	// Restart replaces the process by a new process with empty caches.
	Restart func()
	// Exchanges returns the number of requests for a credential so far.
	Exchanges func() int
	// Fail makes requests for a credential fail with a temporary error. With false, they succeed
	// again.
	Fail func(fails bool)
	// Hang makes requests for a credential wait until their context ends. The channel gets a value
	// when such a request begins.
	Hang func() (asked <-chan struct{})
	// Revoke takes the object's identity away, as an administrator or a terminating namespace does.
	Revoke func()
	// Grant undoes Revoke: the object has its identity again.
	Grant func()
	// Exclude changes a spec so that it names two identities which exclude each other.
	Exclude func(O)
	// Forge writes false results into the status.
	Forge func(O)
	// Offers formats the results that other programs read from the status. It leaves out times.
	Offers func(O) string
	// Kept reports whether data of the object is stored outside of the object, such as an artifact.
	// Nil if the kind stores no such data.
	Kept func() bool
	// NameIdentity changes a spec so that it names a WorkloadIdentity. Nil if the kind has no such
	// field.
	NameIdentity func(O)
}

// Reconciler has the methods of [object.Reconciler] that the suite needs.
type Reconciler[O object.Object] interface {
	reconcile.Reconciler

	// Judge returns an error if the object's spec is refused.
	Judge(ctx context.Context, o O) error
}

// Run checks that a kind follows the rules of the conformance suite. It skips rules that do not
// apply to the kind. The kind must be built on package tenant. Each rule gets a new case, made by
// start.
func Run[O object.Object](t *testing.T, start func(t *testing.T) *Case[O]) {
	t.Helper()
	example := start(t)
	for _, line := range Lines[O]() {
		if line.Applies == nil || line.Applies(example) {
			t.Run(line.Name, func(t *testing.T) { line.Check(t, start(t)) })
		}
	}
}

// Line is a rule that all kinds must follow.
type Line[O object.Object] struct {
	// Name is the rule in a few words.
	Name string
	// Applies reports whether the rule applies to the kind of a case. Nil if the rule applies to
	// all kinds.
	Applies func(*Case[O]) bool
	// Check tests whether the kind of c.Object follows this Line's rule. If the kind breaks the
	// rule, Check reports an error to tb.
	Check func(tb testing.TB, c *Case[O])
}

// Lines returns all lines of the suite. Each line is a rule that kinds must keep.
func Lines[O object.Object]() []Line[O] {
	return []Line[O]{
		{"decision changes nothing", nil, decisionChangesNothing[O]},
		{"object at rest is not written", nil, objectAtRest[O]},
		{"suspended", isTenant[O], suspended[O]},
		{"ended at work", nil, endedAtWork[O]},
		{"timeout", isTenant[O], timeout[O]},
		{"finalizer", nil, finalizer[O]},
		{"namespace deleted, identity first", nil, identityDeletedFirst[O]},
		{"namespace deleted, object first", nil, objectDeletedFirst[O]},
		{"renewal", namesIdentities[O], renewal[O]},
		{"identity revoked", nil, identityRevoked[O]},
		{"identities that exclude each other", nil, exclusions[O]},
		{"failure memory", nil, failureMemory[O]},
		{"forged status", nil, forgedStatus[O]},
		{"restart", nil, restart[O]},
		{"too large", nil, tooLarge[O]},
	}
}

// tooLarge gives an object too many labels, and later too many finalizers. Each time, the object
// must be refused, and the message must name the field. When the extra labels are removed, the
// object must recover. When the object is deleted, its data must be removed. The finalizers of
// other programs must stay.
func tooLarge[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	c.succeed(tb)
	exchanges := c.Exchanges()
	labels, finalizers := map[string]string{}, []string{}
	// Together, these names exceed the size limit for labels, and also for finalizers. Each entry
	// counts 80 extra bytes (memory.EntryCost), so short names suffice. The controller writes the
	// status of a large object less often. So the object's JSON must stay small: otherwise the test
	// would have to wait.
	for i := range 300 {
		name := fmt.Sprint("example.com/", i)
		labels[name], finalizers = "", append(finalizers, name)
	}
	refused := func(field string) {
		tb.Helper()
		o, result := c.reconcile(tb)
		ready, stalled := Ready(o), Condition(o, meta.ConditionStalled)
		if ready.Reason != meta.ReasonInvalidSpec || !strings.Contains(ready.Message, field) || stalled.Status != metav1.ConditionTrue || result.RequeueAfter != 0 {
			tb.Errorf("%s are too large: %+v, stalled %q, again after %s", field, ready, stalled.Status, result.RequeueAfter)
		}
		if c.Exchanges() != exchanges || c.Kept != nil && !c.Kept() {
			tb.Errorf("%s are too large: %d exchanges, want %d", field, c.Exchanges(), exchanges)
		}
	}
	write := func(change func(O)) {
		tb.Helper()
		o := c.get(tb)
		change(o)
		must.Succeed(tb, c.Kube.Update(tb.Context(), o))
	}
	write(func(o O) { o.SetLabels(labels) })
	refused("metadata.labels")
	write(func(o O) { o.SetLabels(map[string]string{"team": "a"}) })
	c.succeed(tb)
	exchanges = c.Exchanges()
	write(func(o O) { o.SetFinalizers(append(o.GetFinalizers(), finalizers...)) })
	refused("metadata.finalizers")
	c.delete(tb)
	c.attempt(tb)
	if left := c.get(tb).GetFinalizers(); !slices.Equal(left, finalizers) || c.Kept != nil && c.Kept() {
		tb.Errorf("after the deletion, the finalizers are %.200q, want those of others", left)
	}
	write(func(o O) { o.SetFinalizers(nil) })
	c.reconcileGone(tb)
}

// isTenant reports whether the kind implements [kinds.Tenant]. Its spec then has fields such as
// spec.suspend and spec.timeout.
func isTenant[O object.Object](c *Case[O]) bool {
	_, ok := any(c.Object).(kinds.Tenant)
	return ok
}

// namesIdentities reports whether a spec of the kind can name a WorkloadIdentity. This is so for
// every kind that implements [kinds.Tenant]. Cases of such a kind must have NameIdentity.
func namesIdentities[O object.Object](c *Case[O]) bool {
	return c.NameIdentity != nil || isTenant(c)
}

// decisionChangesNothing judges an object three times: when it is new, after a success, and after
// its identity was revoked. No decision may change the object or any object at the API server.
func decisionChangesNothing[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	for _, step := range []func(){func() {}, func() { c.reconcile(tb) }, c.Revoke} {
		step()
		o, there := c.get(tb), c.everything(tb)
		before := jsonOf(tb, o)
		_ = c.Reconciler().Judge(tb.Context(), o) // any decision will do, even a refusal
		if after := jsonOf(tb, o); after != before {
			tb.Errorf("the decision changed the object:\n%s\nwas\n%s", after, before)
		}
		if after := c.everything(tb); after != there {
			tb.Errorf("the decision changed the API server's objects:\n%s\nwere\n%s", after, there)
		}
	}
}

// objectAtRest reconciles an object twice. The second reconciliation must not write the object.
func objectAtRest[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	first := c.succeed(tb)
	if again := c.succeed(tb); again.GetResourceVersion() != first.GetResourceVersion() {
		tb.Errorf("an object at rest was written: %s", jsonOf(tb, again))
	}
}

// suspended suspends an object before and after its first success. No credential may be requested,
// and the results in the status must stay.
func suspended[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	suspend := func(value bool) func(O) {
		return func(o O) { any(o).(kinds.Tenant).GetSchedule().Suspend = value }
	}
	look := func(want metav1.ConditionStatus) O {
		exchanges := c.Exchanges()
		o, result := c.reconcile(tb)
		if ready := Ready(o); ready.Status != want || ready.Reason != meta.ReasonSuspended || result.RequeueAfter != 0 || c.Exchanges() != exchanges {
			tb.Errorf("suspended: %+v, again after %s, %d exchanges", ready, result.RequeueAfter, c.Exchanges()-exchanges)
		}
		return o
	}
	c.edit(tb, suspend(true))
	look(metav1.ConditionFalse)
	c.edit(tb, suspend(false))
	found := c.Offers(c.succeed(tb))
	c.edit(tb, suspend(true))
	if got := c.Offers(look(metav1.ConditionTrue)); got != found {
		tb.Errorf("suspended, the status offers %s, and offered %s", got, found)
	}
}

// endedAtWork deletes an object while a worker waits for a credential. The worker must end at once
// without writing. The next reconciliation must remove the object.
func endedAtWork[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	asked := c.Hang()
	ctx, end := context.WithCancel(tb.Context())
	defer end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.Reconciler().Reconcile(ctx, c.request())
	}()
	within(tb, asked, "the kind asks for a credential")
	c.delete(tb)
	there := c.everything(tb)
	end()
	if !within(tb, done, "the work of a deleted object ends") {
		return
	}
	if after := c.everything(tb); after != there {
		tb.Errorf("work that was ended wrote:\n%s\nwas\n%s", after, there)
	}
	c.reconcileGone(tb)
}

// timeout delays the credential beyond spec.timeout. The reconciliation must fail and be retried.
func timeout[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	c.edit(tb, func(o O) { any(o).(kinds.Tenant).GetSchedule().Timeout = &metav1.Duration{Duration: time.Second} })
	c.Hang()
	ctx, end := context.WithTimeout(tb.Context(), patience)
	defer end()
	result, err := c.Reconciler().Reconcile(ctx, c.request())
	if ready := Ready(c.get(tb)); err != nil || ready.Status != metav1.ConditionFalse || result.RequeueAfter == 0 {
		tb.Errorf("after spec.timeout: %+v, again after %s, %v", ready, result.RequeueAfter, err)
	}
}

// finalizer checks whether an object has the finalizer. An object must have it if its kind stores
// data elsewhere, such as an artifact. Objects of other kinds must have no finalizer. A deleted
// object must leave nothing behind.
func finalizer[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	o := c.succeed(tb)
	if has := len(o.GetFinalizers()) > 0; has != (c.Kept != nil) || c.Kept != nil && !c.Kept() {
		tb.Errorf("the finalizers are %q; something is kept: %v", o.GetFinalizers(), c.Kept != nil)
	}
	c.delete(tb)
	c.reconcileGone(tb)
}

// identityDeletedFirst deletes an object whose identity is gone. The object must not wait for the
// identity.
func identityDeletedFirst[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	c.succeed(tb)
	c.Revoke()
	c.attempt(tb)
	c.delete(tb)
	c.reconcileGone(tb)
}

// objectDeletedFirst deletes an object, and then its identity. Afterwards, neither the object nor
// its stored data may exist.
func objectDeletedFirst[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	c.succeed(tb)
	c.delete(tb)
	c.attempt(tb)
	c.Revoke()
	c.reconcileGone(tb)
}

// renewal makes the object name a WorkloadIdentity. It then sets an annotation of the object, which
// requests a new token of that identity. The kind must get one more credential for the object, and
// remove this annotation. Other annotations must stay.
func renewal[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	c.edit(tb, c.NameIdentity)
	c.succeed(tb)
	exchanges := c.Exchanges()
	c.annotate(tb, map[string]string{"note": "mine", meta.OperationAnnotation: meta.OperationRenewToken})
	o := c.succeed(tb)
	if got := o.GetAnnotations(); len(got) != 1 || got["note"] != "mine" || c.Exchanges() != exchanges+1 {
		tb.Errorf("after a renewal: annotations %q, %d exchanges, want 1", got, c.Exchanges()-exchanges)
	}
}

// identityRevoked revokes the identity. The kind must not use a cached credential, and the status
// must name no identity. When the identity is back, the object must recover.
func identityRevoked[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	c.succeed(tb)
	c.Revoke()
	o, _ := c.reconcile(tb)
	if ready := Ready(o); ready.Status != metav1.ConditionFalse {
		tb.Errorf("the identity is gone: %+v", ready)
	}
	if actor, ok := any(o).(kinds.Actor); ok && actor.GetFetchStatus().Identity != nil {
		tb.Errorf("the identity is gone, and the status names %+v", actor.GetFetchStatus().Identity)
	}
	c.Grant()
	c.annotate(tb, map[string]string{meta.ReconcileRequestedAnnotation: "now"})
	c.succeed(tb)
}

// exclusions puts two identities into the spec. The schema refuses that, but the object may be
// older than the schema's rule. The kind must refuse the object without a request for a credential.
func exclusions[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	c.edit(tb, c.Exclude)
	o, _ := c.reconcile(tb)
	stalled := Condition(o, meta.ConditionStalled).Status == metav1.ConditionTrue
	if ready := Ready(o); ready.Reason != meta.ReasonInvalidSpec || !stalled || c.Exchanges() != 0 {
		tb.Errorf("two identities: %+v, stalled %v, %d exchanges", ready, stalled, c.Exchanges())
	}
}

// failureMemory makes several attempts fail. The pauses between the attempts must grow. A request
// to reconcile must end the pause if the identity is the tenant's own. If the identity is lent to
// the namespace, the pause must continue.
func failureMemory[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	c.Fail(true)
	var first, last time.Duration
	for attempt := range 5 {
		o, result := c.reconcile(tb)
		if ready := Ready(o); ready.Status != metav1.ConditionFalse || result.RequeueAfter == 0 {
			tb.Fatalf("attempt %d: %+v, again after %s", attempt, ready, result.RequeueAfter)
		}
		if last = result.RequeueAfter; attempt == 0 {
			first = last
		}
	}
	if last < 4*first {
		tb.Errorf("the first pause is %s, and the fifth %s", first, last)
	}
	c.Fail(false)
	c.annotate(tb, map[string]string{meta.ReconcileRequestedAnnotation: "now"})
	if c.Lent {
		if o, _ := c.reconcile(tb); Ready(o).Status != metav1.ConditionFalse {
			tb.Error("a request had the owner's identity used before the pause has passed")
		}
		c.Restart()
	}
	if o := c.succeed(tb); o.GetStatus().LastHandledReconcileAt != "now" {
		tb.Errorf("the request is not acknowledged: %q", o.GetStatus().LastHandledReconcileAt)
	}
}

// forgedStatus writes false results into the status. The next reconciliation must correct the
// status.
func forgedStatus[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	honest := c.Offers(c.succeed(tb))
	o := c.get(tb)
	c.Forge(o)
	must.Succeed(tb, c.Kube.Status().Update(tb.Context(), o))
	if lie := c.Offers(c.get(tb)); lie == honest {
		tb.Fatalf("the forged status offers %s like the honest one", lie)
	}
	if got := c.Offers(c.succeed(tb)); got != honest {
		tb.Errorf("after a forged status the object offers %s, and offered %s", got, honest)
	}
}

// restart replaces the process. The new process must find the old results, and must not write the
// object.
func restart[O object.Object](tb testing.TB, c *Case[O]) {
	tb.Helper()
	first := c.succeed(tb)
	c.Restart()
	again := c.succeed(tb)
	if again.GetResourceVersion() != first.GetResourceVersion() || c.Offers(again) != c.Offers(first) {
		tb.Errorf("after a restart: %s\nbefore: %s", jsonOf(tb, again), jsonOf(tb, first))
	}
}

// patience is the longest time that the suite waits for an event that must happen promptly.
const patience = 5 * time.Second

func within(tb testing.TB, happened <-chan struct{}, what string) bool {
	tb.Helper()
	select {
	case <-happened:
		return true
	case <-time.After(patience):
		tb.Errorf("not within %s: %s", patience, what)
		return false
	}
}

func (c *Case[O]) request() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c.Object)}
}

// attempt reconciles once, and does not check the object.
func (c *Case[O]) attempt(tb testing.TB) reconcile.Result {
	tb.Helper()
	result, err := c.Reconciler().Reconcile(tb.Context(), c.request())
	if err != nil {
		tb.Fatalf("reconcile: %v", err)
	}
	return result
}

// reconcile reconciles once, and checks the rules of [Holds].
func (c *Case[O]) reconcile(tb testing.TB) (O, reconcile.Result) {
	tb.Helper()
	result := c.attempt(tb)
	o := c.get(tb)
	view := View{Status: *o.GetStatus()}
	if tenant, ok := any(o).(kinds.Tenant); ok {
		view.Suspended = tenant.GetSchedule().Suspend
	}
	if keeper, ok := any(o).(kinds.Keeper); ok {
		view.Stored = keeper.GetArtifactStatus().Artifact != nil && c.Kept()
	}
	Holds(tb, o, view, result)
	return o, result
}

// succeed reconciles once, and checks that the object is ready.
func (c *Case[O]) succeed(tb testing.TB) O {
	tb.Helper()
	o, _ := c.reconcile(tb)
	if ready := Ready(o); ready.Status != metav1.ConditionTrue {
		tb.Errorf("not ready: %+v", ready)
	}
	return o
}

// reconcileGone reconciles a deleted object, and checks that nothing is left of the object.
func (c *Case[O]) reconcileGone(tb testing.TB) {
	tb.Helper()
	c.attempt(tb)
	o := c.Object.DeepCopyObject().(O)
	if err := c.Kube.Get(tb.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
		tb.Errorf("the deleted object is still there: %v, %s", err, jsonOf(tb, o))
	}
	if c.Kept != nil && c.Kept() {
		tb.Error("something is left of the deleted object")
	}
}

func (c *Case[O]) get(tb testing.TB) O {
	tb.Helper()
	o := c.Object.DeepCopyObject().(O)
	must.Succeed(tb, c.Kube.Get(tb.Context(), client.ObjectKeyFromObject(o), o))
	return o
}

// edit changes the spec as a user does.
func (c *Case[O]) edit(tb testing.TB, change func(O)) {
	tb.Helper()
	o := c.get(tb)
	change(o)
	o.SetGeneration(o.GetGeneration() + 1)
	must.Succeed(tb, c.Kube.Update(tb.Context(), o))
}

func (c *Case[O]) annotate(tb testing.TB, annotations map[string]string) {
	tb.Helper()
	o := c.get(tb)
	o.SetAnnotations(annotations)
	must.Succeed(tb, c.Kube.Update(tb.Context(), o))
}

// delete deletes the object, as a user or the deletion of its namespace does.
func (c *Case[O]) delete(tb testing.TB) {
	tb.Helper()
	must.Succeed(tb, c.Kube.Delete(tb.Context(), c.Object))
}

// everything returns all objects of Lanyard's kinds and all Secrets at the API server, as JSON with
// their resource versions.
func (c *Case[O]) everything(tb testing.TB) string {
	tb.Helper()
	lists := []client.ObjectList{&corev1.SecretList{}}
	for _, kind := range kinds.All() {
		lists = append(lists, kind.NewList())
	}
	for _, list := range lists {
		must.Succeed(tb, c.Kube.List(tb.Context(), list))
	}
	return jsonOf(tb, lists)
}

func jsonOf(tb testing.TB, value any) string {
	tb.Helper()
	text, err := json.Marshal(value)
	must.Succeed(tb, err)
	return string(text)
}
