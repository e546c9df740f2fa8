package endpoint_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestParseS3(t *testing.T) {
	fips := endpoint.Variant{FIPS: true}
	dual := endpoint.Variant{DualStack: true}
	both := endpoint.Variant{FIPS: true, DualStack: true}
	for _, tt := range []struct {
		endpoint          string
		host              string // expected host; empty if equal to endpoint
		partition, region string
		global            bool
		variant           endpoint.Variant
		reason            endpoint.Reason
	}{
		{endpoint: "s3.amazonaws.com", partition: "aws", region: "us-east-1", global: true},
		{endpoint: "s3.us-east-1.amazonaws.com", partition: "aws", region: "us-east-1"},
		{endpoint: "s3.eu-west-1.amazonaws.com", partition: "aws", region: "eu-west-1"},
		{endpoint: "s3.ap-southeast-7.amazonaws.com", partition: "aws", region: "ap-southeast-7"},
		{endpoint: "https://s3.eu-west-1.amazonaws.com", host: "s3.eu-west-1.amazonaws.com", partition: "aws", region: "eu-west-1"},
		{endpoint: "https://s3.eu-west-1.amazonaws.com/", host: "s3.eu-west-1.amazonaws.com", partition: "aws", region: "eu-west-1"},
		{endpoint: "s3.eu-west-1.amazonaws.com:443", host: "s3.eu-west-1.amazonaws.com", partition: "aws", region: "eu-west-1"},
		{endpoint: "S3.EU-West-1.AmazonAWS.com", host: "s3.eu-west-1.amazonaws.com", partition: "aws", region: "eu-west-1"},
		{endpoint: "s3.dualstack.eu-west-1.amazonaws.com", partition: "aws", region: "eu-west-1", variant: dual},
		{endpoint: "s3-fips.us-east-2.amazonaws.com", partition: "aws", region: "us-east-2", variant: fips},
		{endpoint: "s3-fips.dualstack.us-east-2.amazonaws.com", partition: "aws", region: "us-east-2", variant: both},
		{endpoint: "s3.us-gov-west-1.amazonaws.com", partition: "aws-us-gov", region: "us-gov-west-1"},
		{endpoint: "s3-fips.us-gov-east-1.amazonaws.com", partition: "aws-us-gov", region: "us-gov-east-1", variant: fips},
		{endpoint: "s3-fips.dualstack.us-gov-west-1.amazonaws.com", partition: "aws-us-gov", region: "us-gov-west-1", variant: both},
		{endpoint: "s3.cn-north-1.amazonaws.com.cn", partition: "aws-cn", region: "cn-north-1"},
		{endpoint: "s3.dualstack.cn-northwest-1.amazonaws.com.cn", partition: "aws-cn", region: "cn-northwest-1", variant: dual},
		{endpoint: "s3.eusc-de-east-1.amazonaws.eu", partition: "aws-eusc", region: "eusc-de-east-1"},
		{endpoint: "s3.us-iso-east-1.c2s.ic.gov", partition: "aws-iso", region: "us-iso-east-1"},
		{endpoint: "s3.us-isob-east-1.sc2s.sgov.gov", partition: "aws-iso-b", region: "us-isob-east-1"},
		{endpoint: "s3.eu-isoe-west-1.cloud.adc-e.uk", partition: "aws-iso-e", region: "eu-isoe-west-1"},
		{endpoint: "s3.us-isof-south-1.csp.hci.ic.gov", partition: "aws-iso-f", region: "us-isof-south-1"},

		// A bucket's name must not be part of the endpoint.
		{endpoint: "bucket.s3.eu-west-1.amazonaws.com", reason: endpoint.ReasonHost},
		{endpoint: "a.b.s3.eu-west-1.amazonaws.com", reason: endpoint.ReasonHost},
		{endpoint: "bucket.s3.amazonaws.com", reason: endpoint.ReasonHost},
		{endpoint: "s3.eu-west-1.amazonaws.com/bucket", reason: endpoint.ReasonPath},

		// Regions and suffixes that do not belong together.
		{endpoint: "s3.cn-north-1.amazonaws.com", reason: endpoint.ReasonHost},
		{endpoint: "s3.eu-west-1.amazonaws.com.cn", reason: endpoint.ReasonHost},
		{endpoint: "s3.eu-west-1.amazonaws.eu", reason: endpoint.ReasonHost},
		{endpoint: "s3.eu-west-1.api.aws", reason: endpoint.ReasonHost},
		{endpoint: "s3.amazonaws.com.cn", reason: endpoint.ReasonHost},
		{endpoint: "s3.nowhere.amazonaws.com", reason: endpoint.ReasonHost},

		// Other services' hosts, and look-alikes.
		{endpoint: "sts.eu-west-1.amazonaws.com", reason: endpoint.ReasonHost},
		{endpoint: "s3-accelerate.amazonaws.com", reason: endpoint.ReasonHost},
		{endpoint: "s3-website.eu-west-1.amazonaws.com", reason: endpoint.ReasonHost},
		{endpoint: "s3express-control.us-east-1.amazonaws.com", reason: endpoint.ReasonHost},
		{endpoint: "xs3.eu-west-1.amazonaws.com", reason: endpoint.ReasonHost},
		{endpoint: "s3.eu-west-1.amazonaws.com.evil.example", reason: endpoint.ReasonHost},
		{endpoint: "s3.eu-west-1.evilamazonaws.com", reason: endpoint.ReasonHost},
		{endpoint: "s3.eu-west-1.amazonaws.comx", reason: endpoint.ReasonHost},
		{endpoint: "evil.example", reason: endpoint.ReasonHost},
		{endpoint: "s3.eu-west-1.amazonaws.com.", reason: endpoint.ReasonMalformed},
		{endpoint: "s3.eu-west-1.amazonaws.com@evil.example", reason: endpoint.ReasonCredentials},
		{endpoint: "evil.example/s3.eu-west-1.amazonaws.com", reason: endpoint.ReasonPath},
		{endpoint: "s3.eu-west-1.amazonaws.com?x=y", reason: endpoint.ReasonPath},
		{endpoint: "s3.eu-west-1.amazonaws.com#.evil.example", reason: endpoint.ReasonPath},
		{endpoint: "s3.eu-west-1.amazonaws.com:9000", reason: endpoint.ReasonPort},
		{endpoint: "http://s3.eu-west-1.amazonaws.com", reason: endpoint.ReasonScheme},
		{endpoint: "s3%2eeu-west-1.amazonaws.com", reason: endpoint.ReasonMalformed},
		{endpoint: "ѕ3.eu-west-1.amazonaws.com", reason: endpoint.ReasonMalformed}, // a Cyrillic look-alike
		{endpoint: "169.254.169.254", reason: endpoint.ReasonHost},
		{endpoint: "", reason: endpoint.ReasonEmpty},
	} {
		got, err := endpoint.ParseS3(tt.endpoint)
		if tt.reason != "" {
			var refused *endpoint.Error
			if !errors.As(err, &refused) || refused.Reason != tt.reason || got != (endpoint.S3{}) {
				t.Errorf("%q: %+v, %v, want %s", tt.endpoint, got, err, tt.reason)
			}
			continue
		}
		want := endpoint.S3{Host: tt.host, Partition: tt.partition, Region: tt.region, Global: tt.global, Variant: tt.variant}
		if want.Host == "" {
			want.Host = tt.endpoint
		}
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", tt.endpoint, got, err, want)
			continue
		}
		if region, err := endpoint.ParseAWSRegion(got.Region); err != nil || !got.Global && region.S3Host(got.Variant) != got.Host {
			t.Errorf("%q: the region's host is %q, %v", tt.endpoint, region.S3Host(got.Variant), err)
		}
	}
}

