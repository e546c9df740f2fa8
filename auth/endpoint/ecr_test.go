package endpoint_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// refused fails the test unless err is an *endpoint.Error with the given reason. The error must
// have all of its texts, and must not repeat the password of the test cases.
func refused(t *testing.T, err error, want endpoint.Reason) {
	t.Helper()
	e, ok := errors.AsType[*endpoint.Error](err)
	if !ok {
		t.Fatalf("got error %v, want an *endpoint.Error with reason %s", err, want)
	}
	if e.Reason != want {
		t.Errorf("got reason %s (%v), want %s", e.Reason, err, want)
	}
	if e.What == "" || e.Detail == "" || e.Fix == "" {
		t.Errorf("got the incomplete error %+v", e)
	}
	if strings.Contains(err.Error(), "s3cr3t-Pa55") {
		t.Errorf("the error repeats a password: %v", err)
	}
}

// parsed fails the test unless got equals want and err has the given reason. If reason is empty,
// err must be nil.
func parsed[T comparable](t *testing.T, got, want T, err error, reason endpoint.Reason) {
	t.Helper()
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if reason != "" {
		refused(t, err, reason)
	} else if err != nil {
		t.Fatal(err)
	}
}

func TestParseECR(t *testing.T) {
	fips := endpoint.Variant{FIPS: true}
	dual := endpoint.Variant{DualStack: true}
	both := endpoint.Variant{FIPS: true, DualStack: true}
	private := func(host, partition, account, region string, v endpoint.Variant) endpoint.Registry {
		return endpoint.Registry{Host: host, Provider: endpoint.AWS, Partition: partition, Account: account, Region: region, Variant: v}
	}
	public := func(host string, v endpoint.Variant) endpoint.Registry {
		return endpoint.Registry{Host: host, Provider: endpoint.AWS, Partition: "aws", Region: "us-east-1", Public: true, Variant: v}
	}
	usEast := private("012345678901.dkr.ecr.us-east-1.amazonaws.com", "aws", "012345678901", "us-east-1", endpoint.Variant{})
	eusc := private("012345678901.dkr.ecr.eusc-de-east-1.amazonaws.eu", "aws-eusc", "012345678901", "eusc-de-east-1", endpoint.Variant{})
	usWestDual := private("557238627320.dkr-ecr.us-west-2.on.aws", "aws", "557238627320", "us-west-2", dual)
	for _, tt := range []struct {
		image  string
		want   endpoint.Registry
		reason endpoint.Reason
	}{
		// Cases of fluxcd/pkg/auth v0.54.3, aws/provider_test.go. Its region names for the ISO
		// partitions (us-secret-region, us-ts-region, uk-region) are invented. Here the names are
		// real, and the invented names are refused below.
		{image: "012345678901.dkr.ecr.eusc-de-east-1.amazonaws.eu/foo:v1", want: eusc},
		{image: "012345678901.dkr.ecr.eusc-de-east-1.amazonaws.eu/foo", want: eusc},
		{image: "012345678901.dkr.ecr.eusc-de-east-1.amazonaws.eu", want: eusc},
		{image: "012345678901.dkr.ecr.eusc-de-east-1.amazonaws.eu/v2/part/part", want: eusc},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.com/foo:v1", want: usEast},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.com/foo", want: usEast},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.com", want: usEast},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.com/v2/part/part", want: usEast},
		{
			image: "012345678901.dkr.ecr.cn-north-1.amazonaws.com.cn/foo",
			want:  private("012345678901.dkr.ecr.cn-north-1.amazonaws.com.cn", "aws-cn", "012345678901", "cn-north-1", endpoint.Variant{}),
		},
		{
			image: "012345678901.dkr.ecr-fips.us-gov-west-1.amazonaws.com",
			want:  private("012345678901.dkr.ecr-fips.us-gov-west-1.amazonaws.com", "aws-us-gov", "012345678901", "us-gov-west-1", fips),
		},
		{
			image: "012345678901.dkr.ecr.us-isob-east-1.sc2s.sgov.gov",
			want:  private("012345678901.dkr.ecr.us-isob-east-1.sc2s.sgov.gov", "aws-iso-b", "012345678901", "us-isob-east-1", endpoint.Variant{}),
		},
		{
			image: "012345678901.dkr.ecr-fips.us-iso-east-1.c2s.ic.gov",
			want:  private("012345678901.dkr.ecr-fips.us-iso-east-1.c2s.ic.gov", "aws-iso", "012345678901", "us-iso-east-1", fips),
		},
		{
			image: "012345678901.dkr.ecr.eu-isoe-west-1.cloud.adc-e.uk",
			want:  private("012345678901.dkr.ecr.eu-isoe-west-1.cloud.adc-e.uk", "aws-iso-e", "012345678901", "eu-isoe-west-1", endpoint.Variant{}),
		},
		{
			image: "012345678901.dkr.ecr.us-isof-south-1.csp.hci.ic.gov",
			want:  private("012345678901.dkr.ecr.us-isof-south-1.csp.hci.ic.gov", "aws-iso-f", "012345678901", "us-isof-south-1", endpoint.Variant{}),
		},
		{image: "012345678901.dkr.ecr.us-secret-region.sc2s.sgov.gov", reason: endpoint.ReasonRegion},
		{image: "012345678901.dkr.ecr-fips.us-ts-region.c2s.ic.gov", reason: endpoint.ReasonRegion},
		{image: "012345678901.dkr.ecr.uk-region.cloud.adc-e.uk", reason: endpoint.ReasonRegion},
		{image: "012345678901.dkr.ecr.us-ts-region.csp.hci.ic.gov", reason: endpoint.ReasonRegion},
		{image: "557238627320.dkr-ecr.us-west-2.on.aws/foo:v1", want: usWestDual},
		{image: "557238627320.dkr-ecr.us-west-2.on.aws/foo", want: usWestDual},
		{image: "557238627320.dkr-ecr.us-west-2.on.aws", want: usWestDual},
		{
			image: "557238627320.dkr-ecr.eu-central-1.on.aws/v2/part/part",
			want:  private("557238627320.dkr-ecr.eu-central-1.on.aws", "aws", "557238627320", "eu-central-1", dual),
		},
		{
			image: "012345678901.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn/foo",
			want:  private("012345678901.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn", "aws-cn", "012345678901", "cn-north-1", dual),
		},
		{
			image: "012345678901.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn",
			want:  private("012345678901.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn", "aws-cn", "012345678901", "cn-north-1", dual),
		},
		{image: "gcr.io/foo/bar:baz", reason: endpoint.ReasonHost},
		{image: "public.ecr.aws/foo/bar", want: public("public.ecr.aws", endpoint.Variant{})},
		{image: "ecr-public.aws.com/foo/bar", want: public("ecr-public.aws.com", dual)},
		{image: "ecr-public.aws.com", want: public("ecr-public.aws.com", dual)},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.com.example.org/foo", reason: endpoint.ReasonHost},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.com.example.org", reason: endpoint.ReasonHost},
		{image: "prefix-012345678901.dkr.ecr.us-east-1.amazonaws.com/foo", reason: endpoint.ReasonAccount},
		{image: "xdkr.ecr.us-east-1.amazonaws.com.example.org/foo", reason: endpoint.ReasonHost},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.comcn/foo", reason: endpoint.ReasonHost},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.com.nc/foo", reason: endpoint.ReasonHost},
		{image: "012345678901Xdkr.ecr.us-east-1.amazonaws.com/foo", reason: endpoint.ReasonHost},
		{image: "public.ecr.aws.example.org/foo/bar", reason: endpoint.ReasonHost},
		{image: "ecr-public.aws.com.example.org/foo/bar", reason: endpoint.ReasonHost},
		{image: "01234567890.dkr.ecr.us-east-1.amazonaws.com/foo", reason: endpoint.ReasonAccount},
		{image: "0123456789012.dkr.ecr.us-east-1.amazonaws.com/foo", reason: endpoint.ReasonAccount},

		// Further hosts of AWS.
		{image: "oci://012345678901.dkr.ecr.us-east-1.amazonaws.com/foo", want: usEast},
		{image: "oci://012345678901.DKR.ECR.US-EAST-1.AmazonAWS.com/Foo", want: usEast},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.com/foo@sha256:" + strings.Repeat("0", 64), want: usEast},
		{
			image: "012345678901.dkr-ecr-fips.us-west-2.on.aws/foo",
			want:  private("012345678901.dkr-ecr-fips.us-west-2.on.aws", "aws", "012345678901", "us-west-2", both),
		},
		{
			image: "012345678901.dkr-ecr-fips.us-gov-east-1.on.aws/foo",
			want:  private("012345678901.dkr-ecr-fips.us-gov-east-1.on.aws", "aws-us-gov", "012345678901", "us-gov-east-1", both),
		},
		{
			image: "012345678901.dkr-ecr.eusc-de-east-1.on.amazonwebservices.eu/foo",
			want:  private("012345678901.dkr-ecr.eusc-de-east-1.on.amazonwebservices.eu", "aws-eusc", "012345678901", "eusc-de-east-1", dual),
		},
		{
			image: "012345678901.dkr-ecr.us-iso-west-1.on.aws.ic.gov/foo",
			want:  private("012345678901.dkr-ecr.us-iso-west-1.on.aws.ic.gov", "aws-iso", "012345678901", "us-iso-west-1", dual),
		},
		{
			// A region that does not exist yet.
			image: "012345678901.dkr.ecr.eu-northwest-12.amazonaws.com/foo",
			want:  private("012345678901.dkr.ecr.eu-northwest-12.amazonaws.com", "aws", "012345678901", "eu-northwest-12", endpoint.Variant{}),
		},

		// The suffix of one partition with the region of another, or a suffix of the wrong address
		// family.
		{image: "012345678901.dkr.ecr.cn-north-1.amazonaws.com/foo", reason: endpoint.ReasonPartition},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.com.cn/foo", reason: endpoint.ReasonPartition},
		{image: "012345678901.dkr.ecr.us-iso-east-1.amazonaws.com/foo", reason: endpoint.ReasonPartition},
		{image: "012345678901.dkr.ecr.us-east-1.on.aws/foo", reason: endpoint.ReasonPartition},
		{image: "012345678901.dkr-ecr.us-east-1.amazonaws.com/foo", reason: endpoint.ReasonPartition},
		{image: "012345678901.dkr-ecr.us-east-1.api.aws/foo", reason: endpoint.ReasonPartition},

		// Hosts that are not registries. Some belong to customers of AWS, under AWS's suffixes.
		{image: "evil.s3.us-east-1.amazonaws.com/foo", reason: endpoint.ReasonHost},
		{image: "ec2-203-0-113-25.compute-1.amazonaws.com/foo", reason: endpoint.ReasonHost},
		{image: "012345678901.dkr.ecr.us-east-1.evil.elb.amazonaws.com/foo", reason: endpoint.ReasonPartition},
		{image: "012345678901.dkr.ecr.evil.us-east-1.amazonaws.com/foo", reason: endpoint.ReasonRegion},
		{image: "evil.012345678901.dkr.ecr.us-east-1.amazonaws.com/foo", reason: endpoint.ReasonHost},
		{image: "api.ecr.us-east-1.amazonaws.com/foo", reason: endpoint.ReasonHost},
		{image: "x.public.ecr.aws/foo", reason: endpoint.ReasonHost},
		{image: "amazonaws.com/foo", reason: endpoint.ReasonHost},
		{image: "localhost/public.ecr.aws", reason: endpoint.ReasonHost},
		{image: "169.254.169.254/public.ecr.aws", reason: endpoint.ReasonHost},
		{image: "[::1]/public.ecr.aws", reason: endpoint.ReasonHost},

		// Texts that are not host[/path].
		{image: "", reason: endpoint.ReasonEmpty},
		{image: "oci://", reason: endpoint.ReasonEmpty},
		{image: "/public.ecr.aws/foo", reason: endpoint.ReasonEmpty},
		{image: "https://public.ecr.aws/foo", reason: endpoint.ReasonScheme},
		{image: "OCI://public.ecr.aws/foo", reason: endpoint.ReasonScheme},
		{image: "evil.example.org/?://public.ecr.aws/foo", reason: endpoint.ReasonScheme},
		{image: "public.ecr.aws:443/foo", reason: endpoint.ReasonPort},
		{image: "public.ecr.aws:5000/foo", reason: endpoint.ReasonPort},
		{image: "public.ecr.aws:/foo", reason: endpoint.ReasonPort},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.com:v1", reason: endpoint.ReasonMalformed},
		{image: "public.ecr.aws./foo", reason: endpoint.ReasonMalformed},
		{image: "public..ecr.aws/foo", reason: endpoint.ReasonMalformed},
		{image: "public.ecr.aws@evil.example.org/foo", reason: endpoint.ReasonCredentials},
		{image: "user:s3cr3t-Pa55@public.ecr.aws/foo", reason: endpoint.ReasonCredentials},
		{image: "public.ecr.aws%2f.evil.example.org/foo", reason: endpoint.ReasonMalformed},
		{image: "public.ecr.aws%00.evil.example.org/foo", reason: endpoint.ReasonMalformed},
		{image: `public.ecr.aws\.evil.example.org/foo`, reason: endpoint.ReasonMalformed},
		{image: "public.ecr.aws/foo?x=y", reason: endpoint.ReasonPath},
		{image: "public.ecr.aws?.evil.example.org", reason: endpoint.ReasonPath},
		{image: "public.ecr.aws#.evil.example.org", reason: endpoint.ReasonPath},
		{image: "public.ecr.aws /foo", reason: endpoint.ReasonMalformed},
		{image: "public.ecr.aws/foo\n", reason: endpoint.ReasonMalformed},
		{image: "public_ecr.aws/foo", reason: endpoint.ReasonMalformed},
		{image: "-public.ecr.aws/foo", reason: endpoint.ReasonMalformed},
		// A Cyrillic es and a Kelvin sign (which folds into k) look like ASCII. IDNA reads a
		// full-width dot as a dot.
		{image: "public.e\u0441r.aws/foo", reason: endpoint.ReasonMalformed},
		{image: "012345678901.d\u212ar.ecr.us-east-1.amazonaws.com/foo", reason: endpoint.ReasonMalformed},
		{image: "public\uff0eecr.aws/foo", reason: endpoint.ReasonMalformed},
		{image: "xn--public-ecr.aws/foo", reason: endpoint.ReasonHost},
		{image: "public.ecr.aws/" + strings.Repeat("a", 2100), reason: endpoint.ReasonMalformed},
		{image: strings.Repeat("a.", 127) + "aws/foo", reason: endpoint.ReasonMalformed},
		{image: strings.Repeat("a", 64) + ".aws/foo", reason: endpoint.ReasonMalformed},
	} {
		t.Run(tt.image, func(t *testing.T) {
			got, err := endpoint.ParseECR(tt.image)
			parsed(t, got, tt.want, err, tt.reason)
		})
	}
}

