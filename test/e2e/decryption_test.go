package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// decrypter is the name of each tenant's ServiceAccount that decrypts.
	decrypter = "decrypter"
	// ownKeys is the name of the Secret with a tenant's private keys. The apply controller reads it.
	ownKeys = "private-keys"
)

// encrypted returns a file that the unmodified sops program encrypted. SOPS chooses the format by the
// name.
func encrypted(t *testing.T, env []string, name, plain string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, "write the file", os.WriteFile(path, []byte(plain), 0o600))
	return sops(t, env, append(append([]string{"encrypt"}, args...), path)...)
}

// onlyData are the arguments of sops with which most people encrypt Secrets.
func onlyData(args ...string) []string {
	return append([]string{"--encrypted-regex", "^(data|stringData)$"}, args...)
}

// sops runs the sops program, and returns its output.
func sops(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary("sops"), args...)
	cmd.Env = append(env, "HOME="+t.TempDir())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("sops %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	return out.String()
}

// secretManifest returns a Secret with a password.
func secretManifest(name, password string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata:\n    name: " + name + "\nstringData:\n    password: " + password + "\n"
}

// password is a check that a Secret has this password.
func (tn *applyTenant) password(t *testing.T, name, want string) {
	t.Helper()
	eventually(t, "password of "+name, func(ctx context.Context) error {
		secret := &corev1.Secret{}
		if err := objects.Get(ctx, client.ObjectKey{Namespace: tn.namespace, Name: name}, secret); err != nil {
			return err
		}
		return wantf(string(secret.Data["password"]) == want, "the Secret %s has another password", name)
	})
}

// keyAtAWS is a tenant's key at AWS KMS, and a ServiceAccount that may decrypt with the key.
type keyAtAWS struct {
	arn string
	env []string // of a program that may encrypt with the key
}

// atKMS makes a key for the tenant, and a role that may decrypt with this key, and with no other. The
// tenant's decrypter may assume the role.
func (tn *applyTenant) atKMS(t *testing.T) keyAtAWS {
	t.Helper()
	owner := tn.namespace + "-keys"
	must(t, "make a role that encrypts", world.Cloud().AWS().PutRole(local.Account, aws.Role{
		Name: owner, TrustPolicy: trust(tn.subject),
		Policies: policies(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["kms:CreateKey","kms:Encrypt"],"Resource":"*"}]}`),
	}))
	command := newAWSCommand(t, secretFile(t, "token", token(t, tn.namespace, puller, stsAudience)))
	arn, errs, err := command.run(t, roleARN(owner), "kms", "create-key", "--query", "KeyMetadata.Arn")
	must(t, "make a key: "+errs, err)
	tn.letDecrypt(t, arn)
	tn.putAccount(t, decrypter, roleARN(tn.namespace+"-kms"))
	return keyAtAWS{arn: arn, env: append(command.env, "AWS_ROLE_ARN="+roleARN(owner))}
}

// letDecrypt lets the tenant's decrypter decrypt with a key; an empty ARN withdraws the grant.
func (tn *applyTenant) letDecrypt(t *testing.T, arn string) {
	t.Helper()
	role := aws.Role{Name: tn.namespace + "-kms", TrustPolicy: trust("system:serviceaccount:" + tn.namespace + ":" + decrypter)}
	if arn != "" {
		role.Policies = policies(fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"kms:Decrypt","Resource":%q}]}`, arn))
	}
	must(t, "make a role that decrypts", world.Cloud().AWS().PutRole(local.Account, role))
}

// decrypting returns a Kustomization that decrypts as the tenant's decrypter.
func (tn *applyTenant) decrypting(name string) *v1alpha1.Kustomization {
	o := tn.kustomization(name)
	o.Spec.Decryption = &v1alpha1.Decryption{Provider: v1alpha1.DecryptionSOPS, ServiceAccountName: decrypter}
	return o
}

// decryptions returns how often AWS KMS has decrypted with a key.
func (k keyAtAWS) decryptions() int {
	return len(world.Cloud().Journal().Calls(journal.Filter{Operation: "Decrypt", Resource: k.arn, Verdict: journal.Granted}))
}

// decrypted checks how often AWS KMS has decrypted with a key.
func (k keyAtAWS) decrypted(t *testing.T, when string, want int) {
	t.Helper()
	if got := k.decryptions(); got != want {
		t.Errorf("%s: AWS KMS has decrypted %d times, want %d", when, got, want)
	}
}

