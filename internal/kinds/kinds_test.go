package kinds_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// TestTableFitsTheCRDs checks each entry against the CustomResourceDefinition of the kind: names,
// scope, and what follows from the fields of the schema. Each definition has an entry.
func TestTableFitsTheCRDs(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(kinds.All()) {
		t.Errorf("there are %d definitions and %d entries", len(files), len(kinds.All()))
	}
	for _, file := range files {
		crd := readCRD(t, file)
		kind, ok := kinds.All().Named(crd.Spec.Names.Kind)
		if !ok {
			t.Errorf("%s has no entry in the table", crd.Spec.Names.Kind)
			continue
		}
		version := crd.Spec.Versions[0]
		spec, status := version.Schema.OpenAPIV3Schema.Properties["spec"], version.Schema.OpenAPIV3Schema.Properties["status"]
		has := func(schema apiextensionsv1.JSONSchemaProps, field string) bool {
			_, ok := schema.Properties[field]
			return ok
		}
		for name, pair := range map[string][2]any{
			"group":              {kind.Group, crd.Spec.Group},
			"version":            {kind.Version, version.Name},
			"plural":             {kind.Plural, crd.Spec.Names.Plural},
			"short names":        {[]string{kind.Short}, crd.Spec.Names.ShortNames},
			"ClusterScoped":      {kind.ClusterScoped, crd.Spec.Scope == apiextensionsv1.ClusterScoped},
			"HasSVIDs":           {kind.HasSVIDs(), has(spec, "credential")},
			"KeepsArtifacts":     {kind.KeepsArtifacts(), has(status, "artifact")},
			"Fetches":            {kind.Fetches(), has(spec, "interval")},
			"UsesAWSIdentities":  {kind.UsesAWSIdentities(), has(spec, "identityRef")},
			"WorkloadIdentity":   {kind.WorkloadIdentity != nil, has(spec, "workloadIdentityName") || has(spec, "workloadIdentity")},
			"Relation":           {kind.Relation != "", has(spec, "workloadIdentityName") || has(spec, "workloadIdentity")},
			"Found with Success": {kind.Found != nil, kind.Success != ""},
		} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Errorf("%s: %s is %v in the table, want %v", kind.Kind, name, pair[0], pair[1])
			}
		}
		if field, _ := strings.CutPrefix(kind.AddressField, "spec."); kind.Server != "" && !has(spec, field) {
			t.Errorf("%s: the schema has no %s", kind.Kind, kind.AddressField)
		}
	}
}

func readCRD(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// TestTableFitsTheLibrary compares the table with the lists of package auth/svid and auth/spec, which
// cannot import the table.
func TestTableFitsTheLibrary(t *testing.T) {
	names := func(is func(kinds.Kind) bool) (found []auth.Kind) {
		for _, kind := range kinds.All().Where(is) {
			found = append(found, auth.Kind(kind.Kind))
		}
		slices.Sort(found)
		return found
	}
	if got, want := names(kinds.Kind.HasSVIDs), slices.Sorted(slices.Values(svid.Kinds())); !slices.Equal(got, want) {
		t.Errorf("kinds with SVIDs: %v in the table, %v in auth/svid", got, want)
	}
	for _, kind := range kinds.All().Where(kinds.Kind.HasSVIDs) {
		if plural, _ := svid.Resource(auth.Kind(kind.Kind)); plural != kind.Plural {
			t.Errorf("plural of %s: %s in the table, %s in auth/svid", kind.Kind, kind.Plural, plural)
		}
	}
	got := names(func(k kinds.Kind) bool { return k.AWSIdentity })
	if want := slices.Sorted(slices.Values(spec.AWSIdentityKinds())); !slices.Equal(got, want) {
		t.Errorf("AWS identities: %v in the table, %v in auth/spec", got, want)
	}
}

// TestSchemeWithoutEntry checks that a program does not start with a kind that has no entry.
func TestSchemeWithoutEntry(t *testing.T) {
	if err := kinds.All().AddToScheme(runtime.NewScheme()); err != nil {
		t.Error(err)
	}
	for _, kind := range kinds.All() {
		others := kinds.All().Where(func(k kinds.Kind) bool { return k.Kind != kind.Kind })
		err := others.AddToScheme(runtime.NewScheme())
		if want := "kind " + kind.Kind + " of " + kind.GroupVersion().String() + " has no entry"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v, want %q", kind.Kind, err, want)
		}
	}
}

