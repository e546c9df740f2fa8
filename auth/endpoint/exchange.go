package endpoint

import (
	"slices"
	"strings"
)

// Domains by which ExchangeOf recognizes token services. More such domains are in the clouds'
// tables (awsdata.go, azuredata.go, gcpdata.go).
const (
	// gcpPools is the suffix of the workload identity pools of GKE clusters and fleets. Google's
	// Security Token Service accepts the name of a pool as an audience.
	gcpPools = ".id.goog"
	// alibabaDomain is the domain of Alibaba Cloud's services.
	alibabaDomain = "aliyuncs.com"
	// eksPods is the beginning of the audience of EKS Pod Identity. EKS exchanges a token with this
	// audience for a session of an AWS role (AssumeRoleForPodIdentity).
	eksPods = "pods.eks."
	// kopsAudience is the audience that kOps registers at AWS for a cluster's ServiceAccounts.
	kopsAudience = "amazonaws.com"
	// aksBinding is the audience of tokens for AKS identity bindings. A proxy of AKS exchanges such
	// a token for a token of Microsoft Entra.
	aksBinding = "api://aksidentitybinding"
	// tencentSTS is the audience that Tencent Kubernetes Engine registers for a cluster's
	// ServiceAccounts.
	tencentSTS = "sts.cloud.tencent.com"
	// ibmIAM is the audience of ServiceAccount tokens for the trusted profiles of IBM Cloud.
	ibmIAM = "iam"
	// hcpProviders is the beginning of the default audience of the HashiCorp Cloud Platform. The
	// whole audience is the resource name of a workload identity provider.
	hcpProviders = "iam/project/"
)

// ExchangeOf returns the name of the token service that accepts a token with this audience. An
// example is "AWS STS". The result is "" if no known token service accepts the audience. ExchangeOf
// ignores the case of the audience, as some services do. ExchangeOf also ignores the scheme https,
// which is optional for some services.
//
// Sources besides those in awsdata.go, azuredata.go and gcpdata.go: Google Cloud IAM, "Workload
// Identity Federation", allowedAudiences; Alibaba Cloud RAM, "Overview of OIDC-based SSO",
// AssumeRoleWithOIDC and the STS endpoints; Amazon EKS user guide, "EKS Pod Identity"; AWS STS,
// "Endpoints and quotas" (FIPS); kOps, OIDCProviderBuilder; azure-workload-identity, identity
// bindings; Tencent Kubernetes Engine, pod-identity-webhook; IBM Cloud Kubernetes Service, "Using
// trusted profiles in your cluster"; HashiCorp Cloud Platform, "Workload identity federation".
func ExchangeOf(audience string) string {
	name := strings.ToLower(audience)
	name = strings.TrimPrefix(name, schemeHTTPS+":")
	host, _, _ := strings.Cut(strings.TrimPrefix(name, "//"), "/")
	host, _, _ = strings.Cut(host, ":")
	isSTS := strings.HasPrefix(host, "sts.")
	_, _, isAWSSTS := cutForm(host, stsForms())
	switch {
	case (isAWSSTS || isInterfaceEndpoint(host)) && hasAWSSuffix(host), host == kopsAudience:
		return "AWS STS"
	case strings.HasPrefix(host, eksPods) && hasAWSSuffix(host):
		return "Amazon EKS Pod Identity"
	// The ProofAudience of every Azure cloud begins with that of the public cloud.
	case strings.HasPrefix(name, strings.ToLower(AzurePublic().ProofAudience)), strings.HasPrefix(name, aksBinding):
		return "Microsoft Entra"
	case host == strings.Trim(gcpIAM, "/"), strings.HasSuffix(host, gcpPools), isGCPTokenService(host):
		return "Google's Security Token Service"
	case (isSTS || strings.HasPrefix(host, "sts-vpc.")) && strings.HasSuffix(host, "."+alibabaDomain):
		return "Alibaba Cloud STS"
	case host == tencentSTS:
		return "Tencent Cloud STS"
	case strings.HasPrefix(name, hcpProviders):
		return "the HashiCorp Cloud Platform"
	case host == ibmIAM:
		return "IBM Cloud IAM"
	default:
		return ""
	}
}

// isGCPTokenService reports whether the host belongs to Google's Security Token Service. The host
// may be in any universe (see [GCPUniverse]). The host may be regional or for mTLS, for example
// sts.mtls.googleapis.com.
func isGCPTokenService(host string) bool {
	return slices.ContainsFunc(GCPUniverses(), func(u GCPUniverse) bool {
		return strings.HasPrefix(host, "sts.") && strings.HasSuffix(host, "."+u.Domain)
	})
}
