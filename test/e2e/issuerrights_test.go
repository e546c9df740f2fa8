package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// as returns a client configuration that acts as a ServiceAccount.
func as(cluster *local.Cluster, namespace, account string) *rest.Config {
	config := cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	return config
}

// goldenRights compares the rights of each account with a golden file. It leaves out rights that
// every account has.
func goldenRights(t *testing.T, cluster *local.Cluster) {
	t.Helper()
	everybody := map[string]map[string]bool{}
	var table strings.Builder
	for _, account := range []string{
		"default", "lanyard-controller", "lanyard-token-server", "lanyard-discovery", "lanyard-discovery-mirror", "lanyard-identity-controller",
	} {
		typed, err := kubernetes.NewForConfig(as(cluster, local.Namespace, account))
		must(t, "make a client", err)
		everywhere := map[string]int{}
		rights := map[string][]string{}
		namespaces := []string{local.Namespace, "kube-system", grantedNamespace, otherNamespace}
		for _, namespace := range namespaces {
			review, err := typed.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
				Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
			}, metav1.CreateOptions{})
			must(t, "ask for the rights of "+account, err)
			if review.Status.Incomplete {
				t.Fatalf("the rights of %s are incomplete: %s", account, review.Status.EvaluationError)
			}
			found := rightsOf(review.Status)
			if account == "default" {
				everybody[namespace] = found
				continue
			}
			for _, right := range slices.Sorted(maps.Keys(found)) {
				if !everybody[namespace][right] {
					rights[namespace] = append(rights[namespace], right)
					everywhere[right]++
				}
			}
		}
		if account == "default" {
			continue
		}
		fmt.Fprintf(&table, "%s\n", account)
		for _, right := range slices.Sorted(maps.Keys(everywhere)) {
			if everywhere[right] == len(namespaces) {
				fmt.Fprintf(&table, "  everywhere: %s\n", right)
			}
		}
		for _, namespace := range namespaces {
			for _, right := range rights[namespace] {
				if everywhere[right] < len(namespaces) {
					fmt.Fprintf(&table, "  %s: %s\n", namespace, right)
				}
			}
		}
	}
	golden(t, "testdata/issuer-rights.golden", table.String())
}

// rightsOf returns a set of rights as strings. A right to a resource has a verb, the resource and,
// if the right is limited to some objects, their names. A right to a URL path has the verbs and the
// path.
func rightsOf(status authorizationv1.SubjectRulesReviewStatus) map[string]bool {
	found := map[string]bool{}
	for _, rule := range status.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					found[strings.TrimSpace(fmt.Sprintf("%s %s %s", verb, strings.TrimSuffix(resource+"."+group, "."), strings.Join(rule.ResourceNames, ",")))] = true
				}
			}
		}
	}
	for _, rule := range status.NonResourceRules {
		for _, url := range rule.NonResourceURLs {
			found[strings.Join(rule.Verbs, ",")+" "+url] = true
		}
	}
	return found
}

// tokenRequestsHavePriority asserts that the API server applies the chart's FlowSchemas to token
// requests, and to the requests of the token server. Each answer of the API server names the
// request's FlowSchema, even if the request is forbidden. So the test's requests need no rights.
func tokenRequestsHavePriority(t *testing.T, cluster *local.Cluster) {
	t.Helper()
	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	names := map[types.UID]string{}
	schemas, err := typed.FlowcontrolV1().FlowSchemas().List(t.Context(), metav1.ListOptions{})
	must(t, "list the FlowSchemas", err)
	for _, schema := range schemas.Items {
		names[schema.UID] = schema.Name
	}
	const namespacePath = "/api/v1/namespaces/" + otherNamespace
	tokenPath := "/apis/token.lanyard.dev/v1alpha1/namespaces/" + otherNamespace
	for _, c := range []struct{ namespace, account, method, path, want string }{
		{otherNamespace, "default", http.MethodPost, tokenPath + "/workloadidentities/any/token", "lanyard-token-requests"},
		{otherNamespace, "default", http.MethodPost, tokenPath + "/ocirepositories/any/svid", "lanyard-token-requests"},
		{otherNamespace, identityController, http.MethodPost, tokenPath + "/workloadidentities/any/token", "lanyard-token-requests"},
		{local.Namespace, identityController, http.MethodPost, tokenPath + "/workloadidentities/any/token", "lanyard-controller-tokens"},
		{local.Namespace, "lanyard-controller", http.MethodPost, tokenPath + "/ocirepositories/any/svid", "lanyard-controller-tokens"},
		{local.Namespace, tokenServer, http.MethodGet, namespacePath, tokenServer},
		{local.Namespace, tokenServer, http.MethodGet, "/version", tokenServer},
		{otherNamespace, "default", http.MethodGet, namespacePath, "service-accounts"},
		{otherNamespace, tokenServer, http.MethodGet, namespacePath, "service-accounts"},
		{local.Namespace, identityController, http.MethodGet, namespacePath, "service-accounts"},
	} {
		config := as(cluster, c.namespace, c.account)
		web, err := rest.HTTPClientFor(config)
		must(t, "make a client", err)
		eventually(t, fmt.Sprintf("%s %s as %s/%s", c.method, c.path, c.namespace, c.account), func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, c.method, config.Host+c.path, strings.NewReader("{}"))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			res, err := web.Do(req)
			if err != nil {
				return err
			}
			got := names[types.UID(res.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID))]
			return errors.Join(res.Body.Close(), wantf(got == c.want, "FlowSchema %q; want %q", got, c.want))
		})
	}
}

