package kinds_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
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
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestTableFitsTheCRDs checks each entry against the kind's CustomResourceDefinition. The names and
// the scope must be the same. The schema must have the fields that the entry implies. Each
// definition must have an entry.
func TestTableFitsTheCRDs(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "*.yaml"))
	must.Succeed(t, err)
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
			"Fetches":            {kind.Fetches(), has(spec, "interval") && has(spec, "provider")},
			"UsesAWSIdentities":  {kind.UsesAWSIdentities(), has(spec, "identityRef") || has(spec.Properties["decryption"], "identityRef")},
			"WorkloadIdentity":   {kind.WorkloadIdentity != nil, has(spec, "workloadIdentityName") || has(spec, "workloadIdentity")},
			"Relation":           {kind.Relation != "", has(spec, "workloadIdentityName") || has(spec, "workloadIdentity")},
			"Found with Success": {kind.Found != nil, kind.Success != ""},
			"Region":             {kind.Region != nil, has(spec, "region")},
			"Bucket":             {kind.Bucket != nil, kind.Server == kinds.Buckets},
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
	must.Succeed(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must.Succeed(t, yaml.UnmarshalStrict(data, crd))
	return crd
}

// TestTableFitsTheLibrary checks that auth/svid and auth/spec list the same kinds as the table.
// These packages cannot import the table.
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
	for _, kind := range kinds.All().Where(func(k kinds.Kind) bool { return k.HasSVIDs() || k.AWSIdentity }) {
		subject, err := auth.Object(auth.Kind(kind.Kind), "tenant-a", "app")
		if kind.ClusterScoped {
			subject, err = auth.ClusterIdentity(auth.Kind(kind.Kind), "app")
		}
		if parsed, unknown := auth.ParseSubject(subject.String()); err != nil || unknown != nil || parsed != subject {
			t.Errorf("%s of kind %s: package auth parses %v, %v", subject, kind.Kind, parsed, unknown)
		}
	}
}

// TestSchemeWithoutEntry checks that AddToScheme fails if a kind has no entry in the table.
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

// TestAdmissionOfAWSIdentities checks that the admission policy covers each kind of AWS identities.
// The schemas of these kinds keep unknown fields. Without the policy, the API server would store a
// misspelt grant.
func TestAdmissionOfAWSIdentities(t *testing.T) {
	policy, err := os.ReadFile(filepath.Join("..", "..", "config", "admission", "awsidentities.yaml"))
	must.Succeed(t, err)
	var plurals []string
	for _, kind := range kinds.All().Where(func(k kinds.Kind) bool { return k.AWSIdentity }) {
		plurals = append(plurals, kind.Plural)
		if !strings.Contains(string(policy), "'"+kind.Kind+"': variables.") {
			t.Errorf("the policy does not know the fields of %s", kind.Kind)
		}
	}
	slices.Sort(plurals)
	if want := "resources: [" + strings.Join(plurals, ", ") + "]"; !strings.Contains(string(policy), want) {
		t.Errorf("the policy has no %s", want)
	}
}

// TestWrongEntries checks that AddToScheme fails if a field of an entry is missing or wrong.
func TestWrongEntries(t *testing.T) {
	for says, spoil := range map[string]func(*kinds.Kind){
		"needs Plural and Short":                    func(k *kinds.Kind) { k.Plural = "" },
		"needs the Program that reconciles it":      func(k *kinds.Kind) { k.Program = "other" },
		"needs a Go type of its name":               func(k *kinds.Kind) { k.New = kinds.Bucket().New },
		"must be made by Acting, with a Server":     func(k *kinds.Kind) { k.Server = "" },
		"needs OnlyIdentityRef with IdentityRef":    func(k *kinds.Kind) { k.OnlyIdentityRef = nil },
		"needs AddressField and Fields with Server": func(k *kinds.Kind) { k.Fields = nil },
		"needs Found, Source and a status":          func(k *kinds.Kind) { k.Source = nil },
	} {
		entry := kinds.OCIRepository()
		spoil(&entry)
		err := kinds.Table{entry}.AddToScheme(runtime.NewScheme())
		if want := "the entry of kind OCIRepository in the table of package kinds " + says; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestRelations evaluates the expression Kind.Relation of each kind. The result must be true only
// for the WorkloadIdentity that the object names.
func TestRelations(t *testing.T) {
	for _, kind := range kinds.All().Where(func(k kinds.Kind) bool { return k.Relation != "" }) {
		o := kind.New()
		switch o := o.(type) {
		case kinds.Tenant:
			o.GetAccess().WorkloadIdentityName = "app"
		case *identityv1.WorkloadIdentityBinding:
			o.Spec.WorkloadIdentity = &identityv1.WorkloadIdentityReference{Name: "app"}
		}
		if got := kind.WorkloadIdentity(o); got != "app" {
			t.Errorf("%s names WorkloadIdentity %q, want app", kind.Kind, got)
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		must.Succeed(t, err)
		for identity, want := range map[string]bool{"app": true, "other": false} {
			if got := related(t, kind.Relation, object, identity); got != want {
				t.Errorf("%s: %s is %t for identity %s, want %t", kind.Kind, kind.Relation, got, identity, want)
			}
		}
	}
}

// related reports whether a Kind.Relation is true for an object and a WorkloadIdentity.
func related(t *testing.T, relation string, object map[string]any, identity string) bool {
	t.Helper()
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.Variable("object", cel.DynType), cel.Variable("identity", cel.DynType))
	must.Succeed(t, err)
	ast, issues := env.Compile(relation)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(ast)
	must.Succeed(t, err)
	value, _, err := program.Eval(map[string]any{"object": object, "identity": map[string]any{"metadata": map[string]any{"name": identity}}})
	must.Succeed(t, err)
	return value.Value() == true
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

// TestFields checks the function Fields of each kind that has one. Its result must have all
// identity fields of the object, and must share no data with the object.
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
		change func(*spec.Fields) // changes the expected fields for the object's kind
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
			f.Kind, f.Address, f.STS = "Bucket", "", &spec.TokenService{Provider: "aws", Endpoint: "https://sts"}
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
		overwriteAll(test.object)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", kind.Kind, got, want)
		}
	}
}

// TestFound checks the text that describes an object's result and becomes the message of the
// condition Ready.
func TestFound(t *testing.T) {
	bucket, image := &v1alpha1.Bucket{}, &v1alpha1.ImageRepository{}
	repository := &v1alpha1.OCIRepository{}
	for _, kind := range kinds.All().Where(kinds.Kind.Fetches) {
		if found := kind.Found(kind.New()); found != nil {
			t.Errorf("%s: nothing was found, and it shows %+v", kind.Kind, found)
		}
	}
	bucket.Status.Artifact, repository.Status.Artifact = &v1alpha1.Artifact{Revision: "sha256:0a"}, &v1alpha1.Artifact{Revision: "v1@sha256:0a"}
	image.Status.CanonicalImageName, image.Status.LastScanResult = "cloud.example.com/app", &v1alpha1.ScanResult{TagCount: 3}
	for want, o := range map[string]kinds.Object{
		"stored artifact for revision sha256:0a": bucket, "stored artifact for revision v1@sha256:0a": repository, "tags of cloud.example.com/app: 3": image,
	} {
		kind, _ := kinds.All().Of(o)
		if found := kind.Found(o); found == nil || found.Text != want {
			t.Errorf("%s: %+v, want %q", kind.Kind, found, want)
		}
	}
}
