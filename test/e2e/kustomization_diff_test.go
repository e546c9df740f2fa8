package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// compared is one element of what lanyard diff kustomization prints.
type compared struct {
	Object  struct{ Kind, Name string }
	Action  string
	Changes []struct {
		Path     string
		Old, New any
	}
}

// diffUser is a user who runs lanyard diff kustomization with an account of a tenant.
type diffUser struct {
	namespace, name, kubeconfig string
}

// newDiffUser returns a user who may read and apply what the Kustomizations of a tenant apply.
func newDiffUser(t *testing.T, tn *applyTenant) diffUser {
	t.Helper()
	u := diffUser{namespace: tn.namespace, name: "reviewer"}
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: u.name}})
	reads := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion().Group}, Resources: []string{"kustomizations"}, Verbs: []string{"get"}}
	grantRole(t, u.namespace, u.name, rbacv1.Subject{Kind: "ServiceAccount", Namespace: u.namespace, Name: u.name}, append(applierRules(), reads)...)
	u.kubeconfig = kubeconfig(t, u.namespace, u.name)
	return u
}

// diff compares files with the cluster. It returns the actions with the objects' kinds and names.
func (u diffUser) diff(t *testing.T, name string, files map[string]string) (status int, actions []string, found []compared, said string) {
	t.Helper()
	folder := t.TempDir()
	for file, content := range files {
		path := filepath.Join(folder, file)
		must(t, "make a folder", os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, "write a manifest", os.WriteFile(path, []byte(content), 0o600))
	}
	cmd := exec.CommandContext(t.Context(), binary("lanyard"), "diff", "kustomization", name, "-n", u.namespace, "--path", folder,
		"--kubeconfig", u.kubeconfig, "-o", "json")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status = exit.ExitCode()
	} else {
		must(t, "run lanyard diff", err)
	}
	if len(out) > 0 {
		must(t, "read what lanyard prints", json.Unmarshal(out, &found))
	}
	for _, d := range found {
		actions = append(actions, d.Action+" "+d.Object.Kind+"/"+d.Object.Name)
	}
	if strings.Contains(string(out)+errs.String(), secretMark) {
		t.Error("lanyard diff shows a value of a Secret")
	}
	return status, actions, found, errs.String()
}

// compareTenant compares manifests with what the Kustomizations of a tenant have applied: app with
// variables from a Secret, and plain without variables. Each has the ConfigMap one or plain-one with this
// value.
func compareTenant(t *testing.T, tn *applyTenant, value string) {
	t.Helper()
	u := newDiffUser(t, tn)
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "plain-one"}}
	await(t, one, "it is applied", valueOf(value))
	before := one.ResourceVersion

	if status, actions, _, said := u.diff(t, "plain", map[string]string{"app/one.yaml": configMapOf("one", value)}); status != 0 || len(actions) > 0 {
		t.Errorf("equal manifests: status %d, %q: %s", status, actions, said)
	}
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example/web:1"}]}
`
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {key: " + secretMark + "new}\n"
	status, actions, found, said := u.diff(t, "plain", map[string]string{
		"app/one.yaml": configMapOf("one", "by review"), "app/web.yaml": deployment, "app/keys.yaml": secret,
	})
	slices.Sort(actions)
	if status != 1 || !slices.Equal(actions, []string{"changed ConfigMap/plain-one", "created Deployment/plain-web", "created Secret/plain-keys"}) {
		t.Errorf("other manifests: status %d, %q: %s", status, actions, said)
	}
	for _, d := range found {
		if d.Action == "changed" && (len(d.Changes) != 1 || d.Changes[0].Path != "/data/key" || d.Changes[0].Old != value || d.Changes[0].New != "by review") {
			t.Errorf("the changes are %+v", d.Changes)
		}
	}
	if status, actions, _, said := u.diff(t, "plain", map[string]string{"app/two.yaml": configMapOf("two", "x")}); status != 1 ||
		!slices.Equal(actions, []string{"created ConfigMap/plain-two", "deleted ConfigMap/plain-one"}) {
		t.Errorf("a manifest that is gone: status %d, %q: %s", status, actions, said)
	}
	status, _, found, said = u.diff(t, "app", map[string]string{"app/one.yaml": configMapOf("one", "${word}")})
	if status != 1 || len(found) != 1 || len(found[0].Changes) != 1 || found[0].Changes[0].Old != "***" || found[0].Changes[0].New != "*** (changed)" {
		t.Errorf("variables of a Secret: status %d, %+v: %s", status, found, said)
	}
	if status, _, _, said := u.diff(t, "plain", map[string]string{"app/role.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: mine}\n"}); status != 3 ||
		!strings.Contains(said, "as you") || !strings.Contains(said, "cannot patch") {
		t.Errorf("without the right: status %d: %s", status, said)
	}
	if status, _, _, said := u.diff(t, "plain", map[string]string{"app/k.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {key: " + secretMark + "}\n"}); status != 3 ||
		!strings.Contains(said, "its answer is not shown") {
		t.Errorf("an invalid Secret: status %d: %s", status, said)
	}

	must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(one), one))
	if one.ResourceVersion != before {
		t.Error("lanyard diff has written an object")
	}
	dry := 0
	for _, e := range auditLogOf(t, world) {
		if e.User.Username != "system:serviceaccount:"+u.namespace+":"+u.name {
			continue
		}
		tries := e.Verb == "patch" && strings.Contains(e.RequestURI, "dryRun=All")
		if e.Verb != "get" && !tries {
			t.Errorf("lanyard diff sent %s %s", e.Verb, e.RequestURI)
		}
		if tries {
			dry++
		}
	}
	if dry < 5 {
		t.Errorf("the audit log has %d dry runs", dry)
	}
}
