package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// hubIssuer is the hub's issuer. The hub is the cluster from which other clusters, the spokes,
	// get tokens. The local cloud serves the issuer's public documents.
	hubIssuer = "https://hub.e2e.example.com"
	// spokesNamespace is the namespace of the spokes' accounts at the hub.
	spokesNamespace = "lanyard-spokes"
	// spokeName is the spoke whose cluster runs. otherSpoke only has an account at the hub.
	spokeName, otherSpoke = "eu-1", "eu-2"
	// hubNamespace is the hub's namespace to which the spoke's grantedNamespace is mapped.
	// otherHubNamespace is the hub's namespace for otherSpoke.
	hubNamespace, otherHubNamespace = "eu-1-team-a", "eu-2-team-a"
	// hubApp is the name of the identity in the namespaces of both spokes.
	hubApp = "app"
)

// hubWorld is a hub with the issuer, and a spoke with bindings.
type hubWorld struct {
	*issuerWorld

	identity   *v1alpha1.WorkloadIdentity
	spoke      *local.Cluster
	users      client.Client // client of the spoke's administrator
	controller *local.Program
	files      string // folder with the spoke's kubeconfig
}

// TestHub runs two control planes, a hub and a spoke. At the hub, the spoke has only the rights in
// the manifests that `lanyard hub grant` prints.
func TestHub(t *testing.T) {
	beside(t, lane4)
	w := installHub(t)
	w.grant(t)
	t.Run("rights", func(t *testing.T) { spokeIsLimited(t, w) })
	t.Run("without a copied token", func(t *testing.T) { hubTrustsSpoke(t, w) })
	t.Run("contexts", func(t *testing.T) { spokeHasNoEvidence(t, w) })
	w.startSpoke(t)
	t.Run("credential", func(t *testing.T) { hubVouches(t, w) })
	t.Run("namespaces", func(t *testing.T) { namespacesAreMapped(t, w) })
	t.Run("objects", func(t *testing.T) { objectsAreStalled(t, w) })
	t.Run("key is revoked", func(t *testing.T) { hubRevokesKey(t, w) })
	t.Run("hub does not answer", func(t *testing.T) { hubHangs(t, w) })
	t.Run("account is revoked", func(t *testing.T) { hubRevokesAccount(t, w) })
	noRightIsMissing(t, w.Cluster)
	noRightIsMissing(t, w.spoke)
}

// installHub starts both clusters and the hub's programs.
func installHub(t *testing.T) *hubWorld {
	t.Helper()
	cluster := startClusterWith(t, "hub", authenticationOfPage(t))
	w := &hubWorld{issuerWorld: &issuerWorld{Cluster: cluster, people: cluster.Client()}, spoke: startCluster(t, "spoke", "", nil), files: t.TempDir()}
	w.users = w.spoke.Client()
	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	w.api = typed.CoreV1().RESTClient()
	for _, name := range []string{spokesNamespace, hubNamespace, otherHubNamespace} {
		w.putNamespace(t, name)
	}
	must(t, "install the chart", cluster.InstallChart(t.Context(), map[string]any{
		"issuer": map[string]any{
			"url": hubIssuer, "clusterID": "hub", "spokeUserPrefix": "system:serviceaccount:" + spokesNamespace + ":",
			"keys": map[string]any{"publishDelay": publishDelay.String(), "algorithms": []any{string(v1alpha1.RS256)}},
		},
		"rbac": map[string]any{"tenantNamespaces": []any{}},
	}))
	w.identity = w.newIdentity(t, hubNamespace, hubApp, vaultAudience)
	w.newIdentity(t, otherHubNamespace, hubApp, vaultAudience)
	must(t, "start the hub's programs", w.StartPrograms(t.Context(), []local.ProgramOptions{
		{Workload: discoveryServer, Binary: daemon(discoveryServer)}, {Workload: tokenServer, Binary: daemon(tokenServer)},
	}, func(*local.Program) {}))
	return w
}

