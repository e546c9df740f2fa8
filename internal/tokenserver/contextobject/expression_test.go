package contextobject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// about evaluates the CEL expression of each claim, and returns the values. In the expressions,
// object.spec.list is the argument list.
func about(t *testing.T, list []any, claims map[string]string) (map[string]any, error) {
	t.Helper()
	return aboutUntil(t, t.Context(), list, claims)
}

func aboutUntil(t *testing.T, ctx context.Context, list []any, claims map[string]string) (map[string]any, error) {
	t.Helper()
	compiled := map[string]expression{}
	for name, text := range claims {
		var err error
		if compiled[name], err = variables(nil).claim(name, text); err != nil {
			t.Fatal(err)
		}
	}
	e := &evaluation{variables: map[string]any{
		objectVariable:   map[string]any{"spec": map[string]any{"list": list, "big": int64(1) << 60}},
		identityVariable: map[string]any{"metadata": map[string]any{"name": "banana"}},
		clusterVariable:  map[string]any{},
	}}
	return e.claims(ctx, compiled)
}

// TestClaims checks which values can be claims, and their JSON.
func TestClaims(t *testing.T) {
	for text, want := range map[string]string{
		`'text <&>'`:                           `"text \u003c\u0026\u003e"`,
		`object.spec.big`:                      `1152921504606846976`,
		`18446744073709551615u`:                `18446744073709551615`,
		`1.5`:                                  `1.5`,
		`[1, 2].map(n, n * 2)`:                 `[2,4]`,
		`{'a': dyn(null), 'b': dyn([true])}`:   `{"a":null,"b":[true]}`,
		`{?'a': object.?nothing, 'b': dyn(1)}`: `{"b":1}`,
		`object.spec.list`:                     `["x"]`,
		`null`:                                 ``,
		`object.?spec.?nothing`:                ``,
		`object.?spec.?list`:                   `["x"]`,
	} {
		t.Run(text, func(t *testing.T) {
			got, err := about(t, []any{"x"}, map[string]string{"claim": text})
			must.Succeed(t, err)
			if want == "" {
				if len(got) > 0 {
					t.Errorf("got %v, want no claim", got)
				}
				return
			}
			if data, err := json.Marshal(got["claim"]); err != nil || string(data) != want {
				t.Errorf("got %s %v, want %s", data, err, want)
			}
		})
	}
}

// TestClaimsRefuse checks that an expression fails if it yields no valid claim or costs too much.
// Without the cost limit, a loop within a loop would succeed, and an expression that doubles a
// string forty times would never end.
func TestClaimsRefuse(t *testing.T) {
	long := make([]any, 20_000)
	for n := range long {
		long[n] = fmt.Sprintf("element %d", n)
	}
	const costly = "actual cost limit exceeded"
	// laughs is small in memory, but has 2^40 elements.
	laughs := "[object]" + strings.Repeat(".map(x, [x, x])", 40)
	for name, c := range map[string]struct{ text, want string }{
		"a field that is missing":      {"object.spec.nothing", "no such key"},
		"a key that is no string":      {"{1: 'a'}", "the keys of a claim must be strings"},
		"a number that JSON lacks":     {"1.0 / 0.0", "JSON has no such number"},
		"a duration":                   {"duration('1h')", "must be of a type that JSON has"},
		"an optional within":           {"[object.?nothing]", "must be of a type that JSON has"},
		"a large claim":                {"object.spec.list", "more than 4096 bytes"},
		"one long string":              {"object.spec.list.slice(0, 1000).join('')", "more than 4096 bytes"},
		"escapes that make it large":   {"object.spec.list.slice(0, 100).map(e, '<<<<<<<<<<').join('')", "more than 4096 bytes"},
		"a value that contains itself": {laughs, "more than 4096 bytes"},
		"loops within loops":           {"object.spec.list.slice(0, 400).all(a, object.spec.list.slice(0, 400).all(b, a != b + '!'))", costly},
		"a long loop":                  {"object.spec.list.all(a, object.spec.list.all(b, a != b + '!'))", costly},
		"a string that doubles":        {"['x']" + strings.Repeat(".map(x, x + x)", 40), costly},
		"a slow pattern":               {"object.spec.list.all(a, object.spec.list.join('').matches('(a+)+b$') || true)", costly},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := about(t, long, map[string]string{"claim": c.text})
			// On a busy machine, the time may run out before the cost reaches its limit.
			slow := c.want == costly && errors.Is(err, errTooSlow)
			if err == nil || !slow && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v %v, want %s", got, err, c.want)
			}
		})
	}
}

