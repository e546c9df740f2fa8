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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/examples"
)

func objects(t *testing.T, file string) []runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	data, err := fs.ReadFile(examples.Files(), file)
	if err != nil {
		t.Fatal(err)
	}
	var found []runtime.Object
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		found = append(found, object)
	}
}

// fetches is an object that fetches: its namespace and name, the account that it names, and what must come of it.
type fetches struct{ kind, namespace, name, account, provider, expect string }

func fetchersOf(all []runtime.Object) []fetches {
	var found []fetches
	for _, object := range all {
		var f fetches
		switch o := object.(type) {
		case *v1alpha1.OCIRepository:
			f = fetches{kind: v1alpha1.OCIRepositoryKind, account: o.Spec.ServiceAccountName, provider: o.Spec.Provider}
		case *v1alpha1.Bucket:
			f = fetches{kind: v1alpha1.BucketKind, account: o.Spec.ServiceAccountName, provider: o.Spec.Provider}
		case *v1alpha1.ImageRepository:
			f = fetches{kind: v1alpha1.ImageRepositoryKind, account: o.Spec.ServiceAccountName, provider: o.Spec.Provider}
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

// TestExpectations holds that each object says what must come of it, with a
// reason that the controller gives, and that the files hold what their names
// say.
func TestExpectations(t *testing.T) {
	refused := func(reason string) string { return "refused:" + reason }
	wanted := map[string][]string{
		"aws.yaml":   {"aws pulled", "aws pulled"},
		"azure.yaml": {"azure pulled", "azure pulled", "azure pulled"},
		"gcp.yaml":   {"gcp pulled", "gcp pulled", "gcp pulled"},
		"refusals.yaml": {
			"aws " + refused(meta.ReasonRegistryRefused),
			"aws " + refused(string(auth.CodeTrustRefused)),
			"aws " + refused(string(auth.CodeSubjectNotFound)),
			"aws " + refused(string(auth.CodeIdentityInvalid)),
			"aws " + refused(string(auth.CodeEndpointRefused)),
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

// TestAccounts holds that every object's account is there, in its namespace, but
// for the one that is missing on purpose; a typing error would else refuse for a
// reason that nobody meant. An account says who it is at the cloud, unless the
// object is one of those for which it is itself.
func TestAccounts(t *testing.T) {
	identity := map[string]string{
		"aws": "eks.amazonaws.com/role-arn", "azure": "azure.workload.identity/client-id", "gcp": "iam.gke.io/gcp-service-account",
	}
	direct := []string{"tenant-a/tenant-a-direct", "tenant-b/direct-bucket-of-tenant-a"}
	accounts, namespaces, names := map[string]map[string]string{}, map[string]bool{}, map[string]bool{}
	var all []runtime.Object
	for _, file := range []string{"namespaces.yaml", "aws.yaml", "azure.yaml", "gcp.yaml", "refusals.yaml"} {
		all = append(all, objects(t, file)...)
	}
	for _, object := range all {
		switch o := object.(type) {
		case *corev1.ServiceAccount:
			accounts[o.Namespace+"/"+o.Name] = o.Annotations
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
