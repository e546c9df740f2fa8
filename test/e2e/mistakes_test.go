package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/dataplane"
)

// mistake is a row of the table in docs/errors.md: an object with one typical mistake.
type mistake struct {
	what   string        // text of the table's column Mistake
	where  string        // the wrong field, and its object
	wrong  client.Object // the object that must be refused because of the mistake
	reason string
}

// TestTypicalMistakes makes the mistakes of the table in docs/errors.md, and compares the
// conditions with the page. With -update it writes the conditions into the page.
func TestTypicalMistakes(t *testing.T) {
	beside(t)
	const first, last = "<!-- The rest of this section is written by TestTypicalMistakes. -->\n", "\n## Whose credential\n"
	mistakes := makeMistakes(t)
	for _, m := range mistakes {
		create(t, m.wrong)
	}
	var table, messages strings.Builder
	table.WriteString("| | Mistake | In the manifest | Reason |\n|---|---|---|---|\n")
	for i, m := range mistakes {
		awaitRefusal(t, m.wrong, m.reason)
		fmt.Fprintf(&table, "| %d | %s | %s | [%s](#%s) |\n", i+1, m.what, m.where, m.reason, strings.ToLower(m.reason))
		fmt.Fprintf(&messages, "%d. `%s`\n", i+1, condition(t, m.wrong).Message)
	}
	path := filepath.Join("..", "..", "docs", "errors.md")
	page, err := os.ReadFile(path)
	must(t, "read the page", err)
	before, rest, ok := bytes.Cut(page, []byte(first))
	_, after, also := bytes.Cut(rest, []byte(last))
	if !ok || !also {
		t.Fatalf("%s lacks %q or %q", path, first, last)
	}
	want := slices.Concat(before, []byte(first+"\n"+table.String()+"\nTheir messages:\n\n"+messages.String()+last), after)
	switch {
	case bytes.Equal(page, want):
	case *update:
		must(t, "write the page", os.WriteFile(path, want, 0o600))
	default:
		t.Errorf("the table of %s is not what the controller says; run this test with -update, and read the difference. It says:\n%s\n%s", path, &table, &messages)
	}
}

// makeMistakes prepares a tenant with a repository and a bucket at AWS, and a registry with a
// password. It waits until the correct objects are ready, and returns objects with mistakes.
func makeMistakes(t *testing.T) []mistake {
	t.Helper()
	tn := newTenant(t, "team-a")
	tn.pushFile(t, "1.0.0", "app")
	readers := tn.putBucket(t)
	own := newRegistry(t, "registry.example.com")
	own.protect("reader", secretMark+"of-a-careful-reader")
	own.push(t, "team-a/app", "1.0.0", layer(t, file("app.yaml", "app")))
	own.putLogin(t, tn.namespace, "login")
	public := newRegistry(t, "public.example.com")
	public.push(t, "team-a/app", "1.0.0", layer(t, file("app.yaml", "app")))

	atECR := tn.object("right")
	atS3 := tn.bucket("right", v1alpha1.ProviderAWS, tn.namespace+"-manifests")
	atS3.Spec.ServiceAccountName, atS3.Spec.Region = readers, local.Region
	tags := tn.image("right")
	atOwn := tn.generic("right-own", own.url("team-a/app"))
	atOwn.Spec.SecretRef = &meta.LocalReference{Name: "login"}
	atPublic := tn.generic("right-public", public.url("team-a/app"))
	rights := []client.Object{atECR, atS3, tags, atOwn, atPublic}
	for _, o := range rights {
		create(t, o)
	}
	for _, o := range rights {
		awaitReady(t, o)
	}

	tn.putMistakenAccounts(t)
	tn.secret(t, "password", map[string]string{"username": "reader", "password": secretMark + "of-another-type"})
	stranger, err := os.ReadFile(world.ControlPlane().CAFile())
	must(t, "read another CA", err)
	tn.secret(t, "old-ca", map[string]string{"ca.crt": string(stranger)})

	type spec = v1alpha1.OCIRepositorySpec
	account := func(name string) client.Object { return edited(atECR, func(s *spec) { s.ServiceAccountName = name }) }
	abroad, lookalike := atS3.DeepCopy(), tags.DeepCopy()
	abroad.Spec.Region = "eu-central-1"
	lookalike.Spec.Image = strings.Replace(tags.Spec.Image, ".amazonaws.com/", ".amazonaws.co/", 1)

	var all []mistake
	add := func(what, reason, where string, right, wrong client.Object) {
		where = cmp.Or(where, difference(t, right, wrong))
		wrong.SetResourceVersion("")
		wrong.SetName(fmt.Sprintf("mistake-%d", len(all)+1))
		all = append(all, mistake{what: what, where: where, wrong: wrong, reason: reason})
	}
	add("The provider is forgotten", meta.ReasonRegistryRefused, "", atECR, edited(atECR, func(s *spec) { s.Provider = "" }))
	add("The ServiceAccount does not exist", "SubjectNotFound", "", atECR, account("pullr"))
	add("The annotation is misspelt", "IdentityMissing", "ServiceAccount: `eks.amazonaws.com/role-anr`", atECR, account("misspelt"))
	add("The role is in the wrong AWS account", "TrustRefused", "ServiceAccount: `…/role-arn: arn:aws:iam::111122223333:role/team-a`", atECR, account("elsewhere"))
	add("The role trusts another ServiceAccount", "TrustRefused", "trust policy: `…:sub: system:serviceaccount:team-a:puller`, with `spec.serviceAccountName: other`", atECR, account("other"))
	add("The trust policy has the wrong audience", "TrustRefused", "trust policy: `…:aud: my-cluster`", atECR, account("audience"))
	add("The region is wrong", meta.ReasonBucketRefused, "", atS3, abroad)
	add("The host is misspelt", "EndpointRefused", "", tags, lookalike)
	add("The address is private", "EndpointRefused", "", atPublic, edited(atPublic, func(s *spec) { s.URL = "oci://10.20.30.40/team-a/app" }))
	add("The tag does not exist", meta.ReasonReferenceNotFound, "", atECR, edited(atECR, func(s *spec) { s.Ref.Tag = "1.0.1" }))
	add("No version matches", meta.ReasonReferenceNotFound, "", atECR, edited(atECR, func(s *spec) { s.Ref = &v1alpha1.OCIRepositoryRef{Semver: ">=2.0.0"} }))
	add("The Secret does not exist", meta.ReasonSecretRefused, "", atOwn, edited(atOwn, func(s *spec) { s.SecretRef.Name = "logn" }))
	add("The Secret has the wrong type", meta.ReasonSecretRefused, "Secret: `type: Opaque`, keys `username` and `password`", atOwn, edited(atOwn, func(s *spec) { s.SecretRef.Name = "password" }))
	add("The certificate is of an unknown authority", meta.ReasonRegistryUnreachable, "", atPublic, edited(atPublic, func(s *spec) { s.CertSecretRef = &meta.LocalReference{Name: "old-ca"} }))
	add("The controller's proxy does not reach the registry", meta.ReasonRegistryUnreachable, "", atPublic, edited(atPublic, func(s *spec) { s.URL = "oci://registry.internal.example/team-a/app" }))
	return all
}