// grant creates accounts at the hub for both spokes. It then runs commands that `lanyard hub grant`
// prints. These commands create the kubeconfig of spokeName.
func (w *hubWorld) grant(t *testing.T) {
	t.Helper()
	must(t, "forget a former token", os.RemoveAll(filepath.Join(w.files, "token")))
	w.applyGrant(t, otherSpoke, otherHubNamespace)
	advice := w.applyGrant(t, spokeName, hubNamespace)
	atHub, _, found := strings.Cut(advice, "# At the spoke")
	if !found {
		t.Fatalf("the command says nothing of the spoke: %s", advice)
	}
	w.shell(t, w.Cluster, atHub)
}

// applyGrant applies the manifests that `lanyard hub grant` prints, and returns its other output.
func (w *hubWorld) applyGrant(t *testing.T, spoke, namespace string) (advice string) {
	t.Helper()
	var objects, errs bytes.Buffer
	c := exec.CommandContext(t.Context(), binary("lanyard"), "hub", "grant", spoke, "--namespace", namespace)
	c.Stdout, c.Stderr = &objects, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("lanyard hub grant: %v\n%s", err, errs.String())
	}
	apply := w.ControlPlane().Kubectl(t.Context(), "apply", "-f", "-")
	apply.Stdin = &objects
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("apply the grant: %v\n%s", err, out)
	}
	return errs.String()
}

// shell runs commands that are meant for people, such as those that `lanyard hub grant` prints. In
// these commands, kubectl is a script that runs `controlplane kubectl`.
func (w *hubWorld) shell(t *testing.T, cluster *local.Cluster, commands string) {
	t.Helper()
	program, err := filepath.Abs(binary("controlplane"))
	must(t, "find kubectl", err)
	bin := t.TempDir()
	must(t, "write kubectl", os.WriteFile(filepath.Join(bin, "kubectl"), fmt.Appendf(nil, "#!/bin/sh\nexec %q kubectl \"$@\"\n", program), 0o700))
	c := exec.CommandContext(t.Context(), "sh", "-eu", "-c", commands)
	c.Dir, c.Env = w.files, []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + bin, "KUBECONFIG=" + cluster.Kubeconfig(), "SERVER=" + cluster.ControlPlane().Server()}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v: %s", commands, err, out)
	}
}

// asSpoke returns clients that access the hub with the spoke's kubeconfig.
func (w *hubWorld) asSpoke(t *testing.T) (kubernetes.Interface, client.Client) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(w.files, "kubeconfig"))
	must(t, "read the spoke's kubeconfig", err)
	typed, err := kubernetes.NewForConfig(config)
	must(t, "make a client", err)
	objects, err := client.New(config, client.Options{Scheme: w.people.Scheme()})
	must(t, "make a client", err)
	return typed, objects
}

// spokeIsLimited asserts that a spoke's account may do what the spoke needs, and nothing else.
func spokeIsLimited(t *testing.T, w *hubWorld) {
	t.Helper()
	typed, objects := w.asSpoke(t)
	eventually(t, "the spoke gets a token", func(ctx context.Context) error {
		_, err := requestFor(ctx, typed.CoreV1().RESTClient(), client.ObjectKey{Namespace: hubNamespace, Name: hubApp}, `{}`)
		return err
	})
	_, err := requestFor(t.Context(), typed.CoreV1().RESTClient(), client.ObjectKey{Namespace: otherHubNamespace, Name: hubApp}, `{}`)
	if !apierrors.IsForbidden(err) {
		t.Errorf("the other spoke's identity: %v, want forbidden", err)
	}
	if err := objects.List(t.Context(), &v1alpha1.WorkloadIdentityList{}, client.InNamespace(otherHubNamespace)); !apierrors.IsForbidden(err) {
		t.Errorf("the other spoke's identities are read: %v", err)
	}
	for _, denied := range []authorizationv1.ResourceAttributes{
		{Verb: "list", Group: v1alpha1.Group, Resource: "workloadidentities"},
		{Verb: "create", Group: v1alpha1.Group, Resource: "workloadidentities", Namespace: hubNamespace},
		{Verb: "patch", Group: v1alpha1.Group, Resource: "workloadidentities", Namespace: hubNamespace, Name: hubApp},
		{Verb: "patch", Group: v1alpha1.Group, Resource: "keyrings", Namespace: local.Namespace, Name: v1alpha1.IssuerKeyRing},
		{Verb: "list", Group: v1alpha1.Group, Resource: "keyrings", Namespace: local.Namespace},
		{Verb: "get", Resource: "secrets", Namespace: local.Namespace},
		{Verb: "get", Resource: "secrets", Namespace: hubNamespace},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: spokesNamespace},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: hubNamespace},
		{Verb: "get", Resource: "configmaps", Namespace: spokesNamespace},
	} {
		review, err := typed.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &denied},
		}, metav1.CreateOptions{})
		if must(t, "ask for a right", err); review.Status.Allowed {
			t.Errorf("the spoke may %s %s in %q", denied.Verb, denied.Resource, denied.Namespace)
		}
	}
}