// controllerIsHeld asserts that a thief with the credential of lanyard-controller can change
// neither the spec nor the ownership of an object.
func controllerIsHeld(t *testing.T, cluster *local.Cluster) {
	t.Helper()
	admin := cluster.Client()
	object := &toolkitv1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: grantedNamespace, Name: "app", Labels: map[string]string{"team": "a"}, Finalizers: []string{"example.com/other"},
			Annotations: map[string]string{"lanyard.dev/operation": "renew", "example.com/note": "a"},
		},
		Spec: toolkitv1.OCIRepositorySpec{URL: "oci://registry.example.com/app", Schedule: toolkitv1.Schedule{Interval: metav1.Duration{Duration: time.Minute}}},
	}
	must(t, "make an object", admin.Create(t.Context(), object))
	controller, err := client.New(as(cluster, local.Namespace, "lanyard-controller"), client.Options{Scheme: admin.Scheme()})
	must(t, "make a client", err)
	patch := func(by client.Client, patch string, options ...client.PatchOption) error {
		return by.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), options...)
	}
	refused := map[string]string{
		"the spec":              `{"spec":{"url":"oci://registry.example.com/evil"}}`,
		"suspend":               `{"spec":{"suspend":true}}`,
		"a label":               `{"metadata":{"labels":{"lanyard.dev/shard":"b"}}}`,
		"no labels":             `{"metadata":{"labels":null}}`,
		"a new annotation":      `{"metadata":{"annotations":{"example.com/new":"a"}}}`,
		"another annotation":    `{"metadata":{"annotations":{"example.com/note":"b"}}}`,
		"the removal of a note": `{"metadata":{"annotations":{"example.com/note":null}}}`,
		"another operation":     `{"metadata":{"annotations":{"lanyard.dev/operation":"b"}}}`,
		"another's finalizer":   `{"metadata":{"finalizers":["lanyard.dev/finalizer"]}}`,
		"an owner":              `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}]}}`,
	}
	// The API server enforces a new policy after a moment. Until then, use a dry run.
	eventually(t, "the policy holds", func(context.Context) error {
		return wantf(apierrors.IsForbidden(patch(controller, refused["the spec"], client.DryRunAll)), "the controller changed a spec")
	})
	for what, change := range refused {
		if err := patch(controller, change); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'lanyard-controller'") {
			t.Errorf("the controller changes %s: %v", what, err)
		}
	}
	for what, change := range map[string]string{
		"adds its finalizer":    `{"metadata":{"finalizers":["example.com/other","lanyard.dev/finalizer"]}}`,
		"removes the operation": `{"metadata":{"annotations":{"lanyard.dev/operation":null}}}`,
	} {
		must(t, what, patch(controller, change))
	}
	must(t, "removes its finalizer", patch(controller, `{"metadata":{"finalizers":["example.com/other"]}}`))
	must(t, "write the status", controller.Status().Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":1}}`))))
	must(t, "the owner changes the spec", patch(admin, `{"metadata":{"finalizers":null},"spec":{"suspend":true}}`))
}

