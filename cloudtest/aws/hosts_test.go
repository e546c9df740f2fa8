package aws

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecrpublic"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/resourcegroupstaggingapi"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
)

func TestParseHost(t *testing.T) {
	at := func(service, partition, region string) endpoint {
		return endpoint{service: service, partition: partition, region: region}
	}
	registry := func(partition, region string) endpoint {
		return endpoint{service: ServiceRegistry, partition: partition, region: region, account: "123456789123"}
	}
	bucket := func(partition, region string) endpoint {
		return endpoint{service: ServiceS3, partition: partition, region: region, bucket: "tenant-a"}
	}
	global := func(bucket string) endpoint {
		return endpoint{service: ServiceS3, partition: "aws", region: "us-east-1", bucket: bucket, global: true}
	}
	tests := []struct {
		host string
		want endpoint
	}{
		{"iam.amazonaws.com", at(ServiceIAM, "aws", "us-east-1")},
		{"iam.global.api.aws", at(ServiceIAM, "aws", "us-east-1")},
		{"iam.cn-north-1.amazonaws.com.cn", at(ServiceIAM, "aws-cn", "cn-north-1")},
		{"iam.us-gov.amazonaws.com", at(ServiceIAM, "aws-us-gov", "us-gov-west-1")},
		{"iam.eusc-de-east-1.amazonaws.eu", at(ServiceIAM, "aws-eusc", "eusc-de-east-1")},
		{"sts.amazonaws.com", at(ServiceSTS, "aws", "us-east-1")},
		{"sts.eu-west-1.amazonaws.com", at(ServiceSTS, "aws", "eu-west-1")},
		{"sts.eu-west-1.api.aws", at(ServiceSTS, "aws", "eu-west-1")},
		{"sts-fips.us-east-1.amazonaws.com", at(ServiceSTS, "aws", "us-east-1")},
		{"sts.cn-north-1.amazonaws.com.cn", at(ServiceSTS, "aws-cn", "cn-north-1")},
		{"sts.us-gov-west-1.amazonaws.com", at(ServiceSTS, "aws-us-gov", "us-gov-west-1")},
		{"sts.eusc-de-east-1.amazonaws.eu", at(ServiceSTS, "aws-eusc", "eusc-de-east-1")},
		{"sts.us-iso-east-1.c2s.ic.gov", at(ServiceSTS, "aws-iso", "us-iso-east-1")},
		{"api.ecr.eu-west-1.amazonaws.com", at(ServiceECR, "aws", "eu-west-1")},
		{"ecr.eu-west-1.api.aws", at(ServiceECR, "aws", "eu-west-1")},
		{"api.ecr-fips.us-gov-east-1.amazonaws.com", at(ServiceECR, "aws-us-gov", "us-gov-east-1")},
		{"kms.eu-west-1.amazonaws.com", at(ServiceKMS, "aws", "eu-west-1")},
		{"kms.eu-west-1.api.aws", at(ServiceKMS, "aws", "eu-west-1")},
		{"kms-fips.us-east-1.amazonaws.com", at(ServiceKMS, "aws", "us-east-1")},
		{"kms.cn-north-1.amazonaws.com.cn", at(ServiceKMS, "aws-cn", "cn-north-1")},
		{"kms.amazonaws.com", endpoint{}},
		{"ec2.eu-west-1.amazonaws.com", at("ec2", "aws", "eu-west-1")},
		{"elasticloadbalancing.cn-north-1.amazonaws.com.cn", at("elasticloadbalancing", "aws-cn", "cn-north-1")},
		{"secretsmanager-fips.us-east-1.amazonaws.com", at("secretsmanager", "aws", "us-east-1")},
		{"tagging.eu-west-1.api.aws", at("tagging", "aws", "eu-west-1")},
		{"api.ecr-public.us-east-1.amazonaws.com", at(ServiceECRPublic, "aws", "us-east-1")},
		{"public.ecr.aws", at(ServicePublicRegistry, "aws", "us-east-1")},
		{"123456789123.dkr.ecr.eu-west-1.amazonaws.com", registry("aws", "eu-west-1")},
		{"123456789123.dkr.ecr-fips.us-east-2.amazonaws.com", registry("aws", "us-east-2")},
		{"123456789123.dkr-ecr.eu-west-1.on.aws", registry("aws", "eu-west-1")},
		{"123456789123.dkr-ecr-fips.us-west-2.on.aws", registry("aws", "us-west-2")},
		{"123456789123.dkr.ecr.cn-northwest-1.amazonaws.com.cn", registry("aws-cn", "cn-northwest-1")},
		{"123456789123.dkr.ecr.eusc-de-east-1.amazonaws.eu", registry("aws-eusc", "eusc-de-east-1")},
		{"s3.amazonaws.com", global("")},
		{"tenant-a.s3.amazonaws.com", global("tenant-a")},
		{"eu-west-1.s3.amazonaws.com", global("eu-west-1")},
		{"s3.us-east-1.amazonaws.com", at(ServiceS3, "aws", "us-east-1")},
		{"s3.eu-west-1.amazonaws.com", at(ServiceS3, "aws", "eu-west-1")},
		{"s3.dualstack.eu-west-1.amazonaws.com", at(ServiceS3, "aws", "eu-west-1")},
		{"s3-fips.us-west-2.amazonaws.com", at(ServiceS3, "aws", "us-west-2")},
		{"s3-fips.dualstack.us-gov-west-1.amazonaws.com", at(ServiceS3, "aws-us-gov", "us-gov-west-1")},
		{"s3.cn-north-1.amazonaws.com.cn", at(ServiceS3, "aws-cn", "cn-north-1")},
		{"tenant-a.s3.eu-west-1.amazonaws.com", bucket("aws", "eu-west-1")},
		{"tenant-a.s3.dualstack.eu-west-1.amazonaws.com", bucket("aws", "eu-west-1")},
		{"tenant-a.s3-fips.us-east-1.amazonaws.com", bucket("aws", "us-east-1")},
		{"tenant-a.s3.us-gov-east-1.amazonaws.com", bucket("aws-us-gov", "us-gov-east-1")},
		{"tenant-a.s3.cn-northwest-1.amazonaws.com.cn", bucket("aws-cn", "cn-northwest-1")},
		{"tenant-a.s3.eusc-de-east-1.amazonaws.eu", bucket("aws-eusc", "eusc-de-east-1")},

		{"s3.amazonaws.com.cn", endpoint{}},
		{"tenant-a.s3.amazonaws.com.cn", endpoint{}},
		{"s3.xx-west-1.amazonaws.com", endpoint{}},
		{"s3-fips.eu-west-1.amazonaws.com", endpoint{}},
		{"s3-website.eu-west-1.amazonaws.com", endpoint{}},
		{"s3-accelerate.amazonaws.com", endpoint{}},
		{"s3.dualstack.amazonaws.com", endpoint{}},
		{"s3.eu-west-1.api.aws", endpoint{}},
		{"a.b.s3.eu-west-1.amazonaws.com", endpoint{}},
		{"ab.s3.eu-west-1.amazonaws.com", endpoint{}},
		{"tenant_a.s3.eu-west-1.amazonaws.com", endpoint{}},
		{"-tenant.s3.eu-west-1.amazonaws.com", endpoint{}},
		{".s3.eu-west-1.amazonaws.com", endpoint{}},
		{"tenant-a.s3.eu-west-1.amazonaws.com.attacker.example", endpoint{}},
		{"tenant-a.s3-eu-west-1.amazonaws.com", endpoint{}},
		{"tenant-a.s3.sts.eu-west-1.amazonaws.com", endpoint{}},
		{"tenant-a.sts.eu-west-1.amazonaws.com", endpoint{}},

		{"", endpoint{}},
		{"amazonaws.com", endpoint{}},
		{"sts.amazonaws.com.cn", endpoint{}},
		{"sts.amazonaws.com.example.org", endpoint{}},
		{"sts.xx-west-1.amazonaws.com", endpoint{}},
		{"sts.eu-west-1.amazonaws.com.cn", endpoint{}},
		{"sts.cn-north-1.amazonaws.com", endpoint{}},
		{"sts-fips.eu-west-1.amazonaws.com", endpoint{}},
		{"sts.eu-west-1.amazonaws.comx", endpoint{}},
		{"xsts.eu-west-1.amazonaws.com", endpoint{}},
		{"x.sts.eu-west-1.amazonaws.com", endpoint{}},
		{"sts..amazonaws.com", endpoint{}},
		{"12345678912.dkr.ecr.eu-west-1.amazonaws.com", endpoint{}},
		{"dkr.ecr.eu-west-1.amazonaws.com", endpoint{}},
		{"x.123456789123.dkr.ecr.eu-west-1.amazonaws.com", endpoint{}},
		{"123456789123.dkr.ecr.eu-west-1.amazonaws.com.attacker.example", endpoint{}},
		{"123456789123.dkr.ecr.eu-west-1.amazonaws.com.", endpoint{}},
		{"123456789123-dkr.ecr.eu-west-1.amazonaws.com", endpoint{}},
		{"123456789123.dkr.ecr.us-gov-west-1.amazonaws.com.cn", endpoint{}},
		{"lightsail.eu-west-1.amazonaws.com", endpoint{}}, // AWS has it; the local cloud does not
		{"ec2.amazonaws.com", endpoint{}},
		{"ec2-fips.eu-west-1.amazonaws.com", endpoint{}},
		{"tag.eu-west-1.amazonaws.com", endpoint{}},
		{"iam.eu-west-1.amazonaws.com", endpoint{}},
		{"iam.amazonaws.com.cn", endpoint{}},
	}
	for _, tt := range tests {
		got, ok := parseHost(tt.host)
		if got != tt.want || ok != (tt.want != endpoint{}) {
			t.Errorf("%q: %+v, %t; want %+v", tt.host, got, ok, tt.want)
		}
	}
}

