package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// mayPull returns the policies of a role that may pull from a repository.
func mayPull(account, repository string) map[string]json.RawMessage {
	return policies(statements(`{"Effect":"Allow","Action":"ecr:GetAuthorizationToken","Resource":"*"}`,
		fmt.Sprintf(`{"Effect":"Allow","Action":["ecr:BatchGetImage","ecr:GetDownloadUrlForLayer"],"Resource":"arn:aws:ecr:%s:%s:repository/%s"}`, local.Region, account, repository)))
}

// exchangedInSecrets tests bindings whose Secrets hold a credential that a cloud gave in exchange
// for a token: a session of AWS, or a login at the registry of each cloud.
func exchangedInSecrets(t *testing.T, w *bindingWorld) {
	t.Helper()
	const role, repository = "bindings", "bindings/app"
	cloud := world.Cloud().AWS()
	trustIssuer(t, bindingIssuer)
	must(t, "make a repository", cloud.PutRepository(local.Account, aws.Repository{Region: local.Region, Name: repository}))
	must(t, "make a role", cloud.PutRole(local.Account, aws.Role{
		Name: role, TrustPolicy: trustIn(bindingIssuer, identitySubject(identityNamespace, "exchanged")), Policies: mayPull(local.Account, repository),
	}))
	w.newIdentityFor(t, "exchanged", stsAudience, identityv1.TargetAWS, fmt.Sprintf(`{"iamRoleARN":%q,"region":%q}`, roleARN(role), local.Region))
	t.Run("session", func(t *testing.T) {
		d := w.exchanged(t, "session", identityv1.BindingStore{Format: identityv1.StoreAWSSessionKeys})
		out, err := d.awsKeys(t, "sts", "get-caller-identity", "--query", "Arn", "--output", "text")
		// The session name, which is in the cloud's audit log, contains the binding's name.
		want := "arn:aws:sts::" + local.Account + ":assumed-role/" + role + "/session." + identityNamespace + "@WorkloadIdentityBinding"
		if err != nil || out != want {
			t.Errorf("aws says %q, %v; want %s", out, err, want)
		}
	})
	t.Run("login", func(t *testing.T) {
		image := registryHost + "/" + repository
		publish(t, "oci://"+image, "1.0.0", layer(t, file("app.yaml", "bindings")), publisher(t))
		begin := world.Cloud().Journal().Last()
		d := w.exchanged(t, "login", identityv1.BindingStore{Format: identityv1.StoreDockerConfigJSON, Images: []string{image, image + "-other"}})
		if s := w.secret(t, "login"); s.Type != corev1.SecretTypeDockerConfigJson {
			t.Errorf("the type is %s", s.Type)
		}
		if out, err := d.skopeo(t, image+":1.0.0"); err != nil || !strings.Contains(out, `"schemaVersion"`) {
			t.Errorf("skopeo says %q, %v", out, err)
		}
		logins := 0
		for _, call := range world.Cloud().Journal().Calls(journal.Filter{Operation: "GetAuthorizationToken", After: begin}) {
			if strings.Contains(call.Principal, ":assumed-role/"+role+"/") {
				logins++
			}
		}
		if logins != 1 {
			t.Errorf("%d logins for two repositories of a registry", logins)
		}
	})
	t.Run("login at Azure", func(t *testing.T) { loginAtAzure(t, w) })
	t.Run("login at Google", func(t *testing.T) { loginAtGoogle(t, w) })
}

// newIdentityFor creates a WorkloadIdentity for a cloud. The subject of its tokens contains the
// WorkloadIdentity's name.
func (w *bindingWorld) newIdentityFor(t *testing.T, name, audience, target, config string) *identityv1.WorkloadIdentity {
	t.Helper()
	o := &identityv1.WorkloadIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: name},
		Spec: identityv1.WorkloadIdentitySpec{
			Audiences: []string{audience}, SubjectFormat: identityv1.SubjectFormatName,
			TargetSystem: identityv1.TargetSystem{Type: target, ProviderConfig: &runtime.RawExtension{Raw: []byte(config)}},
		},
	}
	must(t, "make a WorkloadIdentity", w.people.Create(t.Context(), o))
	return o
}

