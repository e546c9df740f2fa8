package aws_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
)

var (
	_ auth.ControllerProvider = (*aws.Provider)(nil)
	_ auth.RegistryProvider   = (*aws.Provider)(nil)
)

func newProvider(tb testing.TB, config aws.Config) *aws.Provider {
	tb.Helper()
	provider, err := aws.NewProvider(config)
	rig.Must(tb, err)
	return provider
}

func TestGetTarget(t *testing.T) {
	allowed, err := endpoint.ParseAllowed("sts.example.org", "minio.example.org:9000")
	rig.Must(t, err)
	const (
		west  = "123456789123.dkr.ecr.us-west-2.amazonaws.com/app"
		china = "123456789123.dkr.ecr.cn-north-1.amazonaws.com.cn/app"
		gov   = "123456789123.dkr.ecr.us-gov-west-1.amazonaws.com/app"
	)
	scopes, err := auth.NewList("read")
	rig.Must(t, err)
	proxy := &url.URL{Scheme: "http", Host: "proxy.example.org:3128"}
	for _, test := range []struct {
		name    string
		region  string // the controller's region
		options auth.Options
		want    auth.Target
		code    auth.Code
		fix     string
	}{
		// Sources of the region, in order.
		{name: "nowhere", code: auth.CodeRegionMissing, fix: "AWS_REGION"},
		{name: "resource", options: auth.Options{ImageRepository: west}, want: auth.Target{Image: "us-west-2", STSRegion: "us-west-2"}},
		{name: "controller", region: region, options: auth.Options{ImageRepository: west}, want: auth.Target{Image: "us-west-2", STSRegion: region}},
		{name: "call", region: region, options: auth.Options{ImageRepository: west, STSRegion: "eu-north-1"}, want: auth.Target{Image: "us-west-2", STSRegion: "eu-north-1"}},
		{
			name: "endpoint", region: region, options: auth.Options{STSEndpoint: "https://sts.ap-south-1.amazonaws.com"},
			want: auth.Target{STSEndpoint: "https://sts.ap-south-1.amazonaws.com", STSRegion: "ap-south-1"},
		},
		{
			name: "endpoint and call agree", options: auth.Options{STSEndpoint: "https://STS.ap-south-1.amazonaws.com:443/", STSRegion: "ap-south-1"},
			want: auth.Target{STSEndpoint: "https://sts.ap-south-1.amazonaws.com", STSRegion: "ap-south-1"},
		},
		{
			name: "endpoint and call disagree", options: auth.Options{STSEndpoint: "https://sts.ap-south-1.amazonaws.com", STSRegion: "eu-west-1"},
			code: auth.CodeOptionInvalid, fix: "leave out the STS region",
		},
		{
			name: "global endpoint", options: auth.Options{STSEndpoint: "https://sts.amazonaws.com", STSRegion: "eu-west-1"},
			want: auth.Target{STSEndpoint: "https://sts.amazonaws.com", STSRegion: "eu-west-1"},
		},
		// The controller's region applies only to a registry in the same partition. STS knows only
		// the roles of its own partition.
		{name: "registry in China", region: region, options: auth.Options{ImageRepository: china}, want: auth.Target{Image: "cn-north-1", STSRegion: "cn-north-1"}},
		{name: "registry in GovCloud", region: region, options: auth.Options{ImageRepository: gov}, want: auth.Target{Image: "us-gov-west-1", STSRegion: "us-gov-west-1"}},
		{name: "public registry, from China", region: "cn-north-1", options: auth.Options{ImageRepository: "public.ecr.aws/x/y"}, want: auth.Target{Image: "public.ecr.aws", STSRegion: "us-east-1"}},
		{name: "both in China", region: "cn-northwest-1", options: auth.Options{ImageRepository: china}, want: auth.Target{Image: "cn-north-1", STSRegion: "cn-northwest-1"}},
		{name: "registry in China, call", region: region, options: auth.Options{ImageRepository: china, STSRegion: "cn-northwest-1"}, want: auth.Target{Image: "cn-north-1", STSRegion: "cn-northwest-1"}},
		{
			name: "registry in China, endpoint", region: region, options: auth.Options{ImageRepository: china, STSEndpoint: "https://sts.cn-northwest-1.amazonaws.com.cn"},
			want: auth.Target{Image: "cn-north-1", STSEndpoint: "https://sts.cn-northwest-1.amazonaws.com.cn", STSRegion: "cn-northwest-1"},
		},
		{name: "no region", options: auth.Options{STSRegion: "mars-1"}, code: auth.CodeOptionInvalid, fix: "eu-west-1"},

		// Images.
		{name: "public", region: region, options: auth.Options{ImageRepository: "public.ecr.aws/x/y"}, want: auth.Target{Image: "public.ecr.aws", STSRegion: region}},
		{name: "public alone", options: auth.Options{ImageRepository: "public.ecr.aws/x/y"}, want: auth.Target{Image: "public.ecr.aws", STSRegion: "us-east-1"}},
		{name: "FIPS", options: auth.Options{ImageRepository: "123456789123.dkr.ecr-fips.us-east-1.amazonaws.com/a"}, want: auth.Target{Image: "us-east-1+fips", STSRegion: "us-east-1"}},
		{name: "dual-stack", options: auth.Options{ImageRepository: "123456789123.dkr-ecr.us-east-1.on.aws/a"}, want: auth.Target{Image: "us-east-1+dual-stack", STSRegion: "us-east-1"}},
		{name: "FIPS, dual-stack", options: auth.Options{ImageRepository: "123456789123.dkr-ecr-fips.us-east-1.on.aws/a"}, want: auth.Target{Image: "us-east-1+fips+dual-stack", STSRegion: "us-east-1"}},
		{name: "public, dual-stack", options: auth.Options{ImageRepository: "ecr-public.aws.com/x/y"}, want: auth.Target{Image: "public.ecr.aws+dual-stack", STSRegion: "us-east-1"}},
		{name: "China", options: auth.Options{ImageRepository: "123456789123.dkr.ecr.cn-north-1.amazonaws.com.cn/a"}, want: auth.Target{Image: "cn-north-1", STSRegion: "cn-north-1"}},
		{name: "look-alike", region: region, options: auth.Options{ImageRepository: "123456789123.dkr.ecr.eu-west-1.amazonaws.com.evil.org/a"}, code: auth.CodeEndpointRefused, fix: "write "},
		{name: "look-alike before", region: region, options: auth.Options{ImageRepository: "evil.org/123456789123.dkr.ecr.eu-west-1.amazonaws.com/a"}, code: auth.CodeEndpointRefused, fix: "write "},
		{name: "look-alike user", region: region, options: auth.Options{ImageRepository: "123456789123.dkr.ecr.eu-west-1.amazonaws.com@evil.org/a"}, code: auth.CodeEndpointRefused, fix: "remove"},
		{name: "listed host is no ECR", region: region, options: auth.Options{ImageRepository: "sts.example.org/a"}, code: auth.CodeEndpointRefused, fix: "write "},
		{name: "Docker Hub", region: region, options: auth.Options{ImageRepository: "alpine"}, code: auth.CodeEndpointRefused, fix: "write "},

		// Endpoints.
		{name: "listed", region: region, options: auth.Options{STSEndpoint: "https://minio.example.org:9000"}, want: auth.Target{STSEndpoint: "https://minio.example.org:9000"}},
		{name: "listed, canonical", region: region, options: auth.Options{STSEndpoint: "https://STS.Example.ORG:443/"}, want: auth.Target{STSEndpoint: "https://sts.example.org"}},
		// A host in AllowedEndpointHosts has no region, and the controller's region does not apply.
		{name: "listed, no region", options: auth.Options{STSEndpoint: "https://minio.example.org:9000"}, want: auth.Target{STSEndpoint: "https://minio.example.org:9000"}},
		{name: "listed, region of the call", region: region, options: auth.Options{STSEndpoint: "https://minio.example.org:9000", STSRegion: "us-east-1"}, want: auth.Target{STSEndpoint: "https://minio.example.org:9000", STSRegion: "us-east-1"}},
		{name: "listed, image", region: region, options: auth.Options{STSEndpoint: "https://sts.example.org", ImageRepository: west}, want: auth.Target{STSEndpoint: "https://sts.example.org", Image: "us-west-2"}},
		{name: "not listed", region: region, options: auth.Options{STSEndpoint: "https://evil.org"}, code: auth.CodeEndpointRefused, fix: "write "},
		{name: "other port", region: region, options: auth.Options{STSEndpoint: "https://minio.example.org:9001"}, code: auth.CodeEndpointRefused, fix: "write "},
		{name: "http", region: region, options: auth.Options{STSEndpoint: "http://sts.eu-west-1.amazonaws.com"}, code: auth.CodeEndpointRefused, fix: "https"},
		{name: "listed, http", region: region, options: auth.Options{STSEndpoint: "http://minio.example.org:9000"}, code: auth.CodeEndpointRefused, fix: "https"},

		// The provider refuses unsupported options, and options that exclude each other.
		{name: "scopes", region: region, options: auth.Options{Scopes: scopes}, code: auth.CodeOptionUnsupported, fix: "scopes"},
		{name: "controller", region: region, options: auth.Options{Subject: auth.Controller()}, want: auth.Target{STSRegion: region}},
		{name: "controller elsewhere", region: region, options: auth.Options{Subject: auth.Controller(), STSEndpoint: "https://sts.example.org"}, code: auth.CodeEndpointRefused, fix: "such as a ServiceAccount"},
		{name: "controller at AWS's", region: region, options: auth.Options{Subject: auth.Controller(), STSEndpoint: "https://sts.eu-west-1.amazonaws.com"}, code: auth.CodeEndpointRefused, fix: "such as a ServiceAccount"},
		{name: "controller by proxy", region: region, options: auth.Options{Subject: auth.Controller(), ProxyURL: proxy}, code: auth.CodeEndpointRefused, fix: "such as a ServiceAccount"},
	} {
		t.Run(test.name, func(t *testing.T) {
			provider := newProvider(t, aws.Config{Region: test.region, AllowedEndpointHosts: allowed})
			for range 2 { // the second result is from the memo
				got, err := provider.GetTarget(&test.options)
				if auth.CodeOf(err) != test.code || (test.code == "" && err != nil) {
					t.Fatalf("error %v, want code %q", err, test.code)
				}
				if got != test.want {
					t.Errorf("%+v, want %+v", got, test.want)
				}
				if e, ok := errors.AsType[*auth.Error](err); ok && !strings.Contains(e.Fix, test.fix) {
					t.Errorf("fix %q, want %q in it", e.Fix, test.fix)
				}
			}
		})
	}
}

