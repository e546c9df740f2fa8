package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/report"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The demonstration's roles.
var (
	roleA = roleARN("tenant-a-ecr")
	roleB = roleARN("tenant-b-ecr")
)

// TestStory is Story 1 of the design with what tenant B may try besides: examples/ as it stands in the repository.
func TestStory(t *testing.T) {
	artifacts, err := examples.Artifacts()
	must(t, "read the artifacts", err)
	_, err = world.PushAll(t.Context(), artifacts, "1.0.0")
	must(t, "publish the artifacts", err)
	_, err = world.Apply(t.Context(), examples.Files())
	must(t, "apply the examples", err)
	_, err = world.Settle(t.Context(), nil)
	must(t, "wait for the examples", err)
	// Once more each: what is refused must stay refused.
	rows, err := world.Confirm(t.Context())
	must(t, "wait for the examples", err)
	t.Cleanup(func() { (&tenant{namespace: "tenant-a"}).clear(t); (&tenant{namespace: "tenant-b"}).clear(t) })

	found := map[string]report.Row{}
	for _, row := range rows {
		found[row.Name] = row
		if !row.OK() {
			t.Errorf("%s/%s: want %s, it is %s %s: %s", row.Namespace, row.Name, row.Expected, row.Result, row.Reason, row.Message)
		}
	}
	// What each message must name besides the reason: what to do, and where.
	fixes := map[string][]string{
		"repository-of-tenant-a": {roleB, "tenant-a/app", "ecr:BatchGetImage"},
		"role-of-tenant-a":       {roleA, "system:serviceaccount:tenant-b:role-of-tenant-a-sa", "trust policy"},
		"missing-account":        {"create ServiceAccount tenant-b/tenant-a-ecr-sa"},
		"malformed-role":         {roleAnnotation, "tenant-b/malformed-role-sa", "twelve digits"},
		"registry-lookalike":     {"amazonaws.com.evil.example", "<account>.dkr.ecr.<region>.amazonaws.com/<repository>"},
	}
	if len(rows) != len(fixes)+2 {
		t.Errorf("there are %d rows; want %d", len(rows), len(fixes)+2)
	}
	for name, words := range fixes {
		for _, word := range words {
			if !strings.Contains(found[name].Message, word) {
				t.Errorf("the message of %s does not say %q: %s", name, word, found[name].Message)
			}
		}
	}

	t.Run("lanyard status", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), binary("lanyard"), "status", "-A", "-o", "json", "--kubeconfig", viewer(t))
		out, err := cmd.Output()
		must(t, "lanyard status", err)
		var shown []report.Row
		must(t, "read what lanyard status prints", json.Unmarshal(out, &shown))
		if !reflect.DeepEqual(shown, rows) {
			t.Errorf("lanyard status prints %+v; want %+v", shown, rows)
		}
	})
	t.Run("artifacts", func(t *testing.T) { must(t, "fetch the artifacts", world.CheckArtifacts(t.Context())) })
	t.Run("identity", func(t *testing.T) {
		for name, role := range map[string]string{"tenant-a": roleA, "tenant-b": roleB} {
			var o v1alpha1.OCIRepository
			must(t, "read an object", objects.Get(t.Context(), types.NamespacedName{Namespace: name, Name: name + "-repo"}, &o))
			subject := "system:serviceaccount:" + name + ":" + name + "-ecr-sa"
			if id := o.Status.Identity; id == nil || id.Subject != subject || id.Provider != "aws" || id.CloudIdentity != role || !id.ExpiresAt.After(o.CreationTimestamp.Time) {
				t.Errorf("status.identity of %s is %+v; want %s as %s", o.Name, id, subject, role)
			}
			calls := world.Cloud().Journal().Calls(journal.Filter{Service: "sts", Subject: subject, Verdict: journal.Granted})
			// Account and object come at once: a token that was got before the controller's memory knows of the account is
			// not kept.
			if len(calls) == 0 || len(calls) > 2 {
				t.Errorf("STS was asked %d times for %s", len(calls), subject)
			}
			for _, call := range calls {
				if call.Role != role || call.Audience != stsAudience {
					t.Errorf("STS was asked for %s: %+v; want a session of %s", subject, call, role)
				}
			}
		}
	})
	t.Run("journal", func(t *testing.T) {
		for _, call := range world.Cloud().Journal().Calls(journal.Filter{Role: roleA, Verdict: journal.Granted}) {
			if call.Subject != "system:serviceaccount:tenant-a:tenant-a-ecr-sa" {
				t.Errorf("%s was granted tenant A's role: %+v", call.Subject, call)
			}
		}
		if calls := world.Cloud().Journal().Calls(journal.Filter{Role: roleA, Subject: "system:serviceaccount:tenant-b:role-of-tenant-a-sa", Code: "AccessDenied"}); len(calls) == 0 {
			t.Error("STS was not asked for tenant A's role with tenant B's token")
		}
		for _, call := range world.Cloud().Journal().Calls(journal.Filter{Verdict: journal.Granted}) {
			if strings.Contains(call.Principal, "/tenant-b-ecr/") && strings.Contains(call.Resource, "tenant-a/") {
				t.Errorf("tenant B's role got at tenant A's repository: %+v", call)
			}
		}
		if calls := world.Cloud().Journal().Calls(journal.Filter{Host: registryHost + ".evil.example"}); len(calls) != 0 {
			t.Errorf("the host that only looks like ECR was called: %+v", calls)
		}
	})
	t.Run("no secrets", func(t *testing.T) { wantNoSecrets(t) })
}