// spokeHasNoEvidence requests tokens of the hub's identity w.identity as a spoke. Each request
// names an object for which the token is needed. The spoke may get the token only if:
//   - the object exists at the hub, with the UID in the request
//   - the object is in the namespace of w.identity
//   - the spoke has the right to read the object at the hub
//
// So an object of the spoke's own cluster is no evidence.
func spokeHasNoEvidence(t *testing.T, w *hubWorld) {
	t.Helper()
	typed, _ := w.asSpoke(t)
	newObject := func(namespace string) *toolkitv1.OCIRepository {
		o := &toolkitv1.OCIRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "use"},
			Spec: toolkitv1.OCIRepositorySpec{
				URL:            "oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/app",
				Schedule:       toolkitv1.Schedule{Interval: metav1.Duration{Duration: time.Hour}},
				RegistryAccess: toolkitv1.RegistryAccess{Access: toolkitv1.Access{Provider: "aws", WorkloadIdentityName: hubApp}},
			},
		}
		must(t, "make an object", w.people.Create(t.Context(), o))
		return o
	}
	own, others := newObject(hubNamespace), newObject(otherHubNamespace)
	ask := func(o *toolkitv1.OCIRepository, uid string) (string, error) {
		return requestFor(t.Context(), typed.CoreV1().RESTClient(), client.ObjectKeyFromObject(w.identity), fmt.Sprintf(
			`{"contextObject":{"apiVersion":"toolkit.lanyard.dev/v1alpha1","kind":"OCIRepository","namespace":%q,"name":%q,"uid":%q}}`, o.Namespace, o.Name, uid))
	}
	if _, err := ask(own, string(own.UID)); !apierrors.IsForbidden(err) {
		t.Errorf("an object that the spoke may not read: %v, want forbidden", err)
	}
	name := metav1.ObjectMeta{Namespace: hubNamespace, Name: "contexts"}
	must(t, "make a role", w.people.Create(t.Context(), &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"toolkit.lanyard.dev"}, Resources: []string{"ocirepositories"}, ResourceNames: []string{own.Name}, Verbs: []string{"get"}},
	}}))
	must(t, "bind the role", w.people.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: spokesNamespace, Name: spokeName}},
	}))
	eventually(t, "a token names the hub's object", func(context.Context) error {
		_, err := ask(own, string(own.UID))
		return err
	})
	if _, err := ask(own, "54d09554-6a68-4f46-a23a-e3592385d820"); !apierrors.IsForbidden(err) {
		t.Errorf("an object of the spoke with the same name: %v, want forbidden", err)
	}
	if _, err := ask(others, string(others.UID)); !apierrors.IsInvalid(err) {
		t.Errorf("the other spoke's object: %v, want invalid", err)
	}
}

