package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/local"
)

// TestLibrary runs examples/controller, which uses Lanyard's library as another project's
// controller would. It has the rights that such a controller needs according to docs/library.md. It
// also has rights for its own kind of objects, ConfigMaps.
func TestLibrary(t *testing.T) {
	beside(t)
	a, b := newTenant(t, "library-a"), newTenant(t, "library-b")
	b.putAccount(t, "thief", a.role)
	for _, ask := range []struct {
		tn      *tenant
		account string
	}{{a, puller}, {b, puller}, {b, "thief"}, {b, "nobody"}} {
		create(t, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: ask.tn.namespace, Name: ask.account}, Data: map[string]string{"serviceAccountName": ask.account},
		})
	}
	user := startLibrary(t)

	session := func(tn *tenant) string {
		return "arn:aws:sts::" + local.Account + ":assumed-role/" + tn.namespace + "/"
	}
	for _, want := range []struct {
		tn      *tenant
		account string
		words   []string
	}{
		{a, puller, []string{session(a)}},
		{b, puller, []string{session(b)}},
		{b, "thief", []string{"none: exchange: ", "AccessDenied", "; let the trust policy of role " + a.role, "system:serviceaccount:library-b:thief"}},
		{b, "nobody", []string{"none: subject: ", "create ServiceAccount library-b/nobody"}},
	} {
		eventually(t, want.tn.namespace+"/"+want.account, func(ctx context.Context) error {
			var object corev1.ConfigMap
			if err := objects.Get(ctx, client.ObjectKey{Namespace: want.tn.namespace, Name: want.account}, &object); err != nil {
				return err
			}
			identity := object.Data["identity"]
			for _, word := range want.words {
				if !strings.Contains(identity, word) {
					return fmt.Errorf("its identity is %q; want %q in it", identity, word)
				}
			}
			return nil
		})
	}
	for _, e := range auditLog(t) {
		if e.User.Username == user && e.refused() {
			t.Errorf("docs/library.md names too few permissions: %s %s", e.Verb, e.RequestURI)
		}
	}
}

// startLibrary builds examples/controller and runs it until the test ends. It returns the program's
// user name.
func startLibrary(t *testing.T) (user string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "controller")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./examples/controller")
	build.Dir = filepath.Join("..", "..")
	out, err := build.CombinedOutput()
	must(t, "build examples/controller: "+string(out), err)

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "library"}}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-library"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "patch"}},
		},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
	for _, o := range []client.Object{account, role, binding} {
		create(t, o)
		t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), o) })
	}

	log, err := os.Create(world.Path("library.log")) // wantNoSecrets searches this log for secrets
	must(t, "open a log", err)
	cmd := exec.Command(program)
	cmd.Env = append(world.Cloud().Env(), "KUBECONFIG="+kubeconfig(t, account.Namespace, account.Name), "AWS_REGION="+local.Region, "HOME="+t.TempDir())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, "start examples/controller", cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		patience := time.AfterFunc(stopGrace, func() { _ = cmd.Process.Kill() })
		defer patience.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("examples/controller ended: %v", err)
		}
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the log of examples/controller:\n%s", text)
		}
	})
	return "system:serviceaccount:" + account.Namespace + ":" + account.Name
}
