package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fluxcd/pkg/ssa"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/impersonation"
)

// deployer is the tenant's ServiceAccount that applies manifests.
const deployer = "deployer"

// applyWorld is a tenant's namespace, and a program that may impersonate the tenant's
// ServiceAccounts there.
type applyWorld struct {
	namespace string
	clients   *impersonation.Clients
	requests  *requestLog
}

// requestLog counts the requests of the program.
type requestLog struct {
	mu    sync.Mutex
	lines []string
	// after is called before each request; nil does nothing.
	after func(count int, r *http.Request)
}

// wrap returns a transport that records requests.
func (l *requestLog) wrap(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		l.mu.Lock()
		dry := ""
		if r.URL.Query().Has("dryRun") {
			dry = " dry"
		}
		l.lines = append(l.lines, r.Method+dry+" "+r.URL.Path)
		count, after := len(l.lines), l.after
		l.mu.Unlock()
		if after != nil {
			after(count, r)
		}
		return base.RoundTrip(r)
	})
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// take returns the requests since the last call, without discovery and the reads of the account.
func (l *requestLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := slices.DeleteFunc(l.lines, func(line string) bool {
		parts := strings.Split(line, "/")
		return len(parts) < 6 && strings.HasPrefix(line, "GET /api") || strings.Contains(line, "/serviceaccounts/"+deployer)
	})
	l.lines = nil
	return lines
}

// stores returns those of the requests that store something.
func stores(requests []string) []string {
	return slices.DeleteFunc(slices.Clone(requests), func(line string) bool {
		return strings.HasPrefix(line, "GET ") || strings.Contains(line, " dry ")
	})
}

// startApply makes the namespace and both accounts. The rules are the rights of the tenant.
func startApply(t *testing.T, namespace string, rules ...rbacv1.PolicyRule) *applyWorld {
	t.Helper()
	makeNamespace(t, namespace, nil)
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployer}})
	grantRole(t, namespace, deployer, rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: deployer}, rules...)
	program := namespace + "-program"
	makeNamespace(t, program, nil)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: program, Name: "program"}}
	create(t, account)
	grantRole(t, namespace, "program", rbacv1.Subject{Kind: "ServiceAccount", Namespace: program, Name: "program"},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate", "get"}})
	token, err := apiserver.CoreV1().ServiceAccounts(program).CreateToken(t.Context(), "program", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, "get the program's token", err)

	w := &applyWorld{namespace: namespace, requests: &requestLog{}}
	config := rest.AnonymousClientConfig(world.Config())
	config.BearerToken, config.UserAgent = token.Status.Token, userAgent
	config.Wrap(w.requests.wrap)
	own, err := client.New(config, client.Options{Scheme: objects.Scheme()})
	must(t, "make the program's client", err)
	w.clients, err = impersonation.New(config, client.Options{Scheme: objects.Scheme(), Mapper: own.RESTMapper()}, kube.NewLive(own))
	must(t, "make the tenants' clients", err)
	return w
}

// grantRole gives rights in a namespace.
func grantRole(t *testing.T, namespace, name string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	create(t, &rbacv1.Role{ObjectMeta: meta, Rules: rules})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	})
}

// applierRules are the rights of a tenant that applies workloads.
func applierRules() []rbacv1.PolicyRule {
	verbs := []string{"get", "list", "create", "patch", "delete"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets", "services", "serviceaccounts"}, Verbs: verbs},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: verbs},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: verbs},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: verbs},
	}
}

// as returns a client that acts as the tenant's account.
func (w *applyWorld) as(t *testing.T) *impersonation.Client {
	t.Helper()
	subject, err := auth.ServiceAccount(w.namespace, deployer)
	must(t, "name the account", err)
	c, err := w.clients.As(t.Context(), subject)
	must(t, "act as the tenant", err)
	return c
}

// applier returns an Applier of an owner with this name.
func (w *applyWorld) applier(t *testing.T, name string) *apply.Applier {
	t.Helper()
	c := w.as(t)
	return apply.New(c, apply.User{Name: c.User()}, apply.Owner{Namespace: w.namespace, Name: name}, false)
}

// manifests parses documents of YAML. NAMESPACE stands for the tenant's namespace.
func (w *applyWorld) manifests(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(strings.ReplaceAll(text, "NAMESPACE", w.namespace), "\n---\n") {
		o := &unstructured.Unstructured{}
		must(t, "parse a manifest", yaml.Unmarshal([]byte(document), &o.Object))
		all = append(all, o)
	}
	return all
}

