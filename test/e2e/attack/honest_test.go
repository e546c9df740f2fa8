package attack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
)

const (
	// honestNamespace is the namespace of the demonstration's tenant-a.
	honestNamespace = "tenant-a"
	// honestPause is the pause between two pieces of the honest tenant's work.
	honestPause = 400 * time.Millisecond
	// honestName is the name of all objects that createHonest creates for the honest tenant.
	honestName = "honest"
	// newPrefix is the prefix of the names of the honest tenant's new sources.
	newPrefix = "new-"
)

// activity is a category of the honest tenant's work.
type activity int

const (
	// oldSources: the tenant requests reconciliations of the sources in its namespace.
	oldSources activity = iota
	// newSources: the tenant creates sources, and deletes each source when the source is Ready.
	newSources
	// bindings: the tenant requests reconciliations of its WorkloadIdentityBindings.
	bindings
	// kustomizations: the tenant requests reconciliations of its Kustomizations.
	kustomizations
	// tokens: the tenant requests tokens from the token server, through the API server.
	tokens
	activities // the number of categories
)

func (a activity) String() string {
	return [activities]string{"old sources", "new sources", "bindings", "kustomizations", "tokens"}[a]
}

// rounds has the start and the end of each [round], by category of work.
type rounds [activities][]span

// honest is the honest tenant, which works during all attacks. The tenant sends requests as its
// ServiceAccount, so the API server's priority and fairness applies to these requests. The
// administrator's client watches the tenant's objects.
type honest struct {
	client client.Client  // writes the tenant's objects
	api    rest.Interface // requests tokens

	mu      sync.Mutex // guards the fields below
	running map[string]*round
	faults  []string                    // what went wrong since the last call of take
	rounds  rounds                      // finished rounds since the last call of take
	objects map[types.UID]client.Object // last known state of each object, by UID
}

// round is one piece of work that the honest tenant waits for, such as one reconciliation.
type round struct {
	of   activity
	from time.Time
	// done reports whether an object's new state ends the round. done is nil for a token request,
	// which does not wait for an object.
	done  func(o report.Resource) bool
	ended chan struct{} // closed when the round ends
}

// nameOf returns an object's kind and name. This text is the key of the object's [round] in the map
// honest.running.
func nameOf(o client.Object) string { return fmt.Sprintf("%T %s", o, o.GetName()) }