// putBucket creates a bucket at S3 with an object, and a ServiceAccount that may read the bucket.
func (tn *tenant) putBucket(t *testing.T) (account string) {
	t.Helper()
	account = "reader"
	name := tn.namespace + "-manifests"
	plane, err := dataplane.S3(name)
	must(t, "start a store", err)
	serveS3(t, plane, name)
	must(t, "make a bucket", world.Cloud().AWS().PutBucket(local.Account, aws.Bucket{Region: local.Region, Name: name}))
	putInto(t, plane, "/"+name+"/app.yaml", "app", nil)
	tn.putAccount(t, account, tn.bucketRole(t, tn.namespace+"-"+account, account, readS3(name, "")...))
	return account
}

// putMistakenAccounts creates ServiceAccounts that get no credential, each for a different reason.
func (tn *tenant) putMistakenAccounts(t *testing.T) {
	t.Helper()
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: tn.namespace, Name: "misspelt", Annotations: map[string]string{"eks.amazonaws.com/role-anr": tn.role},
	}})
	tn.putAccount(t, "elsewhere", strings.Replace(tn.role, local.Account, "111122223333", 1))
	tn.putAccount(t, "other", tn.role)
	const audience = "audience"
	role := tn.namespace + "-" + audience
	must(t, "make a role", world.Cloud().AWS().PutRole(local.Account, aws.Role{
		Name: role, TrustPolicy: bytes.ReplaceAll(trust("system:serviceaccount:"+tn.namespace+":"+audience), []byte(stsAudience), []byte("my-cluster")),
	}))
	tn.putAccount(t, audience, roleARN(role))
}

// edited returns a copy of an object with an edited spec.
func edited(o *v1alpha1.OCIRepository, edit func(s *v1alpha1.OCIRepositorySpec)) *v1alpha1.OCIRepository {
	o = &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace}, Spec: *o.Spec.DeepCopy()}
	edit(&o.Spec)
	return o
}

// difference describes the wrong fields of a spec.
func difference(t *testing.T, right, wrong client.Object) string {
	t.Helper()
	was, is := fields(t, right), fields(t, wrong)
	kind := strings.TrimPrefix(fmt.Sprintf("%T", wrong), "*v1alpha1.")
	var found []string
	for _, field := range slices.Sorted(maps.Keys(is)) {
		if was[field] != is[field] {
			found = append(found, fmt.Sprintf("`%s: %s`", field, is[field]))
		}
	}
	for _, field := range slices.Sorted(maps.Keys(was)) {
		if _, ok := is[field]; !ok && len(found) == 0 {
			found = append(found, fmt.Sprintf("no `%s`", field))
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s/%s has no mistake", wrong.GetNamespace(), wrong.GetName())
	}
	return kind + ": " + strings.Join(found, ", ")
}

// fields returns the values of a spec by their paths.
func fields(t *testing.T, o client.Object) map[string]string {
	t.Helper()
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	must(t, "read a spec", err)
	all := map[string]string{}
	flatten("spec", raw["spec"], all)
	return all
}

func flatten(path string, value any, into map[string]string) {
	object, ok := value.(map[string]any)
	if !ok {
		into[path] = fmt.Sprint(value)
		return
	}
	for name, value := range object {
		flatten(path+"."+name, value, into)
	}
}