// TestCostOfARequest checks the limit for the cost of all expressions of a request together. Many
// cheap expressions must exceed it.
func TestCostOfARequest(t *testing.T) {
	list := make([]any, 100)
	for n := range list {
		list[n] = "x"
	}
	claims := map[string]string{}
	for n := range 20 {
		claims[fmt.Sprintf("claim%d", n)] = "object.spec.list.all(x, x == 'x')"
	}
	if _, err := about(t, list, map[string]string{"one": claims["claim0"]}); err != nil {
		t.Fatal(err)
	}
	_, err := about(t, list, claims)
	if slow := errors.Is(err, errTooSlow); !slow && !errors.Is(err, errTooCostly) { // on a busy machine, the time may run out first
		t.Errorf("%v, want %v", err, errTooCostly)
	}
}

// TestTimeOfARequest checks that expressions share one time limit, and that a loop ends when no
// time is left.
func TestTimeOfARequest(t *testing.T) {
	x, err := variables(nil).claim("a", "object == 1")
	must.Succeed(t, err)
	e := &evaluation{variables: map[string]any{objectVariable: 1}}
	if _, err := e.eval(t.Context(), x); err != nil || e.time == 0 {
		t.Errorf("%v after %s", err, e.time)
	}
	// The loop in the next expression compares two long lists in each step. A step takes about a
	// millisecond, but has a low CEL cost. So the time limit ends the loop, not the cost limit.
	e.variables[objectVariable] = map[string]any{"list": make([]any, 20_000)}
	x, err = variables(nil).claim("a", "object.list.all(n, object == object)")
	must.Succeed(t, err)
	for _, left := range []time.Duration{0, time.Millisecond} {
		e.time = maxTime - left
		if _, err := e.eval(t.Context(), x); !errors.Is(err, errTooSlow) {
			t.Errorf("%v with %s left, want %v", err, left, errTooSlow)
		}
	}
}