// startHonest starts the honest tenant's work. The work ends with the test.
func startHonest(t *testing.T) *honest {
	t.Helper()
	h := &honest{running: map[string]*round{}, objects: map[types.UID]client.Object{}}
	makeNewRoles(t)
	createHonest(t)
	h.logIn(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	var count [activities]int
	for _, kind := range kinds.All().Where(func(k kinds.Kind) bool { return k.Success != "" && !k.ClusterScoped }) {
		list := kind.NewList()
		must(t, "list the honest objects", objects.List(ctx, list, client.InNamespace(honestNamespace)))
		watching, err := objects.Watch(ctx, list, client.InNamespace(honestNamespace))
		must(t, "watch the honest objects", err)
		running.Go(func() {
			defer watching.Stop()
			for e := range watching.ResultChan() {
				if o, ok := e.Object.(report.Resource); ok && e.Type != watch.Deleted {
					h.see(o)
				}
			}
			if ctx.Err() == nil {
				h.fault("the watch of the honest objects ended")
			}
		})
		of := bindings
		switch {
		case kind.Fetches():
			of = oldSources
		case kind.Account != nil:
			of = kustomizations
		}
		items, err := apimeta.ExtractList(list)
		must(t, "list the honest objects", err)
		model := max(0, slices.IndexFunc(items, func(o runtime.Object) bool { return atAWS(o) != nil }))
		for i, item := range items {
			o := item.(report.Resource) // this assertion cannot fail: all objects of these kinds implement Resource
			h.see(o)
			running.Go(func() { h.repeat(ctx, func(int) { h.ask(ctx, of, o) }) })
			count[of]++
			if of == oldSources && i == model {
				running.Go(func() { h.repeat(ctx, func(n int) { h.create(ctx, o, n) }) })
				count[newSources]++
			}
		}
	}
	if count[oldSources] < 3 || count[newSources] < len(kinds.All().Where(kinds.Kind.Fetches)) || count[bindings] == 0 || count[kustomizations] == 0 {
		t.Fatalf("the honest tenant has %v objects, by sort of work", count)
	}
	running.Go(func() { h.repeat(ctx, func(int) { h.mint(ctx) }) })
	return h
}

// logIn makes h.client and h.api, with a token of the honest tenant's ServiceAccount. The test
// fails if the API server's priority and fairness exempts requests with this token.
func (h *honest) logIn(t *testing.T) {
	t.Helper()
	config := rest.AnonymousClientConfig(world.Config())
	config.BearerToken = accountToken(t, honestNamespace, honestName, authenticationv1.TokenRequestSpec{})
	config.QPS = -1 // the client itself does not limit the rate of its requests
	typed, err := kubernetes.NewForConfig(config)
	must(t, "make a client", err)
	h.api = typed.CoreV1().RESTClient()
	h.client, err = client.New(config, client.Options{Scheme: objects.Scheme()})
	must(t, "make a client", err)

	c, err := rest.HTTPClientFor(config)
	must(t, "make a client", err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/namespaces/"+honestNamespace, nil)
	must(t, "make a request", err)
	res, err := c.Do(req)
	must(t, "call the API server", err)
	must(t, "call the API server", res.Body.Close())
	administrator, err := kubernetes.NewForConfig(world.Config())
	must(t, "make a client", err)
	exempt, err := administrator.FlowcontrolV1().FlowSchemas().Get(t.Context(), "exempt", metav1.GetOptions{})
	must(t, "read a FlowSchema", err)
	if schema := res.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); schema == "" || schema == string(exempt.UID) {
		t.Fatalf("priority and fairness does not apply to the honest tenant: FlowSchema %q", schema)
	}
}

// honestRights returns the RBAC rules that the honest tenant's ServiceAccount needs.
func honestRights() []rbacv1.PolicyRule {
	var sources []string
	for _, kind := range kinds.All().Where(kinds.Kind.Fetches) {
		sources = append(sources, kind.Plural)
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion().Group}, Resources: sources, Verbs: []string{"create", "patch", "delete"}},
		{APIGroups: []string{v1alpha1.GroupVersion().Group}, Resources: []string{kinds.Kustomization().Plural}, Verbs: []string{"patch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
		{APIGroups: []string{identityv1.Group}, Resources: []string{kinds.WorkloadIdentityBinding().Plural}, Verbs: []string{"patch"}},
		{APIGroups: []string{corev1.GroupName}, Resources: []string{"serviceaccounts"}, Verbs: []string{"create", "delete"}},
		minting(),
	}
}

// createHonest creates the objects that the demonstration's tenant-a lacks: an ImageRepository, a
// WorkloadIdentity, a WorkloadIdentityBinding, and a ServiceAccount with [honestRights].
// createHonest waits until the WorkloadIdentityBinding and the ImageRepository are Ready.
func createHonest(t *testing.T) {
	t.Helper()
	name := metav1.ObjectMeta{Namespace: honestNamespace, Name: honestName}
	identity := &identityv1.WorkloadIdentity{ObjectMeta: name, Spec: targetOf("any", `{}`)}
	binding := &identityv1.WorkloadIdentityBinding{ObjectMeta: name, Spec: identityv1.WorkloadIdentityBindingSpec{
		WorkloadIdentity: &identityv1.WorkloadIdentityReference{Name: honestName},
		Store:            identityv1.BindingStore{SecretRef: identityv1.BindingSecretReference{Name: honestName}},
	}}
	images := &v1alpha1.ImageRepository{ObjectMeta: name, Spec: v1alpha1.ImageRepositorySpec{
		Image:    local.Account + ".dkr.ecr." + local.Region + ".amazonaws.com/tenant-a/app",
		Schedule: v1alpha1.Schedule{Interval: metav1.Duration{Duration: 10 * time.Second}},
		RegistryAccess: v1alpha1.RegistryAccess{
			Access: v1alpha1.Access{Provider: v1alpha1.ProviderAWS, ServiceAccountName: "tenant-a-ecr-sa"},
		},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: name}
	role := &rbacv1.Role{ObjectMeta: name, Rules: honestRights()}
	granted := &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: honestName},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: honestNamespace, Name: honestName}},
	}
	for _, o := range []client.Object{account, role, granted, identity, binding, images} {
		create(t, o)
		t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), o) })
	}
	createHonestKustomization(t)
	awaitReady(t, binding, true)
	await(t, images, "the tags", func() error {
		return wantf(condition(images).Status == metav1.ConditionTrue, "%+v", condition(images))
	})
}

