package cloudtest

import (
	"slices"

	"github.com/lanyard-dev/lanyard/cloudtest/alibaba"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// Services returns the names of all services, as in the journal and in faults. These are the
// services of AWS, Azure, Google Cloud and Alibaba Cloud, registered handlers, and the proxy.
func Services() []string {
	return slices.Concat(
		[]string{
			aws.ServiceIAM, aws.ServiceSTS, aws.ServiceECR, aws.ServiceRegistry,
			aws.ServiceECRPublic, aws.ServicePublicRegistry, aws.ServiceS3, aws.ServiceKMS,
		},
		aws.GenericServices(),
		[]string{
			azure.ServiceEntra, azure.ServiceResourceManager, azure.ServiceGraph,
			azure.ServiceRegistryTokens, azure.ServiceRegistry, azure.ServiceBlob, azure.ServiceKeyVault, azure.ServiceIMDS,
			gcp.ServiceSTS, gcp.ServiceIAMCredentials, gcp.ServiceAccounts, gcp.ServiceRegistry, gcp.ServiceStorage, gcp.ServiceMetadata,
			gcp.ServiceIAM, gcp.ServiceResourceManager, gcp.ServiceUsage, gcp.ServiceRegistryAPI, gcp.ServiceKMS,
			alibaba.ServiceSTS,
			journal.ServiceHandler, journal.ServiceProxy,
		},
	)
}
