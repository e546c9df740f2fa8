package endpoint_test

import (
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestExchangeOf(t *testing.T) {
	for service, audiences := range map[string][]string{
		"AWS STS": {
			"sts.amazonaws.com", "STS.amazonaws.com", "https://sts.amazonaws.com", "https://sts.amazonaws.com/", "sts.amazonaws.com:443",
			"sts.eu-west-1.amazonaws.com", "sts.cn-north-1.amazonaws.com.cn", "https://sts.cn-north-1.amazonaws.com.cn", "sts.amazonaws.com.cn",
			"sts.eu-west-1.api.aws", "sts.amazonaws.eu",
		},
		"Microsoft Entra": {
			"api://AzureADTokenExchange", "api://azureadtokenexchange", "api://AzureADTokenExchangeUSGov", "api://AzureADTokenExchangeChina",
		},
		"Google's Security Token Service": {
			"https://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
			"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
			"iam.googleapis.com", "project.svc.id.goog", "id.s3ns.svc.id.goog", "project.hub.id.goog", "sts.googleapis.com", "https://sts.s3nsapis.fr",
		},
		"Alibaba Cloud STS": {"sts.aliyuncs.com", "sts.cn-hangzhou.aliyuncs.com", "https://sts.aliyuncs.com"},
		"": {
			"", "registry.example.com", "oci://registry.example.com/app", "zot.zot.svc.cluster.local", "https://kubernetes.default.svc",
			"123456789123.dkr.ecr.eu-west-1.amazonaws.com", "sts.example.com", "amazonaws.com", "notsts.amazonaws.com.example.org",
			"api://something", "iam.googleapis.com.example.org", "sts.amazonaws.com.example.org", "vault",
		},
	} {
		for _, audience := range audiences {
			if got := endpoint.ExchangeOf(audience); got != service {
				t.Errorf("%q: %q, want %q", audience, got, service)
			}
		}
	}
}

// FuzzExchangeOf checks that the scheme, the case and a path never hide a token service.
func FuzzExchangeOf(f *testing.F) {
	f.Add("sts.amazonaws.com")
	f.Add("project.svc.id.goog")
	f.Fuzz(func(t *testing.T, audience string) {
		service := endpoint.ExchangeOf(audience)
		if service == "" || service == "Microsoft Entra" {
			return
		}
		if got := endpoint.ExchangeOf(audience + "/x"); got != service {
			t.Errorf("%q: %q; with a path %q", audience, service, got)
		}
	})
}
