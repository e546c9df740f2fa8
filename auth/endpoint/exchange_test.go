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
			"sts.eu-west-1.api.aws", "sts.amazonaws.eu", "sts.us-gov-west-1.amazonaws.com", "https://sts.us-gov-east-1.amazonaws.com/",
			"sts-fips.us-east-1.amazonaws.com", "https://sts-fips.us-west-2.amazonaws.com", "STS-FIPS.ca-central-1.amazonaws.com:443",
			"sts-fips.us-gov-west-1.amazonaws.com", "sts-fips.us-east-1.api.aws", "sts-fips.cn-north-1.amazonaws.com.cn",
			"vpce-0123456789abcdef0-abcdefgh.sts.eu-west-1.vpce.amazonaws.com", "amazonaws.com", "https://amazonaws.com",
		},
		"Amazon EKS Pod Identity": {
			"pods.eks.amazonaws.com", "Pods.EKS.amazonaws.com", "https://pods.eks.amazonaws.com/", "pods.eks.amazonaws.com.cn",
			"pods.eks.us-east-1.amazonaws.com",
		},
		"Microsoft Entra": {
			"api://AzureADTokenExchange", "api://azureadtokenexchange", "api://AzureADTokenExchangeUSGov", "api://AzureADTokenExchangeChina",
			"api://AzureADTokenExchange/.default", "api://AKSIdentityBinding", "api://aksidentitybinding",
		},
		"Google's Security Token Service": {
			"https://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
			"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
			"iam.googleapis.com", "project.svc.id.goog", "id.s3ns.svc.id.goog", "project.hub.id.goog", "sts.googleapis.com", "https://sts.s3nsapis.fr",
			"https://sts.mtls.googleapis.com", "sts.europe-west3.rep.googleapis.com", "https://iam.googleapis.com/projects/1",
		},
		"Alibaba Cloud STS": {"sts.aliyuncs.com", "sts.cn-hangzhou.aliyuncs.com", "https://sts.aliyuncs.com", "sts-vpc.cn-hangzhou.aliyuncs.com"},
		"Tencent Cloud STS": {"sts.cloud.tencent.com", "https://sts.cloud.tencent.com"},
		"IBM Cloud IAM":     {"iam", "IAM"},
		"the HashiCorp Cloud Platform": {
			"iam/project/1/service-principal/sp/workload-identity-provider/p", "IAM/project/1/service-principal/sp/workload-identity-provider/p",
		},
		"": {
			"", "registry.example.com", "oci://registry.example.com/app", "zot.zot.svc.cluster.local", "https://kubernetes.default.svc",
			"123456789123.dkr.ecr.eu-west-1.amazonaws.com", "sts.example.com", "notsts.amazonaws.com.example.org",
			"api://something", "iam.googleapis.com.example.org", "sts.amazonaws.com.example.org", "vault",
			"sts-fips.example.com", "sts-fips.us-east-1.amazonaws.com.example.org", "sts-fipsy.us-east-1.amazonaws.com",
			"123456789123.dkr.ecr-fips.us-east-1.amazonaws.com", "public.ecr.aws", "s3.eu-west-1.amazonaws.com", "notamazonaws.com",
			"eks.amazonaws.com", "pods-eks.amazonaws.com", "pods.eks.example.com", "pods.eks.amazonaws.com.example.org",
			"api://AKSIdentity", "https://sts.windows.net/9f9f9f9f-c5b2-4a72-9f84-6a92e3f06b08/", "myregistry.azurecr.io",
			"notiam.googleapis.com", "storage.googleapis.com", "europe-docker.pkg.dev", "notsts.googleapis.com", "id.goog",
			"sts-vpc.example.com", "oss.aliyuncs.com", "registry.cn-hangzhou.aliyuncs.com", "ccr.ccs.tencentyun.com",
			"iam.example.com", "iamb", "my-iam", "registry.example.com/iam", "projects/iam/project/1",
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
		if got := endpoint.ExchangeOf(audience + "/x"); got == "" {
			t.Errorf("%q: %q; with a path none", audience, service)
		}
	})
}