// TestStoryDecryption is D1's Story 4: each tenant decrypts with the tenant's own key of AWS KMS, and
// with no other.
func TestStoryDecryption(t *testing.T) {
	alone(t, "the chart grants more for the apply controller")
	a, b := newApplyTenant(t, "apply-decryption-a", map[string]string{"empty.txt": ""}), newApplyTenant(t, "apply-decryption-b", map[string]string{"empty.txt": ""})
	keyA, keyB := a.atKMS(t), b.atKMS(t)
	startApplying(t, nil, a, b)
	manifest := func(key keyAtAWS, password string) map[string]string {
		return map[string]string{"db.yaml": encrypted(t, key.env, "db.yaml", secretManifest("db", secretMark+password), onlyData("--kms", key.arn)...)}
	}
	a.release(t, manifest(keyA, "a"))
	b.release(t, manifest(keyB, "b"))
	ofA, ofB := a.decrypting("app"), b.decrypting("app")
	create(t, ofA)
	create(t, ofB)
	await(t, ofA, "it is applied", applied(a.namespace+"_db__Secret"))
	await(t, ofB, "it is applied", applied(b.namespace+"_db__Secret"))
	a.password(t, "db", secretMark+"a")
	b.password(t, "db", secretMark+"b")
	calls := world.Cloud().Journal().Calls(journal.Filter{Operation: "Decrypt", Resource: keyA.arn})
	if len(calls) == 0 || !strings.Contains(calls[0].Principal, a.namespace+"-kms") {
		t.Errorf("the journal says of tenant A's key: %+v", calls)
	}

	// At rest, no key service is asked. A Secret that somebody changed is decrypted again.
	before := keyA.decryptions()
	time.Sleep(3 * ofA.Spec.Interval.Duration)
	// A forged status is mended, without a build.
	forged := []byte(`{"status":{"decryption":{"files":[{"name":"forged","keys":[]}]}}}`)
	must(t, "forge the status", objects.Status().Patch(t.Context(), ofA.DeepCopy(), client.RawPatch("application/merge-patch+json", forged)))
	await(t, ofA, "the status says who decrypted", func(o *v1alpha1.Kustomization) error {
		want := v1alpha1.DecryptedFile{Name: "db.yaml", Keys: []v1alpha1.DecryptionKey{
			{Name: "AWS KMS key " + keyA.arn, Subject: "system:serviceaccount:" + a.namespace + ":" + decrypter},
		}}
		return wantf(o.Status.Decryption != nil && reflect.DeepEqual(o.Status.Decryption.Files, []v1alpha1.DecryptedFile{want}), "%+v", o.Status.Decryption)
	})
	keyA.decrypted(t, "at rest", before)
	changed := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "db"}}
	must(t, "change the Secret", objects.Patch(t.Context(), changed, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"password":"eA=="}}`))))
	a.password(t, "db", secretMark+"a")
	keyA.decrypted(t, "after a change of the Secret", before+1)

	// Each tenant with the other's file: AWS refuses, and nothing changes.
	b.release(t, manifest(keyA, "stolen"))
	await(t, ofB, "it is refused", unapplied(meta.ReasonDecryptionFailed, "db.yaml", keyA.arn, "system:serviceaccount:"+b.namespace+":"+decrypter, "AccessDenied"))
	b.password(t, "db", secretMark+"b")

	// The grant is withdrawn: the applied Secret stays, and the next build says so.
	a.letDecrypt(t, "")
	a.release(t, manifest(keyA, "later"))
	await(t, ofA, "it is refused", unapplied(meta.ReasonDecryptionFailed, keyA.arn, "AccessDenied"))
	a.password(t, "db", secretMark+"a")
	a.letDecrypt(t, keyA.arn)
	patch(t, ofA, func(o *v1alpha1.Kustomization) {
		o.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: "after the grant"}
	})
	await(t, ofA, "it is applied", applied(a.namespace+"_db__Secret"))
	a.password(t, "db", secretMark+"later")
}

// TestDecryptionAtRest has 200 Kustomizations with an encrypted file. For ten intervals nobody asks
// AWS. After a change of the file, each Kustomization asks once.
func TestDecryptionAtRest(t *testing.T) {
	alone(t, "the chart grants more for the apply controller")
	const count, intervals = 200, 10
	tn := newApplyTenant(t, "apply-decryption-rest", map[string]string{"empty.txt": ""})
	key := tn.atKMS(t)
	startApplying(t, nil, tn)
	release := func(password string) {
		tn.release(t, map[string]string{"db.yaml": encrypted(t, key.env, "db.yaml", secretManifest("db", secretMark+password), onlyData("--kms", key.arn)...)})
	}
	release("first")
	var all []*v1alpha1.Kustomization
	for i := range count {
		o := tn.decrypting(fmt.Sprintf("app-%d", i))
		o.Spec.NamePrefix, o.Spec.Interval.Duration = fmt.Sprintf("app-%d-", i), 3*time.Second
		create(t, o)
		all = append(all, o)
	}
	for i, o := range all {
		await(t, o, "it is applied", applied(fmt.Sprintf("%s_app-%d-db__Secret", tn.namespace, i)))
	}
	key.decrypted(t, "after the first build of each", count)
	begin := world.Cloud().Journal().Last()
	time.Sleep(intervals * all[0].Spec.Interval.Duration)
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{After: begin}) {
		if call.Operation == "Decrypt" || strings.Contains(call.Role+call.Principal, tn.namespace+"-kms") {
			t.Errorf("at rest: %+v", call)
		}
	}
	release("second")
	for i := range all {
		tn.password(t, fmt.Sprintf("app-%d-db", i), secretMark+"second")
	}
	key.decrypted(t, "after a change of the file", 2*count)
}

// TestDecryptionOwnKeys decrypts what the sops program encrypted for a key of age: each format, and
// files that sops changed later.
func TestDecryptionOwnKeys(t *testing.T) {
	alone(t, "the chart grants more for the apply controller")
	id, err := age.GenerateX25519Identity()
	must(t, "make an identity of age", err)
	env := []string{"PATH=" + os.Getenv("PATH"), "SOPS_AGE_KEY=" + id.String()}
	recipient := []string{"--age", id.Recipient().String()}
	seal := func(name, plain string, args ...string) string {
		return encrypted(t, env, name, plain, append(args, recipient...)...)
	}
	files := map[string]string{
		"kustomization.yaml": "resources: [a.yaml, b.json, release.yaml]\npatches: [{path: patch.yaml}]\ngeneratorOptions: {disableNameSuffixHash: true}\n" +
			"secretGenerator:\n- {name: generated, envs: [a.env], files: [a.ini, key.bin]}\n",
		"a.yaml":       seal("a.yaml", secretManifest("a", secretMark+"yaml"), onlyData()...),
		"b.json":       seal("b.json", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"},"stringData":{"password":"`+secretMark+`json"}}`, onlyData()...),
		"patch.yaml":   seal("patch.yaml", "apiVersion: v1\nkind: Secret\nmetadata:\n    name: a\nstringData:\n    patched: "+secretMark+"patch\n", onlyData()...),
		"a.env":        seal("a.env", "password="+secretMark+"env\n"),
		"a.ini":        seal("a.ini", "[a]\npassword = "+secretMark+"ini\n"),
		"key.bin":      seal("key.bin", secretMark+"binary\x00\xff"),
		"release.yaml": seal("release.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n    name: c\n    annotations:\n        password: "+secretMark+"map\n", "--encrypted-regex", "^password$"),
	}
	tn := newApplyTenant(t, "apply-decryption-keys", files)
	startApplying(t, nil, tn)
	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: ownKeys}, Data: map[string][]byte{"a.agekey": []byte(id.String() + "\r\n")}})
	o := tn.kustomization("app")
	o.Spec.Decryption = &v1alpha1.Decryption{Provider: v1alpha1.DecryptionSOPS, SecretRef: &meta.LocalReference{Name: ownKeys}}
	create(t, o)
	ids := []string{tn.namespace + "_a__Secret", tn.namespace + "_b__Secret", tn.namespace + "_c__ConfigMap", tn.namespace + "_generated__Secret"}
	await(t, o, "it is applied", applied(ids...))
	tn.password(t, "a", secretMark+"yaml")
	tn.password(t, "b", secretMark+"json")
	tn.password(t, "generated", secretMark+"env")
	generated := &corev1.Secret{}
	must(t, "read the Secret", objects.Get(t.Context(), client.ObjectKey{Namespace: tn.namespace, Name: "generated"}, generated))
	if string(generated.Data["a.ini"]) != "[a]\npassword = "+secretMark+"ini\n" || string(generated.Data["key.bin"]) != secretMark+"binary\x00\xff" {
		t.Error("the generated Secret has other files")
	}

	// What sops sets and rotates is decrypted again.
	path := filepath.Join(t.TempDir(), "a.yaml")
	must(t, "write the file", os.WriteFile(path, []byte(files["a.yaml"]), 0o600))
	sops(t, env, "set", path, `["stringData"]["password"]`, `"`+secretMark+`set"`)
	sops(t, env, "rotate", "--in-place", path)
	content, err := os.ReadFile(path)
	must(t, "read the file", err)
	files["a.yaml"] = string(content)
	tn.release(t, files)
	tn.password(t, "a", secretMark+"set")

	// A file that somebody changed without sops.
	files["b.json"] = strings.Replace(files["b.json"], `"name": "b"`, `"name": "other"`, 1)
	tn.release(t, files)
	await(t, o, "it is refused", unapplied(meta.ReasonDecryptionFailed, "b.json", "MAC"))
	must(t, "delete the ConfigMap with a secret value", objects.Delete(context.WithoutCancel(t.Context()), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "c"}}))
}
