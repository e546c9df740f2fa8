package bucket

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// anywhere implements [buckets.Service], and accepts every spec.
type anywhere struct{ signing }

func (anywhere) Locate(spec v1alpha1.BucketSpec) (buckets.Place, error) {
	return buckets.Place{Endpoint: spec.Endpoint, Host: spec.Endpoint}, nil
}

func everywhere() kind {
	return kind{services: map[string]buckets.Service{"generic": anywhere{}, "aws": anywhere{}, "azure": anywhere{}, "gcp": anywhere{}}}
}

// TestFormatsAreTheSchemas checks that Decide enforces the schema's rules. Objects may be older
// than a rule, or have been stored without the schema's checks.
func TestFormatsAreTheSchemas(t *testing.T) {
	data, err := os.ReadFile("../../../config/crd/testdata/buckets.yaml")
	must.Succeed(t, err)
	var table struct {
		Rows []struct {
			Name     string
			Spec     map[string]any
			Accepted bool
			Field    string
		}
	}
	must.Succeed(t, yaml.Unmarshal(data, &table))
	if len(table.Rows) < 30 {
		t.Fatalf("only %d rows", len(table.Rows))
	}
	for _, row := range table.Rows {
		if _, ok := row.Spec["sts"]; ok {
			continue // Decide does not check spec.sts; the provider's service does
		}
		spec := v1alpha1.BucketSpec{BucketName: "tenant-a", Endpoint: "minio.example.com"}
		if endpoint, ok := row.Spec["endpoint"]; ok && endpoint == nil {
			spec.Endpoint = ""
		}
		raw, err := json.Marshal(row.Spec)
		must.Succeed(t, err)
		must.Succeed(t, json.Unmarshal(raw, &spec))
		_, err = everywhere().Decide(&v1alpha1.Bucket{Spec: spec}, source.Call{})
		if (err == nil) != row.Accepted || err != nil && !strings.HasPrefix(err.Error(), row.Field+": ") {
			t.Errorf("%s: %v", row.Name, err)
		}
	}
}

func TestDecide(t *testing.T) {
	ok := v1alpha1.BucketSpec{BucketName: "tenant-a", Endpoint: "minio.example.com", Prefix: "a/"}
	for name, test := range map[string]struct {
		edit func(*v1alpha1.BucketSpec)
		says string
	}{
		"a bad pattern":   {func(s *v1alpha1.BucketSpec) { s.Ignore = new("[") }, "spec.ignore"},
		"a long prefix":   {func(s *v1alpha1.BucketSpec) { s.Prefix = strings.Repeat("x", 1025) }, "spec.prefix"},
		"a long endpoint": {func(s *v1alpha1.BucketSpec) { s.Endpoint = strings.Repeat("x", 260) }, "spec.endpoint"},
		"a long name":     {func(s *v1alpha1.BucketSpec) { s.BucketName = strings.Repeat("x", 223) }, "spec.bucketName"},
		"nothing wrong":   {func(*v1alpha1.BucketSpec) {}, ""},
	} {
		spec := ok
		test.edit(&spec)
		p, err := everywhere().Decide(&v1alpha1.Bucket{Spec: spec}, source.Call{Stored: true})
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (p.service == nil || p.source != `generic minio.example.com tenant-a "a/"`) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestDecideWithoutAService checks that Decide returns an error for a provider without a service
// for buckets.
func TestDecideWithoutAService(t *testing.T) {
	spec := v1alpha1.BucketSpec{Access: v1alpha1.Access{Provider: "aws"}, BucketName: "tenant-a"}
	if p, err := (kind{}).Decide(&v1alpha1.Bucket{Spec: spec}, source.Call{}); err == nil {
		t.Errorf("%+v", p)
	}
}

// FuzzDecide checks that every spec that Decide accepts names one bucket at one host, whatever a
// tenant writes.
func FuzzDecide(f *testing.F) {
	f.Add("aws", "tenant-a", "s3.eu-west-1.amazonaws.com", "eu-west-1", "a/", "*.md")
	f.Add("", "../x", "https://evil.example/", "", "../", "[")
	f.Add("azure", "web", "https://a.blob.core.windows.net/", "", "", "")
	f.Add("azure", "$web", "a.blob.core.windows.net:443", "x", "\x00", "")
	f.Fuzz(func(t *testing.T, provider, name, endpoint, region, prefix, ignore string) {
		o := &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a"}, Spec: v1alpha1.BucketSpec{
			Access:     v1alpha1.Access{Provider: provider},
			BucketName: name,
			Endpoint:   endpoint,
			Region:     region,
			Prefix:     prefix,
			Ignore:     &ignore,
		}}
		p, err := everywhere().Decide(o, source.Call{})
		if err != nil {
			return
		}
		if strings.ContainsAny(p.bucket, "/\\?#%@:\n\x00 ") || strings.ContainsAny(p.place.Endpoint, "/\\?#%@\n\x00 ") || strings.ContainsAny(region, "/\n ") {
			t.Errorf("%+v is decided", o.Spec)
		}
		if p.bucket == "" || p.bucket == "." || p.bucket == ".." {
			t.Errorf("bucket %q", p.bucket)
		}
	})
}