// authenticationOfPage writes the AuthenticationConfiguration of docs/hub.md to a file. The spoke
// in the file is the cluster that all tests share.
func authenticationOfPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/hub.md")
	must(t, "read the page", err)
	_, rest, _ := strings.Cut(string(page), "```yaml\napiVersion: apiserver.config.k8s.io")
	config, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/hub.md has no AuthenticationConfiguration")
	}
	config = strings.NewReplacer(
		"https://oidc.eu-1.example.com\n", local.Issuer+"\n    certificateAuthority: "+strconv.Quote(string(world.Cloud().CAPEM()))+"\n",
		"eu-1", otherSpoke,
	).Replace("apiVersion: apiserver.config.k8s.io" + config)
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	must(t, "write the configuration", os.WriteFile(path, []byte(config), 0o600))
	return path
}

// hubTrustsSpoke asserts that the hub identifies a spoke by a ServiceAccount token of the spoke's
// own cluster. Other accounts of that cluster must not be identified as the spoke.
func hubTrustsSpoke(t *testing.T, w *hubWorld) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: identityController}}
	// Another test may have created this account with the chart.
	if err := objects.Create(t.Context(), account); !apierrors.IsAlreadyExists(err) {
		must(t, "make an account", err)
		t.Cleanup(func() { must(t, "delete an account", objects.Delete(context.WithoutCancel(t.Context()), account)) })
	}
	user, err := whoIs(t.Context(), w.Cluster, token(t, local.Namespace, identityController, "https://hub.example.com"))
	if err != nil || user != "spoke:"+otherSpoke {
		t.Errorf("the spoke is taken for %q: %v", user, err)
	}
	for _, stranger := range []string{
		token(t, local.Namespace, "default", "https://hub.example.com"), token(t, local.Namespace, identityController, "https://other.example.com"),
	} {
		if user, err := whoIs(t.Context(), w.Cluster, stranger); !apierrors.IsUnauthorized(err) {
			t.Errorf("another token is taken for %q: %v", user, err)
		}
	}
}

// startSpoke installs the chart in the spoke and starts its programs.
func (w *hubWorld) startSpoke(t *testing.T) {
	t.Helper()
	for _, name := range []string{grantedNamespace, otherNamespace} {
		must(t, "make a namespace", w.users.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	must(t, "install the chart", w.spoke.InstallChart(t.Context(), map[string]any{
		"hub":      map[string]any{"kubeconfigSecret": "lanyard-hub", "namespaces": map[string]any{grantedNamespace: hubNamespace}},
		"identity": map[string]any{"bindings": true},
		"rbac":     map[string]any{"tenantNamespaces": []any{grantedNamespace, otherNamespace}},
	}))
	w.shell(t, w.spoke, "kubectl -n "+local.Namespace+" create secret generic lanyard-hub --from-file=kubeconfig --from-file=token")
	must(t, "start the spoke's programs", w.spoke.StartPrograms(t.Context(), []local.ProgramOptions{
		{Workload: identityController, Binary: daemon(identityController)}, {Workload: "lanyard-controller", Binary: daemon("lanyard-controller")},
	}, func(p *local.Program) {
		if p.Workload == identityController {
			w.controller = p
		}
	}))
}

// newBinding creates a binding of the identity "app" in a namespace of the spoke.
func (w *hubWorld) newBinding(t *testing.T, namespace string) *v1alpha1.WorkloadIdentityBinding {
	t.Helper()
	o := &v1alpha1.WorkloadIdentityBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloud"},
		Spec: v1alpha1.WorkloadIdentityBindingSpec{
			WorkloadIdentity: &v1alpha1.WorkloadIdentityReference{Name: hubApp},
			Store:            v1alpha1.BindingStore{SecretRef: v1alpha1.BindingSecretReference{Name: "cloud"}, Format: v1alpha1.StoreToken},
		},
	}
	must(t, "make a binding", w.users.Create(t.Context(), o))
	return o
}

// await reads the spoke's binding in grantedNamespace again and again, until want() returns nil for
// the binding.
func (w *hubWorld) await(t *testing.T, what string, want func(*v1alpha1.WorkloadIdentityBinding) error) *v1alpha1.WorkloadIdentityBinding {
	t.Helper()
	o := &v1alpha1.WorkloadIdentityBinding{}
	within(t, 2*time.Minute, what, func(ctx context.Context) error {
		if err := w.users.Get(ctx, client.ObjectKey{Namespace: grantedNamespace, Name: "cloud"}, o); err != nil {
			return err
		}
		return want(o)
	})
	return o
}

// secret returns the Secret of the spoke's binding in grantedNamespace.
func (w *hubWorld) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	must(t, "read a Secret", w.users.Get(t.Context(), client.ObjectKey{Namespace: grantedNamespace, Name: "cloud"}, s))
	return s
}

