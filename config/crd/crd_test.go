//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

// Package crd_test validates objects with the generated CustomResourceDefinitions.
package crd_test

import (
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/config/crd/crdtest"
	"github.com/lanyard-dev/lanyard/internal/admission"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	table "github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// kind is a CRD, with the spec of a minimal valid object.
type kind struct {
	file    string
	name    string
	minimal map[string]any // spec of a minimal object
}

func ocirepositories() kind {
	return kind{"toolkit.lanyard.dev_ocirepositories.yaml", v1alpha1.OCIRepositoryKind, map[string]any{
		"url": "oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app", "interval": "5m",
	}}
}

func imagerepositories() kind {
	return kind{"toolkit.lanyard.dev_imagerepositories.yaml", v1alpha1.ImageRepositoryKind, map[string]any{
		"image": "123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app", "interval": "5m",
	}}
}

func buckets() kind {
	return kind{"toolkit.lanyard.dev_buckets.yaml", v1alpha1.BucketKind, map[string]any{
		"bucketName": "tenant-a-config", "endpoint": "s3.eu-west-1.amazonaws.com", "interval": "5m",
	}}
}

func kustomizations() kind {
	return kind{"toolkit.lanyard.dev_kustomizations.yaml", v1alpha1.KustomizationKind, map[string]any{
		"sourceRef": map[string]any{"kind": "OCIRepository", "name": "app"}, "interval": "10m", "prune": true,
	}}
}

// kinds returns the kinds whose objects fetch.
func kinds() []kind { return []kind{ocirepositories(), imagerepositories(), buckets()} }

// object returns a minimal object, with the given fields set in its spec.
func (k kind) object(spec map[string]any) map[string]any {
	full := maps.Clone(k.minimal)
	maps.Copy(full, spec)
	return map[string]any{
		"apiVersion": "toolkit.lanyard.dev/v1alpha1",
		"kind":       k.name,
		"metadata":   map[string]any{"name": "tenant-a-repo", "namespace": "tenant-a"},
		"spec":       full,
	}
}

// TestDefinitionsAreAccepted checks that an API server accepts the CRDs: their schemas are
// structural, and their rules compile and stay within the cost limit.
func TestDefinitionsAreAccepted(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs here: %v", err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), crdtest.Read(t, file)) {
				t.Error(err)
			}
		})
	}
}

// TestKindsAreRegistered checks that module api has a Go type for each kind of the CRDs.
func TestKindsAreRegistered(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	files, err := filepath.Glob("toolkit.lanyard.dev_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs here: %v", err)
	}
	for _, file := range files {
		spec := crdtest.Read(t, file).Spec
		if spec.Group != v1alpha1.Group || spec.Versions[0].Name != v1alpha1.Version {
			t.Errorf("%s is of %s/%s", file, spec.Group, spec.Versions[0].Name)
		}
		for _, kind := range []string{spec.Names.Kind, spec.Names.ListKind} {
			if !scheme.Recognizes(v1alpha1.GroupVersion().WithKind(kind)) {
				t.Errorf("the scheme does not know %s", kind)
			}
		}
	}
}

// row is one line of a truth table.
type row struct {
	Name     string         `json:"name"`
	Kinds    []string       `json:"kinds"`
	Spec     map[string]any `json:"spec"`
	Accepted bool           `json:"accepted"`
	Field    string         `json:"field"`
	Message  string         `json:"message"`
}

func rows(t *testing.T, file string) []row {
	t.Helper()
	data, err := os.ReadFile(file)
	must.Succeed(t, err)
	var table struct {
		Rows []row `json:"rows"`
	}
	must.Succeed(t, yaml.UnmarshalStrict(data, &table))
	if len(table.Rows) == 0 {
		t.Fatalf("%s has no rows", file)
	}
	return table.Rows
}

// TestOCIRepositoryTables compares the schema's verdicts with two tables: the combinations of
// identity fields, which package auth/spec checks too, and the formats of fields.
func TestOCIRepositoryTables(t *testing.T) {
	agree(t, ocirepositories(), "../../auth/spec/testdata/exclusions.yaml", "testdata/formats.yaml")
}

// TestImageRepositoryTables compares the schema's verdicts with two tables, like
// TestOCIRepositoryTables. The identity fields have the same rules as those of an OCIRepository.
func TestImageRepositoryTables(t *testing.T) {
	agree(t, imagerepositories(), "../../auth/spec/testdata/exclusions.yaml", "testdata/images.yaml")
}

