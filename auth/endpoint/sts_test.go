package endpoint_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestParseSTS(t *testing.T) {
	fips := endpoint.Variant{FIPS: true}
	dual := endpoint.Variant{DualStack: true}
	both := endpoint.Variant{FIPS: true, DualStack: true}
	for _, tt := range []struct {
		url               string
		partition, region string
		global            bool
		variant           endpoint.Variant
		reason            endpoint.Reason
	}{
		// Cases of fluxcd/pkg/auth v0.54.3, aws/options_test.go.
		{url: "https://sts.amazonaws.com", partition: "aws", region: "us-east-1", global: true},
		{url: "https://sts.us-east-2.amazonaws.com", partition: "aws", region: "us-east-2"},
		{url: "https://sts-fips.us-east-2.amazonaws.com", partition: "aws", region: "us-east-2", variant: fips},
		{url: "https://sts.us-east-1.amazonaws.com", partition: "aws", region: "us-east-1"},
		{url: "https://sts-fips.us-east-1.amazonaws.com", partition: "aws", region: "us-east-1", variant: fips},
		{url: "https://sts.us-west-1.amazonaws.com", partition: "aws", region: "us-west-1"},
		{url: "https://sts-fips.us-west-1.amazonaws.com", partition: "aws", region: "us-west-1", variant: fips},
		{url: "https://sts.us-west-2.amazonaws.com", partition: "aws", region: "us-west-2"},
		{url: "https://sts-fips.us-west-2.amazonaws.com", partition: "aws", region: "us-west-2", variant: fips},
		{url: "https://sts.il-central-1.amazonaws.com", partition: "aws", region: "il-central-1"},
		{url: "https://sts.mx-central-1.amazonaws.com", partition: "aws", region: "mx-central-1"},
		{url: "https://sts.me-south-1.amazonaws.com", partition: "aws", region: "me-south-1"},
		{url: "https://sts.me-central-1.amazonaws.com", partition: "aws", region: "me-central-1"},
		{url: "https://sts.sa-east-1.amazonaws.com", partition: "aws", region: "sa-east-1"},
		{url: "https://sts.us-gov-east-1.amazonaws.com", partition: "aws-us-gov", region: "us-gov-east-1", variant: fips},
		{url: "https://sts.us-gov-west-1.amazonaws.com", partition: "aws-us-gov", region: "us-gov-west-1", variant: fips},
		{
			url:       "https://vpce-002b7cc8966426bc6-njisq19r.sts.us-east-1.vpce.amazonaws.com",
			partition: "aws", region: "us-east-1",
		},
		{
			url:       "https://vpce-002b7cc8966426bc6-njisq19r-us-east-1a.sts.us-east-1.vpce.amazonaws.com",
			partition: "aws", region: "us-east-1",
		},
		{url: "https://stss.amazonaws.com", reason: endpoint.ReasonHost},
		{url: "https://sts.amazonaws.example.com", reason: endpoint.ReasonHost},
		{url: "http://sts.amazonaws.com", reason: endpoint.ReasonScheme},
		{url: "sts.amazonaws.com", reason: endpoint.ReasonScheme},

		// Cases that fluxcd/pkg/auth wrongly refuses or wrongly accepts.
		{url: "https://sts.cn-north-1.amazonaws.com.cn", partition: "aws-cn", region: "cn-north-1"},
		{url: "https://sts.cn-northwest-1.api.amazonwebservices.com.cn", partition: "aws-cn", region: "cn-northwest-1", variant: dual},
		{url: "https://sts.eusc-de-east-1.amazonaws.eu", partition: "aws-eusc", region: "eusc-de-east-1"},
		{url: "https://sts.eusc-de-east-1.api.amazonwebservices.eu", partition: "aws-eusc", region: "eusc-de-east-1", variant: dual},
		{url: "https://sts.eu-west-1.api.aws", partition: "aws", region: "eu-west-1", variant: dual},
		{url: "https://sts-fips.us-east-1.api.aws", partition: "aws", region: "us-east-1", variant: both},
		{url: "https://sts.us-gov-west-1.api.aws", partition: "aws-us-gov", region: "us-gov-west-1", variant: dual},
		{url: "https://sts.us-iso-east-1.c2s.ic.gov", partition: "aws-iso", region: "us-iso-east-1"},
		{url: "https://sts.us-isob-east-1.sc2s.sgov.gov", partition: "aws-iso-b", region: "us-isob-east-1"},
		{url: "https://sts.eu-isoe-west-1.cloud.adc-e.uk", partition: "aws-iso-e", region: "eu-isoe-west-1"},
		{url: "https://sts.us-isof-south-1.csp.hci.ic.gov", partition: "aws-iso-f", region: "us-isof-south-1"},
		{
			url:       "https://vpce-002b7cc8966426bc6-njisq19r.sts.cn-north-1.vpce.amazonaws.com.cn",
			partition: "aws-cn", region: "cn-north-1",
		},
		{
			url:       "https://vpce-002b7cc8966426bc6-njisq19r.sts-fips.us-east-1.vpce.amazonaws.com",
			partition: "aws", region: "us-east-1", variant: fips,
		},
		{
			url:       "https://vpce-002b7cc8966426bc6-njisq19r-us-west-2-lax-1a.sts.us-west-2.vpce.amazonaws.com",
			partition: "aws", region: "us-west-2",
		},
		{url: "https://sts.us-east-1.amazonaws.com/", partition: "aws", region: "us-east-1"},
		{url: "https://STS.us-east-1.amazonaws.com:443", partition: "aws", region: "us-east-1"},
		{url: "https://something.amazonaws.com", reason: endpoint.ReasonHost},
		{url: "https://sts.arn.amazonaws.com", reason: endpoint.ReasonRegion},
		{url: "https://evil.example.org/?.sts.amazonaws.com", reason: endpoint.ReasonPath},
		{url: "https://evil.example.org/.sts.amazonaws.com", reason: endpoint.ReasonPath},
		{url: "https://evil.example.org#.sts.amazonaws.com", reason: endpoint.ReasonPath},
		{url: "https://evil.sts.amazonaws.com", reason: endpoint.ReasonHost},
		{url: "https://evil.sts.us-east-1.amazonaws.com", reason: endpoint.ReasonHost},

		// Customers of AWS can offer their own services under vpce.amazonaws.com. So only the
		// interface endpoints of STS are accepted there.
		{url: "https://vpce-002b7cc8966426bc6-njisq19r.vpce-svc-0e123abc123198abc.us-east-1.vpce.amazonaws.com", reason: endpoint.ReasonHost},
		{url: "https://vpce-002b7cc8966426bc6-njisq19r.sts.vpce-svc-0e123abc123198abc.us-east-1.vpce.amazonaws.com", reason: endpoint.ReasonRegion},
		{url: "https://sts.us-east-1.vpce.amazonaws.com", reason: endpoint.ReasonPartition},
		{url: "https://vpce-002b7cc8966426bc6-njisq19r.sts.us-east-1.amazonaws.com", reason: endpoint.ReasonHost},
		{url: "https://vpce-002b7cc8966426bc6.sts.us-east-1.vpce.amazonaws.com", reason: endpoint.ReasonHost},
		{url: "https://vpce-xyz-njisq19r.sts.us-east-1.vpce.amazonaws.com", reason: endpoint.ReasonHost},
		{url: "https://vpce-002b7cc8966426bc6-njisq19r-eu-west-1a.sts.us-east-1.vpce.amazonaws.com", reason: endpoint.ReasonHost},
		{url: "https://vpce-002b7cc8966426bc6-njisq19r-us-east-1.sts.us-east-1.vpce.amazonaws.com.cn", reason: endpoint.ReasonHost},

		{url: "https://sts.us-east-1.amazonaws.com.cn", reason: endpoint.ReasonPartition},
		{url: "https://sts.cn-north-1.amazonaws.com", reason: endpoint.ReasonPartition},
		{url: "https://sts.us-east-1.on.aws", reason: endpoint.ReasonPartition},
		{url: "https://sts.amazonaws.com.cn", reason: endpoint.ReasonRegion},
		{url: "https://sts.us-east-1.amazonaws.com:8443", reason: endpoint.ReasonPort},
		{url: "https://sts.us-east-1.amazonaws.com:", reason: endpoint.ReasonPort},
		{url: "https://sts.us-east-1.amazonaws.com:0443", reason: endpoint.ReasonPort},
		{url: "https://sts.us-east-1.amazonaws.com/x", reason: endpoint.ReasonPath},
		{url: "https://sts.us-east-1.amazonaws.com/?", reason: endpoint.ReasonPath},
		{url: "https://sts.us-east-1.amazonaws.com.", reason: endpoint.ReasonMalformed},
		{url: "https://user@sts.us-east-1.amazonaws.com", reason: endpoint.ReasonCredentials},
		{url: "https://sts.us-east-1.amazonaws.com@evil.example.org", reason: endpoint.ReasonCredentials},
		{url: "https://@sts.us-east-1.amazonaws.com", reason: endpoint.ReasonCredentials},
		{url: `https://evil.example.org\@sts.amazonaws.com`, reason: endpoint.ReasonMalformed},
		{url: "https://sts%2eamazonaws.com", reason: endpoint.ReasonMalformed},
		{url: "https://\u0455ts.amazonaws.com", reason: endpoint.ReasonMalformed},
		{url: "https:sts.amazonaws.com", reason: endpoint.ReasonScheme},
		{url: "https:///sts.amazonaws.com", reason: endpoint.ReasonEmpty},
		{url: "HTTPS://sts.amazonaws.com", reason: endpoint.ReasonScheme},
		{url: "https://127.0.0.1", reason: endpoint.ReasonHost},
		{url: "https://[::ffff:127.0.0.1]", reason: endpoint.ReasonHost},
		{url: "https://[fe80::1%25eth0]", reason: endpoint.ReasonMalformed},
		{url: " https://sts.amazonaws.com", reason: endpoint.ReasonMalformed},
		{url: "", reason: endpoint.ReasonEmpty},
	} {
		t.Run(tt.url, func(t *testing.T) {
			got, err := endpoint.ParseSTS(tt.url)
			if tt.reason != "" {
				if got != (endpoint.STS{}) {
					t.Errorf("got %+v, want nothing", got)
				}
				refused(t, err, tt.reason)
				return
			}
			if err != nil {
				t.Fatalf("got error %v", err)
			}
			host := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(strings.TrimPrefix(tt.url, "https://")), "/"), ":443")
			want := endpoint.STS{
				Host: host, Provider: endpoint.AWS, Partition: tt.partition, Region: tt.region,
				Global: tt.global, Variant: tt.variant,
			}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if got.URL() != "https://"+host {
				t.Errorf("got URL %s, want https://%s", got.URL(), host)
			}
			if got.Audience() != "sts.amazonaws.com" {
				t.Errorf("got audience %s", got.Audience())
			}
		})
	}
}