// renew requests a new credential for the binding.
func (w *hubWorld) renew(t *testing.T) {
	t.Helper()
	o := &v1alpha1.WorkloadIdentityBinding{ObjectMeta: metav1.ObjectMeta{Namespace: grantedNamespace, Name: "cloud"}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.OperationAnnotation, meta.OperationRenewToken))
	must(t, "ask for a new credential", w.users.Patch(t.Context(), o, patch))
}

func bindingReady(o *v1alpha1.WorkloadIdentityBinding) error {
	for _, kind := range []string{meta.ConditionReady, meta.ConditionHubReachable} {
		if !apimeta.IsStatusConditionTrue(o.Status.Conditions, kind) {
			return fmt.Errorf("%s is not true: %+v", kind, o.Status.Conditions)
		}
	}
	return wantf(o.Annotations[meta.OperationAnnotation] == "", "it is being renewed")
}

// hubVouches asserts that the Secret in the spoke has a token of the hub's issuer. The token's
// claims must name the spoke that requested it. Vault must accept the token.
func hubVouches(t *testing.T, w *hubWorld) {
	t.Helper()
	w.newBinding(t, grantedNamespace)
	w.await(t, "the binding", bindingReady)
	token := string(w.secret(t).Data["workloadIdentityToken"])
	claims := claimsOf(t, token)
	said, _ := claims["lanyard.dev"].(map[string]any)
	if cluster, _ := said["cluster"].(map[string]any); claims["iss"] != hubIssuer || cluster["id"] != spokeName || said["context"] != nil {
		t.Errorf("the claims are %v", claims)
	}
	vault := startVault(t, hubIssuer, vaultAudience, issuer.Subject(w.identity))
	wantVerdict(t, "Vault", vault.login(t, token), true)
}

// namespacesAreMapped asserts that a spoke's namespace without a mapping gets no identity. The hub
// has a namespace of the same name, with an identity that must not be used.
func namespacesAreMapped(t *testing.T, w *hubWorld) {
	t.Helper()
	w.putNamespace(t, otherNamespace)
	w.newIdentity(t, otherNamespace, hubApp, vaultAudience)
	o := w.newBinding(t, otherNamespace)
	eventually(t, "the binding of another namespace", func(ctx context.Context) error {
		if err := w.users.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady)
		if c == nil {
			return errors.New("it was not looked at")
		}
		return failed(*c, meta.ReasonNamespaceNotMapped, "hub.namespaces")
	})
	if err := w.users.Get(t.Context(), client.ObjectKey{Namespace: otherNamespace, Name: "cloud"}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("its Secret: %v", err)
	}
}

// objectsAreStalled asserts that an object of the spoke cannot use a WorkloadIdentity.
func objectsAreStalled(t *testing.T, w *hubWorld) {
	t.Helper()
	o := &toolkitv1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: grantedNamespace, Name: "app"},
		Spec: toolkitv1.OCIRepositorySpec{
			URL:            "oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/app",
			Schedule:       toolkitv1.Schedule{Interval: metav1.Duration{Duration: time.Hour}},
			RegistryAccess: toolkitv1.RegistryAccess{Access: toolkitv1.Access{Provider: "aws", WorkloadIdentityName: hubApp}},
		},
	}
	must(t, "make an object", w.users.Create(t.Context(), o))
	eventually(t, "the object", func(ctx context.Context) error {
		return errors.Join(w.users.Get(ctx, client.ObjectKeyFromObject(o), o), failing(string(auth.CodeNotGranted), "hub", "WorkloadIdentityBinding")(o),
			wantf(apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionStalled), "it is not stalled: %+v", o.Status.Conditions))
	})
}

