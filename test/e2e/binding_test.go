package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// bindingIssuer is the issuer of TestBindings.
const bindingIssuer = "https://bindings.e2e.example.com"

// proposedBinding is the example WorkloadIdentityBinding of Gardener's proposal GEP-26, moved to
// Lanyard's API group. It names no namespace for its identity, which is in the binding's namespace.
const proposedBinding = `
apiVersion: identity.lanyard.dev/v1alpha1
kind: WorkloadIdentityBinding
metadata:
  name: cloudidentity
  namespace: garden-local
spec:
  type: aws
  providerConfig:
    apiVersion: aws.authentication.gardener.cloud/v1alpha1
    kind: Config
    iamRoleARN: arn:aws:iam::112233445566:role/gardener-dev
  contextObject:
    apiVersion: core.gardener.cloud/v1beta1
    kind: Shoot
    name: foo
    namespace: garden-local
    uid: SHOOT
  workloadIdentity:
    name: banana-testing
  store:
    secretRef:
      name: cloudprovider
`

// TestBindings makes the identity controller write Secrets with real tokens. The chart's
// permissions and admission policies apply. Consumers that are not part of Lanyard read the
// Secrets.
func TestBindings(t *testing.T) {
	beside(t, lane4)
	w := installBindings(t)
	identity := createManifest(t, w.people, proposedIdentity)
	trustIdentity(t, bindingIssuer, string(identity.GetUID()))
	t.Run("proposal", func(t *testing.T) { proposedBindingWorks(t, w) })
	t.Run("mended", func(t *testing.T) { secretsAreMended(t, w) })
	t.Run("others' Secrets", func(t *testing.T) { foreignSecrets(t, w) })
	t.Run("limits", func(t *testing.T) { limitsOfSecrets(t, w) })
	t.Run("exchanged", func(t *testing.T) { exchangedInSecrets(t, w) })
	t.Run("lent", func(t *testing.T) { lentInSecrets(t, w) })
	t.Run("commands", func(t *testing.T) { commandsKnowBindings(t, w) })
	t.Run("policy", func(t *testing.T) { refresherIsHeld(t, w) })
	t.Run("restart", func(t *testing.T) { restartWritesNothing(t, w) })
	t.Run("deleted", func(t *testing.T) { bindingsAreDeleted(t, w) })
	noRightIsMissing(t, w.Cluster)
	// Run this test after noRightIsMissing. In this test, the controller lacks rights on purpose.
	t.Run("namespaces", func(t *testing.T) { namespacesAreDeleted(t, w) })
}

// bindingWorld is a cluster with the identity controller, which writes the bindings' Secrets.
type bindingWorld struct {
	*issuerWorld

	refresher *local.Program
}

// newBindingWorld starts a cluster and the programs that bindings need. The last two parameters are
// additional values of the chart: those below the key "issuer", and all others.
func newBindingWorld(t *testing.T, name, url string, issuer, values map[string]any) *bindingWorld {
	t.Helper()
	cluster := startCluster(t, name, "", nil)
	w := &bindingWorld{issuerWorld: &issuerWorld{Cluster: cluster, people: cluster.Client()}}
	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	w.api = typed.CoreV1().RESTClient()
	w.putNamespace(t, identityNamespace)
	maps.Copy(issuer, map[string]any{
		"url": url, "clusterID": "prod",
		"keys": map[string]any{"publishDelay": publishDelay.String(), "algorithms": []any{string(v1alpha1.RS256)}},
	})
	maps.Copy(values, map[string]any{"issuer": issuer, "rbac": map[string]any{"tenantNamespaces": []any{identityNamespace}}})
	must(t, "install the chart", cluster.InstallChart(t.Context(), values))
	var all []local.ProgramOptions
	for _, name := range []string{discoveryServer, tokenServer, identityController} {
		all = append(all, local.ProgramOptions{Workload: name, Binary: daemon(name)})
	}
	must(t, "start the programs", w.StartPrograms(t.Context(), all, func(p *local.Program) {
		switch p.Workload {
		case discoveryServer:
			w.discovery = p
		case tokenServer:
			w.tokenServer = p
		case identityController:
			w.refresher = p
		}
	}))
	return w
}