// viewer is the kubeconfig of somebody who may read Lanyard's objects in all namespaces, by the chart's role for people.
func viewer(t *testing.T) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "viewer"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lanyard-view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
	for _, o := range []client.Object{account, binding} {
		create(t, o)
		t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), o) })
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: world.ControlPlane().Server(), CertificateAuthority: world.ControlPlane().CAFile()}
	config.AuthInfos["viewer"] = &clientcmdapi.AuthInfo{Token: token(t, account.Namespace, account.Name)}
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "viewer"}
	config.CurrentContext = "e2e"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, "write a kubeconfig", clientcmd.WriteToFile(*config, path))
	return path
}

// secrets are the forms of what must stand nowhere: JWTs and ECR's passwords (base64 of JSON), ECR's authorization tokens
// (base64 of "AWS:"), session and user keys, and the part of an artifact's URL that makes it a key to the artifact.
var secrets = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{10}|QVdTO[A-Za-z0-9+/]{10}|A[SK]IA[A-Z0-9]{16}|/ocirepository/[^/ ]+/[^/ ]+/[0-9a-f]{64}/`)

// wantNoSecrets looks at everything that people read: all logs of the world, events, and conditions.
func wantNoSecrets(t *testing.T) {
	t.Helper()
	if jwt := token(t, "default", "default", stsAudience); !secrets.MatchString(jwt) {
		t.Fatal("the pattern of secrets does not know a token of the API server")
	}
	look := func(where, text string) {
		if at := secrets.FindStringIndex(text); at != nil {
			t.Errorf("%s holds a secret after %q", where, text[max(0, at[0]-80):at[0]+4])
		}
	}
	logs := controllerLogs(t)
	if len(logs) == 0 {
		t.Fatal("there is no log of a controller")
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		must(t, "read a log", err)
		look(path, string(text))
	}
	events, err := apiserver.EventsV1().Events("").List(t.Context(), listAll)
	must(t, "list events", err)
	if len(events.Items) == 0 {
		t.Error("there are no events")
	}
	for _, e := range events.Items {
		look("event "+e.Namespace+"/"+e.Name, e.Note)
	}
	var list v1alpha1.OCIRepositoryList
	must(t, "list the objects", objects.List(t.Context(), &list, client.InNamespace("")))
	for _, o := range list.Items {
		for _, c := range o.Status.Conditions {
			look("condition "+c.Type+" of "+o.Namespace+"/"+o.Name, c.Message)
		}
	}
}

// TestReconcileRequest asks for a reconciliation of an object whose interval is far away.
func TestReconcileRequest(t *testing.T) {
	tn := newTenant(t, "requested")
	tn.pushFile(t, "1.0.0", "first")
	o := tn.object("app")
	o.Spec.Interval.Duration = 8760 * 3600e9
	create(t, o)
	await(t, o, "the first artifact", pulled)
	second := tn.pushFile(t, "1.0.0", "second")
	at := request(t, o)
	await(t, o, "the request is handled", handled(at))
	await(t, o, "the second artifact", revision(second))
}
