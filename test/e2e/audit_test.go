package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// program is a program of the chart with its own ServiceAccount.
type program struct {
	// name is the prefix of the program's user agent.
	name string
	// account is the name of the program's ServiceAccount.
	account string
	// grants is a lower bound for the number of granted verbs. If the test finds fewer verbs, it
	// has not found the roles.
	grants int
	// rare has the verbs that no test makes the program use, each with the reason.
	rare map[string]string
	// impersonates says that the program acts as the ServiceAccounts of tenants.
	impersonates bool
}

// programs lists all programs of the chart.
var programs = []program{
	{name: "lanyard-controller", account: "lanyard-controller", grants: 10, rare: map[string]string{
		"patch imagerepositories.toolkit.lanyard.dev": "it removes the annotation that renews a token, as from an OCIRepository",
	}},
	{name: tokenServer, account: tokenServer, grants: 10, rare: map[string]string{
		"get backupbuckets.core.gardener.cloud": "a context object of a kind like the others",
		"get backupentries.core.gardener.cloud": "a context object of a kind like the others",
		"get buckets.toolkit.lanyard.dev":       "a context object of a kind like the others",
		"update secrets":                        "the authority of the serving certificates is replaced after years",
	}},
	{name: identityController, account: identityController, grants: 10, rare: map[string]string{
		// The identity controller requests tokens with context objects. The token server checks
		// that the identity controller may get these objects. The verbs are needed only for this
		// check: the identity controller itself sends no get requests for the objects.
		"get shoots.core.gardener.cloud":                    "a binding's context object",
		"get workloadidentitybindings.identity.lanyard.dev": "the binding itself",
	}},
	{name: discoveryServer, account: discoveryServer, grants: 2},
	{name: applyController, account: applyController, grants: 5, impersonates: true},
}

// permissions counts how often each verb was granted to a program, and how often the program used
// it. The verbs are written as in kubectl auth can-i.
type permissions struct{ granted, used map[string]int }

// rightsOfRun sums the permissions of each program in all clusters of the run, keyed by the
// program's account. The permissions in a cluster are added before the cluster is stopped.
var rightsOfRun = struct {
	mu  sync.Mutex
	all map[string]permissions
}{all: map[string]permissions{}}

// addRights adds the programs' granted and used verbs in a cluster to rightsOfRun.
func addRights(ctx context.Context, tb testing.TB, cluster *local.Cluster) {
	tb.Helper()
	log := auditLogOf(tb, cluster)
	grants := map[string][]string{}
	for _, p := range programs {
		grants[p.account] = granted(ctx, tb, cluster.Client(), p)
	}
	rightsOfRun.mu.Lock()
	defer rightsOfRun.mu.Unlock()
	for _, p := range programs {
		sum, ok := rightsOfRun.all[p.account]
		if !ok {
			sum = permissions{granted: map[string]int{}, used: map[string]int{}}
			rightsOfRun.all[p.account] = sum
		}
		for _, g := range grants[p.account] {
			sum.granted[g]++
		}
		for _, e := range log {
			switch {
			case e.User.Username != p.user() || programOf(e) == nil || programOf(e).name != p.name:
			case e.ImpersonatedUser != nil:
				sum.used["impersonate serviceaccounts"]++
			case e.ObjectRef != nil && !e.refused():
				sum.used[e.ObjectRef.grant(e.Verb)]++
			}
		}
	}
}

// user is the user name of the program at the API server.
func (p program) user() string { return "system:serviceaccount:" + local.Namespace + ":" + p.account }

// programOf returns the program of the chart that made a request, identified by its user agent. It
// returns nil if the request came from another client.
func programOf(e auditEvent) *program {
	return findProgram(func(p program) bool { return strings.HasPrefix(e.UserAgent, p.name+"/") })
}

func findProgram(is func(program) bool) *program {
	if i := slices.IndexFunc(programs, is); i >= 0 {
		return &programs[i]
	}
	return nil
}

