package attack

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// rewrite acts as a tenant whose registry has a new manifest each second. So the controller has new
// statuses to write each second. The objects have large annotations. The tenant creates only one
// object per second, because the creation of all objects at once would by itself keep an API server
// with two cores busy for seconds.
func rewrite(tn *tenant) {
	t := tn.t
	number := 30
	if testing.Short() {
		number = 10
	}
	layer := archive(t, 4, strings.NewReader("app\n"))
	bad := &registry{
		manifest: func() []byte { return manifestOf(t, layer, time.Now().Format(time.TimeOnly)) },
		blob:     func(w http.ResponseWriter) { _, _ = w.Write(layer) },
	}
	tn.serve(t, tn.host("new"), bad.ServeHTTP)
	watch, err := objects.Watch(t.Context(), &v1alpha1.OCIRepositoryList{}, client.InNamespace(tn.namespace))
	must(t, "watch the objects", err)
	// revisions holds the revisions of each object, by the object's name.
	revisions := map[string]map[string]bool{}
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		for e := range watch.ResultChan() {
			if o, ok := e.Object.(*v1alpha1.OCIRepository); ok && o.Status.Artifact != nil {
				if revisions[o.Name] == nil {
					revisions[o.Name] = map[string]bool{}
				}
				revisions[o.Name][o.Status.Artifact.Revision] = true
			}
		}
	}()
	began := time.Now()
	for i := range number {
		tn.tried++
		o := tn.repository(fmt.Sprint("new-", i), tn.host("new")+"/app")
		o.Annotations = map[string]string{"note": strings.Repeat("x", 250<<10)}
		create(t, o)
		pause(t, time.Second)
	}
	pause(t, lasting(10*time.Second, 40*time.Second))
	watch.Stop()
	<-counted
	took := time.Since(began)
	// The controller limits status writes by budgets. The write of a small object costs one unit. A
	// write of one of these large objects costs at least 32 units. The first write of a new object
	// is free. After that, the object's budget allows one write immediately, and one more every 320
	// seconds. The namespace's budget begins with 500 units, and gains one unit per second.
	//
	// The controller reconciles an object as long as the namespace's budget is not used up. It
	// reconciles at most five objects of a namespace at once. So the last five writes may exceed
	// the budget.
	most, all := 2+int(took/(320*time.Second)), 0
	for name, seen := range revisions {
		if all += len(seen); len(seen) > most {
			t.Errorf("%s was written %d times in %s; want %d at most", name, len(seen), took, most)
		}
	}
	if most := number + 5 + (500+int(took/time.Second))/32; all > most {
		t.Errorf("%d objects of a namespace were written %d times in %s; want %d at most", number, all, took, most)
	}
	if all < number+5 {
		t.Errorf("%d objects were written %d times: this tests nothing", number, all)
	}
}