// installBindings starts the cluster of TestBindings.
func installBindings(t *testing.T) *bindingWorld {
	t.Helper()
	return newBindingWorld(t, "bindings", bindingIssuer, map[string]any{"claimsConfig": claimsConfig(t)}, map[string]any{
		"identity":           map[string]any{"bindings": true, "awsIdentities": true},
		"identityController": map[string]any{"extraEnv": environment("AWS_ACCESS_KEY_ID="+ownerKey, "AWS_SECRET_ACCESS_KEY="+ownerSecret)},
	})
}

// trustIdentity makes AWS trust the issuer with the given URL. It lets the WorkloadIdentity of the
// proposal GEP-26 assume the proposal's example role. uid is the UID of the WorkloadIdentity.
func trustIdentity(t *testing.T, url, uid string) {
	t.Helper()
	const audience = "team-foo"
	issuer := strings.TrimPrefix(url, "https://")
	must(t, "trust the issuer at AWS", world.Cloud().AWS().PutOIDCProvider(proposedAccount, aws.OIDCProvider{URL: url, ClientIDs: []string{audience}}))
	subject := fmt.Sprintf("lanyard.dev:workloadidentity:%s:%s:%s", identityNamespace, identityName, uid)
	proposedTrust.mu.Lock()
	defer proposedTrust.mu.Unlock()
	proposedTrust.statements[url] = fmt.Sprintf(`{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::%s:oidc-provider/%s"},
		"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{"%s:sub":%q,"%s:aud":%q}}}`, proposedAccount, issuer, issuer, subject, issuer, audience)
	must(t, "make a role", world.Cloud().AWS().PutRole(proposedAccount, aws.Role{
		Name: proposedRole, TrustPolicy: json.RawMessage(statements(slices.Collect(maps.Values(proposedTrust.statements))...)),
	}))
}

// proposedTrust has the trust policy of the example role of the proposal GEP-26. Several tests use
// the role, each with its own issuer. So the policy has a statement for each issuer.
var proposedTrust = struct {
	mu         sync.Mutex
	statements map[string]string // the key is the issuer's URL
}{statements: map[string]string{}}