// TestHostsOfTheSDK asks the real SDK which hosts it uses, in every region in the table of
// partitions. It checks that parseHost accepts every host.
func TestHostsOfTheSDK(t *testing.T) {
	type resolved struct {
		service string
		uri     url.URL
	}
	for _, part := range partitions() {
		for _, region := range part.regions {
			for _, variant := range []struct{ dual, fips bool }{{false, false}, {true, false}, {false, true}} {
				if variant.fips && !slices.Contains(part.fips, region) {
					continue // the SDK returns a name, but AWS has no such host
				}
				name := fmt.Sprintf("%s dual=%t fips=%t", region, variant.dual, variant.fips)
				r, dual, fips := awssdk.String(region), awssdk.Bool(variant.dual), awssdk.Bool(variant.fips)
				var hosts []resolved
				add := func(service string, e smithyendpoints.Endpoint, err error) {
					if err != nil {
						t.Errorf("%s: %s: %v", name, service, err)
						return
					}
					hosts = append(hosts, resolved{service, e.URI})
				}
				e, err := sts.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), sts.EndpointParameters{
					Region: r, UseDualStack: dual, UseFIPS: fips, UseGlobalEndpoint: awssdk.Bool(false),
				})
				add(ServiceSTS, e, err)
				e, err = ecr.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), ecr.EndpointParameters{Region: r, UseDualStack: dual, UseFIPS: fips})
				add(ServiceECR, e, err)
				e, err = kms.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), kms.EndpointParameters{Region: r, UseDualStack: dual, UseFIPS: fips})
				add(ServiceKMS, e, err)
				e, err = elasticloadbalancing.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), elasticloadbalancing.EndpointParameters{
					Region: r, UseDualStack: dual, UseFIPS: fips,
				})
				add("elasticloadbalancing", e, err)
				e, err = secretsmanager.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), secretsmanager.EndpointParameters{
					Region: r, UseDualStack: dual, UseFIPS: fips,
				})
				add("secretsmanager", e, err)
				e, err = resourcegroupstaggingapi.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), resourcegroupstaggingapi.EndpointParameters{
					Region: r, UseDualStack: dual, UseFIPS: fips,
				})
				add("tagging", e, err)
				if region == "us-east-1" && !variant.fips {
					e, err = ecrpublic.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), ecrpublic.EndpointParameters{Region: r, UseDualStack: dual, UseFIPS: fips})
					add(ServiceECRPublic, e, err)
				}
				for _, b := range []*string{nil, awssdk.String("tenant-a")} {
					e, err = s3.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), s3.EndpointParameters{Region: r, UseDualStack: dual, UseFIPS: fips, Bucket: b})
					add(ServiceS3, e, err)
				}
				for _, h := range hosts {
					want := endpoint{service: h.service, partition: part.id, region: region}
					if strings.HasPrefix(h.uri.Host, "tenant-a.") {
						want.bucket = "tenant-a"
					}
					if got, ok := parseHost(h.uri.Host); !ok || got != want {
						t.Errorf("%s: %q is %+v, %t; want %+v", name, h.uri.Host, got, ok, want)
					}
				}
			}
		}
	}
}

