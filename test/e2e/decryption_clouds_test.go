package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// cloudKey is a tenant's key in a cloud's key service. The tenant's decrypter may decrypt with this
// key, and with no other.
type cloudKey struct {
	args     []string // of sops, which encrypts for the key
	env      []string // of sops
	name     string   // in errors and in the journal
	identity string   // of the decrypter at the cloud
	refusal  string   // what the cloud answers to others
}

// sopsEnv returns the environment of the sops program: it reaches the local cloud, and nothing of the
// person who runs the tests.
func sopsEnv(t *testing.T, variables ...string) []string {
	t.Helper()
	return append(append(world.Cloud().Env(), "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir()), variables...)
}

// atKeyVault makes a vault with the tenant's key. One application encrypts, as the tenant's own
// account. Another application decrypts, as the tenant's decrypter.
func (tn *applyTenant) atKeyVault(t *testing.T) cloudKey {
	t.Helper()
	application := func(subject string) (id string) {
		id = string(uuid.NewUUID())
		must(t, "make an application", world.Cloud().Azure().PutApplication(local.AzureTenant, azure.Application{
			ClientID: id, FederatedCredentials: []azure.FederatedCredential{{Name: tn.namespace, Issuer: local.Issuer, Subject: subject}},
		}))
		return id
	}
	vault, key := strings.ReplaceAll(tn.namespace, "decryption", "keys"), "sops"
	seals, opens := application(tn.subject), application("system:serviceaccount:"+tn.namespace+":"+decrypter)
	must(t, "make a vault", world.Cloud().Azure().PutKeyVault(local.AzureTenant, azure.KeyVaultConfig{
		Name: vault, Keys: []string{key}, RoleAssignments: []azure.KeyVaultRole{
			{ClientID: seals, Role: "Key Vault Crypto Officer"}, {ClientID: opens, Role: "Key Vault Crypto User", Key: key},
		},
	}))
	return cloudKey{
		args: []string{"--azure-kv", "https://" + vault + ".vault.azure.net/keys/" + key},
		env: sopsEnv(t, "AZURE_CLIENT_ID="+seals, "AZURE_TENANT_ID="+local.AzureTenant, "AZURE_TOKEN_CREDENTIALS=WorkloadIdentityCredential",
			"AZURE_FEDERATED_TOKEN_FILE="+secretFile(t, "token", token(t, tn.namespace, puller, azureAudience))),
		name: vault + ".vault.azure.net/keys/" + key, identity: opens, refusal: "Forbidden",
	}
}

// atCloudKMS makes a key ring with the tenant's key, a principal that encrypts, and a service account
// that decrypts as the tenant's decrypter.
func (tn *applyTenant) atCloudKMS(t *testing.T) cloudKey {
	t.Helper()
	account := tn.namespace + "@" + googleProject + ".iam.gserviceaccount.com"
	must(t, "make a service account", world.Cloud().GCP().PutServiceAccount(googleProject, gcp.ServiceAccount{
		Email: account, Bindings: []gcp.Binding{{
			Role: "roles/iam.workloadIdentityUser", Members: []string{"serviceAccount:" + googlePool + "[" + tn.namespace + "/" + decrypter + "]"},
		}},
	}))
	must(t, "make a key ring", world.Cloud().GCP().PutKeyRing(googleProject, gcp.KeyRing{
		Location: googleRegion, Name: tn.namespace, Keys: []gcp.CryptoKey{{Name: "sops", Bindings: []gcp.Binding{
			{Role: "roles/cloudkms.cryptoKeyDecrypter", Members: []string{"serviceAccount:" + account}},
			{Role: "roles/cloudkms.cryptoKeyEncrypter", Members: []string{googlePrincipal(tn.namespace, puller)}},
		}}},
	}))
	external, err := json.Marshal(map[string]any{ // Source: google.aip.dev/auth/4117
		"type": "external_account", "audience": googleAudience, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
		"token_url":         "https://sts.googleapis.com/v1/token",
		"credential_source": map[string]any{"file": secretFile(t, "token", token(t, tn.namespace, puller, googlePool))},
	})
	must(t, "write the credential configuration", err)
	name := "projects/" + googleProject + "/locations/" + googleRegion + "/keyRings/" + tn.namespace + "/cryptoKeys/sops"
	return cloudKey{
		args: []string{"--gcp-kms", name},
		env: sopsEnv(t, "SOPS_GCP_KMS_CLIENT_TYPE=rest", "GOOGLE_CLOUD_PROJECT="+googleProject,
			"GOOGLE_APPLICATION_CREDENTIALS="+secretFile(t, "external.json", string(external))),
		name: name, identity: account, refusal: "status 403",
	}
}

// encrypted returns a Secret that sops encrypted for the key.
func (k cloudKey) encrypted(t *testing.T, name, password string) string {
	t.Helper()
	return encrypted(t, k.env, name+".yaml", secretManifest(name, password), onlyData(k.args...)...)
}

// TestDecryptionAtAzureAndGoogle is Story 4 at the other clouds: each tenant decrypts with the
// tenant's own keys, and with no other.
func TestDecryptionAtAzureAndGoogle(t *testing.T) {
	alone(t, "the chart grants more for the apply controller")
	empty := map[string]string{"empty.txt": ""}
	a, b := newApplyTenant(t, "apply-decryption-c", empty), newApplyTenant(t, "apply-decryption-d", empty)
	startApplying(t, nil, a, b)
	begin := world.Cloud().Journal().Last()
	keys := map[*applyTenant]map[string]cloudKey{}
	for _, tn := range []*applyTenant{a, b} {
		keys[tn] = map[string]cloudKey{"azure": tn.atKeyVault(t), "google": tn.atCloudKMS(t)}
		create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: decrypter, Annotations: map[string]string{
			clientAnnotation: keys[tn]["azure"].identity, accountAnnotation: keys[tn]["google"].identity,
		}}})
		files := map[string]string{}
		for cloud, key := range keys[tn] {
			files[cloud+".yaml"] = key.encrypted(t, cloud, secretMark+cloud+tn.namespace)
		}
		tn.release(t, files)
	}
	ofA, ofB := a.decrypting("app"), b.decrypting("app")
	create(t, ofA)
	create(t, ofB)
	await(t, ofA, "it is applied", applied(a.namespace+"_azure__Secret", a.namespace+"_google__Secret"))
	await(t, ofB, "it is applied", applied(b.namespace+"_azure__Secret", b.namespace+"_google__Secret"))
	for tn, own := range keys {
		for cloud, key := range own {
			tn.password(t, cloud, secretMark+cloud+tn.namespace)
			calls := world.Cloud().Journal().Calls(journal.Filter{Operation: "Decrypt", Resource: key.name, Verdict: journal.Granted, After: begin})
			if len(calls) != 1 || !strings.Contains(calls[0].Principal+calls[0].Role, key.identity) {
				t.Errorf("%s of %s: the journal has %+v", cloud, tn.namespace, calls)
			}
		}
	}

	// Tenant B has files of tenant A: each cloud refuses B, and nothing changes.
	subject := "system:serviceaccount:" + b.namespace + ":" + decrypter
	for cloud, key := range keys[a] {
		b.release(t, map[string]string{"stolen.yaml": key.encrypted(t, "stolen", secretMark+"stolen")})
		await(t, ofB, "it is refused", unapplied(meta.ReasonDecryptionFailed, "stolen.yaml", filepath.Base(key.name), subject, key.refusal))
		b.password(t, cloud, secretMark+cloud+b.namespace)
	}

	// One group has keys of both clouds. Google Cloud is asked first and refuses tenant B. Azure decrypts.
	both, google := keys[b]["azure"], keys[a]["google"]
	both.env, both.args = slices.Concat(both.env, google.env), slices.Concat(both.args, google.args)
	b.release(t, map[string]string{"shared.yaml": both.encrypted(t, "shared", secretMark+"shared")})
	await(t, ofB, "it is applied", applied(b.namespace+"_shared__Secret"))
	b.password(t, "shared", secretMark+"shared")
}

