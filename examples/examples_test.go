package examples_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func objects(t *testing.T, file string) []runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), identityv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	data, err := fs.ReadFile(examples.Files(), file)
	must.Succeed(t, err)
	var found []runtime.Object
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		must.Succeed(t, err)
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		found = append(found, object)
	}
}

// fetches describes one object that fetches artifacts: its name, its identity and its expected
// result. The identity is an account, a WorkloadIdentity or a lent identity.
type fetches struct{ kind, namespace, name, account, identity, lent, provider, expect string }

func fetchersOf(all []runtime.Object) []fetches {
	var found []fetches
	for _, object := range all {
		var f fetches
		switch o := object.(type) {
		case *v1alpha1.OCIRepository:
			f = fetches{kind: v1alpha1.OCIRepositoryKind, account: o.Spec.ServiceAccountName, identity: o.Spec.WorkloadIdentityName, provider: o.Spec.Provider}
			if o.Spec.IdentityRef != nil {
				f.lent = o.Spec.IdentityRef.Name
			}
		case *v1alpha1.Bucket:
			f = fetches{kind: v1alpha1.BucketKind, account: o.Spec.ServiceAccountName, identity: o.Spec.WorkloadIdentityName, provider: o.Spec.Provider}
		case *v1alpha1.ImageRepository:
			f = fetches{kind: v1alpha1.ImageRepositoryKind, account: o.Spec.ServiceAccountName, identity: o.Spec.WorkloadIdentityName, provider: o.Spec.Provider}
		default:
			continue
		}
		o := object.(metav1.Object)
		f.namespace, f.name = o.GetNamespace(), o.GetName()
		if f.expect = o.GetAnnotations()[examples.ExpectAnnotation]; f.expect == "" {
			f.expect = "pulled"
		}
		found = append(found, f)
	}
	return found
}

// TestLeftOut checks that only issuer.yaml needs the issuer, only lent.yaml needs AWS identities, and
// only apply.yaml has Kustomizations. WithoutLent and WithoutIssuer must leave out no other file.
func TestLeftOut(t *testing.T) {
	names := func(files fs.FS) []string {
		found, err := fs.Glob(files, "*")
		must.Succeed(t, err)
		return found
	}
	all := names(examples.Files())
	if rest := append(names(examples.WithoutLent()), "apply.yaml", "lent.yaml"); !slices.Equal(slices.Sorted(slices.Values(rest)), all) {
		t.Errorf("there are %q with what is lent and %q", rest, all)
	}
	if rest := append(names(examples.WithoutIssuer()), "apply.yaml", "issuer.yaml", "lent.yaml"); !slices.Equal(slices.Sorted(slices.Values(rest)), all) {
		t.Errorf("there are %q with the issuer's and %q", rest, all)
	}
	for _, file := range all {
		for _, o := range objects(t, file) {
			if _, ok := o.(*v1alpha1.Kustomization); ok && file != "apply.yaml" {
				t.Errorf("%s has a Kustomization", file)
			}
		}
		for _, f := range fetchersOf(objects(t, file)) {
			if f.identity != "" && file != "issuer.yaml" {
				t.Errorf("%s of %s names a WorkloadIdentity", f.name, file)
			}
			if f.lent != "" && file != "lent.yaml" {
				t.Errorf("%s of %s names an AWS identity", f.name, file)
			}
		}
	}
}

// TestExpectations checks the provider and the expected result of each object in each file. The
// reason of an expected refusal must be one that the controller uses.
func TestExpectations(t *testing.T) {
	refused := func(reason string) string { return "refused:" + reason }
	wanted := map[string][]string{
		"aws.yaml":   {"aws pulled", "aws pulled", "aws pulled"},
		"azure.yaml": {"azure pulled", "azure pulled", "azure pulled"},
		"gcp.yaml":   {"gcp pulled", "gcp pulled", "gcp pulled"},
		"lent.yaml":  {"aws pulled", "aws " + refused(meta.ReasonPrincipalUsageUnauthorized)},
		"issuer.yaml": {
			"aws pulled", "azure pulled", "gcp pulled",
			"aws " + refused(string(auth.CodeTrustRefused)),
			"aws " + refused(string(auth.CodeTrustRefused)),
			"azure " + refused(string(auth.CodeTrustRefused)),
			"gcp " + refused(string(auth.CodeTrustRefused)),
		},
		"refusals.yaml": {
			"aws " + refused(meta.ReasonRegistryRefused),
			"aws " + refused(string(auth.CodeTrustRefused)),
			"aws " + refused(string(auth.CodeTrustRefused)),
			"aws " + refused(string(auth.CodeSubjectNotFound)),
			"aws " + refused(string(auth.CodeIdentityInvalid)),
			"aws " + refused(string(auth.CodeEndpointRefused)),
			" " + refused(string(auth.CodeEndpointRefused)),
			"azure " + refused(string(auth.CodePermissionDenied)),
			"azure " + refused(string(auth.CodeTrustRefused)),
			"gcp " + refused(meta.ReasonBucketRefused),
			"gcp " + refused(string(auth.CodeTrustRefused)),
			"gcp " + refused(meta.ReasonBucketRefused),
		},
	}
	for file, want := range wanted {
		var got []string
		for _, f := range fetchersOf(objects(t, file)) {
			got = append(got, f.provider+" "+f.expect)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s expects %v, want %v", file, got, want)
		}
	}
}

