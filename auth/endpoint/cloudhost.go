package endpoint

import (
	"slices"
	"strings"
)

// isCloudHost reports whether host:port is a registry, a bucket or a security token service of a cloud, in exactly the form of the
// clouds' tables and at their one port. Inside the cloud's networks such a host often has a private address (AWS PrivateLink, Azure
// Private Link, Private Service Connect), and it is the cloud and the network's owner who decide it, never a tenant.
//
// Interface endpoints (vpce-….vpce.amazonaws.com) are not among them, though some are in the tables: the public DNS gives for them
// the address that their owner chose, and anyone with an account of AWS can own one.
func isCloudHost(hostport string) bool {
	host, port, err := parseHostPort("address", hostport)
	if err != nil || port != httpsPort {
		return false
	}
	refusals := [...]func() error{
		func() error { _, err := ParseECR(host); return err },
		func() error { _, err := ParseACR(host); return err },
		func() error { _, err := ParseGAR(host); return err },
		func() error { _, err := ParseBlobEndpoint(host); return err },
		func() error { _, err := ParseGCS(host); return err },
		func() error { _, err := stsHost(host); return err },
	}
	for _, refusal := range refusals {
		if refusal() == nil {
			return !isInterfaceEndpoint(host)
		}
	}
	return isS3Address(host) || isACRData(host)
}

// maxBucket bounds the name of a bucket of S3, in bytes. Source: Amazon S3 user guide, "Bucket naming rules".
const maxBucket = 63

// isS3Address reports whether the host is an endpoint of S3, with or without a bucket's name before it.
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

// isACRData reports whether the host is the dedicated data endpoint of a registry of Azure, where the registry's layers are:
// <registry>.<region>.data.azurecr.io. Source: Azure Container Registry, "Endpoint reference".
func isACRData(host string) bool {
	return slices.ContainsFunc(AzureClouds(), func(c AzureCloud) bool {
		labels, ok := cutAzureSuffix(host, c.RegistrySuffix)
		return ok && len(labels) == 3 && isACRName(labels[0]) && all(labels[1], isLowerOrDigit) && labels[2] == "data"
	})
}