// TestBucketTables compares the schema's verdicts with two tables, like TestOCIRepositoryTables.
// The tables include spec.sts, the token service that a Bucket may name.
func TestBucketTables(t *testing.T) {
	agree(t, buckets(), "../../auth/spec/testdata/exclusions.yaml", "testdata/buckets.yaml")
}

// agree compares a kind's schema with tables. Each row of a table has a spec, and says whether the
// schema must accept it.
func agree(t *testing.T, k kind, tables ...string) {
	t.Helper()
	a := crdtest.New(t, k.file)
	for _, file := range tables {
		seen := map[string]bool{}
		for _, row := range rows(t, file) {
			if row.Kinds != nil && !slices.Contains(row.Kinds, k.name) {
				continue
			}
			t.Run(filepath.Base(file)+"/"+row.Name, func(t *testing.T) {
				if seen[row.Name] {
					t.Fatal("the table has two rows of this name")
				}
				seen[row.Name] = true
				errs := a.Admit(t.Context(), k.object(row.Spec))
				if row.Accepted {
					if len(errs) > 0 {
						t.Fatalf("refused: %v", errs.ToAggregate())
					}
					return
				}
				if len(errs) == 0 {
					t.Fatal("accepted")
				}
				if row.Field == "" || row.Message == "" {
					t.Fatal("the row must say which field is refused, and how")
				}
				for _, err := range errs {
					if err.Field == row.Field && strings.Contains(err.Error(), row.Message) {
						return
					}
				}
				t.Fatalf("refused otherwise than %s: %s\n%v", row.Field, row.Message, errs.ToAggregate())
			})
		}
	}
}

// TestExamplesAreAccepted checks that the schemas accept the objects in the folder examples. These
// include objects whose fetch is refused later.
func TestExamplesAreAccepted(t *testing.T) {
	admissions := map[any]*admission.Admission{} // keyed by the kind in the object
	for _, k := range append(kinds(), kustomizations()) {
		admissions[k.name] = crdtest.New(t, k.file)
	}
	files, err := filepath.Glob("../../examples/*.yaml")
	must.Succeed(t, err)
	seen := map[any]int{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		must.Succeed(t, err)
		for document := range strings.SplitSeq(string(data), "\n---\n") {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if object["apiVersion"] != v1alpha1.GroupVersion().String() {
				continue
			}
			a := admissions[object["kind"]]
			if a == nil {
				t.Errorf("%s: nobody knows the kind %v", file, object["kind"])
				continue
			}
			seen[object["kind"]]++
			if errs := a.Admit(t.Context(), object); len(errs) > 0 {
				t.Errorf("%s: %v", file, errs.ToAggregate())
			}
		}
	}
	for kind := range admissions {
		if seen[kind] == 0 {
			t.Errorf("no %v in examples", kind)
		}
	}
}

// TestOCIRepositoryDefaults checks the defaults of a minimal object.
func TestOCIRepositoryDefaults(t *testing.T) {
	object := ocirepositories().object(map[string]any{"layerSelector": map[string]any{}, "ref": nil})
	if errs := crdtest.New(t, ocirepositories().file).Admit(t.Context(), object); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	repo := decode[v1alpha1.OCIRepository](t, object)
	if got := repo.Spec.Provider; got != v1alpha1.ProviderGeneric {
		t.Errorf("provider is %q", got)
	}
	if got := repo.Spec.Timeout; got == nil || got.Duration != time.Minute {
		t.Errorf("timeout is %v", got)
	}
	if got := repo.Spec.LayerSelector; got == nil || got.Operation != v1alpha1.LayerExtract {
		t.Errorf("layerSelector is %+v", got)
	}
	if repo.Spec.Ref != nil {
		t.Errorf("ref is %+v", repo.Spec.Ref)
	}
}

