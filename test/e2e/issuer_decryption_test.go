package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// decryptingManifests are a tenant's objects. The WorkloadIdentity kms decrypts the manifests that the
// Kustomization applies. The words in capitals are placeholders.
const decryptingManifests = `
apiVersion: v1
kind: Namespace
metadata: {name: TENANT}
---
apiVersion: identity.lanyard.dev/v1alpha1
kind: WorkloadIdentity
metadata: {name: kms, namespace: TENANT}
spec:
  audiences: ["AUDIENCE"]
  subjectFormat: Name
  targetSystem: {type: aws, providerConfig: {iamRoleARN: "ROLE"}}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: OCIRepository
metadata: {name: encrypted, namespace: TENANT}
spec: {url: "REPOSITORY", ref: {tag: 1.0.0}, interval: 1m, provider: generic}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: Kustomization
metadata: {name: encrypted, namespace: TENANT}
spec:
  sourceRef: {kind: OCIRepository, name: encrypted}
  interval: 1m
  prune: true
  serviceAccountName: applier
  targetNamespace: TENANT
  decryption: {provider: sops, workloadIdentityName: kms}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: applier, namespace: TENANT}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: applier, namespace: TENANT}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: applier, namespace: TENANT}]
`

// identitiesDecrypt decrypts a file with the owner's WorkloadIdentity, at AWS KMS. AWS must refuse the
// thief's WorkloadIdentity, although it names the same role.
func identitiesDecrypt(t *testing.T, cluster *local.Cluster) {
	t.Helper()
	const role = "identity-owner-kms"
	owner := &applyTenant{tenant: newTenant(t, "identity-keys")}
	key := owner.atKMS(t)
	must(t, "trust the issuer", world.Cloud().AWS().PutOIDCProvider(local.Account, aws.OIDCProvider{URL: ownIssuer, ClientIDs: []string{stsAudience}}))
	must(t, "make a role that decrypts", world.Cloud().AWS().PutRole(local.Account, aws.Role{
		Name: role, TrustPolicy: trustIn(ownIssuer, identitySubject(ownerNamespace, "kms")),
		Policies: policies(statements(fmt.Sprintf(`{"Effect":"Allow","Action":"kms:Decrypt","Resource":%q}`, key.arn))),
	}))
	registry := newRegistry(t, "encrypted.registry.example.com")
	registry.push(t, "app", "1.0.0", layer(t, file("db.yaml",
		encrypted(t, key.env, "db.yaml", secretManifest("db", secretMark+"identity"), onlyData("--kms", key.arn)...))))
	files := fstest.MapFS{}
	for _, namespace := range []string{ownerNamespace, thiefNamespace} {
		files[namespace+".yaml"] = &fstest.MapFile{Data: []byte(strings.NewReplacer("TENANT", namespace,
			"AUDIENCE", stsAudience, "ROLE", roleARN(role), "REPOSITORY", registry.url("app")).Replace(decryptingManifests))}
	}
	manifests, err := local.ReadManifests(t.Context(), "", files)
	must(t, "read the objects", err)
	_, err = cluster.Apply(t.Context(), manifests)
	must(t, "apply the objects", err)
	for namespace, check := range map[string]func(*v1alpha1.Kustomization) error{
		ownerNamespace: applied(ownerNamespace + "_db__Secret"),
		thiefNamespace: unapplied(meta.ReasonDecryptionFailed, "db.yaml", identitySubject(thiefNamespace, "kms"), "AccessDenied"),
	} {
		eventually(t, "the Kustomization of "+namespace, func(ctx context.Context) error {
			o := &v1alpha1.Kustomization{}
			if err := cluster.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: "encrypted"}, o); err != nil {
				return err
			}
			return check(o)
		})
	}
	secret := &corev1.Secret{}
	must(t, "read the Secret", cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: ownerNamespace, Name: "db"}, secret))
	if string(secret.Data["password"]) != secretMark+"identity" {
		t.Error("the Secret has another password")
	}
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{Operation: "Decrypt", Resource: key.arn, Verdict: journal.Granted}) {
		if !strings.Contains(call.Principal, role) {
			t.Errorf("another identity decrypted: %+v", call)
		}
	}
}