// TestLookups checks how a kind is found: by its names on a command line, and by an object.
func TestLookups(t *testing.T) {
	all := kinds.All()
	for _, kind := range all {
		for _, word := range []string{kind.Kind, kind.Plural, kind.Short, strings.ToUpper(kind.Kind), kind.Plural + "." + kind.Group} {
			if got, ok := all.Written(word); !ok || got.Kind != kind.Kind {
				t.Errorf("%q means %q, want %s", word, got.Kind, kind.Kind)
			}
		}
		if got, ok := all.Of(kind.New()); !ok || got.Kind != kind.Kind {
			t.Errorf("an object of %s is a %q", kind.Kind, got.Kind)
		}
	}
	for _, word := range []string{"", "Secret", "buckets.source.toolkit.fluxcd.io", "." + v1alpha1.Group} {
		if got, ok := all.Written(word); ok {
			t.Errorf("%q means %s", word, got.Kind)
		}
	}
	if got, ok := all.Of(&metav1.PartialObjectMetadata{}); ok {
		t.Errorf("metadata is a %s", got.Kind)
	}
}

// TestFields checks that the identity fields of each kind are all that the spec has, and a copy.
func TestFields(t *testing.T) {
	secret, certs, proxy := "keys", "certs", "proxy"
	named := metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}
	access := v1alpha1.Access{
		Provider: "aws", ServiceAccountName: "reader", WorkloadIdentityName: "app", IdentityRef: &meta.AWSIdentityReference{Kind: "K", Name: "n"},
		SecretRef: &meta.LocalReference{Name: secret}, CertSecretRef: &meta.LocalReference{Name: certs}, ProxySecretRef: &meta.LocalReference{Name: proxy},
		Insecure: true,
	}
	registry := v1alpha1.RegistryAccess{Access: access, Credential: &v1alpha1.Credential{Type: "SpiffeJWT", Audiences: []string{"a"}}}
	want := spec.Fields{
		Namespace: "tenant-a", Name: "app", Provider: "aws", ServiceAccountName: "reader", WorkloadIdentityName: "app",
		IdentityRef: &spec.IdentityRef{Kind: "K", Name: "n"}, SecretRef: &secret, CertSecretRef: &certs, ProxySecretRef: &proxy, Insecure: true,
	}
	credential := &spec.Credential{Type: spec.SpiffeJWT, Audiences: []string{"a"}}
	standard := &spec.IdentityRef{Kind: identityv1.AWSClusterControllerIdentityKind, Name: identityv1.DefaultControllerIdentity}
	for _, test := range []struct {
		object client.Object
		change func(*spec.Fields) // of want, for the kind
	}{
		{&v1alpha1.OCIRepository{ObjectMeta: named, Spec: v1alpha1.OCIRepositorySpec{URL: "oci://h/r", RegistryAccess: registry}}, func(f *spec.Fields) {
			f.Kind, f.Address, f.Credential, f.PullSecrets = "OCIRepository", "oci://h/r", credential, true
		}},
		{&v1alpha1.ImageRepository{ObjectMeta: named, Spec: v1alpha1.ImageRepositorySpec{Image: "h/r", RegistryAccess: *registry.DeepCopy()}}, func(f *spec.Fields) {
			f.Kind, f.Address, f.Credential, f.PullSecrets = "ImageRepository", "h/r", credential, true
		}},
		{&v1alpha1.Bucket{ObjectMeta: named, Spec: v1alpha1.BucketSpec{
			Endpoint: "h", BucketName: "b", Access: *access.DeepCopy(), STS: &v1alpha1.BucketSTS{Provider: "aws", Endpoint: "https://sts"},
		}}, func(f *spec.Fields) {
			f.Kind, f.Address, f.STS = "Bucket", "h/b", &spec.TokenService{Provider: "aws", Endpoint: "https://sts"}
		}},
		{&infrav1.AWSCluster{ObjectMeta: named, Spec: infrav1.AWSClusterSpec{IdentityRef: access.IdentityRef.DeepCopy()}}, func(f *spec.Fields) {
			*f = spec.Fields{Namespace: f.Namespace, Provider: "aws", IdentityRef: f.IdentityRef}
		}},
		{&infrav1.AWSCluster{ObjectMeta: named}, func(f *spec.Fields) {
			*f = spec.Fields{Namespace: f.Namespace, Provider: "aws", IdentityRef: standard}
		}},
	} {
		kind, _ := kinds.All().Of(test.object)
		want := want
		test.change(&want)
		got := kind.Fields(test.object)
		controllertest.Overwrite(test.object)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", kind.Kind, got, want)
		}
	}
}