// TestImageRepositoryDefaults checks the defaults of a minimal ImageRepository. An exclusionList
// that is empty on purpose stays empty, even after Go code has written the object.
func TestImageRepositoryDefaults(t *testing.T) {
	a := crdtest.New(t, imagerepositories().file)
	for what, c := range map[string]struct {
		spec map[string]any
		want []string
	}{
		"absent": {nil, []string{v1alpha1.DefaultTagExclusion}},
		"null":   {map[string]any{"exclusionList": nil}, []string{v1alpha1.DefaultTagExclusion}},
		"empty":  {map[string]any{"exclusionList": []any{}}, []string{}},
	} {
		object := imagerepositories().object(c.spec)
		if errs := a.Admit(t.Context(), object); len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		image := decode[v1alpha1.ImageRepository](t, object)
		if got := image.Spec.ExclusionList; !slices.Equal(got, c.want) || got == nil {
			t.Errorf("%s: exclusionList is %#v", what, got)
		}
		if image.Spec.Provider != v1alpha1.ProviderGeneric || image.Spec.Timeout == nil || image.Spec.Timeout.Duration != time.Minute {
			t.Errorf("%s: %+v", what, image.Spec)
		}
		written, err := json.Marshal(image)
		must.Succeed(t, err)
		var again map[string]any
		must.Succeed(t, json.Unmarshal(written, &again))
		if errs := a.Admit(t.Context(), again); len(errs) > 0 {
			t.Errorf("%s: %v", what, errs.ToAggregate())
		}
		if got := decode[v1alpha1.ImageRepository](t, again).Spec.ExclusionList; !slices.Equal(got, c.want) {
			t.Errorf("%s: written again, exclusionList is %#v", what, got)
		}
	}
}

// TestBucketDefaults checks the defaults of a minimal Bucket. The schema must not set fields whose
// defaults the controller sets.
func TestBucketDefaults(t *testing.T) {
	object := buckets().object(nil)
	if errs := crdtest.New(t, buckets().file).Admit(t.Context(), object); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	want := v1alpha1.BucketSpec{
		BucketName: "tenant-a-config",
		Endpoint:   "s3.eu-west-1.amazonaws.com",
		Schedule:   v1alpha1.Schedule{Interval: metav1.Duration{Duration: 5 * time.Minute}, Timeout: &metav1.Duration{Duration: time.Minute}},
		Access:     v1alpha1.Access{Provider: v1alpha1.ProviderGeneric},
	}
	if got := decode[v1alpha1.Bucket](t, object).Spec; !reflect.DeepEqual(got, want) {
		t.Errorf("it is stored as %+v; want %+v", got, want)
	}
}

// TestSpecRequired checks that an object without spec is refused, not defaulted.
func TestSpecRequired(t *testing.T) {
	for _, k := range kinds() {
		object := k.object(nil)
		delete(object, "spec")
		if errs := crdtest.New(t, k.file).Admit(t.Context(), object); len(errs) == 0 {
			t.Errorf("%s: accepted an object without spec", k.name)
		}
	}
}

// TestEveryFieldIsDescribed checks that each field of a spec or a status has a description for
// kubectl explain. It also checks that every string that a tenant writes has a limit.
func TestEveryFieldIsDescribed(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs here: %v", err)
	}
	for _, file := range files {
		crd := crdtest.Read(t, file)
		validation, err := apiextensions.GetSchemaForVersion(crd, crd.Spec.Versions[0].Name)
		must.Succeed(t, err)
		root := validation.OpenAPIV3Schema
		for _, name := range []string{"spec", "status"} {
			part := root.Properties[name]
			walk(name, &part, func(path string, s *apiextensions.JSONSchemaProps) {
				if len(s.Description) < 20 && !strings.HasSuffix(path, "[]") {
					t.Errorf("%s: %s: description %q says too little", file, path, s.Description)
				}
				bounded := s.MaxLength != nil || len(s.Enum) > 0
				if name == "spec" && s.Type == "string" && !bounded {
					t.Errorf("%s: %s: a string without maxLength", file, path)
				}
			})
		}
	}
}

// walk calls visit for every named property below s, and for s itself.
func walk(path string, s *apiextensions.JSONSchemaProps, visit func(string, *apiextensions.JSONSchemaProps)) {
	visit(path, s)
	for name, child := range s.Properties {
		walk(path+"."+name, &child, visit)
	}
	if s.Items != nil && s.Items.Schema != nil {
		walk(path+"[]", s.Items.Schema, visit)
	}
}

func decode[T any](tb testing.TB, object map[string]any) *T {
	tb.Helper()
	data, err := json.Marshal(object)
	must.Succeed(tb, err)
	var decoded T
	if err := json.Unmarshal(data, &decoded); err != nil {
		tb.Fatalf("accepted by the schema, but not readable: %v\n%s", err, data)
	}
	return &decoded
}