func TestBucketHost(t *testing.T) {
	allowed, err := endpoint.ParseAllowed("minio.example.com:9000", "[fd00::1]")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ endpoint, bucket, want string }{
		{"s3.eu-west-1.amazonaws.com", "tenant-a", "tenant-a.s3.eu-west-1.amazonaws.com"},
		{"s3.dualstack.eu-west-1.amazonaws.com:443", "tenant-a", "tenant-a.s3.dualstack.eu-west-1.amazonaws.com"},
		// AWS's certificates cover only one label before the endpoint. So a bucket's name with a
		// dot is not part of the host.
		{"s3.eu-west-1.amazonaws.com", "tenant.a", "s3.eu-west-1.amazonaws.com"},
		// A bucket's name that is not a valid DNS label is left out of the host.
		{"s3.eu-west-1.amazonaws.com", "", "s3.eu-west-1.amazonaws.com"},
		{"s3.eu-west-1.amazonaws.com", "evil.example/", "s3.eu-west-1.amazonaws.com"},
		{"s3.eu-west-1.amazonaws.com", "evil:443#", "s3.eu-west-1.amazonaws.com"},
		{"s3.eu-west-1.amazonaws.com", "me@evil", "s3.eu-west-1.amazonaws.com"},
		{"s3.eu-west-1.amazonaws.com", strings.Repeat("a", 64), "s3.eu-west-1.amazonaws.com"},
		{"minio.example.com:9000", "tenant-a", "minio.example.com:9000"},
		{"[fd00::1]", "tenant-a", "[fd00::1]"},
	} {
		s, err := allowed.ParseS3(tt.endpoint)
		if err != nil || s.BucketHost(tt.bucket) != tt.want {
			t.Errorf("%s of %s: %q, %v", tt.bucket, tt.endpoint, s.BucketHost(tt.bucket), err)
		}
	}
	for _, other := range []string{"minio.example.com", "minio.example.com:9001", "xminio.example.com:9000", "http://minio.example.com:9000"} {
		if s, err := allowed.ParseS3(other); err == nil {
			t.Errorf("%q is accepted as %+v", other, s)
		}
	}
}