// TestDecryptionLent decrypts with AWS identities that an administrator lends to tenant A: with a role,
// and with the apply controller's own identity. Tenant B may use neither.
func TestDecryptionLent(t *testing.T) {
	alone(t, "AWS identities are of the whole cluster, and the chart grants more for the apply controller")
	empty := map[string]string{"empty.txt": ""}
	a, b := newApplyTenant(t, "apply-decryption-e", empty), newApplyTenant(t, "apply-decryption-f", empty)
	key := a.atKMS(t)
	const lent = "e2e-lent-kms"
	must(t, "make a role that decrypts", world.Cloud().AWS().PutRole(local.Account, aws.Role{
		Name: lent, TrustPolicy: trustPrincipal("arn:aws:iam::" + managementAccount + ":user/ClusterAPI-Owner"),
		Policies: policies(statements(fmt.Sprintf(`{"Effect":"Allow","Action":"kms:Decrypt","Resource":%q}`, key.arn))),
	}))
	own := environment("AWS_ACCESS_KEY_ID="+ownerKey, "AWS_SECRET_ACCESS_KEY="+ownerSecret)
	startApplyingWith(t, map[string]any{
		"controllerNamespaces": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": a.namespace}}},
	}, map[string]any{
		"identity":        map[string]any{"awsIdentities": true},
		"applyController": map[string]any{"extraEnv": own}, "identityController": map[string]any{"extraEnv": own},
	}, a, b)
	startIdentityController(t)
	root := &identityv1.AWSClusterControllerIdentity{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	root.Spec.SourceOnly = true
	lendIdentity(t, root, &root.Spec.AWSClusterIdentitySpec, a.namespace)
	role := &identityv1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "kms"}}
	role.Spec.RoleARN = roleARN(lent)
	lendIdentity(t, role, &role.Spec.AWSClusterIdentitySpec, a.namespace)

	file := map[string]string{"db.yaml": encrypted(t, key.env, "db.yaml", secretManifest("db", secretMark+"lent"), onlyData("--kms", key.arn)...)}
	asLent := func(tn *applyTenant) *v1alpha1.Kustomization {
		tn.release(t, file)
		o := tn.decrypting("app")
		o.Spec.Decryption.ServiceAccountName = ""
		o.Spec.Decryption.IdentityRef = &meta.AWSIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: "kms"}
		create(t, o)
		return o
	}
	ofA, ofB := asLent(a), asLent(b)
	await(t, ofA, "it is applied", applied(a.namespace+"_db__Secret"))
	a.password(t, "db", secretMark+"lent")
	await(t, ofB, "it is refused", unapplied(meta.ReasonPrincipalUsageUnauthorized, "AWSClusterRoleIdentity kms"))
	await(t, role, "it knows its users", func(o *identityv1.AWSClusterRoleIdentity) error {
		return wantf(o.Status.UsedBy == 1, "%d objects use it", o.Status.UsedBy)
	})
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{Operation: "Decrypt", Resource: key.arn, Verdict: journal.Granted}) {
		if !strings.Contains(call.Principal, lent) {
			t.Errorf("another identity decrypted: %+v", call)
		}
	}

	// A withdrawn grant is noticed although nothing has changed in the artifact. The Secret stays.
	patch(t, role, func(o *identityv1.AWSClusterRoleIdentity) { o.Spec.AllowedNamespaces.List = []string{"elsewhere"} })
	await(t, ofA, "it is refused", unapplied(meta.ReasonPrincipalUsageUnauthorized, "AWSClusterRoleIdentity kms"))
	a.password(t, "db", secretMark+"lent")
	patch(t, role, func(o *identityv1.AWSClusterRoleIdentity) { o.Spec.AllowedNamespaces.List = []string{a.namespace} })
	await(t, ofA, "it is applied again", applied(a.namespace+"_db__Secret"))

	// Without a named identity, the apply controller itself asks, where both grants admit the namespace.
	// AWS does not let the controller's identity decrypt.
	for _, o := range []*v1alpha1.Kustomization{ofA, ofB} {
		patch(t, o, func(o *v1alpha1.Kustomization) { o.Spec.Decryption.IdentityRef = nil })
	}
	await(t, ofA, "it is refused", unapplied(meta.ReasonDecryptionFailed, "AWSClusterControllerIdentity default is a source of other identities only"))
	await(t, ofB, "it is refused", unapplied(meta.ReasonDecryptionFailed, "nobody asks this cloud", "apply.controllerNamespaces"))
	patch(t, root, func(o *identityv1.AWSClusterControllerIdentity) { o.Spec.SourceOnly = false })
	await(t, ofA, "the controller itself asks", unapplied(meta.ReasonDecryptionFailed, "ClusterAPI-Owner", "AccessDenied"))
	a.password(t, "db", secretMark+"lent")
}