// FuzzAcceptedIsReadable checks that the controller can decode each object that the schema accepts.
// If one stored object could not be decoded, the controller could not list any tenant's objects.
// The durations must be within their limits. The URL must have only a host and a path.
func FuzzAcceptedIsReadable(f *testing.F) {
	f.Add("oci://registry.example.com:5000/team/app", "5m", "60s", "1.2.0", ".*-rc.*")
	f.Add("oci://user:password@registry.example.com/app", "999999999999h", "0.5m", "", "(")
	f.Add("oci://[::1]:5000/app", "1h1m1s1ms", "1.5h", "-tag", `\p{Greek}`)
	f.Add("oci://host/a//b?x=y#z", "2562047h47m16.854775807s", "1.0000000000000000000000001s", "a:b", "a{1001}")
	a := crdtest.New(f, ocirepositories().file)
	f.Fuzz(func(t *testing.T, address, interval, timeout, tag, filter string) {
		object := ocirepositories().object(map[string]any{
			"url": address, "interval": interval, "timeout": timeout,
			"ref": map[string]any{"tag": tag, "semver": "*", "semverFilter": filter},
		})
		if errs := a.Admit(t.Context(), object); len(errs) > 0 {
			return
		}
		spec := decode[v1alpha1.OCIRepository](t, object).Spec
		if d := spec.Interval.Duration; d < time.Second || d > 8760*time.Hour {
			t.Errorf("interval %q is %v", interval, d)
		}
		if d := spec.Timeout.Duration; d < time.Second || d > 30*time.Minute {
			t.Errorf("timeout %q is %v", timeout, d)
		}
		u, err := url.Parse(spec.URL)
		if err != nil {
			// In a host such as [::1], the schema's pattern checks only the characters between the
			// brackets. There, net/url requires a valid IP address. The controller refuses a URL
			// that net/url cannot parse.
			if strings.Contains(spec.URL, "[") {
				return
			}
			t.Fatalf("url %q: %v", spec.URL, err)
		}
		if u.Scheme != "oci" || u.Host == "" || u.Path == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.RawPath != "" {
			t.Errorf("url %q is %#v", spec.URL, u)
		}
		if strings.Contains(u.Path, ":") || strings.Contains(u.Path, "..") || strings.Contains(u.Path, "//") {
			t.Errorf("url %q has the path %q", spec.URL, u.Path)
		}
	})
}

// FuzzAcceptedImageIsReadable checks that the controller can decode each ImageRepository that the
// schema accepts. The controller must also be able to parse the exclusions, unless a regular
// expression is too large.
func FuzzAcceptedImageIsReadable(f *testing.F) {
	f.Add("registry.example.com:5000/team/app", "5m", "60s", `^.*\.sig$`)
	f.Add("docker.io/library/alpine", "1h30m", "1.5m", "")
	f.Add("user:password@registry.example.com/app", "999999999999h", "0.5m", "(")
	f.Add("[::1]:5000/app", "1h1m1s1ms", "1.5h", `\pL{999}\pL{999}\pL{999}`)
	f.Add("alpine", "5m", "60s", "a{1001}")
	a := crdtest.New(f, imagerepositories().file)
	f.Fuzz(func(t *testing.T, image, interval, timeout, exclusion string) {
		object := imagerepositories().object(map[string]any{
			"image": image, "interval": interval, "timeout": timeout, "exclusionList": []any{exclusion},
		})
		if errs := a.Admit(t.Context(), object); len(errs) > 0 {
			return
		}
		spec := decode[v1alpha1.ImageRepository](t, object).Spec
		if d := spec.Interval.Duration; d < time.Second || d > 8760*time.Hour {
			t.Errorf("interval %q is %v", interval, d)
		}
		// The controller may refuse some values that the schema accepts:
		//   - an invalid host that matches the schema's pattern
		//   - a repository that is too long
		//   - a regular expression that is too large
		if repo, err := oci.ParseImage(spec.Image); err == nil && !strings.HasSuffix(strings.ToLower(spec.Image), strings.TrimPrefix(repo.Name(), "library/")) {
			t.Errorf("image %q is %s", spec.Image, repo)
		}
		if _, err := oci.ParseExclusions(spec.ExclusionList); err != nil && !strings.Contains(err.Error(), "too large") {
			t.Errorf("exclusion %q: %v", exclusion, err)
		}
	})
}