// entries returns the entries of manifests.
func entries(manifests []*unstructured.Unstructured) []apply.Entry {
	var all []apply.Entry
	for _, o := range manifests {
		all = append(all, apply.EntryOf(o))
	}
	return all
}

// copies returns copies of manifests, since Apply changes its manifests.
func copies(manifests []*unstructured.Unstructured) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, o := range manifests {
		all = append(all, o.DeepCopy())
	}
	return all
}

// workload has objects of five kinds.
const workload = `apiVersion: apps/v1
kind: Deployment
metadata: {namespace: NAMESPACE, name: web, labels: {app: web}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example/web:1", ports: [{containerPort: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: NAMESPACE, name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: NAMESPACE, name: one}
data: {key: first}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: NAMESPACE, name: two}
data: {key: second}
---
apiVersion: v1
kind: Secret
metadata: {namespace: NAMESPACE, name: password}
stringData: {key: ` + secretMark + `applied}
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: NAMESPACE, name: web}`

// wholeCluster is a client whose kinds do not change.
type wholeCluster struct{ client.Client }

func (c wholeCluster) Discover() (apimeta.RESTMapper, error) { return c.RESTMapper(), nil }

// effects compares manifests with the cluster, and counts the effects and the paths of the fields that
// change.
func effects(t *testing.T, a *apply.Applier, manifests []*unstructured.Unstructured, options apply.Options) map[string]int {
	t.Helper()
	found, err := a.Diff(t.Context(), manifests, options, true)
	must(t, "compare", err)
	count := map[string]int{}
	for _, d := range found {
		count[string(d.Effect)]++
		for _, c := range d.Changes {
			count[c.Path]++
			if strings.Contains(fmt.Sprint(c.Old, c.New), secretMark) {
				t.Errorf("a value of a Secret is shown: %s", c.Path)
			}
		}
	}
	return count
}