func TestGetIdentity(t *testing.T) {
	provider := newProvider(t, aws.Config{})
	account := accountA(t)
	for _, arn := range []string{
		roleA, "arn:aws-cn:iam::000000000001:role/path/to/R=,.@-_", "arn:aws-us-gov:iam::123456789123:role/r",
		// Roles of S3-compatible stores.
		"arn:minio:iam:::role/nOybJqMNzNmroqEKq5D0EUsRZw0", "arn:aws:iam:::role/S3Access",
	} {
		for range 2 {
			got, err := provider.GetIdentity(rig.WithAttribute(account, aws.RoleAnnotation, arn))
			if err != nil || got != arn {
				t.Errorf("%s: %s, %v", arn, got, err)
			}
		}
	}
	for arn, want := range map[string]string{
		" " + roleA:       "ARN",
		roleA + "\n":      "character",
		roleA + "\nx = y": "character",
		"arn:aws:iam::123456789123:user/tenant-a":            "not a role",
		"arn:aws:sts::123456789123:assumed-role/tenant-a/me": "not iam",
		"arn:aws:iam::1234:role/tenant-a":                    "twelve digits",
		"arn:aws:iam:eu-west-1:123456789123:role/tenant-a":   "names the region",
		"arn:gcp:iam::123456789123:role/tenant-a":            "unknown",
		"arn:minio:iam::123456789123:role/tenant-a":          "a store has no accounts",
		"arn:minio:iam:::user/tenant-a":                      "not a role",
		"tenant-a-ecr":                                       "six parts",
	} {
		_, err := provider.GetIdentity(rig.WithAttribute(account, aws.RoleAnnotation, arn))
		e, ok := errors.AsType[*auth.Error](err)
		if !ok || e.Stage != auth.StageIdentity || e.Code != auth.CodeIdentityInvalid || e.Fix == "" || !strings.Contains(e.Err.Error(), want) ||
			!strings.Contains(e.Err.Error(), "annotation eks.amazonaws.com/role-arn of ServiceAccount tenant-a/tenant-a-ecr-sa") {
			t.Errorf("%q: %v", arn, err)
		}
	}
	const fix = "set annotation eks.amazonaws.com/role-arn of ServiceAccount tenant-a/tenant-a-ecr-sa to the ARN of an IAM role"
	_, err := provider.GetIdentity(auth.Account{Subject: account.Subject, UID: "1", Attributes: map[string]string{aws.RoleAnnotation: ""}})
	if e, ok := errors.AsType[*auth.Error](err); !ok || e.Stage != auth.StageIdentity || e.Code != auth.CodeIdentityMissing || e.Fix != fix {
		t.Errorf("empty annotation: %v", err)
	}
	// Without an annotation there is no role. This is no error yet: AWS needs a role, but a store
	// may accept a request without a role.
	if got, err := provider.GetIdentity(auth.Account{Subject: account.Subject, UID: "1"}); got != "" || err != nil {
		t.Errorf("no annotation: %q, %v", got, err)
	}
	_, err = rig.Audience(t.Context(), provider, &auth.Request{Key: auth.Key{Subject: account.Subject, Target: auth.Target{STSRegion: region}}})
	if e, ok := errors.AsType[*auth.Error](err); !ok || e.Stage != auth.StageIdentity || e.Code != auth.CodeIdentityMissing || e.Fix != fix {
		t.Errorf("no annotation, at AWS: %v", err)
	}
	// The role of a WorkloadIdentity is in its providerConfig; annotations are ignored.
	identity, err := auth.WorkloadIdentity("tenant-a", "pull")
	rig.Must(t, err)
	got, err := provider.GetIdentity(auth.Account{Subject: identity, UID: "1", Attributes: map[string]string{aws.RoleAnnotation: roleA}})
	if got != "" || err != nil {
		t.Errorf("WorkloadIdentity: %q, %v", got, err)
	}
	_, err = rig.Audience(t.Context(), provider, &auth.Request{Key: auth.Key{Subject: identity, Target: auth.Target{STSRegion: region}}})
	if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodeIdentityMissing || !strings.Contains(e.Fix, "providerConfig.iamRoleARN of WorkloadIdentity tenant-a/pull") {
		t.Errorf("WorkloadIdentity: %v", err)
	}
}