// FuzzAcceptedBucketIsReadable checks that the controller can decode each Bucket that the schema
// accepts. The test also checks that an endpoint is a host, or a host and a port.
func FuzzAcceptedBucketIsReadable(f *testing.F) {
	f.Add("tenant-a", "minio.example.com:9000", "eu-west-1", "clusters/a/", "https://minio.example.com:9000", "5m", "60s")
	f.Add("$web", "[fd00::1]:9000", "EU_West_1", "\x00", "https://minio.example.com/", "1h1m1s1ms", "1.5m")
	f.Add("tenant/../b", "user:password@minio.example.com", "eu/west", "", "https://sts.amazonaws.com@evil.example", "999999999999h", "0.5m")
	f.Add("a%2Fb", "host?x=y#z", "a\nb", "../", "http://minio.example.com", "2562047h47m16.854775807s", "1.0000000000000000000000001s")
	a := crdtest.New(f, buckets().file)
	f.Fuzz(func(t *testing.T, name, endpoint, region, prefix, sts, interval, timeout string) {
		object := buckets().object(map[string]any{
			"bucketName": name, "endpoint": endpoint, "region": region, "prefix": prefix, "interval": interval, "timeout": timeout,
			"serviceAccountName": "reader", "sts": map[string]any{"provider": "aws", "endpoint": sts},
		})
		if errs := a.Admit(t.Context(), object); len(errs) > 0 {
			return
		}
		spec := decode[v1alpha1.Bucket](t, object).Spec
		if d := spec.Interval.Duration; d < time.Second || d > 8760*time.Hour {
			t.Errorf("interval %q is %v", interval, d)
		}
		if d := spec.Timeout.Duration; d < time.Second || d > 30*time.Minute {
			t.Errorf("timeout %q is %v", timeout, d)
		}
		// bucketName must be one segment of a path, and region must be one label of a host name.
		if strings.Trim(spec.BucketName, ".") == "" || strings.ContainsAny(spec.BucketName, "/\\%?#@: \n") {
			t.Errorf("bucketName %q", spec.BucketName)
		}
		if strings.ContainsAny(spec.Region, "./\\%?#@: \n") {
			t.Errorf("region %q", spec.Region)
		}
		for _, address := range []string{"https://" + spec.Endpoint, spec.STS.Endpoint} {
			u, err := url.Parse(address)
			if err != nil {
				if strings.Contains(address, "[") { // net/url requires a real IP address in brackets
					continue
				}
				t.Fatalf("endpoint %q: %v", address, err)
			}
			if strings.TrimSuffix(address, "/") != "https://"+u.Host || u.Hostname() == "" || u.User != nil {
				t.Errorf("endpoint %q is %#v", address, u)
			}
		}
	})
}