// TestApply applies manifests as a tenant, undoes what others change, and prunes.
func TestApply(t *testing.T) {
	beside(t)
	w := startApply(t, "apply-basic", applierRules()...)
	a := w.applier(t, "app")
	wanted := w.manifests(t, workload)
	w.requests.take()

	began := 0
	result, err := a.Apply(t.Context(), copies(wanted), apply.Options{BeforeWrite: func(context.Context) error {
		began++
		if made := stores(w.requests.take()); len(made) > 0 {
			t.Errorf("stored before the inventory: %q", made)
		}
		return nil
	}})
	must(t, "apply", err)
	inventory := result.Entries()
	if began != 1 || len(result.Changed()) != len(wanted) || len(inventory) != len(wanted) {
		t.Errorf("began %d times, %+v", began, result.Changes)
	}
	if made := w.requests.take(); len(made) != len(wanted) || len(stores(made)) != len(wanted) {
		t.Errorf("the writes are %q", made)
	}
	live := &corev1.ConfigMap{}
	must(t, "read an object", objects.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "one"}, live))
	if live.Data["key"] != "first" || live.Labels["kustomize.toolkit.lanyard.dev/name"] != "app" || live.Labels["kustomize.toolkit.lanyard.dev/namespace"] != w.namespace {
		t.Errorf("the object is %+v", live)
	}

	t.Run("at rest", func(t *testing.T) {
		state, err := a.Check(t.Context(), inventory, result.Versions)
		must(t, "check", err)
		// One request for each kind.
		if made := w.requests.take(); len(state.Changed()) != 0 || len(made) != 5 || len(stores(made)) != 0 {
			t.Errorf("changed %v after %q", state.Changed(), made)
		}
		again, err := a.Apply(t.Context(), copies(wanted), apply.Options{Inventory: inventory, State: state})
		must(t, "apply again", err)
		if made := w.requests.take(); len(made) != 0 || len(again.Changed()) != 0 || again.Versions.Len() != len(wanted) {
			t.Errorf("%+v, %d versions after %q", again.Changes, again.Versions.Len(), made)
		}
	})
	t.Run("after a restart", func(t *testing.T) {
		again, err := a.Apply(t.Context(), copies(wanted), apply.Options{Inventory: inventory, BeforeWrite: func(context.Context) error {
			return errors.New("nothing must be stored")
		}})
		must(t, "apply again", err)
		if made := w.requests.take(); len(made) != 2*len(wanted) || len(again.Changed()) != 0 || again.Versions.Len() != len(wanted) {
			t.Errorf("%+v after %q", again.Changes, made)
		}
	})
	t.Run("drift", func(t *testing.T) {
		drifted := []client.Object{
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "one"}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "password"}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}},
		}
		patch(t, drifted[0].(*corev1.ConfigMap), func(o *corev1.ConfigMap) { o.Data["key"] = "by hand" })
		patch(t, drifted[1].(*corev1.Secret), func(o *corev1.Secret) { o.Data["key"] = []byte("by hand") })
		patch(t, drifted[2].(*corev1.ServiceAccount), func(o *corev1.ServiceAccount) { delete(o.Labels, "kustomize.toolkit.lanyard.dev/name") })
		must(t, "delete an object", objects.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "two"}}))
		state, err := a.Check(t.Context(), inventory, result.Versions)
		must(t, "check", err)
		if len(state.Changed()) != 4 {
			t.Errorf("changed %v", state.Changed())
		}
		w.requests.take()
		again, err := a.Apply(t.Context(), copies(wanted), apply.Options{Inventory: inventory, State: state})
		must(t, "apply again", err)
		if len(again.Changed()) != 4 || again.Versions.Len() != len(wanted) {
			t.Errorf("%+v", again.Changes)
		}
		if made := w.requests.take(); len(stores(made)) != 4 || len(made) != 4*3 {
			t.Errorf("the requests are %q", made)
		}
		must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(live), live))
		if live.Data["key"] != "first" {
			t.Errorf("the object is %+v", live)
		}
		result = again
	})
	t.Run("compared", func(t *testing.T) {
		w.requests.take()
		want := map[string]int{"unchanged": len(wanted)}
		if got := effects(t, a, copies(wanted), apply.Options{Inventory: inventory}); !maps.Equal(got, want) {
			t.Errorf("the same manifests: %v", got)
		}
		text := strings.NewReplacer("web:1", "web:2", "port: 80}]}\n", "port: 81}]}\n", "key: first", "key: third", "applied", "changed", "name: two", "name: three").Replace(workload)
		want = map[string]int{
			"unchanged": 1, "created": 1, "deleted": 1, "changed": 4, "/data/key": 2, "/spec/template/spec/containers/0/image": 1,
			"/spec/ports/0/port": 1, "/spec/ports/0/targetPort": 1,
		}
		if got := effects(t, a, w.manifests(t, text), apply.Options{Inventory: inventory}); !maps.Equal(got, want) {
			t.Errorf("other manifests: %v", got)
		}
		text = strings.ReplaceAll(workload, "app: web}}", "app: other}}")
		want = map[string]int{"unchanged": len(wanted) - 1, "recreated": 1}
		if got := effects(t, a, w.manifests(t, text), apply.Options{Inventory: inventory, Force: true}); !maps.Equal(got, want) {
			t.Errorf("an immutable field: %v", got)
		}
		if made := w.requests.take(); len(stores(made)) > 0 {
			t.Errorf("stored %q", stores(made))
		}
		administrator := apply.New(wholeCluster{objects}, apply.User{Name: "administrator"}, apply.Owner{Namespace: w.namespace, Name: "app"}, false)
		fresh := w.manifests(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: NAMESPACE-new, name: one}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: NAMESPACE-new}")
		if got := effects(t, administrator, fresh, apply.Options{}); !maps.Equal(got, map[string]int{"created": 2}) {
			t.Errorf("a new namespace: %v", got)
		}
	})
	t.Run("annotations", func(t *testing.T) {
		one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "one"}}
		patch(t, one, func(o *corev1.ConfigMap) {
			o.Data["key"], o.Annotations = "kept", map[string]string{"kustomize.toolkit.fluxcd.io/reconcile": "disabled"}
		})
		again, err := a.Apply(t.Context(), copies(wanted), apply.Options{Inventory: inventory})
		must(t, "apply again", err)
		must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(one), one))
		if one.Data["key"] != "kept" || len(again.Changed()) != 0 {
			t.Errorf("%+v, %+v", one, again.Changes)
		}
		patch(t, one, func(o *corev1.ConfigMap) {
			o.Annotations = map[string]string{"kustomize.toolkit.lanyard.dev/prune": "disabled"}
		})
	})
	t.Run("prune", func(t *testing.T) {
		other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "others"}}
		create(t, other)
		forged := []apply.Entry{parseEntry(t, w.namespace+"_others__ConfigMap"), parseEntry(t, "kube-system_extension-apiserver-authentication__ConfigMap")}
		gone := parseEntry(t, w.namespace+"_never__ConfigMap")
		pruned, err := a.Prune(t.Context(), append(append(slices.Clone(inventory), forged...), gone), nil)
		failed, ok := errors.AsType[*apply.Error](err)
		if !ok || failed.Reason != apply.ReasonForbidden || failed.User != "system:serviceaccount:"+w.namespace+":"+deployer || len(pruned.Failed) != 1 || pruned.Failed[0] != forged[1] {
			t.Errorf("pruned %+v, %v", pruned, err)
		}
		if len(pruned.Deleted) != len(wanted)-1 || len(pruned.Left) != 2 {
			t.Errorf("pruned %+v", pruned)
		}
		for _, o := range wanted {
			err := objects.Get(t.Context(), client.ObjectKeyFromObject(o), o.DeepCopy())
			if stays := o.GetName() == "one"; stays != (err == nil) {
				t.Errorf("%s: %v", o.GetName(), err)
			}
		}
		must(t, "read an object that is not the owner's", objects.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	})
}

