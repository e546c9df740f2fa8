package endpoint

// azureClouds is the table of Azure clouds. Sources:
//
//   - Hosts and audiences: go-autorest (autorest/azure/environments.go) and azcore
//     (sdk/azcore/cloud).
//   - Hosts and audiences of managed HSMs: Azure Key Vault, "Object identifiers"; azure-cli
//     (azure/cli/core/cloud.py); Azure SDK for .NET, challenge tests of Key Vault.
//   - Audience of a proof in each cloud: Microsoft Entra, "Workload identity federation".
//   - Audience of registries, the same in all clouds: Azure SDK ("Do not require audience",
//     azure-sdk-for-net 34785).
//   - Audiences of Event Hubs and Storage: Azure Event Hubs and Azure Storage, "Authorize access
//     with Microsoft Entra ID".
//
// The cloud in Germany, with azurecr.de, is not in the table: it was closed in October 2021.
func azureClouds() [3]AzureCloud {
	return [...]AzureCloud{
		{
			Name:                    "AzurePublicCloud",
			Authority:               "https://login.microsoftonline.com",
			ProofAudience:           "api://AzureADTokenExchange",
			ResourceManager:         "https://management.azure.com",
			ResourceManagerAudience: "https://management.azure.com",
			RegistrySuffix:          "azurecr.io",
			RegistryAudience:        "https://containerregistry.azure.net",
			StorageSuffix:           "core.windows.net",
			StorageAudience:         "https://storage.azure.com",
			KeyVaultSuffix:          "vault.azure.net",
			KeyVaultAudience:        "https://vault.azure.net",
			ManagedHSMSuffix:        "managedhsm.azure.net",
			ManagedHSMAudience:      "https://managedhsm.azure.net",
			EventHubsAudience:       "https://eventhubs.azure.net",
		},
		{
			Name:                    "AzureUSGovernmentCloud",
			Authority:               "https://login.microsoftonline.us",
			ProofAudience:           "api://AzureADTokenExchangeUSGov",
			ResourceManager:         "https://management.usgovcloudapi.net",
			ResourceManagerAudience: "https://management.usgovcloudapi.net",
			RegistrySuffix:          "azurecr.us",
			RegistryAudience:        "https://containerregistry.azure.net",
			StorageSuffix:           "core.usgovcloudapi.net",
			StorageAudience:         "https://storage.azure.com",
			KeyVaultSuffix:          "vault.usgovcloudapi.net",
			KeyVaultAudience:        "https://vault.usgovcloudapi.net",
			ManagedHSMSuffix:        "managedhsm.usgovcloudapi.net",
			ManagedHSMAudience:      "https://managedhsm.usgovcloudapi.net",
			EventHubsAudience:       "https://eventhubs.azure.net",
		},
		{
			Name:                    "AzureChinaCloud",
			Authority:               "https://login.chinacloudapi.cn",
			ProofAudience:           "api://AzureADTokenExchangeChina",
			ResourceManager:         "https://management.chinacloudapi.cn",
			ResourceManagerAudience: "https://management.chinacloudapi.cn",
			RegistrySuffix:          "azurecr.cn",
			RegistryAudience:        "https://containerregistry.azure.net",
			StorageSuffix:           "core.chinacloudapi.cn",
			StorageAudience:         "https://storage.azure.com",
			KeyVaultSuffix:          "vault.azure.cn",
			KeyVaultAudience:        "https://vault.azure.cn",
			ManagedHSMSuffix:        "managedhsm.azure.cn",
			ManagedHSMAudience:      "https://managedhsm.azure.cn",
			EventHubsAudience:       "https://eventhubs.azure.net",
		},
	}
}

// azureAuthorities returns the aliases of the authorities in azureClouds. AZURE_AUTHORITY_HOST may
// have one of these host names. Source: the instance metadata of Microsoft Entra
// (login.microsoftonline.com/common/discovery/instance).
func azureAuthorities() []struct{ host, cloud string } {
	return []struct{ host, cloud string }{
		{"login.windows.net", "AzurePublicCloud"},
		{"login.microsoft.com", "AzurePublicCloud"},
		{"sts.windows.net", "AzurePublicCloud"},
		{"login.usgovcloudapi.net", "AzureUSGovernmentCloud"},
		{"login.partner.microsoftonline.cn", "AzureChinaCloud"},
	}
}