// FuzzParseS3 checks that only hosts of S3 are accepted. ParseS3 reads the labels of a host from
// the left; the test reads them from the right.
func FuzzParseS3(f *testing.F) {
	for _, seed := range []string{
		"s3.amazonaws.com", "s3.dualstack.eu-west-1.amazonaws.com", "https://s3-fips.us-gov-west-1.amazonaws.com/", "s3.cn-north-1.amazonaws.com.cn",
		"a.s3.eu-west-1.amazonaws.com", "s3.eu-west-1.amazonaws.com.evil.example", "evil.example/s3.amazonaws.com", "s3.amazonaws.com@evil.example", "s3.s3.amazonaws.com",
	} {
		f.Add(seed)
	}
	suffixes := map[string]string{}
	for _, p := range endpoint.AWSPartitions() {
		suffixes[p.ID] = "." + p.DNSSuffix
	}
	f.Fuzz(func(t *testing.T, raw string) {
		s, err := endpoint.ParseS3(raw)
		if err != nil {
			if s != (endpoint.S3{}) {
				t.Errorf("%q is refused, and is %+v", raw, s)
			}
			return
		}
		rest, owned := strings.CutSuffix(s.Host, suffixes[s.Partition])
		labels := strings.Split(rest, ".")
		switch {
		case !owned || s.Listed || s.Port != "":
			t.Errorf("%q is accepted as %+v", raw, s)
		case s.Global:
			owned = rest == "s3"
		case s.DualStack:
			owned = len(labels) == 3 && labels[1] == "dualstack" && labels[2] == s.Region
		default:
			owned = len(labels) == 2 && labels[1] == s.Region
		}
		if !owned || labels[0] != "s3" && labels[0] != "s3-fips" || (labels[0] == "s3-fips") != s.FIPS {
			t.Errorf("%q is accepted as %+v", raw, s)
		}
		if again, err := endpoint.ParseS3(s.String()); err != nil || again != s {
			t.Errorf("%q means %+v, which means %+v, %v", raw, s, again, err)
		}
	})
}