// parseEntry parses an ID with version v1.
func parseEntry(t *testing.T, id string) apply.Entry {
	t.Helper()
	e, err := apply.ParseEntry(id, "v1")
	must(t, "parse an entry", err)
	return e
}

// TestApplyWithoutList lets a tenant that may not list objects apply and find changes.
func TestApplyWithoutList(t *testing.T) {
	beside(t)
	w := startApply(t, "apply-unlisted", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "patch"}})
	a := w.applier(t, "app")
	manifests := w.manifests(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: NAMESPACE, name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: NAMESPACE, name: b}")
	result, err := a.Apply(t.Context(), manifests, apply.Options{})
	must(t, "apply", err)
	patch(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "b"}}, func(o *corev1.ConfigMap) { o.Data = map[string]string{"k": "v"} })
	state, err := a.Check(t.Context(), result.Entries(), result.Versions)
	must(t, "check", err)
	if changed := state.Changed(); len(changed) != 1 || changed[0].Key.Name != "b" {
		t.Errorf("changed %v", changed)
	}
}

// TestApplyRole applies a RoleBinding together with its Role. The account may not bind Roles whose
// rights it does not have.
func TestApplyRole(t *testing.T) {
	beside(t)
	roles := rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"get", "create", "patch"}}
	w := startApply(t, "apply-role", append(applierRules(), roles)...)
	const text = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: NAMESPACE, name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: NAMESPACE}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: NAMESPACE, name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