// usersMintNothing tests the roles view, edit and admin, with the chart's additions. None of them
// may create tokens of a WorkloadIdentity or change keys. The roles edit and admin must be able to
// write WorkloadIdentities; view must not.
func usersMintNothing(t *testing.T, cluster *local.Cluster) {
	t.Helper()
	reviews, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	may := func(role, verb, group, resource, subresource string) bool {
		t.Helper()
		review, err := reviews.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "user-" + role, Groups: []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: grantedNamespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource},
		}}, metav1.CreateOptions{})
		must(t, "ask for the rights of "+role, err)
		return review.Status.Allowed
	}
	for _, role := range []string{"view", "edit", "admin"} {
		must(t, "bind "+role, cluster.Client().Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: grantedNamespace, Name: "user-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "user-" + role}},
		}))
		eventually(t, role+" has the chart's rights", func(context.Context) error {
			return wantf(may(role, "list", v1alpha1.Group, "workloadidentities", ""), "%s does not read WorkloadIdentities", role)
		})
		if writes := may(role, "create", v1alpha1.Group, "workloadidentities", ""); writes != (role != "view") {
			t.Errorf("%s writes WorkloadIdentities: %v", role, writes)
		}
		for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
			if may(role, verb, "token.lanyard.dev", "workloadidentities", "token") {
				t.Errorf("%s may %s workloadidentities/token", role, verb)
			}
			if may(role, verb, v1alpha1.Group, "keyrings", "") || may(role, verb, v1alpha1.Group, "keyrings", "status") {
				t.Errorf("%s may %s keyrings", role, verb)
			}
		}
	}
}

// programsWork tests the programs with only the chart's rights. An identity must become ready. The
// controller must get a token of the identity in grantedNamespace. It must get no token of the
// identity in otherNamespace.
func programsWork(t *testing.T, w *issuerWorld) {
	t.Helper()
	app := w.newIdentity(t, grantedNamespace, "app", "sts.example.com")
	other := w.newIdentity(t, otherNamespace, "app", "sts.example.com")
	eventually(t, "the identity is ready", func(ctx context.Context) error {
		if err := w.people.Get(ctx, client.ObjectKeyFromObject(app), app); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(app.Status.Conditions, "Ready")
		return wantf(ready != nil && ready.Status == metav1.ConditionTrue && app.Status.Issuer == ownIssuer, "its status is %+v", app.Status)
	})
	controller, err := kubernetes.NewForConfig(as(w.Cluster, local.Namespace, "lanyard-controller"))
	must(t, "make a client", err)
	_, err = requestFor(t.Context(), controller.CoreV1().RESTClient(), client.ObjectKeyFromObject(app), `{}`)
	must(t, "get a token in the tenant's namespace", err)
	if _, err := requestFor(t.Context(), controller.CoreV1().RESTClient(), client.ObjectKeyFromObject(other), `{}`); !apierrors.IsForbidden(err) {
		t.Errorf("a token where the controller has no tenant: %v", err)
	}
}

// ringIsGuarded asserts that only the token server can write the status of a KeyRing, and that some
// changes are refused even to the token server.
func ringIsGuarded(t *testing.T, w *issuerWorld) {
	t.Helper()
	stranger := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: "stranger"}}
	for _, o := range []client.Object{
		stranger,
		&rbacv1.Role{ObjectMeta: stranger.ObjectMeta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.Group}, Resources: []string{"keyrings/status"}, Verbs: []string{"update"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: stranger.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: stranger.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: stranger.Namespace, Name: stranger.Name}},
		},
	} {
		must(t, "make a stranger with the right", w.people.Create(t.Context(), o))
	}
	write := func(by client.Client, change func(*v1alpha1.KeyRingStatus)) error {
		// The token server may write the status at the same time, which causes a conflict.
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			ring := w.ring(t)
			change(&ring.Status)
			return by.Status().Update(t.Context(), ring)
		})
	}
	by := func(account string) client.Client {
		c, err := client.New(as(w.Cluster, local.Namespace, account), client.Options{Scheme: w.people.Scheme()})
		must(t, "make a client", err)
		return c
	}
	for who, c := range map[string]client.Client{"the administrator": w.people, "a stranger": by(stranger.Name), "the controller": by("lanyard-controller")} {
		err := write(c, func(s *v1alpha1.KeyRingStatus) { s.Issuer = "https://evil.example" })
		if !apierrors.IsForbidden(err) || who != "the controller" && !strings.Contains(err.Error(), "only the token server writes") {
			t.Errorf("%s writes the status: %v", who, err)
		}
	}
	for says, change := range map[string]func(*v1alpha1.KeyRingStatus){
		"revision must not go back":        func(s *v1alpha1.KeyRingStatus) { s.Revision-- },
		"a key's state only moves forward": func(s *v1alpha1.KeyRingStatus) { s.Keys[0].State = v1alpha1.KeyPending },
	} {
		if err := write(by(tokenServer), change); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("the token server writes a status although %s: %v", says, err)
		}
	}
}
