package aws

import (
	"fmt"
	"net/url"
	"slices"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecrpublic"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
)

func TestParseHost(t *testing.T) {
	tests := []struct {
		host string
		want endpoint
	}{
		{"sts.amazonaws.com", endpoint{ServiceSTS, "aws", "us-east-1", ""}},
		{"sts.eu-west-1.amazonaws.com", endpoint{ServiceSTS, "aws", "eu-west-1", ""}},
		{"sts.eu-west-1.api.aws", endpoint{ServiceSTS, "aws", "eu-west-1", ""}},
		{"sts-fips.us-east-1.amazonaws.com", endpoint{ServiceSTS, "aws", "us-east-1", ""}},
		{"sts.cn-north-1.amazonaws.com.cn", endpoint{ServiceSTS, "aws-cn", "cn-north-1", ""}},
		{"sts.us-gov-west-1.amazonaws.com", endpoint{ServiceSTS, "aws-us-gov", "us-gov-west-1", ""}},
		{"sts.eusc-de-east-1.amazonaws.eu", endpoint{ServiceSTS, "aws-eusc", "eusc-de-east-1", ""}},
		{"sts.us-iso-east-1.c2s.ic.gov", endpoint{ServiceSTS, "aws-iso", "us-iso-east-1", ""}},
		{"api.ecr.eu-west-1.amazonaws.com", endpoint{ServiceECR, "aws", "eu-west-1", ""}},
		{"ecr.eu-west-1.api.aws", endpoint{ServiceECR, "aws", "eu-west-1", ""}},
		{"api.ecr-fips.us-gov-east-1.amazonaws.com", endpoint{ServiceECR, "aws-us-gov", "us-gov-east-1", ""}},
		{"api.ecr-public.us-east-1.amazonaws.com", endpoint{ServiceECRPublic, "aws", "us-east-1", ""}},
		{"public.ecr.aws", endpoint{ServicePublicRegistry, "aws", "us-east-1", ""}},
		{"123456789123.dkr.ecr.eu-west-1.amazonaws.com", endpoint{ServiceRegistry, "aws", "eu-west-1", "123456789123"}},
		{"123456789123.dkr.ecr-fips.us-east-2.amazonaws.com", endpoint{ServiceRegistry, "aws", "us-east-2", "123456789123"}},
		{"123456789123.dkr-ecr.eu-west-1.on.aws", endpoint{ServiceRegistry, "aws", "eu-west-1", "123456789123"}},
		{"123456789123.dkr-ecr-fips.us-west-2.on.aws", endpoint{ServiceRegistry, "aws", "us-west-2", "123456789123"}},
		{"123456789123.dkr.ecr.cn-northwest-1.amazonaws.com.cn", endpoint{ServiceRegistry, "aws-cn", "cn-northwest-1", "123456789123"}},
		{"123456789123.dkr.ecr.eusc-de-east-1.amazonaws.eu", endpoint{ServiceRegistry, "aws-eusc", "eusc-de-east-1", "123456789123"}},

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
		{"ec2.eu-west-1.amazonaws.com", endpoint{}},
	}
	for _, tt := range tests {
		got, ok := parseHost(tt.host)
		if got != tt.want || ok != (tt.want != endpoint{}) {
			t.Errorf("%q: %+v, %t; want %+v", tt.host, got, ok, tt.want)
		}
	}
}

// TestHostsOfTheSDK asks the real SDK which hosts it goes to, in every region that this package knows, and expects to be those hosts.
func TestHostsOfTheSDK(t *testing.T) {
	type resolved struct {
		service string
		uri     url.URL
	}
	for _, part := range partitions() {
		for _, region := range part.regions {
			for _, variant := range []struct{ dual, fips bool }{{false, false}, {true, false}, {false, true}} {
				if variant.fips && !slices.Contains(part.fips, region) {
					continue // the SDK makes a name, AWS has no such host
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
				if region == "us-east-1" && !variant.fips {
					e, err = ecrpublic.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), ecrpublic.EndpointParameters{Region: r, UseDualStack: dual, UseFIPS: fips})
					add(ServiceECRPublic, e, err)
				}
				for _, h := range hosts {
					want := endpoint{service: h.service, partition: part.id, region: region}
					if got, ok := parseHost(h.uri.Host); !ok || got != want {
						t.Errorf("%s: %q is %+v, %t; want %+v", name, h.uri.Host, got, ok, want)
					}
				}
			}
		}
	}
}

// FuzzParseHost: what is accepted is one name of one thing: nothing can be put before, after or into it.
func FuzzParseHost(f *testing.F) {
	f.Add("sts.eu-west-1.amazonaws.com")
	f.Add("123456789123.dkr-ecr.eu-west-1.on.aws")
	f.Add("123456789123.dkr.ecr.eu-west-1.amazonaws.com.attacker.example")
	f.Fuzz(func(t *testing.T, host string) {
		ep, ok := parseHost(host)
		if !ok {
			if ep != (endpoint{}) {
				t.Errorf("%q: refused, but %+v", host, ep)
			}
			return
		}
		part, known := partitionByID(ep.partition)
		if !known || ep.service == "" || ep.region == "" || (ep.service == ServiceRegistry) != (ep.account != "") {
			t.Errorf("%q: %+v", host, ep)
		}
		for _, other := range []string{"x" + host, "x." + host, host + "x", host + ".", host + ".x", host + ":443"} {
			if _, ok := parseHost(other); ok {
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