// TestKustomizations checks which Kustomizations the schema accepts.
func TestKustomizations(t *testing.T) {
	k := kustomizations()
	judge := crdtest.New(t, k.file)
	for name, c := range map[string]struct {
		spec  map[string]any
		field string // of the refusal; empty if the object is accepted
	}{
		"minimal": {nil, ""},
		"everything": {map[string]any{
			"path": "./app", "serviceAccountName": "deployer", "deletionPolicy": "WaitForTermination", "retryInterval": "1m", "timeout": "5m", "force": true,
			"targetNamespace": "tenant-a", "namePrefix": "a-", "nameSuffix": "-b", "components": []any{"../c"}, "ignoreMissingComponents": true,
			"commonMetadata": map[string]any{"labels": map[string]any{"a": "b"}}, "buildMetadata": []any{"originAnnotations"},
			"patches": []any{map[string]any{"patch": "- op: remove", "target": map[string]any{"kind": "Deployment"}}},
			"images":  []any{map[string]any{"name": "web", "newTag": "2"}},
			"ignore":  []any{map[string]any{"paths": []any{"/spec/replicas"}}},
			"postBuild": map[string]any{
				"substitute": map[string]any{"a": "b"}, "substituteStrategy": "Always", "substituteFrom": []any{map[string]any{"kind": "Secret", "name": "s", "optional": true}},
			},
		}, ""},
		"another source": {map[string]any{"sourceRef": map[string]any{"kind": "Secret", "name": "app"}}, "spec.sourceRef.kind"},
		"no source":      {map[string]any{"sourceRef": map[string]any{"kind": "Bucket"}}, "spec.sourceRef.name"},
		"no prune":       {map[string]any{"prune": nil}, "spec.prune"},
		"no interval":    {map[string]any{"interval": "0s"}, "spec.interval"},
		"a long timeout": {map[string]any{"timeout": "31m"}, "spec.timeout"},
		"no retry":       {map[string]any{"retryInterval": "1ms"}, "spec.retryInterval"},
		"another policy": {map[string]any{"deletionPolicy": "Never"}, "spec.deletionPolicy"},
		"a Pod's values": {map[string]any{"postBuild": map[string]any{"substituteFrom": []any{map[string]any{"kind": "Pod", "name": "s"}}}}, "spec.postBuild.substituteFrom[0].kind"},
		"decryption": {map[string]any{"decryption": map[string]any{
			"provider": "sops", "serviceAccountName": "decrypter", "secretRef": map[string]any{"name": "keys"},
		}}, ""},
		"no provider":      {map[string]any{"decryption": map[string]any{}}, "spec.decryption.provider"},
		"another provider": {map[string]any{"decryption": map[string]any{"provider": "gpg"}}, "spec.decryption.provider"},
		"another cluster":  {map[string]any{"kubeConfig": map[string]any{"secretRef": map[string]any{"name": "a", "key": "value"}}}, ""},
		"no Secret":        {map[string]any{"kubeConfig": map[string]any{}}, "spec.kubeConfig"},
		"configMapRef":     {map[string]any{"kubeConfig": map[string]any{"configMapRef": map[string]any{"name": "a"}}}, "spec.kubeConfig.configMapRef"},
		"health": {map[string]any{
			"wait": true, "healthChecks": []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "a"}},
			"healthCheckExprs": []any{map[string]any{"apiVersion": "a/v1", "current": "true"}}, "dependsOn": []any{map[string]any{"name": "a", "readyExpr": "true"}},
		}, ""},
		"no current": {map[string]any{"healthCheckExprs": []any{map[string]any{"apiVersion": "a/v1", "kind": "A"}}}, "spec.healthCheckExprs[0].current"},
		"no paths":   {map[string]any{"ignore": []any{map[string]any{"paths": []any{}}}}, "spec.ignore[0].paths"},
	} {
		errs := judge.Admit(t.Context(), k.object(c.spec))
		if c.field == "" && len(errs) > 0 || c.field != "" && (len(errs) == 0 || errs[0].Field != c.field) {
			t.Errorf("%s: %v, want a refusal of %q", name, errs.ToAggregate(), c.field)
		}
	}
	mustNotMoveObjects(t, judge, k)
	for _, source := range table.All().Sources() {
		if errs := judge.Admit(t.Context(), k.object(map[string]any{"sourceRef": map[string]any{"kind": source, "name": "app"}})); len(errs) > 0 {
			t.Errorf("a source of kind %s: %v", source, errs.ToAggregate())
		}
	}
	long := k.object(nil)
	long["metadata"].(map[string]any)["name"] = strings.Repeat("x", 64)
	if errs := judge.Admit(t.Context(), long); len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), "at most 63 characters") {
		t.Errorf("a long name: %v", errs)
	}
}

// mustNotMoveObjects checks that a Kustomization with applied objects cannot be turned to another
// cluster, because its objects would stay in the first.
func mustNotMoveObjects(t *testing.T, judge *admission.Admission, k kind) {
	t.Helper()
	elsewhere := map[string]any{"kubeConfig": map[string]any{"secretRef": map[string]any{"name": "a"}}}
	inventory := func(entries ...any) map[string]any {
		return map[string]any{"inventory": map[string]any{"entries": entries}}
	}
	entry := map[string]any{"id": "apps_a__ConfigMap", "v": "v1"}
	for name, c := range map[string]struct {
		status, before, after map[string]any
		refused               bool
	}{
		"added":               {inventory(entry), nil, elsewhere, true},
		"removed":             {inventory(entry), elsewhere, nil, true},
		"another Secret":      {inventory(entry), elsewhere, map[string]any{"kubeConfig": map[string]any{"secretRef": map[string]any{"name": "b"}}}, false},
		"without objects":     {inventory(), nil, elsewhere, false},
		"before it was tried": {map[string]any{"observedGeneration": int64(-1)}, nil, elsewhere, false},
	} {
		before, after := k.object(c.before), k.object(c.after)
		before["status"], after["status"] = c.status, c.status
		errs := judge.AdmitUpdate(t.Context(), after, before)
		if (len(errs) > 0) != c.refused || c.refused && !strings.Contains(errs.ToAggregate().Error(), "delete this Kustomization, and create it anew") {
			t.Errorf("%s: %v", name, errs.ToAggregate())
		}
	}
}