// FuzzParseHost checks that a host name that parseHost accepts belongs to one service of one
// partition. It also adds text before or after the name. The longer name must be refused, unless it
// is the host of another bucket.
func FuzzParseHost(f *testing.F) {
	f.Add("sts.eu-west-1.amazonaws.com")
	f.Add("123456789123.dkr-ecr.eu-west-1.on.aws")
	f.Add("123456789123.dkr.ecr.eu-west-1.amazonaws.com.attacker.example")
	f.Add("tenant-a.s3.dualstack.eu-west-1.amazonaws.com")
	f.Fuzz(func(t *testing.T, host string) {
		ep, ok := parseHost(host)
		if !ok {
			if ep != (endpoint{}) {
				t.Errorf("%q: refused, but %+v", host, ep)
			}
			return
		}
		part, known := partitionByID(ep.partition)
		if !known || ep.service == "" || ep.region == "" || (ep.service == ServiceRegistry) != (ep.account != "") ||
			!strings.HasPrefix(host, ep.bucket) || (ep.bucket != "" && ep.service != ServiceS3) {
			t.Errorf("%q: %+v", host, ep)
		}
		for _, other := range []string{"x" + host, "x." + host, host + "x", host + ".", host + ".x", host + ":443"} {
			// parseHost must refuse the longer name. There is one exception: if host is a bucket's
			// host, "x"+host may be the host of another bucket.
			if got, ok := parseHost(other); ok && (ep.bucket == "" || got.bucket != "x"+ep.bucket) {
				t.Errorf("%q is accepted beside %q", other, host)
			}
		}
		for _, p := range partitions() {
			if p.id == part.id {
				continue
			}
			for _, r := range p.regions {
				if r == ep.region {
					t.Errorf("region %s is in two partitions", r)
				}
			}
		}
	})
}