// loginAtAzure makes skopeo pull from a registry at Azure.
func loginAtAzure(t *testing.T, w *bindingWorld) {
	t.Helper()
	const name = "azure-login"
	tn, cloud := newTenant(t, name), world.Cloud().Azure()
	owner, application := tn.atAzure(t), string(uuid.NewUUID())
	tn.pushToAzure(t, owner, "1.0.0")
	must(t, "make an application", cloud.PutApplication(local.AzureTenant, azure.Application{
		ClientID:             application,
		FederatedCredentials: []azure.FederatedCredential{{Name: name, Issuer: bindingIssuer, Subject: identitySubject(identityNamespace, name)}},
	}))
	grant := func(roles ...azure.RegistryRole) {
		t.Helper()
		must(t, "grant roles", cloud.PutRegistry(local.AzureTenant, azure.RegistryConfig{
			Name: tn.azureRegistry(), DataEndpoints: []string{"westeurope"}, RoleAssignments: append(roles, azure.RegistryRole{ClientID: owner, Role: "AcrPush"}),
		}))
	}
	grant(azure.RegistryRole{ClientID: application, Role: "AcrPull"})
	identity := w.newIdentityFor(t, name, azureAudience, identityv1.TargetAzure, fmt.Sprintf(`{"clientID":%q,"tenantID":%q}`, application, local.AzureTenant))
	w.loginIsWithdrawn(t, identity, tn.azureRegistry()+".azurecr.io/app", func() { grant() })
}

// loginAtGoogle makes skopeo pull from a repository at Google.
func loginAtGoogle(t *testing.T, w *bindingWorld) {
	t.Helper()
	const name = "google-login"
	tn, cloud := newTenant(t, name), world.Cloud().GCP()
	owner, account := tn.atGoogle(t), "puller-"+name+"@"+googleProject+".iam.gserviceaccount.com"
	tn.pushToGoogle(t, owner, "1.0.0")
	must(t, "make a service account", cloud.PutServiceAccount(googleProject, gcp.ServiceAccount{
		Email: account, Bindings: []gcp.Binding{{Role: "roles/iam.workloadIdentityUser", Members: []string{principalOf(bindingIssuer, identitySubject(identityNamespace, name))}}},
	}))
	grant := func(bindings ...gcp.Binding) {
		t.Helper()
		must(t, "grant roles", cloud.PutRepository(googleProject, gcp.Repository{
			Location: googleRegion, Name: tn.namespace,
			Bindings: append(bindings, gcp.Binding{Role: "roles/artifactregistry.writer", Members: []string{"serviceAccount:" + owner}}),
		}))
	}
	grant(gcp.Binding{Role: "roles/artifactregistry.reader", Members: []string{"serviceAccount:" + account}})
	identity := w.newIdentityFor(t, name, "https:"+poolOf(bindingIssuer), identityv1.TargetGCP, fmt.Sprintf(
		`{"workloadIdentityProvider":%q,"serviceAccountEmail":%q}`, strings.TrimPrefix(poolOf(bindingIssuer), "//iam.googleapis.com/"), account))
	w.loginIsWithdrawn(t, identity, strings.TrimPrefix(tn.googleURL(), "oci://"), func() { grant() })
}

// loginIsWithdrawn makes skopeo pull an image with the login in a Secret. When the cloud withdraws
// the permission to pull, skopeo must fail. When the identity is deleted, the login must be removed
// from the Secret.
func (w *bindingWorld) loginIsWithdrawn(t *testing.T, identity *identityv1.WorkloadIdentity, image string, withdraw func()) {
	t.Helper()
	w.newBinding(t, identity.Name, identity.Name, identityv1.BindingStore{
		SecretRef: identityv1.BindingSecretReference{Name: identity.Name}, Format: identityv1.StoreDockerConfigJSON, Images: []string{image},
	})
	w.awaitBinding(t, identity.Name, isFresh)
	d := w.mount(t, identity.Name)
	if out, err := d.skopeo(t, image+":1.0.0"); err != nil || !strings.Contains(out, `"schemaVersion"`) {
		t.Errorf("skopeo says %q, %v", out, err)
	}
	withdraw()
	if out, err := d.skopeo(t, image+":1.0.0"); err == nil {
		t.Errorf("without the right, skopeo says %q", out)
	}
	must(t, "delete the identity", w.people.Delete(t.Context(), identity))
	w.awaitBinding(t, identity.Name, isRefused(string(auth.CodeSubjectNotFound), ""))
	w.awaitSecret(t, identity.Name, hasNoLogin)
}

// hasNoLogin asserts that a Secret has a Docker configuration without logins, and nothing else.
func hasNoLogin(s *corev1.Secret) error {
	return wantf(len(s.Data) == 1 && string(s.Data[corev1.DockerConfigJsonKey]) == `{"auths":{}}`, "it has %d keys", len(s.Data))
}