// TestUnboundedFunctions checks that expressions with certain functions are refused. The time or
// the memory of these functions grows faster than their arguments. A running function cannot be
// interrupted: with a list of 20,000 elements, sets.contains took 27 seconds.
func TestUnboundedFunctions(t *testing.T) {
	for function, text := range map[string]string{
		"distinct":        "object.spec.list.distinct()",
		"sort":            "object.spec.list.map(x, [x.sort()])",
		"sortBy":          "object.spec.list.sortBy(x, x.name)",
		"sets.contains":   "sets.contains(object.spec.list, object.spec.list)",
		"sets.equivalent": "!sets.equivalent(object.spec.list, object.spec.list)",
		"sets.intersects": "sets.intersects(object.spec.list, object.spec.list)",
		"lists.range":     "lists.range(object.spec.number)",
	} {
		if _, err := variables(nil).claim("a", text); err == nil || !strings.Contains(err.Error(), "the function "+function+":") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestSlowExpressions checks the answer if the expressions for an object run out of time. Because
// the program may be busy, the answer must ask the caller to try again. After a refusal, the caller
// would not try again.
func TestSlowExpressions(t *testing.T) {
	w := newWorld(t, gardener)
	object := foo()
	q := question{Resolver: w.resolver, identity: banana(), object: &object}
	err := q.refuse("has no valid claims", fmt.Errorf("claim a: %w", errTooSlow))
	if seconds, again := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !again || seconds == 0 {
		t.Errorf("%v, want 503 with Retry-After", err)
	}
}

// TestSizeOfAllClaims checks that the size limit is for all claims of a token together.
func TestSizeOfAllClaims(t *testing.T) {
	long := "'" + strings.Repeat("x", maxClaims/2) + "'"
	if _, err := about(t, nil, map[string]string{"a": long}); err != nil {
		t.Fatal(err)
	}
	if _, err := about(t, nil, map[string]string{"a": long, "b": long}); !errors.Is(err, errTooLarge) {
		t.Errorf("%v, want %v", err, errTooLarge)
	}
}

// TestEndsWithItsRequest checks that the evaluation of a long expression ends when the context of
// its request ends.
func TestEndsWithItsRequest(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller went away")
	cancel(gone)
	list := make([]any, 20_000)
	if _, err := aboutUntil(t, ctx, list, map[string]string{"a": "object.spec.list.all(x, x == null)"}); !errors.Is(err, gone) {
		t.Errorf("%v, want %v", err, gone)
	}
}

// TestViaNamespaces checks which namespaces the expression via.namespace may return: the context
// object's namespace, and the namespaces in via.namespaces. Without this limit, a tenant could
// choose any namespace, because the expression reads the tenant's context object.
func TestViaNamespaces(t *testing.T) {
	const config = `
contexts:
- apiVersion: example.com/v1
  kind: Widget
  resource: widgets
  scope: AnyNamespace
  via:
  - as: settings
    apiVersion: v1
    kind: ConfigMap
    resource: configmaps
    name: object.spec.name
    namespace: object.spec.namespace
    namespaces: [shared]
  relation: settings.?data.?identity.orValue('') == identity.metadata.name
`
	kinds, err := load(t, config)
	must.Succeed(t, err)
	for namespace, allowed := range map[string]bool{
		"'garden-local'": true, "shared": true, "kube-system": false, "''": false, "'*'": false, "[shared]": false, "shared/x": false, "null": false,
	} {
		t.Run(namespace, func(t *testing.T) {
			w := newWorld(t, gardener)
			w.resolver.Kinds = kinds
			w.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				{Group: "example.com", Version: "v1", Resource: "widgets"}: "WidgetList", {Version: "v1", Resource: "configmaps"}: "ConfigMapList",
			})
			w.resolver.Objects = w.objects
			w.add(t, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: garden-local, uid: u}\nspec: {name: settings, namespace: "+namespace+"}")
			for _, home := range []string{"garden-local", "shared", "kube-system"} {
				w.add(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: "+home+"}\ndata: {identity: banana}")
			}
			_, err := w.resolve(t, banana(), tokenv1.ContextObject{APIVersion: "example.com/v1", Kind: "Widget", Namespace: "garden-local", Name: "w", UID: "u"})
			if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
				t.Errorf("%v, want allowed %v", err, allowed)
			}
		})
	}
}

// FuzzLocate checks that a tenant's text cannot select an object outside of the configured
// namespaces, or another path of the API.
func FuzzLocate(f *testing.F) {
	names := variables(nil)
	name, err := names.name("object.name")
	must.Succeed(f, err)
	namespace, err := names.name("object.namespace")
	must.Succeed(f, err)
	for _, seed := range [][2]string{{"a", "home"}, {"a", "shared"}, {"../secrets/a", "home"}, {"a", "kube-system"}, {"", ""}, {"..", "home"}, {"a%2fb", "home/../x"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, nameOf, namespaceOf string) {
		e := &evaluation{variables: map[string]any{objectVariable: map[string]any{"name": nameOf, "namespace": namespaceOf}}}
		v := via{name: name, namespace: &namespace, namespaces: []string{"shared"}}
		where, what, err := v.locate(t.Context(), e, "home")
		if err != nil || what == "" {
			return
		}
		if where != "home" && where != "shared" {
			t.Errorf("%q leads to the namespace %q", namespaceOf, where)
		}
		if what != nameOf || strings.ContainsAny(what, "/%") || what == "." || what == ".." {
			t.Errorf("%q leads to the name %q", nameOf, what)
		}
	})
}