// repeat calls the function do until ctx ends. The parameter n is the number of earlier calls.
// After each call, repeat pauses for honestPause.
func (h *honest) repeat(ctx context.Context, do func(n int)) {
	for n := 0; ctx.Err() == nil; n++ {
		do(n)
		select {
		case <-time.After(honestPause):
		case <-ctx.Done():
		}
	}
}

// see receives the current state of an object of the honest tenant. If the object's round waits for
// this state, see ends the round. If the object is not Ready, see records a fault. At first, a new
// source has no condition Ready. So for a new source, see records a fault only if the condition is
// False.
func (h *honest) see(o report.Resource) {
	ready := apimeta.FindStatusCondition(o.GetStatus().Conditions, meta.ConditionReady)
	isNew := strings.HasPrefix(o.GetName(), newPrefix)
	if !isNew && (ready == nil || ready.Status != metav1.ConditionTrue) || isNew && ready != nil && ready.Status == metav1.ConditionFalse {
		h.fault(fmt.Sprintf("the honest tenant's %s is not Ready: %+v", nameOf(o), ready))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !isNew {
		h.objects[o.GetUID()] = o
	}
	if r, ok := h.running[nameOf(o)]; ok && r.done(o) {
		h.end(nameOf(o))
	}
}

// begin records that a round begins now, and returns the round. The name is the round's key in
// h.running, so no other running round may have this name. The function done becomes the round's
// field done.
func (h *honest) begin(name string, of activity, done func(o report.Resource) bool) *round {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &round{of: of, from: time.Now(), done: done, ended: make(chan struct{})}
	h.running[name] = r
	return r
}

// end ends the running [round] with this name, and records how long the round took. The caller
// holds the mutex h.mu.
func (h *honest) end(name string) {
	r := h.running[name]
	delete(h.running, name)
	h.rounds[r.of] = append(h.rounds[r.of], span{r.from, time.Now()})
	close(r.ended)
}

// wait waits for the end of a round. If the round takes longer than patience, wait records a fault
// and ends the round.
func (h *honest) wait(ctx context.Context, name string, r *round) {
	select {
	case <-r.ended:
	case <-time.After(patience):
		h.fault(fmt.Sprintf("the honest tenant's %s: %s took longer than %s", r.of, name, patience))
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.running[name] == r {
			h.end(name)
		}
	case <-ctx.Done():
	}
}

// ask asks the controller to reconcile an object, and waits for the end of the reconciliation.
func (h *honest) ask(ctx context.Context, of activity, o report.Resource) {
	value := time.Now().UTC().Format(time.RFC3339Nano)
	r := h.begin(nameOf(o), of, func(o report.Resource) bool { return o.GetStatus().LastHandledReconcileAt == value })
	if err := request(ctx, h.client, o, value); err != nil && ctx.Err() == nil {
		h.fault("the honest tenant asks for a reconciliation: " + err.Error())
	}
	h.wait(ctx, nameOf(o), r)
}

// create creates a copy of the source in the parameter like. The number n is part of the copy's
// name. create waits until the copy is Ready, and then deletes the copy. If the copy is an
// OCIRepository at AWS, the copy gets a new ServiceAccount. So Lanyard must exchange a token of
// this ServiceAccount for a new AWS session.
func (h *honest) create(ctx context.Context, like report.Resource, n int) {
	o := like.DeepCopyObject().(report.Resource) // this assertion cannot fail: the copy has the original's type
	name := fmt.Sprint(newPrefix, like.GetName(), "-", n)
	o.SetName(name)
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetFinalizers(nil)
	o.SetAnnotations(nil)
	o.SetManagedFields(nil)
	*o.GetStatus() = meta.Status{}
	all := []client.Object{o}
	if repository := atAWS(o); repository != nil {
		repository.Spec.ServiceAccountName = name
		all = []client.Object{chainAccount(honestNamespace, name, roleOf(newRole), roleOf(newChained)), o}
	}
	r := h.begin(nameOf(o), newSources, func(o report.Resource) bool {
		return apimeta.IsStatusConditionTrue(o.GetStatus().Conditions, meta.ConditionReady)
	})
	for _, o := range all {
		if err := h.client.Create(ctx, o); err != nil && ctx.Err() == nil {
			h.fault("the honest tenant creates a source: " + err.Error())
		}
	}
	h.wait(ctx, nameOf(o), r)
	for _, o := range slices.Backward(all) {
		if err := h.client.Delete(context.WithoutCancel(ctx), o); err != nil && ctx.Err() == nil {
			h.fault("the honest tenant deletes a source: " + err.Error())
		}
	}
}

// atAWS returns the object if the object is an OCIRepository whose provider is AWS. For any other
// object, atAWS returns nil.
func atAWS(o runtime.Object) *v1alpha1.OCIRepository {
	if repository, ok := o.(*v1alpha1.OCIRepository); ok && repository.Spec.Provider == v1alpha1.ProviderAWS {
		return repository
	}
	return nil
}

// mint requests a token of the honest tenant's identity, and records how long the request takes.
func (h *honest) mint(ctx context.Context) {
	const name = "token"
	h.begin(name, tokens, nil)
	err := h.api.Post().AbsPath(identityPath(honestNamespace, honestName)+"/token").SetHeader("Content-Type", "application/json").
		Body([]byte(tokenRequest(`{}`))).Timeout(patience).Do(ctx).Error()
	if err != nil && ctx.Err() == nil {
		h.fault("the honest tenant requests a token: " + err.Error())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(name)
}

// request asks the controller to reconcile an object. The client c writes the request into an
// annotation of the object. The value must differ from the values of earlier requests.
func request(ctx context.Context, c client.Client, o client.Object, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestedAnnotation, value)
	// The conversion cannot fail: the copy of a client.Object is a client.Object too.
	return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, patch))
}

func (h *honest) fault(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, text)
}

// take returns the rounds since the last call of take, including the rounds that still run. The
// error joins the faults since the last call.
func (h *honest) take() (rounds, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	for _, text := range h.faults {
		err = errors.Join(err, errors.New(text))
	}
	all := h.rounds
	for _, r := range h.running {
		all[r.of] = append(all[r.of], span{r.from, time.Now()})
	}
	h.rounds, h.faults = rounds{}, nil
	return all, err
}

// digests returns the digests of the honest tenant's artifacts.
func (h *honest) digests() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]bool{}
	for _, o := range h.objects {
		if a := artifact(o); a != nil {
			all[a.Digest] = true
		}
	}
	return all
}

// artifact returns the artifact in an object's status, or nil.
func artifact(o client.Object) *v1alpha1.Artifact {
	if keeper, ok := o.(kinds.Keeper); ok {
		return keeper.GetArtifactStatus().Artifact
	}
	return nil
}