// proposedBindingWorks applies the binding in Gardener's proposal GEP-26. The consumer reads only
// those keys of the Secret that the proposal defines. It must get a token for a Shoot, with the
// Shoot's UID in the claims. AWS must accept the token.
func proposedBindingWorks(t *testing.T, w *bindingWorld) {
	t.Helper()
	makeGardenerKinds(t, w.people)
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: identityNamespace}}
	must(t, "label the namespace", w.people.Patch(t.Context(), home, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"project.gardener.cloud/name":"local"}}}`))))
	var shoot string
	for manifest := range strings.SplitSeq(proposedGarden, "---\n") {
		if o := createManifest(t, w.people, manifest); o.GetKind() == "Shoot" {
			shoot = string(o.GetUID())
		}
	}
	// The identity controller may set an object as a token's context only if it may read the
	// object.
	reads := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "refresher-reads-shoots"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"core.gardener.cloud"}, Resources: []string{"shoots"}, Verbs: []string{"get"}},
	}}
	must(t, "make a role", w.people.Create(t.Context(), reads))
	must(t, "bind the role", w.people.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: reads.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reads.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: local.Namespace, Name: identityController}},
	}))
	createManifest(t, w.people, strings.ReplaceAll(proposedBinding, "SHOOT", shoot))
	o := w.awaitBinding(t, "cloudidentity", isFresh)
	if s := o.Status; s.Type != "aws" || s.Account != proposedAccount || s.KID != kidOf(w.ring(t), v1alpha1.KeyActive) || s.RenewAt.Before(s.IssuedAt) || s.ExpiresAt.Before(s.RenewAt) {
		t.Errorf("the status is %+v", s)
	}
	secret := w.secret(t, "cloudprovider")
	if secret.Labels[v1alpha1.ProviderLabel] != "aws" {
		t.Errorf("the labels are %v", secret.Labels)
	}
	token := string(secret.Data["workloadIdentityToken"])
	// Besides the token, Gardener's extension for AWS reads only this field of the config.
	var config struct {
		IAMRoleARN string `json:"iamRoleARN"`
	}
	must(t, "read the config", json.Unmarshal(secret.Data["workloadIdentityConfig"], &config))
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	must(t, "read the token", err)
	var claims struct {
		Gardener struct {
			Shoot struct {
				UID string `json:"uid"`
			} `json:"shoot"`
		} `json:"gardener.cloud"`
	}
	// Read the claims without verification. AWS verifies the token later, when the test assumes the
	// role with it.
	must(t, "read the claims", parsed.UnsafeClaimsWithoutVerification(&claims))
	if claims.Gardener.Shoot.UID != shoot {
		t.Errorf("the claims are %+v", claims)
	}
	if v := assume(t, cloudClient(), stsURL, config.IAMRoleARN, token); !v.granted() {
		t.Errorf("AWS says of the token for role %q: %s", config.IAMRoleARN, v)
	}
}

// newBinding creates a binding of an identity.
func (w *bindingWorld) newBinding(t *testing.T, name, identity string, store v1alpha1.BindingStore) *v1alpha1.WorkloadIdentityBinding {
	t.Helper()
	o := &v1alpha1.WorkloadIdentityBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: name},
		Spec:       v1alpha1.WorkloadIdentityBindingSpec{WorkloadIdentity: &v1alpha1.WorkloadIdentityReference{Name: identity}, Store: store},
	}
	must(t, "make a binding", w.people.Create(t.Context(), o))
	return o
}

func (w *bindingWorld) awaitBinding(t *testing.T, name string, want func(*v1alpha1.WorkloadIdentityBinding) error) *v1alpha1.WorkloadIdentityBinding {
	t.Helper()
	o := &v1alpha1.WorkloadIdentityBinding{}
	eventually(t, "binding "+name, func(ctx context.Context) error {
		if err := w.people.Get(ctx, client.ObjectKey{Namespace: identityNamespace, Name: name}, o); err != nil {
			return err
		}
		return want(o)
	})
	return o
}

// isFresh asserts that a binding has its credential.
func isFresh(o *v1alpha1.WorkloadIdentityBinding) error {
	c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady)
	return wantf(c != nil && c.Status == metav1.ConditionTrue && o.Status.ObservedGeneration == o.Generation, "%+v", o.Status)
}

// isRefused returns a check that a binding's condition Ready is False with this reason, and that
// its message contains the words.
func isRefused(reason, words string) func(*v1alpha1.WorkloadIdentityBinding) error {
	return func(o *v1alpha1.WorkloadIdentityBinding) error {
		c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady)
		return wantf(c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, words), "%+v", o.Status)
	}
}

func (w *bindingWorld) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	must(t, "read the Secret", w.people.Get(t.Context(), client.ObjectKey{Namespace: identityNamespace, Name: name}, s))
	return s
}

// awaitSecret waits until the function want returns nil for a Secret.
func (w *bindingWorld) awaitSecret(t *testing.T, name string, want func(*corev1.Secret) error) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	eventually(t, "Secret "+name, func(ctx context.Context) error {
		if err := w.people.Get(ctx, client.ObjectKey{Namespace: identityNamespace, Name: name}, s); err != nil {
			return err
		}
		return want(s)
	})
	return s
}

// touch sets an annotation that makes the identity controller reconcile a binding now.
func (w *bindingWorld) touch(t *testing.T, name, annotation, value string) {
	t.Helper()
	o := &v1alpha1.WorkloadIdentityBinding{ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: name}}
	must(t, "annotate the binding", w.people.Patch(t.Context(), o, client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotation, value))))
}

// change patches the spec of an identity or a binding.
func (w *bindingWorld) change(t *testing.T, o client.Object, name, spec string) {
	t.Helper()
	o.SetNamespace(identityNamespace)
	o.SetName(name)
	must(t, "change "+name, w.people.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))))
}

// secretsAreMended changes and deletes a Secret, which must be restored. Data of other writers must
// stay. A change of the format removes the keys of the old format.
func secretsAreMended(t *testing.T, w *bindingWorld) {
	t.Helper()
	const name = "mended"
	w.newBinding(t, name, identityName, v1alpha1.BindingStore{SecretRef: v1alpha1.BindingSecretReference{Name: name}})
	w.awaitBinding(t, name, isFresh)
	first := w.secret(t, name)
	before := first.DeepCopy()
	patchIn(t, w.people, first, func(s *corev1.Secret) {
		s.Data["workloadIdentityConfig"], s.Data["more"], s.Labels["team"] = []byte("{}"), []byte("x"), "a"
	})
	w.touch(t, name, meta.ReconcileRequestedAnnotation, "1")
	whole := func(s *corev1.Secret) error {
		return wantf(bytes.Equal(s.Data["workloadIdentityConfig"], before.Data["workloadIdentityConfig"]) && len(s.Data["workloadIdentityToken"]) > 0, "%v", slices.Sorted(maps.Keys(s.Data)))
	}
	if s := w.awaitSecret(t, name, whole); string(s.Data["more"]) != "x" || s.Labels["team"] != "a" || s.UID != before.UID {
		t.Errorf("what others have added is gone: %v, %v", slices.Sorted(maps.Keys(s.Data)), s.Labels)
	}
	must(t, "delete the Secret", w.people.Delete(t.Context(), first))
	w.touch(t, name, meta.ReconcileRequestedAnnotation, "2")
	w.awaitSecret(t, name, whole)

	w.change(t, &v1alpha1.WorkloadIdentityBinding{}, name, `{"store":{"format":"token"}}`)
	w.awaitSecret(t, name, func(s *corev1.Secret) error {
		keys := slices.Sorted(maps.Keys(s.Data))
		return wantf(slices.Equal(keys, []string{"workloadIdentityConfig", "workloadIdentityToken"}), "the keys are %v", keys)
	})
}

// foreignSecrets asserts that an existing Secret stays unchanged until an annotation on the Secret
// offers it to the binding.
func foreignSecrets(t *testing.T, w *bindingWorld) {
	t.Helper()
	const name = "foreign"
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: name}, Data: map[string][]byte{"password": []byte("hunter2")}}
	must(t, "make a Secret", w.people.Create(t.Context(), foreign))
	w.newBinding(t, name, identityName, v1alpha1.BindingStore{SecretRef: v1alpha1.BindingSecretReference{Name: name}})
	w.awaitBinding(t, name, isRefused(meta.ReasonSecretRefused, "annotate it with lanyard.dev/adopt="+name))
	if s := w.secret(t, name); s.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("it was changed: %+v", s)
	}
	foreign.Annotations = map[string]string{v1alpha1.AdoptAnnotation: name}
	must(t, "offer the Secret", w.people.Update(t.Context(), foreign))
	w.awaitBinding(t, name, isFresh)
	if s := w.secret(t, name); string(s.Data["password"]) != "hunter2" || len(s.Data["workloadIdentityToken"]) == 0 {
		t.Errorf("the keys are %v", slices.Sorted(maps.Keys(s.Data)))
	}
	w.newBinding(t, "second", identityName, v1alpha1.BindingStore{SecretRef: v1alpha1.BindingSecretReference{Name: name}})
	w.awaitBinding(t, "second", isRefused(meta.ReasonSecretRefused, "binding foreign writes it"))
}

// limitsOfSecrets asserts that the identity controller leaves a Secret unchanged if it cannot write
// the new credential. Only a Secret that the binding itself created may be replaced.
func limitsOfSecrets(t *testing.T, w *bindingWorld) {
	t.Helper()
	offered := func(name string, kind corev1.SecretType, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: name, Annotations: map[string]string{v1alpha1.AdoptAnnotation: name}}, Type: kind, Data: data,
		}
	}
	immutable := offered("immutable", corev1.SecretTypeOpaque, map[string][]byte{"password": []byte("hunter2")})
	immutable.Immutable = new(true)
	for says, s := range map[string]*corev1.Secret{
		"it is immutable":                 immutable,
		`its type is "kubernetes.io/tls"`: offered("typed", corev1.SecretTypeTLS, map[string][]byte{"tls.crt": []byte("x"), "tls.key": []byte("x")}),
		"at most 1 MiB":                   offered("full", corev1.SecretTypeOpaque, map[string][]byte{"password": make([]byte, corev1.MaxSecretSize)}),
	} {
		must(t, "make a Secret", w.people.Create(t.Context(), s))
		w.newBinding(t, s.Name, identityName, v1alpha1.BindingStore{SecretRef: v1alpha1.BindingSecretReference{Name: s.Name}})
		w.awaitBinding(t, s.Name, isRefused(meta.ReasonSecretRefused, says))
		if now := w.secret(t, s.Name); now.ResourceVersion != s.ResourceVersion {
			t.Errorf("%s was written: %v", s.Name, slices.Sorted(maps.Keys(now.Data)))
		}
	}
	// Fill a binding's Secret up to the size limit. Then change the binding's format to one with
	// more data, which has no room in the Secret.
	const name = "filled"
	w.newBinding(t, name, identityName, v1alpha1.BindingStore{SecretRef: v1alpha1.BindingSecretReference{Name: name}, Format: v1alpha1.StoreToken})
	w.awaitBinding(t, name, isFresh)
	s, room := w.secret(t, name), corev1.MaxSecretSize
	for _, value := range s.Data {
		room -= len(value)
	}
	s.Data["others"] = make([]byte, room)
	must(t, "fill the Secret", w.people.Update(t.Context(), s))
	w.change(t, &v1alpha1.WorkloadIdentityBinding{}, name, `{"store":{"format":"sdk"}}`)
	w.awaitBinding(t, name, isRefused(meta.ReasonSecretRefused, "at most 1 MiB"))
	if now := w.secret(t, name); now.ResourceVersion != s.ResourceVersion {
		t.Errorf("the Secret was written: %v", slices.Sorted(maps.Keys(now.Data)))
	}
	// An immutable Secret that the binding itself created is replaced.
	patchIn(t, w.people, s, func(s *corev1.Secret) { s.Immutable = new(true) })
	w.touch(t, name, meta.ReconcileRequestedAnnotation, "immutable")
	w.awaitBinding(t, name, isFresh)
	if now := w.secret(t, name); now.UID == s.UID || now.Immutable != nil || len(now.Data["workloadIdentityToken"]) == 0 {
		t.Errorf("it is not another Secret: %v", slices.Sorted(maps.Keys(now.Data)))
	}
}

// commandsKnowBindings lists bindings and renews one with the program lanyard.
func commandsKnowBindings(t *testing.T, w *bindingWorld) {
	t.Helper()
	before := w.secret(t, "mended")
	if out, err := w.command(t, "renew", "binding/mended", "-n", identityNamespace); err != nil || !strings.Contains(out, "Delivered until ") {
		t.Errorf("lanyard renew: %v\n%s", err, out)
	}
	if bytes.Equal(before.Data["workloadIdentityToken"], w.secret(t, "mended").Data["workloadIdentityToken"]) {
		t.Error("the token is the old one")
	}
	out, err := w.command(t, "status", "-n", identityNamespace)
	for _, row := range []string{"workloadidentitybinding/mended", "lwi/banana-testing", "Delivered until ", "binding foreign writes it"} {
		if err != nil || !strings.Contains(out, row) {
			t.Errorf("lanyard status: %v; %q is not in\n%s", err, row, out)
		}
	}
	if out, err := w.command(t, "suspend", "binding/mended", "-n", identityNamespace); err == nil {
		t.Errorf("lanyard suspend:\n%s", out)
	}
}

// refresherIsHeld acts as a thief with the account of the identity controller. The admission
// policies must refuse every request that no binding needs.
func refresherIsHeld(t *testing.T, w *bindingWorld) {
	t.Helper()
	config := w.Config()
	config.Impersonate.UserName = "system:serviceaccount:" + local.Namespace + ":" + identityController
	thief, err := client.New(config, client.Options{Scheme: w.people.Scheme()})
	must(t, "make a client", err)
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: "kept"}, Data: map[string][]byte{"password": []byte("hunter2")}}
	must(t, "make a Secret", w.people.Create(t.Context(), foreign))
	secret := func(kind corev1.SecretType, labels, annotations map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: "stolen", Labels: labels, Annotations: annotations}, Type: kind}
	}
	label, annotation := map[string]string{v1alpha1.ProviderLabel: "aws"}, map[string]string{v1alpha1.BindingAnnotation: "cloudidentity"}
	patch := func(o client.Object, text string) error {
		return thief.Patch(t.Context(), o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	ours, binding := w.secret(t, "cloudprovider"), w.awaitBinding(t, "cloudidentity", isFresh)
	for what, do := range map[string]func() error{
		"another's Secret is changed": func() error { return patch(foreign, `{"data":{"password":"eA=="}}`) },
		"another's Secret is taken": func() error {
			return patch(foreign, `{"metadata":{"labels":{"workloadidentity.lanyard.dev/provider":"aws"},"annotations":{"workloadidentity.lanyard.dev/binding":"cloudidentity"}}}`)
		},
		"another's Secret is deleted": func() error { return thief.Delete(t.Context(), foreign) },
		"a token of an account": func() error {
			annotations := maps.Clone(annotation)
			annotations[corev1.ServiceAccountNameKey] = "default"
			return thief.Create(t.Context(), secret(corev1.SecretTypeServiceAccountToken, label, annotations))
		},
		"no annotation":      func() error { return thief.Create(t.Context(), secret(corev1.SecretTypeOpaque, label, nil)) },
		"no label":           func() error { return thief.Create(t.Context(), secret(corev1.SecretTypeOpaque, nil, annotation)) },
		"another annotation": func() error { return patch(ours, `{"metadata":{"annotations":{"a":"b"}}}`) },
		"another label":      func() error { return patch(ours, `{"metadata":{"labels":{"a":"b"}}}`) },
		"an owner": func() error {
			return patch(ours, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"b"}]}}`)
		},
		"another binding's": func() error {
			return patch(ours, `{"metadata":{"annotations":{"workloadidentity.lanyard.dev/binding":"other"}}}`)
		},
		"the spec of a binding":  func() error { return patch(binding, `{"spec":{"store":{"mountPath":"/x"}}}`) },
		"the label of a binding": func() error { return patch(binding, `{"metadata":{"labels":{"a":"b"}}}`) },
		"a list of all Secrets": func() error {
			return thief.List(t.Context(), &corev1.SecretList{}, client.InNamespace(identityNamespace))
		},
		"a Secret where no tenant is": func() error {
			return thief.Get(t.Context(), client.ObjectKey{Namespace: local.Namespace, Name: "x"}, &corev1.Secret{})
		},
	} {
		if err := do(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// restartWritesNothing stops the identity controller and starts it again. The controller must write
// no Secret and no status.
func restartWritesNothing(t *testing.T, w *bindingWorld) {
	t.Helper()
	versions := func() map[string]string {
		all := map[string]string{}
		var secrets corev1.SecretList
		var bindings v1alpha1.WorkloadIdentityBindingList
		must(t, "list", errors.Join(w.people.List(t.Context(), &secrets, client.InNamespace(identityNamespace)), w.people.List(t.Context(), &bindings)))
		for _, s := range secrets.Items {
			all["secret "+s.Name] = s.ResourceVersion
		}
		for _, o := range bindings.Items {
			all["binding "+o.Name] = o.ResourceVersion
		}
		return all
	}
	before := versions()
	must(t, "stop the refresher", w.refresher.Stop(t.Context()))
	w.refresher = w.startReplica(t, identityController, "")
	w.touch(t, "cloudidentity", meta.ReconcileRequestedAnnotation, "restarted")
	w.awaitBinding(t, "cloudidentity", func(o *v1alpha1.WorkloadIdentityBinding) error {
		return wantf(o.Status.LastHandledReconcileAt == "restarted", "it was not looked at")
	})
	after := versions()
	// Ignore the status of this binding, because it contains the time of its last check.
	delete(before, "binding cloudidentity")
	delete(after, "binding cloudidentity")
	if !maps.Equal(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
}

// bindingsAreDeleted asserts that deleting a binding removes only what the binding wrote.
func bindingsAreDeleted(t *testing.T, w *bindingWorld) {
	t.Helper()
	// The tenant adds a finalizer to the Secret, so that the test can read the deleted Secret. The
	// tenant also removes the label that the admission policy requires. The binding must still
	// remove its data from the Secret.
	const hold = "example.com/hold"
	held := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: "cloudprovider"}}
	patchHeld := func(patch string) {
		t.Helper()
		must(t, "change the Secret", w.people.Patch(t.Context(), held, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	patchHeld(`{"metadata":{"finalizers":["` + hold + `"],"labels":{"` + v1alpha1.ProviderLabel + `":null}}}`)
	for _, name := range []string{"cloudidentity", "foreign"} {
		o := &v1alpha1.WorkloadIdentityBinding{ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: name}}
		must(t, "delete a binding", w.people.Delete(t.Context(), o))
		eventually(t, "the binding is gone", func(ctx context.Context) error {
			return wantf(apierrors.IsNotFound(w.people.Get(ctx, client.ObjectKeyFromObject(o), o)), "%+v", o.Status)
		})
	}
	if s := w.secret(t, held.Name); len(s.Data) > 0 || s.DeletionTimestamp == nil {
		t.Errorf("the held Secret has %v, deleted at %v", slices.Sorted(maps.Keys(s.Data)), s.DeletionTimestamp)
	}
	eventually(t, "an event says what stays", func(ctx context.Context) error {
		all := &corev1.EventList{}
		if err := w.people.List(ctx, all, client.InNamespace(identityNamespace)); err != nil {
			return err
		}
		return wantf(slices.ContainsFunc(all.Items, func(e corev1.Event) bool {
			return e.Reason == meta.ReasonContentStays && strings.Contains(e.Message, held.Name) && strings.Contains(e.Message, hold)
		}), "%d events", len(all.Items))
	})
	patchHeld(`{"metadata":{"finalizers":null}}`)
	if err := w.people.Get(t.Context(), client.ObjectKeyFromObject(held), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret that the binding made: %v", err)
	}
	s := w.secret(t, "foreign")
	if keys := slices.Sorted(maps.Keys(s.Data)); !slices.Equal(keys, []string{"password"}) || s.Labels[v1alpha1.ProviderLabel] != "" {
		t.Errorf("the Secret that was offered has %v, %v", keys, s.Labels)
	}
}

// namespacesAreDeleted asserts that namespaces with a WorkloadIdentityBinding can be deleted.
// Kubernetes deletes the objects of a namespace in any order. So the identity controller may lose
// its RoleBinding before the WorkloadIdentityBinding is gone. The controller must still let the
// WorkloadIdentityBinding go.
func namespacesAreDeleted(t *testing.T, w *bindingWorld) {
	t.Helper()
	const role = identityController + "-tenant"
	for _, c := range []struct {
		namespace string
		bound     bool // the namespace has the RoleBinding
		withdrawn bool // the RoleBinding is deleted before the namespace
	}{{"with-role", true, false}, {"role-withdrawn", true, true}, {"without-role", false, false}} {
		w.putNamespace(t, c.namespace)
		rights := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: local.Namespace, Name: identityController}},
		}
		want := isRefused(meta.ReasonControllerForbidden, "secrets in namespace "+c.namespace)
		if c.bound {
			must(t, "bind the role", w.people.Create(t.Context(), rights))
			want = isFresh
		}
		w.newIdentity(t, c.namespace, "robot", "https://audience.example.com")
		o := &v1alpha1.WorkloadIdentityBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "robot"},
			Spec: v1alpha1.WorkloadIdentityBindingSpec{
				WorkloadIdentity: &v1alpha1.WorkloadIdentityReference{Name: "robot"},
				Store:            v1alpha1.BindingStore{SecretRef: v1alpha1.BindingSecretReference{Name: "robot"}},
			},
		}
		must(t, "make a binding", w.people.Create(t.Context(), o))
		eventually(t, "the binding in namespace "+c.namespace, func(ctx context.Context) error {
			return errors.Join(w.people.Get(ctx, client.ObjectKeyFromObject(o), o), want(o))
		})
		if c.withdrawn {
			must(t, "withdraw the role", w.people.Delete(t.Context(), rights))
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
		must(t, "delete a namespace", w.people.Delete(t.Context(), namespace))
		eventually(t, "namespace "+c.namespace+" is gone", func(ctx context.Context) error {
			err := w.people.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
			return wantf(apierrors.IsNotFound(err), "%+v, %v", namespace.Status, err)
		})
	}
}