// judgeRun checks the API server's audit log of the whole run. It fails if a program's request was
// refused, or if a program used an administrator's credential. If all tests ran, judgeRun also
// fails for each verb that a program was granted but never used.
func judgeRun(tb testing.TB) {
	tb.Helper()
	for _, w := range world.Workloads() {
		if findProgram(func(p program) bool { return p.name == w.Program }) == nil {
			tb.Errorf("the chart starts %s in %s, of which this test knows nothing", w.Program, w.Name)
		}
	}
	abandoned := abandonedRequests(tb)
	// admins counts requests with an administrator's credential, by user agent.
	admins := map[string]int{}
	for _, e := range auditLogOf(tb, world) {
		if e.User.Username == "" && slices.ContainsFunc(abandoned, e.isRefusedAt) {
			continue
		}
		if slices.Contains(e.User.Groups, "system:masters") {
			admins[e.UserAgent]++
		}
		owner := findProgram(func(p program) bool { return e.User.Username == p.user() })
		judgeCaller(tb, e, programOf(e), owner)
		if owner == nil {
			continue
		}
		if e.ImpersonatedUser != nil { // the API server has decided about another account
			continue
		}
		if e.refused() && (e.ObjectRef == nil || e.ObjectRef.Namespace != unbound) {
			tb.Errorf("%s was refused: %s %s", owner.name, e.Verb, e.RequestURI)
		}
	}
	// If the command line selects only some tests, perhaps no selected test uses the cluster world.
	// Then the audit log of world has no request of the tests.
	if admins[userAgent] == 0 && wholeRun() {
		tb.Error("the log has no request of these tests: it is not read right")
	}
	for agent, n := range admins {
		name, _, _ := strings.Cut(agent, "/")
		if slices.Contains(guests(), name) {
			continue
		}
		switch name {
		case "kubectl", userAgent, local.FieldManager: // requests of people and of the test harness
		case "controlplane": // the program that contains the API server and kubectl
		default:
			tb.Errorf("program %q made %d requests with an administrator's credential", agent, n)
		}
	}
	addRights(tb.Context(), tb, world)
	if wholeRun() {
		for _, p := range programs {
			judgeGrants(tb, p, rightsOfRun.all[p.account])
		}
	}
	wantNoSecretsInLogs(tb)
}

// abandonedRequests returns the times at which the API server stopped authenticating a request
// because the client was gone. A program that is killed leaves such requests behind. The times are
// those of the server's log, in the layout [logTime].
func abandonedRequests(tb testing.TB) []string {
	tb.Helper()
	log, err := os.ReadFile(world.Path("controlplane.log"))
	must(tb, "read the API server's log", err)
	return abandonedIn(string(log))
}

func abandonedIn(log string) (times []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "Unable to authenticate the request") && strings.Contains(line, "context canceled") && len(line) > len(logTime) {
			times = append(times, line[1:1+len(logTime)]) // the time follows the letter of the severity
		}
	}
	return times
}

// logTime is the layout of times in the API server's log, which are local times. It has no year, so
// times in this layout can be compared as strings only within one year.
const logTime = "0102 15:04:05.000000"

// isRefusedAt reports whether the API server refused the request's credential, and was handling the
// request at a given time. The time has the layout [logTime].
func (e auditEvent) isRefusedAt(at string) bool {
	return e.ResponseStatus.Code == http.StatusUnauthorized &&
		e.RequestReceivedTimestamp.Local().Format(logTime) <= at && at <= e.StageTimestamp.Local().Format(logTime)
}

// TestAbandonedRequests checks which log lines show that a refused request was abandoned. Such a
// line is about a canceled context. Its time is between the beginning and the end of the request.
func TestAbandonedRequests(t *testing.T) {
	beside(t)
	at := time.Date(2026, 11, 28, 2, 44, 11, 930639000, time.Local)
	event := auditEvent{RequestReceivedTimestamp: at.Add(-time.Millisecond), StageTimestamp: at.Add(time.Millisecond)}
	event.ResponseStatus.Code = http.StatusUnauthorized
	for line, want := range map[string]bool{
		`E1128 02:44:11.930639   20683 authentication.go:75] "Unable to authenticate the request" err="[invalid bearer token, context canceled]"`: true,
		`E1128 02:44:11.930639   20683 authentication.go:75] "Unable to authenticate the request" err="invalid bearer token"`:                     false,
		`E1128 02:44:12.930639   20683 authentication.go:75] "Unable to authenticate the request" err="[invalid bearer token, context canceled]"`: false,
	} {
		if slices.ContainsFunc(abandonedIn(line), event.isRefusedAt) != want {
			t.Errorf("abandoned is not %t: %s", want, line)
		}
	}
}

