package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// unbound is the only namespace in which the API server may refuse requests of the controller:
// [judgeRun] ignores these refusals.
const unbound = "unbound"

// TestTenantNamespaces makes the chart bind the controller's rights for tenants in only one
// namespace. The controller must start, and objects in this namespace must get their artifacts. For
// objects in other namespaces, the controller must get no token of any account. It must read no
// Secret there.
func TestTenantNamespaces(t *testing.T) {
	alone(t, "it takes rights from all controllers")
	s := takeShard(t)
	inside, outside := s.newTenant(t, "bound"), s.newTenant(t, unbound)
	inside.pushFile(t, "1.0.0", "app")
	outside.pushFile(t, "1.0.0", "app")
	install(t, map[string]any{"rbac": map[string]any{"tenantNamespaces": []any{inside.namespace}}})
	// Delete the former ClusterRoleBinding, which gives the rights in all namespaces. An upgrade
	// with Helm would delete it; the function install does not.
	everywhere := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "lanyard-controller-tenant"}}
	must(t, "take the rights from other namespaces", objects.Delete(t.Context(), everywhere))
	s.start(t, "rights", nil)
	t.Cleanup(func() {
		inside.clear(t) // needs a running controller, to remove finalizers
		outside.clear(t)
	})

	app, stranger := inside.object("app"), outside.object("app")
	create(t, app)
	create(t, stranger)
	await(t, app, "the artifact", pulled)
	await(t, stranger, "the refusal", failing("ProofDenied", "serviceaccounts/token"))

	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: unbound, Name: "login"}})
	secret := outside.generic("secret", stranger.Spec.URL)
	secret.Spec.SecretRef = &meta.LocalReference{Name: "login"}
	create(t, secret)
	await(t, secret, "the refusal", failing(meta.ReasonControllerForbidden, "secrets", unbound))
}