// hasNothing asserts that a Secret has no data.
func hasNothing(s *corev1.Secret) error {
	return wantf(len(s.Data) == 0, "it has %d keys", len(s.Data))
}

// exchanged creates a binding of the identity "exchanged", and mounts its Secret.
func (w *bindingWorld) exchanged(t *testing.T, name string, store identityv1.BindingStore) delivered {
	t.Helper()
	store.SecretRef.Name = name
	w.newBinding(t, name, "exchanged", store)
	if got := w.awaitBinding(t, name, isFresh); got.Status.KID != "" || got.Status.Account != local.Account {
		t.Errorf("the status is %+v", got.Status)
	}
	return w.mount(t, name)
}

// mount writes the keys of a Secret as files.
func (w *bindingWorld) mount(t *testing.T, name string) delivered {
	t.Helper()
	d := delivered(t.TempDir())
	for key, value := range w.secret(t, name).Data {
		must(t, "mount the Secret", os.WriteFile(filepath.Join(string(d), key), value, 0o600))
	}
	return d
}

// lentInSecrets tests bindings of two AWS identities: one that an administrator lends, and one that
// uses the tenant's own ServiceAccount. Each binding has a session of its own. When the grant is
// withdrawn, the credential must be removed.
func lentInSecrets(t *testing.T, w *bindingWorld) {
	t.Helper()
	const clusterIssuer = "https://oidc.bindings.example.com/id"
	cloud, image := world.Cloud().AWS(), strings.TrimPrefix(chainedURL, "oci://")
	publish(t, chainedURL, "lent", layer(t, file("app.yaml", "lent")), publisher(t))
	must(t, "trust the cluster", cloud.PutOIDCProvider(workloadAccount, aws.OIDCProvider{URL: clusterIssuer, ClientIDs: []string{stsAudience}}))
	for role, trust := range map[string]json.RawMessage{
		"images":   trustPrincipal("arn:aws:iam::" + managementAccount + ":user/ClusterAPI-Owner"),
		"deployer": trustAt(workloadAccount, clusterIssuer, "system:serviceaccount:"+identityNamespace+":deployer"),
	} {
		must(t, "make a role", cloud.PutRole(workloadAccount, aws.Role{Name: role, TrustPolicy: trust, Policies: mayPull(workloadAccount, chainedRepository)}))
	}
	for _, manifest := range []string{`
apiVersion: identity.lanyard.dev/v1alpha1
kind: AWSClusterControllerIdentity
metadata: {name: default}
spec: {allowedNamespaces: {list: [` + identityNamespace + `]}}
`, `
apiVersion: identity.lanyard.dev/v1alpha1
kind: AWSClusterRoleIdentity
metadata: {name: images}
spec:
  roleARN: arn:aws:iam::` + workloadAccount + `:role/images
  allowedNamespaces: {list: [` + identityNamespace + `]}
`, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: deployer, namespace: ` + identityNamespace + `}
`, `
apiVersion: identity.lanyard.dev/v1alpha1
kind: AWSServiceAccountIdentity
metadata: {name: deployer, namespace: ` + identityNamespace + `}
spec:
  roleARN: arn:aws:iam::` + workloadAccount + `:role/deployer
`} {
		createManifest(t, w.people, manifest)
	}
	lent := &identityv1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "images"}}
	own := &identityv1.AWSServiceAccountIdentity{ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: "deployer"}}
	// The field session has the name of the binding's session at AWS.
	for _, b := range []struct{ kind, name, session string }{
		{identityv1.AWSClusterRoleIdentityKind, lent.Name, "images@images-keys." + identityNamespace},
		{identityv1.AWSServiceAccountIdentityKind, own.Name, "deployer-keys." + identityNamespace + "@WorkloadIdentityBinding"},
	} {
		ref := identityv1.BindingIdentityReference{Kind: b.kind, Name: b.name}
		w.borrow(t, b.name+"-keys", ref, identityv1.BindingStore{Format: identityv1.StoreAWSSessionKeys})
		out, err := w.mount(t, b.name+"-keys").awsKeys(t, "sts", "get-caller-identity", "--query", "Arn", "--output", "text")
		if want := "arn:aws:sts::" + workloadAccount + ":assumed-role/" + b.name + "/" + b.session; err != nil || out != want {
			t.Errorf("aws says %q, %v; want %s", out, err, want)
		}
		w.borrow(t, b.name+"-login", ref, identityv1.BindingStore{Format: identityv1.StoreDockerConfigJSON, Images: []string{image}})
		if out, err := w.mount(t, b.name+"-login").skopeo(t, image+":lent"); err != nil || !strings.Contains(out, `"schemaVersion"`) {
			t.Errorf("skopeo says as %s: %q, %v", b.name, out, err)
		}
	}
	log, err := os.ReadFile(w.refresher.Log)
	must(t, "read the log", err)
	if n := bytes.Count(log, []byte(`"uses a lent identity"`)); n == 0 || !bytes.Contains(log, []byte(`"images@images-keys.`+identityNamespace+`"`)) {
		t.Errorf("the log has %d lines about lent identities, and none with the session of a binding", n)
	}
	w.borrow(t, "images-fixed", identityv1.BindingIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: lent.Name}, identityv1.BindingStore{Format: identityv1.StoreAWSSessionKeys})
	fixed := w.secret(t, "images-fixed")
	before := fixed.DeepCopy()
	fixed.Immutable = new(true)
	// Use a patch: it does not depend on the Secret's version, which the identity controller may
	// change meanwhile.
	must(t, "make a Secret immutable", w.people.Patch(t.Context(), fixed, client.MergeFrom(before)))
	eventually(t, "the identity counts its bindings", func(ctx context.Context) error {
		err := w.people.Get(ctx, client.ObjectKeyFromObject(lent), lent)
		return errors.Join(err, wantf(lent.Status.UsedBy == 3, "%d use it", lent.Status.UsedBy))
	})
	must(t, "withdraw the grant", w.people.Patch(t.Context(), lent, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"allowedNamespaces":null}}`))))
	for name, withdrawn := range map[string]func(*corev1.Secret) error{"images-keys": hasNothing, "images-login": hasNoLogin} {
		w.awaitBinding(t, name, isRefused(meta.ReasonPrincipalUsageUnauthorized, "may not use AWSClusterRoleIdentity images"))
		w.awaitSecret(t, name, withdrawn)
	}
	// The identity controller may replace the immutable Secret before it sees that the grant is
	// withdrawn.
	eventually(t, "the immutable Secret is gone, and its successor has nothing", func(ctx context.Context) error {
		var successor corev1.Secret
		switch err := w.people.Get(ctx, client.ObjectKeyFromObject(fixed), &successor); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case successor.UID == fixed.UID:
			return errors.New("the Secret is still there")
		}
		return hasNothing(&successor)
	})
	if out, err := w.mount(t, "images-login").skopeo(t, image+":lent"); err == nil {
		t.Errorf("skopeo says with what is left: %q", out)
	}
	must(t, "grant again", w.people.Patch(t.Context(), lent, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"allowedNamespaces":{"list":[%q]}}}`, identityNamespace))))
	w.awaitBinding(t, "images-keys", isFresh)
	w.awaitBinding(t, "images-fixed", isFresh)
	ownIdentityStays(t, w, own)
}

// ownIdentityStays deletes a tenant's own AWS identity. The identity must stay as long as bindings
// use it. The Secret of each binding must be deleted with the binding.
func ownIdentityStays(t *testing.T, w *bindingWorld, own *identityv1.AWSServiceAccountIdentity) {
	t.Helper()
	must(t, "delete the identity", w.people.Delete(t.Context(), own))
	must(t, "read the identity, which bindings use", w.people.Get(t.Context(), client.ObjectKeyFromObject(own), own))
	for _, name := range []string{"deployer-keys", "deployer-login"} {
		must(t, "delete a binding", w.people.Delete(t.Context(), &identityv1.WorkloadIdentityBinding{ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: name}}))
		eventually(t, "the Secret is gone", func(ctx context.Context) error {
			err := w.people.Get(ctx, client.ObjectKey{Namespace: identityNamespace, Name: name}, &corev1.Secret{})
			return wantf(apierrors.IsNotFound(err), "Secret %s: %v", name, err)
		})
	}
	eventually(t, "the identity is gone", func(ctx context.Context) error {
		err := w.people.Get(ctx, client.ObjectKeyFromObject(own), own)
		return wantf(apierrors.IsNotFound(err), "%v", err)
	})
}

// borrow creates a binding of an AWS identity, and waits for the credential.
func (w *bindingWorld) borrow(t *testing.T, name string, ref identityv1.BindingIdentityReference, store identityv1.BindingStore) {
	t.Helper()
	store.SecretRef.Name = name
	must(t, "make a binding", w.people.Create(t.Context(), &identityv1.WorkloadIdentityBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: name},
		Spec:       identityv1.WorkloadIdentityBindingSpec{IdentityRef: &ref, Store: store},
	}))
	w.awaitBinding(t, name, isFresh)
}
