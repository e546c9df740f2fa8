package endpoint

import (
	"encoding/json"
	"strings"
)

const whatEnvironment = "Azure environment"

// notAvailable is the value for a service that the cloud lacks (go-autorest's NotAvailable).
const notAvailable = "N/A"

// azureEnvironment has the fields that Lanyard reads from the file at AZURE_ENVIRONMENT_FILEPATH.
// Source: go-autorest, autorest/azure.Environment. The field federatedCredentialAudience is
// Lanyard's own.
type azureEnvironment struct {
	Name                       string `json:"name"`
	ActiveDirectoryEndpoint    string `json:"activeDirectoryEndpoint"`
	ResourceManagerEndpoint    string `json:"resourceManagerEndpoint"`
	TokenAudience              string `json:"tokenAudience"`
	ProofAudience              string `json:"federatedCredentialAudience"`
	ContainerRegistryDNSSuffix string `json:"containerRegistryDNSSuffix"`
	StorageEndpointSuffix      string `json:"storageEndpointSuffix"`
	KeyVaultDNSSuffix          string `json:"keyVaultDNSSuffix"`
	ManagedHSMDNSSuffix        string `json:"managedHSMDNSSuffix"`
	ResourceIdentifiers        struct {
		KeyVault   string `json:"keyVault"`
		ManagedHSM string `json:"managedHSM"`
		Storage    string `json:"storage"`
	} `json:"resourceIdentifiers"`
}

// ParseAzureEnvironment returns the cloud that the file of AZURE_ENVIRONMENT_FILEPATH describes, in
// the JSON of go-autorest. A field with the value "N/A" counts as absent. Unknown fields are
// ignored. Errors are [*Error] and name the field.
//
//   - resourceManagerEndpoint has the form https://host. It is required.
//   - activeDirectoryEndpoint has the same form. Its default is the argument authority, which is
//     the value of AZURE_AUTHORITY_HOST. One of the two must be set.
//   - The default of tokenAudience is resourceManagerEndpoint.
//   - The default audience of key vaults is https://<keyVaultDNSSuffix>, and that of managed HSMs
//     https://<managedHSMDNSSuffix>. The other services have the default audiences of the public
//     cloud.
//   - federatedCredentialAudience is Lanyard's own field: the audience of a proof. Its default is
//     that of the cloud that owns activeDirectoryEndpoint. If no known cloud owns the endpoint, its
//     default is that of the public cloud.
func ParseAzureEnvironment(data []byte, authority string) (AzureCloud, error) {
	var e azureEnvironment
	if err := json.Unmarshal(data, &e); err != nil {
		// Do not wrap the parser's error, because it repeats the input.
		return AzureCloud{}, &Error{
			What: whatEnvironment, Reason: ReasonMalformed, Detail: "it is not a JSON object whose values are text",
			Fix: "write the file in the format of go-autorest's azure.Environment",
		}
	}
	what := whatEnvironment + " (activeDirectoryEndpoint)"
	if e.ActiveDirectoryEndpoint == "" || e.ActiveDirectoryEndpoint == notAvailable {
		if authority != "" {
			what = whatEnvironment + " (AZURE_AUTHORITY_HOST)"
		}
		e.ActiveDirectoryEndpoint = authority
	}
	entra, err := parseRoot(what, e.ActiveDirectoryEndpoint)
	if err != nil {
		return AzureCloud{}, err
	}
	manager, err := parseRoot(whatEnvironment+" (resourceManagerEndpoint)", e.ResourceManagerEndpoint)
	if err != nil {
		return AzureCloud{}, err
	}
	public := AzurePublic()
	c := AzureCloud{
		Name: "AzureStackCloud", Authority: entra.url(), ResourceManager: manager.url(), ResourceManagerAudience: manager.url(),
		ProofAudience:    public.ProofAudience,
		RegistryAudience: public.RegistryAudience, RegistriesMayLackAudience: true,
		StorageAudience: public.StorageAudience, EventHubsAudience: public.EventHubsAudience,
	}
	if known, ok := cloudOfAuthority(entra.host); ok {
		c.ProofAudience = known.ProofAudience
	}
	for _, field := range []struct {
		name, value string
		to          *string
		parse       func(what, value string) (string, error)
	}{
		{"name", e.Name, &c.Name, parseCloudName},
		{"containerRegistryDNSSuffix", e.ContainerRegistryDNSSuffix, &c.RegistrySuffix, parseSuffix},
		{"storageEndpointSuffix", e.StorageEndpointSuffix, &c.StorageSuffix, parseSuffix},
		{"keyVaultDNSSuffix", e.KeyVaultDNSSuffix, &c.KeyVaultSuffix, parseSuffix},
		{"managedHSMDNSSuffix", e.ManagedHSMDNSSuffix, &c.ManagedHSMSuffix, parseSuffix},
		{"tokenAudience", e.TokenAudience, &c.ResourceManagerAudience, parseResource},
		{"federatedCredentialAudience", e.ProofAudience, &c.ProofAudience, parseResource},
		{"resourceIdentifiers.keyVault", e.ResourceIdentifiers.KeyVault, &c.KeyVaultAudience, parseResource},
		{"resourceIdentifiers.managedHSM", e.ResourceIdentifiers.ManagedHSM, &c.ManagedHSMAudience, parseResource},
		{"resourceIdentifiers.storage", e.ResourceIdentifiers.Storage, &c.StorageAudience, parseResource},
	} {
		if field.value == "" || field.value == notAvailable {
			continue
		}
		if *field.to, err = field.parse(whatEnvironment+" ("+field.name+")", field.value); err != nil {
			return AzureCloud{}, err
		}
	}
	if c.KeyVaultAudience == "" && c.KeyVaultSuffix != "" {
		c.KeyVaultAudience = schemeHTTPS + "://" + c.KeyVaultSuffix
	}
	if c.ManagedHSMAudience == "" && c.ManagedHSMSuffix != "" {
		c.ManagedHSMAudience = schemeHTTPS + "://" + c.ManagedHSMSuffix
	}
	return c, nil
}

