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
)

// ExchangeOf returns the name of the token service that accepts a token with this audience. It
// returns "" if no known token service accepts the audience. The comparison ignores case and
// scheme: some services ignore case, and some accept an audience with or without its scheme.
//
// Sources besides those in awsdata.go, azuredata.go and gcpdata.go: Google Cloud IAM, "Workload
// Identity Federation", allowedAudiences; Alibaba Cloud RAM, "Overview of OIDC-based SSO" and
// AssumeRoleWithOIDC.
func ExchangeOf(audience string) string {
	name := strings.ToLower(audience)
	name = strings.TrimPrefix(name, schemeHTTPS+":")
	host, _, _ := strings.Cut(strings.TrimPrefix(name, "//"), "/")
	host, _, _ = strings.Cut(host, ":")
	isSTS := strings.HasPrefix(host, "sts.")
	switch {
	case isSTS && hasAWSSuffix(host), isInterfaceEndpoint(host) && hasAWSSuffix(host):
		return "AWS STS"
	// The ProofAudience of every Azure cloud begins with that of the public cloud.
	case strings.HasPrefix(name, strings.ToLower(AzurePublic().ProofAudience)):
		return "Microsoft Entra"
	case host == strings.Trim(gcpIAM, "/"), strings.HasSuffix(host, gcpPools), isGCPTokenService(host):
		return "Google's Security Token Service"
	case isSTS && strings.HasSuffix(host, "."+alibabaDomain):
		return "Alibaba Cloud STS"
	default:
		return ""
	}
}

// isGCPTokenService reports whether the host is the Security Token Service of a universe.
func isGCPTokenService(host string) bool {
	return slices.ContainsFunc(GCPUniverses(), func(u GCPUniverse) bool { return host == u.APIHost("sts") })
}
