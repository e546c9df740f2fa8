package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestZAudit comes last: it reads the API server's audit log of the whole run. It fails on a verb that the chart grants to
// the controller and that was never used, on a request of the controller that was forbidden, and on any use of an
// administrator's credential by our programs.
func TestZAudit(t *testing.T) {
	exercise(t)
	used := map[string]int{}   // by the controller
	admins := map[string]int{} // requests with an administrator's credential, by user agent
	ours := 0
	for _, e := range auditLog(t) {
		program := strings.HasPrefix(e.UserAgent, "lanyard-controller/")
		admin := slices.Contains(e.User.Groups, "system:masters")
		switch {
		case program && e.User.Username != controllerUser:
			t.Errorf("the controller acted as %s: %s %s", e.User.Username, e.Verb, e.RequestURI)
		case program && e.ImpersonatedUser != nil:
			t.Errorf("the controller acted as another: %s %s", e.Verb, e.RequestURI)
		case admin:
			admins[e.UserAgent]++
		}
		if e.User.Username != controllerUser {
			continue
		}
		ours++
		switch {
		case !program:
			t.Errorf("program %q acted as the controller: %s %s", e.UserAgent, e.Verb, e.RequestURI)
		case e.refused() && (e.ObjectRef == nil || e.ObjectRef.Namespace != unbound):
			t.Errorf("the controller was refused: %s %s", e.Verb, e.RequestURI)
		case e.ObjectRef != nil: // "not found" and "conflict" are answers too
			used[e.ObjectRef.grant(e.Verb)]++
		}
	}
	if ours == 0 || admins[userAgent] == 0 {
		t.Errorf("the log has %d requests of the controller and %d of these tests: it is not read right", ours, admins[userAgent])
	}
	for agent, n := range admins {
		program, _, _ := strings.Cut(agent, "/")
		switch program {
		case "kubectl", userAgent, local.FieldManager: // people, and this harness
		case "controlplane": // the API server's requests to itself, and its kubectl
		default:
			t.Errorf("program %q made %d requests with an administrator's credential", agent, n)
		}
	}
	grants := granted(t)
	for _, g := range grants {
		if used[g] == 0 {
			t.Errorf("the chart grants the controller %s, which it never used", g)
		}
		t.Logf("%6d × %s", used[g], g)
	}
	if len(grants) < 10 {
		t.Errorf("the chart grants %d verbs: these are not its roles", len(grants))
	}
	wantNoSecretsInLogs(t) // what the end of the objects added
}

const controllerUser = "system:serviceaccount:" + local.Namespace + ":lanyard-controller"

// exercise has the controller do at least once what each of its permissions is for.
func exercise(t *testing.T) {
	t.Helper()
	// API servers before 1.34 do not stream lists; what the chart grants for them is used as with one of them.
	// The chart grants to read namespaces only if the controller's identity is lent by their labels.
	startSecond(t, "audited", map[string]any{
		"env": environment("KUBE_FEATURE_WatchListClient=false"),
		"identity": map[string]any{
			"controllerNamespaces": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"e2e.lanyard.dev/lent": "yes"}}},
		},
	})
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
	borrower.Labels = inSecondShard()
	borrower.Spec.ServiceAccountName = ""
	create(t, borrower)
	await(t, borrower, "the refusal", failing("NotGranted"))
	installFlux(t)
	offered := tn.object("offered")
	offered.Spec.ExternalArtifact = true
	create(t, offered)
	await(t, offered, "the artifact", pulled)
	wantOffered(t, offered)
	misdirect(t, offered)
	wantOffered(t, offered)
	patch(t, offered, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
	wantWithdrawn(t, offered)
	create(t, tn.image("tags"))
	create(t, &v1alpha1.Bucket{
		ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "files"},
		Spec: v1alpha1.BucketSpec{
			BucketName: e2eBucket, Provider: v1alpha1.ProviderGCP, ServiceAccountName: puller, Interval: metav1.Duration{Duration: interval},
		},
	})
	eventually(t, "all kinds of objects are judged", func(ctx context.Context) error {
		all, err := report.List(ctx, objects, tn.namespace)
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
	tn.clear(t) // while there are controllers
}

// granted are the verbs that the chart grants to the controller as it is installed, one by one.
func granted(t *testing.T) []string {
	t.Helper()
	var cluster, tenant rbacv1.ClusterRole
	must(t, "read the controller's ClusterRole", objects.Get(t.Context(), client.ObjectKey{Name: "lanyard-controller"}, &cluster))
	must(t, "read the controller's ClusterRole", objects.Get(t.Context(), client.ObjectKey{Name: "lanyard-controller-tenant"}, &tenant))
	var own rbacv1.Role
	must(t, "read the controller's Role", objects.Get(t.Context(), client.ObjectKey{Namespace: local.Namespace, Name: "lanyard-controller"}, &own))
	all := map[string]bool{}
	for _, rule := range slices.Concat(cluster.Rules, tenant.Rules, own.Rules) {
		if len(rule.NonResourceURLs) > 0 {
			t.Errorf("a rule grants %v: this test knows resources only", rule.NonResourceURLs)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if group == "*" || verb == "*" || strings.Contains(resource, "*") {
						t.Errorf("a rule grants everything: %+v", rule)
					}
					name, sub, _ := strings.Cut(resource, "/")
					all[objectRef{APIGroup: group, Resource: name, Subresource: sub}.grant(verb)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// auditEvent is what this test reads of an audit.k8s.io/v1 Event.
type auditEvent struct {
	Stage            string
	Verb             string
	RequestURI       string
	UserAgent        string
	User             auditUser
	ImpersonatedUser *auditUser
	ObjectRef        *objectRef
	ResponseStatus   struct {
		Code    int
		Details struct{ Causes []struct{ Reason string } }
	}
}

// refused reports whether the caller was not known or not allowed. That a namespace goes while something is created in it is
// an answer with the same code.
func (e auditEvent) refused() bool {
	terminating := slices.ContainsFunc(e.ResponseStatus.Details.Causes, func(c struct{ Reason string }) bool { return c.Reason == "NamespaceTerminating" })
	return e.ResponseStatus.Code == http.StatusUnauthorized || e.ResponseStatus.Code == http.StatusForbidden && !terminating
}

type auditUser struct {
	Username string
	Groups   []string
}

type objectRef struct{ APIGroup, Resource, Subresource, Namespace string }

// grant is a permission in the words of kubectl auth can-i.
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

// auditLog reads the requests that were answered, or whose answer began.
func auditLog(t *testing.T) []auditEvent {
	t.Helper()
	f, err := os.Open(world.Path("cluster", "audit.log"))
	must(t, "open the audit log", err)
	defer f.Close()
	var all []auditEvent
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all // a line without an end is being written
		}
		must(t, "read the audit log", err)
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(fmt.Errorf("read the audit log: %w", err))
		}
		if e.Stage == "ResponseComplete" || e.Stage == "ResponseStarted" {
			all = append(all, e)
		}
	}
}