// reword acts as a tenant whose registry answers each request with another error message. The
// messages have invisible characters.
func reword(tn *tenant) {
	t := tn.t
	var answers atomic.Int64
	tn.serve(t, tn.host("words"), func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"errors":[{"code":"DENIED","message":"txt.\u202eexe \u2066\u200b %d \u001b[2J"}]}`, answers.Add(1))
	})
	var all []*v1alpha1.OCIRepository
	for i := range 20 {
		tn.tried++
		o := tn.repository(fmt.Sprint("words-", i), tn.host("words")+"/app")
		create(t, o)
		all = append(all, o)
	}
	pause(t, lasting(3*time.Second, 30*time.Second))
	for _, o := range all {
		await(t, o, "the failure", func() error {
			return wantf(condition(o).Status == metav1.ConditionFalse, "%+v", condition(o))
		})
		hidden := func(r rune) bool { return unicode.In(r, unicode.Cf, unicode.Cc) }
		if message := condition(o).Message; strings.ContainsFunc(message, hidden) || !strings.Contains(message, "txt.") {
			t.Errorf("%s says %q", o.Name, message)
		}
	}
	if log := readLog(t); bytes.ContainsAny(log, "\u202e\u2066\u200b") || bytes.Contains(log, []byte(`\u202e`)) {
		t.Error("the log has characters that do not show")
	}
	var told corev1.EventList
	must(t, "list the events", objects.List(t.Context(), &told, client.InNamespace(tn.namespace)))
	if n := len(told.Items); n > 2*len(all) {
		t.Errorf("%d events of %d objects", n, len(all))
	}
}

// flood creates many objects that fail, and many ServiceAccounts that change.
func flood(tn *tenant) {
	t := tn.t
	const number = 300
	tn.serve(t, tn.host("flood"), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	for i := range number {
		tn.tried++
		account := &corev1.ServiceAccount{ObjectMeta: tn.meta(fmt.Sprint("account-", i))}
		create(t, account)
		o := tn.repositoryAs(fmt.Sprint("flood-", i), v1alpha1.ProviderGeneric, tn.host("flood")+"/app")
		o.Spec.ServiceAccountName = account.Name
		create(t, o)
		annotated := account.DeepCopy()
		annotated.Annotations = map[string]string{roleAnnotation: roleA}
		must(t, "annotate an account", objects.Patch(t.Context(), annotated, client.MergeFrom(account)))
	}
	pause(t, 20*time.Second)
}

// costlyClaims returns the chart value issuer.claimsConfig. With this value, a token request may
// have a ConfigMap as its context object. The token then has a claim about the ConfigMap. For each
// key, the claim's expression compares the ConfigMap with itself. So the time grows with the square
// of the number of keys. The limit of the CEL cost does not help, because CEL counts little for
// each comparison.
func costlyClaims() map[string]any {
	return map[string]any{"contexts": []any{map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps",
		"relation": "object.?data.?identity.orValue('') == identity.metadata.name",
		"claims":   map[string]any{"config.example.com": "object.data.all(key, object == object)"},
	}}}
}

const (
	// costlyKeys is the number of keys of a ConfigMap whose claim takes about 30 ms of processor
	// time. The token server still issues a token.
	costlyKeys = 200
	// slowKeys is the number of keys of a ConfigMap whose claim takes too long. The token server
	// stops the expression after 250 ms, and the request fails.
	slowKeys = 700
)

// configMap creates a ConfigMap with the key identity, and with the given number of other keys. The
// key identity names the tenant's WorkloadIdentity, as the relation in costlyClaims requires. The
// result is the spec of a token request, as JSON. The ConfigMap is the request's context object.
func (tn *tenant) configMap(name string, keys int) (spec string) {
	o := &corev1.ConfigMap{ObjectMeta: tn.meta(name), Data: map[string]string{"identity": victimIdentity}}
	for n := range keys {
		o.Data[fmt.Sprint("key-", n)] = strings.Repeat("x", 1000)
	}
	create(tn.t, o)
	return fmt.Sprintf(`{"contextObject":{"apiVersion":"v1","kind":"ConfigMap","namespace":%q,"name":%q,"uid":%q}}`,
		tn.namespace, name, o.UID)
}

// floodTokens requests tokens without pause, from several namespaces of the tenant. Two of three
// requests name a ConfigMap as their context object. The token server then computes a claim about
// this ConfigMap. The claim takes much processor time; see costlyClaims.
func floodTokens(tn *tenant) {
	t := tn.t
	// callers is the number of concurrent requests in each namespace. All callers together are more
	// than the API server has seats for token requests (see the chart's PriorityLevelConfigurations).
	const callers = 30
	var mu sync.Mutex // guards answers
	answers := map[string]map[int]int{}
	var floods []func(ctx context.Context)
	for _, in := range tn.in(manyNamespaces) {
		in.allow(minting(), rbacv1.PolicyRule{APIGroups: []string{corev1.GroupName}, Resources: []string{"configmaps"}, Verbs: []string{"get"}})
		in.identity(stsAudience)
		me := callAs(t, in.namespace, puller, nil)
		specs := map[string]string{"plain": `{}`, "costly": in.configMap("costly", costlyKeys), "slow": in.configMap("slow", slowKeys)}
		me.awaitToken(in.namespace, specs["costly"])
		for sort, spec := range specs {
			floods = append(floods, slices.Repeat([]func(ctx context.Context){func(ctx context.Context) {
				for ctx.Err() == nil {
					status := me.wantsToken(ctx, spec)
					mu.Lock()
					if answers[sort] == nil {
						answers[sort] = map[int]int{}
					}
					answers[sort][status]++
					mu.Unlock()
				}
			}}, callers/len(specs))...)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), lasting(5*time.Second, 20*time.Second))
	defer stop()
	var running sync.WaitGroup
	for _, flood := range floods {
		running.Go(func() { flood(ctx) })
		// The TLS handshakes of all callers at once would keep an API server on two cores busy.
		pause(t, 10*time.Millisecond)
	}
	running.Wait()
	t.Logf("requests by sort and HTTP status: %v", answers)
	for _, counts := range answers {
		for _, n := range counts {
			tn.tried += n
		}
	}
	// HTTP 503 means that a claim's expression reached the token server's time limit.
	if answers["plain"][http.StatusCreated] == 0 || answers["slow"][http.StatusServiceUnavailable] == 0 {
		t.Errorf("no token was issued, or no expression was slow: this tests nothing: %v", answers)
	}
}

// floodBindings creates WorkloadIdentityBindings in several namespaces of the tenant. For each
// binding, floodBindings requests a reconciliation again and again, with honestPause between two
// requests.
func floodBindings(tn *tenant) {
	t := tn.t
	const number = 20 // in each namespace
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	var all []*identityv1.WorkloadIdentityBinding
	for _, in := range tn.in(manyNamespaces) {
		in.identity(stsAudience)
		for i := range number {
			in.tried++
			o := bindingOf(fmt.Sprint("flood-", i), victimIdentity)
			o.Namespace = in.namespace
			create(t, o)
			all = append(all, o)
			running.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					_ = request(ctx, objects, o, fmt.Sprint(n)) // a request may fail at the end
					select {
					case <-time.After(honestPause):
					case <-ctx.Done():
					}
				}
			})
		}
	}
	pause(t, 20*time.Second)
	stop()
	running.Wait()
	handled := 0
	for _, o := range all {
		must(t, "read a binding", objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		if o.Status.LastHandledReconcileAt != "" {
			handled++
		}
	}
	t.Logf("requests of %d of %d bindings were handled", handled, len(all))
	if handled == 0 {
		t.Error("no request was handled: this tests nothing")
	}
}
