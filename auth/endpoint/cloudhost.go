package endpoint

import (
	"slices"
	"strings"
)

// isCloudHost reports whether host:port is a cloud's own registry, bucket, key service or security
// token service ([ProviderOf]), at port 443. Inside a cloud's networks such a host often has a
// private address (AWS PrivateLink, Azure Private Link, Private Service Connect). The cloud and the
// network's owner decide that address, never a tenant.
//
// Anyone can register a name for an Azure key vault, as for a storage account or a registry. But
// whoever registers the name cannot choose its address, because Azure writes the DNS records. So
// isCloudHost treats vaults as it treats blob endpoints.
//
// isCloudHost returns false for interface endpoints (vpce-….vpce.amazonaws.com), although
// ProviderOf accepts some of them. Anyone with an AWS account can own an interface endpoint, and
// choose its address in the public DNS.
func isCloudHost(hostport string) bool {
	host, port, err := parseHostPort("address", hostport)
	return err == nil && port == httpsPort && !isInterfaceEndpoint(host) && ProviderOf(host) != ""
}

// ProviderOf returns the provider ("aws", "azure" or "gcp") that owns a registry, bucket, key
// service or security token service. It returns "" for any other host. The result does not mean
// that a credential may go to the host. Before a credential goes to the host, parse the host with
// the parser of its service, such as [ParseECR].
func ProviderOf(host string) string {
	for _, table := range [...]struct {
		provider string
		parse    func(host string) error
	}{
		{"aws", func(host string) error { _, err := ParseECR(host); return err }},
		{"azure", func(host string) error { _, err := ParseACR(host); return err }},
		{"gcp", func(host string) error { _, err := ParseGAR(host); return err }},
		{"azure", func(host string) error { _, err := ParseBlobEndpoint(host); return err }},
		{"gcp", func(host string) error { _, err := ParseGCS(host); return err }},
		{"aws", func(host string) error { _, err := stsHost(host); return err }},
	} {
		if table.parse(host) == nil {
			return table.provider
		}
	}
	_, isVault := vaultHost(host, AzureClouds())
	switch {
	case isS3Address(host), isKMSHost(host):
		return "aws"
	case isACRData(host), isVault:
		return "azure"
	case isCloudKMSHost(host):
		return "gcp"
	default:
		return ""
	}
}

// maxBucket bounds the name of a bucket of S3, in bytes. Source: Amazon S3 user guide, "Bucket
// naming rules".
const maxBucket = 63

// isS3Address reports whether the host is an endpoint of S3, with or without a bucket's name in
// front.
func isS3Address(host string) bool {
	for i := 0; i <= maxBucket+1; {
		if _, ok := s3Host(host[i:]); ok {
			return true
		}
		label, _, more := strings.Cut(host[i:], ".")
		if !more {
			return false
		}
		i += len(label) + 1
	}
	return false
}

// isACRData reports whether the host is the dedicated data endpoint of a registry of Azure, which
// serves the registry's layers: <registry>.<region>.data.azurecr.io. Source: Azure Container
// Registry, "Endpoint reference".
func isACRData(host string) bool {
	return slices.ContainsFunc(AzureClouds(), func(c AzureCloud) bool {
		labels, ok := cutAzureSuffix(host, c.RegistrySuffix)
		return ok && len(labels) == 3 && isACRName(labels[0]) && all(labels[1], isLowerOrDigit) && labels[2] == "data"
	})
}