// wholeRun reports whether the command line selects all tests.
func wholeRun() bool {
	for _, name := range []string{"test.run", "test.skip"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}

// judgeCaller checks that programs use their own ServiceAccounts. The caller is the program that
// made a request. The owner is the program whose ServiceAccount the request used. Each is nil if it
// is not a program of the chart.
func judgeCaller(tb testing.TB, e auditEvent, caller, owner *program) {
	tb.Helper()
	switch {
	case caller != owner && caller != nil:
		tb.Errorf("%s acted as %s: %s %s", caller.name, e.User.Username, e.Verb, e.RequestURI)
	case caller != owner:
		tb.Errorf("program %q acted as %s: %s %s", e.UserAgent, owner.name, e.Verb, e.RequestURI)
	case caller != nil && e.ImpersonatedUser != nil && !caller.impersonates:
		tb.Errorf("%s acted as another: %s %s", caller.name, e.Verb, e.RequestURI)
	}
}

// judgeGrants fails for each verb that the program is granted but never used.
func judgeGrants(tb testing.TB, p program, all permissions) {
	tb.Helper()
	for _, g := range slices.Sorted(maps.Keys(all.granted)) {
		verb, resource, _ := strings.Cut(g, " ")
		switch {
		case all.used[g] > 0 || p.rare[g] != "":
		// The verb "list" is needed only with API servers before 1.34, which do not stream lists.
		case verb == "list" && all.used["watch "+resource] > 0:
		default:
			tb.Errorf("the chart grants %s %s, which it never used", p.name, g)
		}
		tb.Logf("%s %6d × %s", p.name, all.used[g], g)
	}
	if len(all.granted) < p.grants {
		tb.Errorf("the chart grants %s %d verbs: these are not its roles", p.name, len(all.granted))
	}
}

// TestControllerUsesItsRights makes lanyard-controller use each of its permissions in the shared
// cluster. [judgeRun] then finds no unused permission. [TestExternalArtifact] makes the controller
// use the permissions for Flux's kind ExternalArtifact.
func TestControllerUsesItsRights(t *testing.T) {
	alone(t, "it changes what the chart grants all controllers")
	// These values make the controller use two kinds of permissions:
	//   - The variable in extraEnv turns off streamed lists. The controller then uses its
	//     permissions for the verb list, as with an API server before 1.34.
	//   - controllerNamespaces lends the controller's identity to namespaces that a label selects.
	//     Only with such a selector does the chart let the controller get namespaces.
	install(t, map[string]any{
		"extraEnv": environment("KUBE_FEATURE_WatchListClient=false"),
		"identity": map[string]any{
			"controllerNamespaces": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"e2e.lanyard.dev/lent": "yes"}}},
		},
	})
	s := takeShard(t)
	s.start(t, "audited", nil)
	tn := newTenant(t, "audit")
	tn.pushFile(t, "1.0.0", "app")
	private := newRegistry(t, "audit.registry.example.com")
	private.protect("reader", secretMark+"of-the-auditor")
	private.putLogin(t, tn.namespace, "login")
	private.push(t, "app", "1.0.0", layer(t, file("app.yaml", "app")))
	secret := tn.generic("secret", private.url("app"))
	secret.Spec.SecretRef = &meta.LocalReference{Name: "login"}
	create(t, secret)
	o := tn.object("app")
	create(t, o)
	await(t, secret, "the artifact", pulled)
	await(t, o, "the artifact", pulled)
	borrower := tn.object("borrower")
	borrower.Labels = s.labels()
	borrower.Spec.ServiceAccountName = ""
	create(t, borrower)
	await(t, borrower, "the refusal", failing("NotGranted"))
	create(t, tn.image("tags"))
	create(t, &v1alpha1.Bucket{
		ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "files"},
		Spec: v1alpha1.BucketSpec{
			BucketName: e2eBucket,
			Prefix:     "audit/",
			Access:     v1alpha1.Access{Provider: v1alpha1.ProviderGCP, ServiceAccountName: puller},
			Schedule:   v1alpha1.Schedule{Interval: metav1.Duration{Duration: interval}},
		},
	})
	eventually(t, "all kinds of objects are judged", func(ctx context.Context) error {
		all, err := report.List(ctx, objects, kinds.All(), tn.namespace)
		if err != nil {
			return err
		}
		for _, row := range report.All(all) {
			if row.Result == report.Pending {
				return fmt.Errorf("%s %s is pending", row.Kind, row.Name)
			}
		}
		return nil
	})
	wantNoSecrets(t)
	tn.clear(t) // needs a running controller, to remove finalizers
}