// hubRevokesKey revokes a key at the hub. The token in the spoke's Secret, which this key signed,
// must soon be replaced.
func hubRevokesKey(t *testing.T, w *hubWorld) {
	t.Helper()
	w.awaitRing(t, "a standby", standbyReady)
	revoked := w.await(t, "the binding", bindingReady).Status.KID
	began := time.Now()
	w.keys(t, "revoke", "--yes", revoked)
	w.await(t, "a credential of another key", func(o *v1alpha1.WorkloadIdentityBinding) error {
		kid, err := kidOfToken(string(w.secret(t).Data["workloadIdentityToken"]))
		return errors.Join(err, wantf(kid != revoked && o.Status.KID == kid, "the Secret has a token of %s, the status says %s", kid, o.Status.KID))
	})
	t.Logf("the spoke had another credential after %s", time.Since(began).Round(time.Millisecond))
}

// hubFails returns a check that the binding's conditions say why the hub fails, and since when it
// has been failing.
func hubFails(reason string) func(*v1alpha1.WorkloadIdentityBinding) error {
	return func(o *v1alpha1.WorkloadIdentityBinding) error {
		for _, kind := range []string{meta.ConditionHubReachable, meta.ConditionReady} {
			c := apimeta.FindStatusCondition(o.Status.Conditions, kind)
			if c == nil {
				return fmt.Errorf("it has no condition %s", kind)
			}
			if err := failed(*c, reason, " since "); err != nil {
				return err
			}
			_, since, _ := strings.Cut(c.Message, " since ")
			at, err := time.Parse(time.RFC3339, since[:min(len(since), len("2006-01-02T15:04:05Z"))])
			if err = errors.Join(err, wantf(time.Since(at) < time.Hour, "the message of %s has the time %s", reason, at)); err != nil {
				return err
			}
		}
		return nil
	}
}

// hubHangs asserts that the credential in the Secret stays while the hub does not answer.
func hubHangs(t *testing.T, w *hubWorld) {
	t.Helper()
	before := w.secret(t)
	must(t, "stop the hub", syscall.Kill(w.ControlPlane().PID(), syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(w.ControlPlane().PID(), syscall.SIGCONT) }()
	w.renew(t)
	o := w.await(t, "the hub does not answer", hubFails(meta.ReasonHubUnreachable))
	if now := w.secret(t); now.ResourceVersion != before.ResourceVersion || !time.Now().Before(o.Status.ExpiresAt.Time) {
		t.Errorf("the Secret was changed: %+v", now.ObjectMeta)
	}
	must(t, "let the hub go on", syscall.Kill(w.ControlPlane().PID(), syscall.SIGCONT))
	w.await(t, "the hub answers again", bindingReady)
}

// hubRevokesAccount deletes the spoke's account. The credential must stay. When the spoke has a
// token of a new account, the credential must be renewed again.
func hubRevokesAccount(t *testing.T, w *hubWorld) {
	t.Helper()
	before := w.secret(t)
	must(t, "delete the account", w.people.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: spokesNamespace, Name: spokeName}}))
	within(t, time.Minute, "the API server forgets the account", func(ctx context.Context) error {
		_, objects := w.asSpoke(t)
		err := objects.Get(ctx, client.ObjectKeyFromObject(w.identity), &v1alpha1.WorkloadIdentity{})
		return wantf(apierrors.IsUnauthorized(err), "it answers: %v", err)
	})
	w.renew(t)
	w.await(t, "the hub refuses the spoke", hubFails(meta.ReasonHubRefused))
	if now := w.secret(t); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("the Secret was changed: %+v", now.ObjectMeta)
	}
	w.grant(t)
	token, err := os.ReadFile(filepath.Join(w.files, "token"))
	must(t, "read the new token", err)
	must(t, "write the new token", os.WriteFile(filepath.Join(w.controller.Folder("hub"), "token"), token, 0o600))
	w.await(t, "the hub answers again", bindingReady)
}