func parseCloudName(what, name string) (string, error) {
	if len(name) > maxLabel || !all(name, func(c byte) bool { return isLowerOrDigit(c|0x20) || c == '-' || c == '_' }) {
		return "", &Error{
			What: what, Reason: ReasonName, Detail: quote(name) + " is not a name of letters, digits, hyphens and underscores",
			Fix: "write a name such as AzureStackCloud",
		}
	}
	return name, nil
}

// parseSuffix returns suffix as a DNS name. It refuses a name of one label, because a cloud cannot
// own a whole top-level domain.
func parseSuffix(what, suffix string) (string, error) {
	host, port, err := parseHostPort(what, suffix)
	if err != nil {
		return "", err
	}
	if last := host[strings.LastIndexByte(host, '.')+1:]; port != "" || strings.Contains(host, ":") || all(last, isDigit) || last == host {
		return "", &Error{
			What: what, Reason: ReasonMalformed, Detail: quote(suffix) + " is not a DNS name of two labels or more",
			Fix: "write a suffix such as azurecr.example.com, without a leading dot",
		}
	}
	return host, nil
}

// parseResource returns the name of a resource in Microsoft Entra, without a slash at its end. The
// name is a URI with scheme https or api.
func parseResource(what, uri string) (string, error) {
	scheme, _, _ := strings.Cut(uri, "://")
	if scheme != "api" {
		scheme = schemeHTTPS
	}
	// Keep the capital letters of the host in api://AzureADTokenExchange. They are significant.
	if _, err := parseLocation(what, scheme, uri); err != nil {
		return "", err
	}
	return strings.TrimSuffix(uri, "/"), nil
}