// granted returns the verbs that any role binding grants to a program's account.
func granted(ctx context.Context, tb testing.TB, people client.Client, p program) []string {
	tb.Helper()
	bound := func(subjects []rbacv1.Subject) bool {
		return slices.Contains(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: local.Namespace, Name: p.account})
	}
	all := map[string]bool{}
	var everywhere rbacv1.ClusterRoleBindingList
	must(tb, "list the ClusterRoleBindings", people.List(ctx, &everywhere))
	for _, b := range everywhere.Items {
		if bound(b.Subjects) {
			addGrants(ctx, tb, people, all, b.RoleRef, "")
		}
	}
	var inside rbacv1.RoleBindingList
	must(tb, "list the RoleBindings", people.List(ctx, &inside))
	for _, b := range inside.Items {
		if bound(b.Subjects) {
			addGrants(ctx, tb, people, all, b.RoleRef, b.Namespace)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// addGrants adds each verb of a role to the map all.
func addGrants(ctx context.Context, tb testing.TB, people client.Client, all map[string]bool, ref rbacv1.RoleRef, namespace string) {
	tb.Helper()
	var rules []rbacv1.PolicyRule
	if ref.Kind == "ClusterRole" {
		var role rbacv1.ClusterRole
		must(tb, "read a ClusterRole", people.Get(ctx, client.ObjectKey{Name: ref.Name}, &role))
		rules = role.Rules
	} else {
		var role rbacv1.Role
		must(tb, "read a Role", people.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &role))
		rules = role.Rules
	}
	for _, rule := range rules {
		// Only the mirror and the token server have rules about URLs, because they read the
		// discovery documents of the cluster's own issuer.
		if urls := rule.NonResourceURLs; len(urls) > 0 && !strings.Contains(urls[0], "openid") {
			tb.Errorf("a rule grants %v: this test knows resources only", urls)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if group == "*" || verb == "*" || strings.Contains(resource, "*") {
						tb.Errorf("a rule grants everything: %+v", rule)
					}
					name, sub, _ := strings.Cut(resource, "/")
					all[objectRef{APIGroup: group, Resource: name, Subresource: sub}.grant(verb)] = true
				}
			}
		}
	}
}

// auditEvent has the fields of an audit.k8s.io/v1 Event that this test needs.
type auditEvent struct {
	Stage            string
	Verb             string
	RequestURI       string
	UserAgent        string
	User             auditUser
	ImpersonatedUser *auditUser
	ObjectRef        *objectRef

	RequestReceivedTimestamp, StageTimestamp time.Time

	ResponseStatus struct {
		Code    int
		Details struct{ Causes []struct{ Reason string } }
	}
}

// refused reports whether the API server refused the request with status 401 or 403. Status 403
// does not count if its cause is a terminating namespace.
func (e auditEvent) refused() bool {
	terminating := slices.ContainsFunc(e.ResponseStatus.Details.Causes, func(c struct{ Reason string }) bool { return c.Reason == "NamespaceTerminating" })
	return e.ResponseStatus.Code == http.StatusUnauthorized || e.ResponseStatus.Code == http.StatusForbidden && !terminating
}

type auditUser struct {
	Username string
	Groups   []string
}

type objectRef struct{ APIGroup, Resource, Subresource, Namespace, Name string }

// grant returns a permission as written for kubectl auth can-i.
func (o objectRef) grant(verb string) string {
	resource := o.Resource
	if o.APIGroup != "" {
		resource += "." + o.APIGroup
	}
	if o.Subresource != "" {
		resource += "/" + o.Subresource
	}
	return verb + " " + resource
}

// auditLog returns the requests in the audit log of the cluster that all tests share.
func auditLog(t *testing.T) []auditEvent {
	t.Helper()
	return auditLogOf(t, world)
}

// auditLogOf returns the events in a cluster's audit log that have the stage ResponseStarted or
// ResponseComplete.
func auditLogOf(tb testing.TB, cluster *local.Cluster) []auditEvent {
	tb.Helper()
	f, err := os.Open(cluster.Path("cluster", "audit.log"))
	must(tb, "open the audit log", err)
	defer f.Close()
	var all []auditEvent
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all // the API server is still writing this line
		}
		must(tb, "read the audit log", err)
		var e auditEvent
		must(tb, "read the audit log", json.Unmarshal(line, &e))
		if e.Stage == "ResponseComplete" || e.Stage == "ResponseStarted" {
			all = append(all, e)
		}
	}
}