func TestProofAudience(t *testing.T) {
	allowed, err := endpoint.ParseAllowed("minio.example.org:9000")
	rig.Must(t, err)
	provider := newProvider(t, aws.Config{AllowedEndpointHosts: allowed})
	for _, test := range []struct {
		role, region, endpoint, image, want string
	}{
		{roleA, region, "", "", "sts.amazonaws.com"},
		{roleA, region, "https://sts.eu-west-1.amazonaws.com", "", "sts.amazonaws.com"},
		{roleA, region, "", imageA, "sts.amazonaws.com"},
		{"arn:aws-cn:iam::123456789123:role/r", "cn-north-1", "", "", "sts.amazonaws.com"},
		{"arn:aws-cn:iam::123456789123:role/r", "cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn", "", "sts.amazonaws.com"},
		// A host in AllowedEndpointHosts has no partition. The host is the audience of its proofs.
		{roleA, region, "https://minio.example.org:9000", "", "minio.example.org:9000"},
		{"arn:aws-cn:iam::123456789123:role/r", region, "https://minio.example.org:9000", "", "minio.example.org:9000"},
		// AWS STS and Amazon ECR need an IAM role. A host in AllowedEndpointHosts also accepts a
		// role of an S3-compatible store, or no role.
		{"arn:minio:iam:::role/r", "", "https://minio.example.org:9000", "", "minio.example.org:9000"},
		{"arn:aws:iam:::role/r", "", "https://minio.example.org:9000", "", "minio.example.org:9000"},
		{"", "", "https://minio.example.org:9000", "", "minio.example.org:9000"},
		{"arn:minio:iam:::role/r", region, "", "", ""},
		{"arn:aws:iam:::role/r", region, "", "", ""},
		{"arn:minio:iam:::role/r", region, "https://sts.eu-west-1.amazonaws.com", "", ""},
		{"", region, "https://sts.eu-west-1.amazonaws.com", "", ""},
		{"arn:minio:iam:::role/r", "", "https://minio.example.org:9000", imageA, ""},
		{"arn:aws:iam:::role/r", "", "https://minio.example.org:9000", imageA, ""},
		{"", "", "https://minio.example.org:9000", imageA, ""},
		{roleA, "", "https://minio.example.org:9000", imageA, "minio.example.org:9000"},
		// An impossible request is refused before a proof is made.
		{roleA, region, "https://sts.cn-north-1.amazonaws.com.cn", "", ""},
		{roleA, region, "", "123456789123.dkr.ecr.cn-north-1.amazonaws.com.cn/a", ""},
		{"arn:aws-cn:iam::123456789123:role/r", "cn-north-1", "", "public.ecr.aws/a", ""},
		{roleA, region, "https://evil.org", "", ""},
		{roleA, "", "", "", ""},
		{"", region, "", "", ""},
	} {
		request := &auth.Request{
			Key:             auth.Key{Subject: accountA(t).Subject, Identity: test.role, Target: auth.Target{STSRegion: test.region, STSEndpoint: test.endpoint}},
			ImageRepository: test.image,
		}
		got, err := rig.Audience(t.Context(), provider, request)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%+v: audience %q, %v", test, got, err)
		}
		if e, ok := errors.AsType[*auth.Error](err); err != nil && (!ok || e.Fix == "") {
			t.Errorf("%+v: no fix: %v", test, err)
		}
	}
}