`
	all, err := w.applier(t, "app").Diff(t.Context(), w.manifests(t, text), apply.Options{}, true)
	must(t, "compare", err)
	for _, found := range all {
		if found.Effect != apply.EffectCreated {
			t.Errorf("%v is %s in a comparison", found.Key, found.Effect)
		}
	}
	result, err := w.applier(t, "app").Apply(t.Context(), w.manifests(t, text), apply.Options{})
	must(t, "apply", err)
	if n := len(result.Changes); n != 2 || len(all) != 2 {
		t.Errorf("%d changes after %d in a comparison", n, len(all))
	}
}

// TestApplyRefusals tries manifests that the API server refuses. Each error must name the tenant,
// the object and the reason, and have no value of a Secret. Besides the refused manifest, there is a
// good one, which must not be stored.
func TestApplyRefusals(t *testing.T) {
	beside(t)
	w := startApply(t, "apply-refused", applierRules()...)
	makeNamespace(t, "apply-foreign", nil)
	immutable := true
	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "fixed"}, Immutable: &immutable, StringData: map[string]string{"key": "value"}})
	create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "owned", Labels: map[string]string{
		"kustomize.toolkit.lanyard.dev/name": "other", "kustomize.toolkit.lanyard.dev/namespace": w.namespace,
	}}})
	create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "kept"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	const head = "apiVersion: v1\nkind: "
	for name, c := range map[string]struct {
		manifest string
		reason   apply.Reason
		says     string
		force    bool
		secret   bool // the manifests have values of Secrets
	}{
		"a cluster-scoped object": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: mine}", apply.ReasonForbidden, `cannot patch resource "clusterroles"`, false, false},
		"a namespace":             {head + "Namespace\nmetadata: {name: apply-mine}", apply.ReasonForbidden, "namespaces", false, false},
		"another namespace":       {head + "ConfigMap\nmetadata: {namespace: apply-foreign, name: c}", apply.ReasonForbidden, `namespace "apply-foreign"`, false, false},
		"a missing namespace":     {head + "ConfigMap\nmetadata: {namespace: apply-nowhere, name: c}", apply.ReasonForbidden, `namespace "apply-nowhere"`, false, false},
		"no namespace":            {head + "ConfigMap\nmetadata: {name: c}", apply.ReasonNoNamespace, "spec.targetNamespace", false, false},
		"more rights than its own": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {namespace: NAMESPACE, name: b}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}", apply.ReasonForbidden, "RoleBinding", false, false},
		"a missing role": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {namespace: NAMESPACE, name: b}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: nowhere}", apply.ReasonNoRole, "create the role", false, false},
		"an unknown kind":       {"apiVersion: example.com/v1\nkind: Widget\nmetadata: {namespace: NAMESPACE, name: w}", apply.ReasonUnknownKind, "CustomResourceDefinition of Widget.example.com", false, false},
		"a wrong field":         {head + "ConfigMap\nmetadata: {namespace: NAMESPACE, name: c}\ndata: {key: {nested: true}}", apply.ReasonInvalid, "", false, false},
		"a wrong value":         {head + "Service\nmetadata: {namespace: NAMESPACE, name: s}\nspec: {ports: [{port: 99999}]}", apply.ReasonInvalid, "99999", false, false},
		"a number in a Secret":  {head + "Secret\nmetadata: {namespace: NAMESPACE, name: s}\nstringData: {key: 4711471147}", apply.ReasonInvalid, "its answer is not shown", false, false},
		"a wrong Secret":        {head + "Secret\nmetadata: {namespace: NAMESPACE, name: s}\ndata: {key: '4711471147!'}", apply.ReasonInvalid, "its answer is not shown", false, false},
		"a substituted value":   {head + "ConfigMap\nmetadata: {namespace: NAMESPACE, name: c, labels: {l: 'wrong value 4711471147'}}", apply.ReasonInvalid, "(metadata.labels); its answer is not shown", false, true},
		"an immutable object":   {head + "Secret\nmetadata: {namespace: NAMESPACE, name: fixed}\nstringData: {key: other}", apply.ReasonImmutable, "spec.force", false, false},
		"an object of another":  {head + "ConfigMap\nmetadata: {namespace: NAMESPACE, name: owned}", apply.ReasonOwned, "Kustomization " + w.namespace + "/other", false, false},
		"a wrong value, forced": {head + "Service\nmetadata: {namespace: NAMESPACE, name: kept}\nspec: {ports: [{port: 99999}]}", apply.ReasonInvalid, "99999", true, false},
		"twice":                 {head + "ConfigMap\nmetadata: {namespace: NAMESPACE, name: good}", apply.ReasonInvalid, "two manifests", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			manifests := w.manifests(t, head+"ConfigMap\nmetadata: {namespace: NAMESPACE, name: good}\n---\n"+c.manifest)
			tenant := w.as(t)
			applier := apply.New(tenant, apply.User{Name: tenant.User()}, apply.Owner{Namespace: w.namespace, Name: "refused"}, c.secret)
			_, err := applier.Apply(t.Context(), manifests, apply.Options{Force: c.force, BeforeWrite: func(context.Context) error {
				t.Error("something is stored")
				return nil
			}})
			failed, ok := errors.AsType[*apply.Error](err)
			if !ok || failed.Reason != c.reason || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "as system:serviceaccount:"+w.namespace+":"+deployer) {
				t.Fatalf("the error is %v, want %s with %q; %#v", err, c.reason, c.says, failed.Err)
			}
			if strings.Contains(err.Error(), "4711471147") {
				t.Errorf("a secret value is in %v", err)
			}
			kept := &corev1.Service{}
			must(t, "read the object that stays", objects.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "kept"}, kept))
		})
	}
	t.Run("force", func(t *testing.T) {
		manifests := w.manifests(t, head+"Secret\nmetadata: {namespace: NAMESPACE, name: fixed}\nstringData: {key: other}")
		_, err := w.applier(t, "forced").Apply(t.Context(), manifests, apply.Options{Force: true})
		must(t, "apply with force", err)
		fixed := &corev1.Secret{}
		must(t, "read the Secret", objects.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "fixed"}, fixed))
		if string(fixed.Data["key"]) != "other" {
			t.Errorf("the Secret is %v", fixed.Immutable)
		}
	})
	t.Run("an owner that yields", func(t *testing.T) {
		manifests := w.manifests(t, head+"ConfigMap\nmetadata: {namespace: NAMESPACE, name: owned}")
		var asked []apply.Owner
		result, err := w.applier(t, "next").Apply(t.Context(), manifests, apply.Options{Yields: func(_ context.Context, e apply.Entry, other apply.Owner) (bool, error) {
			asked = append(asked, other)
			return e.Key.Name == "owned", nil
		}})
		must(t, "apply", err)
		if len(asked) != 1 || asked[0] != (apply.Owner{Namespace: w.namespace, Name: "other"}) || result.Changes[0].Action != ssa.ConfiguredAction {
			t.Errorf("asked %v, %+v", asked, result.Changes)
		}
	})
}

// TestImpersonation asserts that the API server sees the tenant's account and its groups. The
// program must not act as an account that does not exist, or as an account outside its grant.
func TestImpersonation(t *testing.T) {
	beside(t)
	w := startApply(t, "apply-account", applierRules()...)
	c := w.as(t)
	review := &unstructured.Unstructured{}
	review.SetGroupVersionKind(schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "SelfSubjectReview"})
	must(t, "ask who the user is", c.Create(t.Context(), review))
	user, _, _ := unstructured.NestedString(review.Object, "status", "userInfo", "username")
	groups, _, _ := unstructured.NestedStringSlice(review.Object, "status", "userInfo", "groups")
	slices.Sort(groups)
	if user != c.User() || !slices.Equal(groups, []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + w.namespace}) {
		t.Errorf("the user is %s in %q", user, groups)
	}
	missing, err := auth.ServiceAccount(w.namespace, "missing")
	must(t, "name an account", err)
	if _, err := w.clients.As(t.Context(), missing); auth.CodeOf(err) != auth.CodeSubjectNotFound {
		t.Errorf("an account that does not exist: %v", err)
	}
	foreign, err := auth.ServiceAccount("kube-system", "default")
	must(t, "name an account", err)
	if _, err := w.clients.As(t.Context(), foreign); err == nil {
		t.Error("acts as an account outside the grant")
	}
	must(t, "verify", c.Verify(t.Context()))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: deployer}}
	must(t, "delete the account", objects.Delete(t.Context(), account))
	if err := c.Verify(t.Context()); auth.CodeOf(err) != auth.CodeSubjectNotFound {
		t.Errorf("after the deletion: %v", err)
	}
	create(t, &corev1.ServiceAccount{ObjectMeta: account.ObjectMeta})
	if err := c.Verify(t.Context()); auth.CodeOf(err) != auth.CodeSubjectReplaced {
		t.Errorf("after the account was created anew: %v", err)
	}
}

// TestApplyDefinition applies a CustomResourceDefinition and an object of its kind together.
func TestApplyDefinition(t *testing.T) {
	beside(t)
	w := startApply(t, "apply-definition", rbacv1.PolicyRule{APIGroups: []string{"apply.example.com"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	name := "apply-definition"
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"*"}}}
	create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.namespace, Name: deployer}},
	}
	create(t, binding)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = objects.Delete(ctx, binding)
		_ = objects.Delete(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}})
	})
	manifests := w.manifests(t, `apiVersion: apply.example.com/v1