// TestAccounts checks the identity of every object. Otherwise a typing error could cause a refusal
// for the wrong reason.
//   - The object's account exists in its namespace, except the account that is missing on purpose.
//   - The account names its cloud identity, unless the cloud grants access to the account itself.
//   - A WorkloadIdentity is for the object's provider.
//   - A lent identity admits the object's namespace, unless the object expects a refusal.
func TestAccounts(t *testing.T) {
	identity := map[string]string{
		"aws": "eks.amazonaws.com/role-arn", "azure": "azure.workload.identity/client-id", "gcp": "iam.gke.io/gcp-service-account",
	}
	direct := []string{"tenant-a/tenant-a-direct", "tenant-b/direct-bucket-of-tenant-a"}
	accounts, namespaces, names := map[string]map[string]string{}, map[string]bool{}, map[string]bool{}
	identities, lent := map[string]string{}, map[string]*identityv1.AllowedNamespaces{}
	var all []runtime.Object
	for _, file := range []string{"namespaces.yaml", "aws.yaml", "azure.yaml", "gcp.yaml", "issuer.yaml", "lent.yaml", "refusals.yaml"} {
		all = append(all, objects(t, file)...)
	}
	for _, object := range all {
		switch o := object.(type) {
		case *corev1.ServiceAccount:
			accounts[o.Namespace+"/"+o.Name] = o.Annotations
		case *identityv1.WorkloadIdentity:
			identities[o.Namespace+"/"+o.Name] = o.Spec.TargetSystem.Type
		case *identityv1.AWSClusterRoleIdentity:
			lent[o.Name] = o.Spec.AllowedNamespaces
		case *corev1.Namespace:
			namespaces[o.Name] = true
		}
		o := object.(metav1.Object)
		name := object.GetObjectKind().GroupVersionKind().Kind + " " + o.GetNamespace() + "/" + o.GetName()
		if names[name] {
			t.Errorf("%s is there twice", name)
		}
		names[name] = true
	}
	for _, f := range fetchersOf(all) {
		if !namespaces[f.namespace] {
			t.Errorf("%s is in namespace %s, which nobody makes", f.name, f.namespace)
		}
		if f.provider == "" { // an object without a cloud needs no account
			continue
		}
		if f.identity != "" {
			if target := identities[f.namespace+"/"+f.identity]; target != f.provider {
				t.Errorf("%s: its WorkloadIdentity is for %q, its provider is %s", f.name, target, f.provider)
			}
			continue
		}
		if f.lent != "" {
			admitted, refused := lent[f.lent], strings.HasSuffix(f.expect, meta.ReasonPrincipalUsageUnauthorized)
			if admitted == nil || slices.Contains(admitted.List, f.namespace) == refused {
				t.Errorf("%s: its identity admits %+v, refused on purpose: %v", f.name, admitted, refused)
			}
			continue
		}
		annotations, found := accounts[f.namespace+"/"+f.account]
		missing := strings.HasSuffix(f.expect, string(auth.CodeSubjectNotFound))
		if found == missing {
			t.Errorf("%s: its account is there: %v, missing on purpose: %v", f.name, found, missing)
		}
		named := annotations[identity[f.provider]] != ""
		if found && named == slices.Contains(direct, f.namespace+"/"+f.name) {
			t.Errorf("%s: its account names an identity: %v", f.name, named)
		}
	}
}