// TestRoleOfAnotherPartitionThanTheImage checks the error if the role and the image's registry are
// in different partitions. The error's fix must be another role: no region of STS would help.
func TestRoleOfAnotherPartitionThanTheImage(t *testing.T) {
	const china = "123456789123.dkr.ecr.cn-north-1.amazonaws.com.cn/a"
	account := accountA(t)
	for _, region := range []string{"", region} {
		provider := newProvider(t, aws.Config{Region: region})
		target, err := provider.GetTarget(&auth.Options{Subject: account.Subject, ImageRepository: china})
		rig.Must(t, err)
		_, err = rig.Audience(t.Context(), provider, &auth.Request{
			Key:             auth.Key{Subject: account.Subject, Identity: roleA, Target: target},
			ImageRepository: china,
		})
		if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodeIdentityInvalid || e.Fix != "name a role in partition aws-cn" {
			t.Errorf("%v", err)
		}
	}
}

func TestNewProviderRefuses(t *testing.T) {
	for name, config := range map[string]aws.Config{
		"region":   {Region: "somewhere"},
		"timeout":  {Timeout: -1},
		"insecure": {Transport: rig.Insecure(t)},
	} {
		if _, err := aws.NewProvider(config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestTokenDoesNotPrint(t *testing.T) {
	token := &aws.Token{
		AccessKeyID: auth.NewSecret("ASIA-key"), SecretAccessKey: auth.NewSecret("secret-key"), SessionToken: auth.NewSecret("session-key"),
		ExpiresAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	rig.DoesNotPrint(t, token, "-key", "[AWS session until 2030-01-02T03:04:05Z]")
}

// TestMemoryIsBounded checks that the provider remembers a limited number of roles, however many
// different ARNs a tenant writes.
func TestMemoryIsBounded(t *testing.T) {
	provider := newProvider(t, aws.Config{})
	for i := range 20_000 {
		arn := fmt.Sprintf("arn:aws:iam::%012d:role/r", i)
		if got, err := provider.GetIdentity(rig.WithAttribute(accountA(t), aws.RoleAnnotation, arn)); err != nil || got != arn {
			t.Fatalf("%s: %s, %v", arn, got, err)
		}
	}
	if n := aws.Remembered(provider); n == 0 || n > 5000 {
		t.Errorf("%d roles are remembered", n)
	}
}

// TestHotPathDoesNotAllocate checks that GetIdentity and GetTarget do not allocate memory. They run
// even if the cache has the token.
func TestHotPathDoesNotAllocate(t *testing.T) {
	provider := newProvider(t, aws.Config{Region: region})
	account := accountA(t)
	for name, run := range map[string]func(){
		"GetIdentity": func() { _, _ = provider.GetIdentity(account) },
		"GetTarget":   func() { _, _ = provider.GetTarget(&auth.Options{Subject: account.Subject}) },
		"GetTarget, everything": func() {
			_, _ = provider.GetTarget(&auth.Options{
				Subject: account.Subject, ImageRepository: imageA, STSRegion: region, STSEndpoint: "https://sts.eu-west-1.amazonaws.com",
			})
		},
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkGetIdentity(b *testing.B) {
	provider, account := newProvider(b, aws.Config{Region: region}), accountA(b)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = provider.GetIdentity(account)
	}
}

func BenchmarkGetTarget(b *testing.B) {
	provider := newProvider(b, aws.Config{Region: region})
	for name, options := range map[string]auth.Options{
		"bare":  {Subject: accountA(b).Subject},
		"image": {Subject: accountA(b).Subject, ImageRepository: imageA},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = provider.GetTarget(&options)
			}
		})
	}
}