func FuzzParseSTS(f *testing.F) {
	for _, seed := range []string{
		"https://sts.amazonaws.com", "https://sts-fips.us-east-1.api.aws:443/",
		"https://vpce-002b7cc8966426bc6-njisq19r-us-east-1a.sts.us-east-1.vpce.amazonaws.com",
		"https://sts.amazonaws.com@evil.example.org", "https://evil.example.org/?.sts.amazonaws.com", "https://[::1]:443",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		s, err := endpoint.ParseSTS(raw)
		if err != nil {
			if s != (endpoint.STS{}) {
				t.Fatalf("%q: refused, yet an endpoint %+v", raw, s)
			}
			return
		}
		if !isPlainHost(s.Host) || !endsInTable(s.Host) || s.Port != "" || s.Listed {
			t.Fatalf("%q: accepted as %+v", raw, s)
		}
		// A second parser of the string, which is simpler than ParseSTS, must find the same host.
		authority := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(raw, "https://"), "/"), ":443")
		if !strings.EqualFold(authority, s.Host) {
			t.Fatalf("%q: accepted as %q, but reads as %q", raw, s.Host, authority)
		}
		if again, err := endpoint.ParseSTS(s.URL()); err != nil || again != s {
			t.Fatalf("%q: parses to %+v, its URL to %+v, %v", raw, s, again, err)
		}
	})
}
