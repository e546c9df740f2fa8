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

// TestExpectations holds that each object says what must come of it, with a
// reason that the controller gives, and that the two files hold what their names
// say.
func TestExpectations(t *testing.T) {
	wanted := map[string][]string{
		"tenants.yaml": {"pulled", "pulled"},
		"refusals.yaml": {
			"refused:" + meta.ReasonRegistryRefused,
			"refused:" + string(auth.CodeTrustRefused),
			"refused:" + string(auth.CodeSubjectNotFound),
			"refused:" + string(auth.CodeIdentityInvalid),
			"refused:" + string(auth.CodeEndpointRefused),
		},
	}
	for file, want := range wanted {
		var got []string
		for _, object := range objects(t, file) {
			repo, ok := object.(*v1alpha1.OCIRepository)
			if !ok {
				continue
			}
			expect, ok := repo.Annotations[examples.ExpectAnnotation]
			if !ok {
				expect = "pulled"
			}
			got = append(got, expect)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s expects %v, want %v", file, got, want)
		}
	}
}

// TestAccounts holds that every object's account is there, in its namespace, but
// for the one that is missing on purpose; a typing error would else refuse for a
// reason that nobody meant.
func TestAccounts(t *testing.T) {
	accounts, namespaces := map[string]string{}, map[string]bool{}
	all := slices.Concat(objects(t, "namespaces.yaml"), objects(t, "tenants.yaml"), objects(t, "refusals.yaml"))
	names := map[string]bool{}
	for _, object := range all {
		switch o := object.(type) {
		case *corev1.ServiceAccount:
			accounts[o.Namespace+"/"+o.Name] = o.Annotations["eks.amazonaws.com/role-arn"]
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
	for _, object := range all {
		repo, ok := object.(*v1alpha1.OCIRepository)
		if !ok {
			continue
		}
		if !namespaces[repo.Namespace] {
			t.Errorf("%s is in namespace %s, which nobody makes", repo.Name, repo.Namespace)
		}
		role, found := accounts[repo.Namespace+"/"+repo.Spec.ServiceAccountName]
		missing := strings.HasSuffix(repo.Annotations[examples.ExpectAnnotation], string(auth.CodeSubjectNotFound))
		if found == missing {
			t.Errorf("%s: its account is there: %v, missing on purpose: %v", repo.Name, found, missing)
		}
		if found && role == "" {
			t.Errorf("%s: its account names no role", repo.Name)
		}
	}
}