// endsInTable reports whether the host is a host of Amazon ECR Public, or ends in a suffix of an
// AWS partition on a label boundary.
func endsInTable(host string) bool {
	if host == "public.ecr.aws" || host == "ecr-public.aws.com" {
		return true
	}
	for _, p := range endpoint.AWSPartitions() {
		for _, suffix := range []string{p.DNSSuffix, p.DualStackDNSSuffix, p.RegistryDualStackSuffix} {
			if strings.HasSuffix(host, "."+suffix) {
				return true
			}
		}
	}
	return false
}

// isPlainHost reports whether the host has no character but lower-case letters, digits, dots and
// hyphens.
func isPlainHost(host string) bool {
	return host != "" && strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-") == "" &&
		!strings.ContainsFunc(host, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-'
		})
}

func FuzzParseECR(f *testing.F) {
	for _, seed := range []string{
		"012345678901.dkr.ecr.us-east-1.amazonaws.com/foo:v1",
		"oci://012345678901.dkr-ecr-fips.us-gov-west-1.on.aws/foo@sha256:00",
		"012345678901.dkr.ecr.us-east-1.amazonaws.com.example.org/foo",
		"ECR-public.aws.com", "public.ecr.aws:443/a", "a:b@public.ecr.aws", "oci://[::1]:5000/a", "public.ecr.aws./",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, image string) {
		r, err := endpoint.ParseECR(image)
		if err != nil {
			if r != (endpoint.Registry{}) {
				t.Fatalf("%q: refused, yet a registry %+v", image, r)
			}
			return
		}
		if !isPlainHost(r.Host) || !endsInTable(r.Host) {
			t.Fatalf("%q: accepted as %+v", image, r)
		}
		// A second parser of the string, which is simpler than ParseECR, must find the same host.
		_, rest, hasScheme := strings.Cut(image, "://")
		if !hasScheme {
			rest = image
		}
		if host, _, _ := strings.Cut(rest, "/"); !strings.EqualFold(host, r.Host) {
			t.Fatalf("%q: accepted as %q, but reads as %q", image, r.Host, host)
		}
		if again, err := endpoint.ParseECR(r.String()); err != nil || again != r {
			t.Fatalf("%q: parses to %+v, its host to %+v, %v", image, r, again, err)
		}
	})
}