kind: Widget
metadata: {namespace: NAMESPACE, name: first}
spec: {size: 1}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.apply.example.com, namespace: NAMESPACE}
spec:
  group: apply.example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}`)
	a := w.applier(t, "app")
	if got := effects(t, a, copies(manifests), apply.Options{}); got["created"] != 2 {
		t.Errorf("compared before: %v", got)
	}
	same := copies(manifests)
	result, err := a.Apply(t.Context(), manifests, apply.Options{})
	must(t, "apply", err)
	if len(result.Changed()) != 2 {
		t.Errorf("%+v", result.Changes)
	}
	if got := effects(t, a, same, apply.Options{Inventory: result.Entries()}); got["unchanged"] != 2 {
		t.Errorf("compared afterwards: %v", got)
	}
	pruned, err := a.Prune(t.Context(), result.Entries(), nil)
	must(t, "prune", err)
	if len(pruned.Deleted) != 2 || pruned.Deleted[1].Key.GroupKind.Kind != "CustomResourceDefinition" {
		t.Errorf("pruned %+v", pruned)
	}
}

// TestApplyKilled ends the program at random requests, while objects are created, changed and
// pruned. After each end, the program goes on from the inventory that it has stored. In the end,
// the cluster must have exactly the wanted objects.
func TestApplyKilled(t *testing.T) {
	beside(t)
	w := startApply(t, "apply-killed", applierRules()...)
	const kills, size = 20, 30
	var stored []apply.Entry // what status.inventory would have
	manifests := func(round int) []*unstructured.Unstructured {
		var all []*unstructured.Unstructured
		for i := range size {
			name := fmt.Sprintf("c-%d", (i+round*7)%(2*size))
			all = append(all, w.manifests(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: NAMESPACE, name: %s}\ndata: {round: '%d'}", name, round))...)
		}
		return all
	}
	run := func(ctx context.Context, wanted []*unstructured.Unstructured) error {
		a := w.applier(t, "app")
		before := stored
		result, err := a.Apply(ctx, copies(wanted), apply.Options{Inventory: before, BeforeWrite: func(context.Context) error {
			stored = append(slices.Clone(before), apply.Without(entries(wanted), before)...)
			return nil
		}})
		if err != nil {
			return err
		}
		pruned, err := a.Prune(ctx, apply.Without(stored, result.Entries()), result)
		if err != nil {
			return err
		}
		stored = append(result.Entries(), pruned.Failed...)
		return nil
	}
	killed := 0
	for round := range kills {
		ctx, kill := context.WithCancel(t.Context())
		at := 1 + rand.IntN(3*size)
		w.requests.take()
		w.requests.mu.Lock()
		w.requests.after = func(count int, _ *http.Request) {
			if count >= at {
				kill()
			}
		}
		w.requests.mu.Unlock()
		if err := run(ctx, manifests(round)); err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			killed++
		}
		kill()
		w.requests.mu.Lock()
		w.requests.after = nil
		w.requests.mu.Unlock()
	}
	if killed < kills/2 {
		t.Errorf("only %d of %d rounds were killed", killed, kills)
	}
	wanted := manifests(kills)
	must(t, "the last round", run(t.Context(), wanted))
	list := &corev1.ConfigMapList{}
	must(t, "list the objects", objects.List(t.Context(), list, client.InNamespace(w.namespace), client.HasLabels{"kustomize.toolkit.lanyard.dev/name"}))
	got := map[string]string{}
	for _, o := range list.Items {
		got[o.Name] = o.Data["round"]
	}
	if len(got) != size || len(stored) != size {
		t.Errorf("%d objects and %d entries, want %d", len(got), len(stored), size)
	}
	for _, o := range wanted {
		if got[o.GetName()] != fmt.Sprint(kills) {
			t.Errorf("%s is of round %q", o.GetName(), got[o.GetName()])
		}
	}
}

// TestApplyUnavailable breaks single requests. The error must say that a later attempt may succeed,
// and the later attempt must succeed.
func TestApplyUnavailable(t *testing.T) {
	beside(t)
	w := startApply(t, "apply-unavailable", applierRules()...)
	wanted := w.manifests(t, workload)
	a := w.applier(t, "app")
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the API server is gone")
	w.requests.mu.Lock()
	w.requests.after = func(_ int, r *http.Request) {
		if r.Method == http.MethodPatch && !r.URL.Query().Has("dryRun") {
			cancel(gone)
		}
	}
	w.requests.mu.Unlock()
	if _, err := a.Apply(ctx, copies(wanted), apply.Options{}); !errors.Is(err, gone) {
		t.Errorf("the error is %v", err)
	}
	w.requests.mu.Lock()
	w.requests.after = nil
	w.requests.mu.Unlock()
	_, err := a.Apply(t.Context(), copies(wanted), apply.Options{})
	must(t, "apply again", err)
	secret := &corev1.Secret{}
	must(t, "read the Secret", objects.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "password"}, secret))
	if string(secret.Data["key"]) != secretMark+"applied" {
		t.Error("the Secret has another value")
	}
}
