package attack

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// keyHost is the host of AWS KMS in the demonstration's region. keyARN is the ARN of a key there, and
// keyRole is the role with which the hostile tenant decrypts.
const (
	keyHost = "kms." + local.Region + ".amazonaws.com"
	keyARN  = "arn:aws:kms:" + local.Region + ":" + local.Account + ":key/0d5b1a3c-0d9c-4a4e-9c1c-7ad1b6cd9a51"
	keyRole = "hostile-kms"
)

// encryptedFile returns a Secret that looks encrypted. The keys are what SOPS writes about master keys.
func encryptedFile(keys string) string {
	const value = "ENC[AES256_GCM,data:mHeXsmQ=,iv:vUMpILz3xchORqkzDFvgwENY7EqIHHGJdEF6C8xqbFE=,tag:IroV7hykADvD0IUaq6kikA==,type:str]"
	return `apiVersion: v1
kind: Secret
metadata:
    name: stolen
stringData:
    password: ` + value + `
sops:
    ` + keys + `
    lastmodified: "2026-11-12T13:33:42Z"
    mac: ` + value + `
    version: 3.13.3
`
}

// decryptAs makes a Kustomization decrypt with an account of the tenant. The account's role may
// decrypt with each key of its AWS account.
func (tn *tenant) decryptAs(o *v1alpha1.Kustomization) {
	must(tn.t, "make a role", world.Cloud().AWS().PutRole(local.Account, cloudaws.Role{
		Name: keyRole, TrustPolicy: policyOf(trustStatement(local.Issuer, "system:serviceaccount:hostile-*:decrypter")),
		Policies: map[string]json.RawMessage{"decrypt": allowing("kms:Decrypt")},
	}))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Namespace, Name: "decrypter", Annotations: map[string]string{roleAnnotation: roleOf(keyRole)},
	}}
	if err := objects.Create(tn.t.Context(), account); client.IgnoreAlreadyExists(err) != nil {
		tn.t.Errorf("make an account: %v", err)
	}
	o.Spec.TargetNamespace = o.Namespace
	o.Spec.Decryption = &v1alpha1.Decryption{Provider: v1alpha1.DecryptionSOPS, ServiceAccountName: account.Name}
}

// stealKeys acts as a tenant whose encrypted files name an identity or a host, and whose
// Kustomizations name identities of others.
func stealKeys(tn *tenant) {
	const created, stranger = `created_at: "2026-11-12T13:33:42Z", enc: AQICAHg=`, "keys.attacker.example.com"
	files := map[string]string{}
	var all []client.Object
	for i, keys := range []string{
		`kms: [{arn: "` + keyARN + `", ` + created + `}]`,
		`kms: [{arn: "` + keyARN + `", role: "` + roleA + `", ` + created + `}]`,
		`kms: [{arn: "` + keyARN + `", aws_profile: default, ` + created + `}]`,
		`kms: [{arn: "arn:aws:kms:` + stranger + `/:` + local.Account + `:key/0d5b1a3c-0d9c-4a4e-9c1c-7ad1b6cd9a51", ` + created + `}]`,
		`azure_kv: [{vault_url: "https://` + stranger + `", name: k, version: v, ` + created + `}]`,
		`azure_kv: [{vault_url: "https://` + stranger + `/x.vault.azure.net", name: k, version: v, ` + created + `}]`,
		`gcp_kms: [{resource_id: "projects/p/locations/l/keyRings/r/cryptoKeys/../../../../` + stranger + `", ` + created + `}]`,
		`hc_vault: [{vault_address: "https://` + stranger + `", engine_path: sops, key_name: k, ` + created + `}]`,
		`age: [{recipient: age1x, enc: AGE-PLUGIN-X-1QQ}]`,
		`kms: [` + strings.Repeat(`{arn: "`+keyARN+`", `+created+`}, `, 1000) + `]`,
		`key_groups: [` + strings.Repeat(`{kms: [{arn: "`+keyARN+`", `+created+`}]}, `, 1000) + `]`,
	} {
		name := fmt.Sprint("keys-", i)
		files[name+"/app.yaml"] = encryptedFile(keys)
		o := tn.kustomization(name)
		o.Spec.Path = name
		tn.decryptAs(o)
		all = append(all, o)
	}
	// Each of these names an identity of others for the first file.
	var lent []client.Object
	for name, decryption := range map[string]v1alpha1.Decryption{
		"nobody":     {},
		"role":       {IdentityRef: &meta.AWSIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: honestName}},
		"controller": {IdentityRef: &meta.AWSIdentityReference{Kind: identityv1.AWSClusterControllerIdentityKind, Name: "default"}},
		"static":     {IdentityRef: &meta.AWSIdentityReference{Kind: identityv1.AWSClusterStaticIdentityKind, Name: honestName}},
		"workload":   {WorkloadIdentityName: honestName},
		"account":    {ServiceAccountName: "system:serviceaccount:" + honestNamespace + ":" + honestName},
		"plugin":     {SecretRef: &meta.LocalReference{Name: "plugin"}},
	} {
		o := tn.kustomization("as-" + name)
		o.Spec.Path, o.Spec.TargetNamespace = "keys-0", tn.namespace
		decryption.Provider = v1alpha1.DecryptionSOPS
		o.Spec.Decryption = &decryption
		lent = append(lent, o)
	}
	create(tn.t, &corev1.Secret{ObjectMeta: tn.meta("plugin"), StringData: map[string]string{"a.agekey": "AGE-PLUGIN-X-1QQ"}})
	tn.publish(files, tn)
	after := world.Cloud().Journal().Last()
	tn.refused(tn.t, lent, []string{keyHost})
	tn.refused(tn.t, all, nil, meta.ReasonDecryptionFailed)
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{After: after}) {
		if strings.HasSuffix(call.Host, stranger) {
			tn.t.Errorf("a host of the tenant is asked: %+v", call)
		}
	}
	if asked := world.Cloud().Journal().Calls(journal.Filter{Host: keyHost, After: after}); len(asked) == 0 || len(asked) > 100 {
		tn.t.Errorf("AWS KMS is asked %d times, want some and not one for each key", len(asked))
	}
}

// hangKeys acts as a tenant whose files are for keys of a key service that is slow.
func hangKeys(tn *tenant) {
	id, err := world.Cloud().Faults().Add(fault.Fault{Host: keyHost, Kind: fault.Latency, Delay: 5 * time.Second})
	must(tn.t, "make AWS KMS slow", err)
	defer world.Cloud().Faults().Remove(id)
	after := world.Cloud().Journal().Last()
	tn.applyEverywhere(encryptedFile(`kms: [{arn: "`+keyARN+`", created_at: "2026-11-12T13:33:42Z", enc: AQICAHg=}]`), func(o *v1alpha1.Kustomization) {
		tn.decryptAs(o)
		o.Spec.Timeout = &metav1.Duration{Duration: time.Minute}
	})
	if len(world.Cloud().Journal().Calls(journal.Filter{Host: keyHost, After: after})) == 0 {
		tn.t.Error("AWS KMS is not asked: this tests nothing")
	}
}
