package endpoint

import "strings"

// Azure is Microsoft Azure, with all of its clouds.
const Azure Provider = "azure"

const (
	whatBlob      = "blob endpoint"
	whatAuthority = "authority of Microsoft Entra"
)

// AzureCloud is one cloud of Microsoft Azure: its hosts, and the audiences that its services expect
// in tokens. No cloud accepts the tokens of another. AzureCloud is comparable; its zero value is no
// cloud.
type AzureCloud struct {
	// Name is the cloud's name in Azure's tools, such as "AzurePublicCloud".
	Name string
	// Authority is Microsoft Entra's security token service, as https://host[:port].
	Authority string
	// ProofAudience is the audience of a proof that is sent to the authority.
	ProofAudience string
	// ResourceManager is the endpoint of Azure Resource Manager, as https://host[:port].
	ResourceManager string
	// ResourceManagerAudience is the resource named in tokens for Azure Resource Manager.
	ResourceManagerAudience string
	// RegistrySuffix is the end of the host names of the cloud's container registries; empty if the
	// cloud has none.
	RegistrySuffix string
	// RegistryAudience is the resource named in tokens for the cloud's container registries.
	RegistryAudience string
	// RegistriesMayLackAudience is true if the cloud may lack RegistryAudience. Its registries then
	// accept tokens for Azure Resource Manager. It is true for a cloud that an administrator
	// describes, because such a cloud may be too old to have RegistryAudience.
	RegistriesMayLackAudience bool
	// StorageSuffix is the end of the host names of the cloud's storage accounts,
	// <account>.blob.<StorageSuffix>; empty if the cloud has none.
	StorageSuffix string
	// StorageAudience is the resource named in tokens for the cloud's storage accounts.
	StorageAudience string
	// KeyVaultSuffix is the end of the host names of the cloud's key vaults; empty if it has none.
	KeyVaultSuffix string
	// KeyVaultAudience is the resource named in tokens for the cloud's key vaults.
	KeyVaultAudience string
	// ManagedHSMSuffix is the end of the host names of the cloud's managed HSMs; empty if it has
	// none.
	ManagedHSMSuffix string
	// ManagedHSMAudience is the resource named in tokens for the cloud's managed HSMs.
	ManagedHSMAudience string
	// EventHubsAudience is the resource named in tokens for the cloud's event hubs.
	EventHubsAudience string
}

// AzureClouds returns the predefined Azure clouds, the public cloud first; the caller owns the
// slice.
func AzureClouds() []AzureCloud {
	table := azureClouds()
	return table[:]
}

// AzurePublic returns the public cloud, which is the default.
func AzurePublic() AzureCloud { return azureClouds()[0] }

// IsZero reports whether c is the zero value.
func (c AzureCloud) IsZero() bool { return c == AzureCloud{} }

// ParseAzureAuthority returns the cloud whose authority has the given URL. The URL is the value of
// AZURE_AUTHORITY_HOST, which Azure's workload identity webhook sets in every cloud. Errors are
// [*Error], with ReasonHost if the host is not the authority of any cloud.
func ParseAzureAuthority(rawURL string) (AzureCloud, error) {
	loc, err := parseRoot(whatAuthority, rawURL)
	if err != nil {
		return AzureCloud{}, err
	}
	if c, ok := cloudOfAuthority(loc.host); ok && loc.ownPort() == "" {
		return c, nil
	}
	return AzureCloud{}, &Error{
		What: whatAuthority, Reason: ReasonHost,
		Detail: quote(loc.host) + " is the authority of no Azure cloud",
		Fix:    "write https://login.microsoftonline.com or its counterpart, or describe the cloud in a file (AZURE_ENVIRONMENT_FILEPATH)",
	}
}

func cloudOfAuthority(host string) (AzureCloud, bool) {
	name := ""
	for _, a := range azureAuthorities() {
		if host == a.host {
			name = a.cloud
		}
	}
	for _, c := range azureClouds() {
		if c.Name == name || c.Authority == schemeHTTPS+"://"+host {
			return c, true
		}
	}
	return AzureCloud{}, false
}

// ACR is an image repository of Azure Container Registry. It is comparable; its zero value is no
// repository.
type ACR struct {
	// Host is the login server's DNS name in lower case. It has no port.
	Host string
	// Name is the first label of the host: the registry's name, followed by "-" and a hash if the
	// registry has one.
	Name string
	// Region is the region of a regional endpoint; empty for the registry's global endpoint.
	Region string
	// Cloud is the name of the cloud that owns the host.
	Cloud string
	// Repository is the path after the host; empty if there is none.
	Repository string
}

// String returns host[/repository].
func (r ACR) String() string {
	if r.Repository == "" {
		return r.Host
	}
	return r.Host + "/" + r.Repository
}

// ParseACR parses an image repository, host[/path] or oci://host[/path]. The host must be a login
// server of Azure Container Registry in a cloud of [AzureClouds]. Upper-case letters in the host
// are allowed. Errors are [*Error], with ReasonHost if no cloud owns the host, such as a
// look-alike.
//
// Login servers are <registry>.azurecr.io and <registry>.<region>.geo.azurecr.io. A dedicated data
// endpoint, <registry>.<region>.data.azurecr.io, is refused, because it issues no tokens. The login
// server redirects to it for layers. Source: Azure Container Registry, "Endpoint reference".
//
// Unlike ParseECR, ParseACR also checks the path, because the path becomes part of the request for
// a token. The rules for the path are those of the OCI distribution specification.
func ParseACR(image string) (ACR, error) {
	return parseACR(image, AzureClouds())
}

// ParseACR is like the function [ParseACR], but accepts only registries of this cloud. The error
// for a registry of another cloud has ReasonPartition.
func (c AzureCloud) ParseACR(image string) (ACR, error) {
	r, err := parseACR(image, []AzureCloud{c})
	if err == nil {
		return r, nil
	}
	if other, otherErr := ParseACR(image); otherErr == nil {
		return ACR{}, &Error{
			What: whatRepository, Reason: ReasonPartition,
			Detail: quote(other.Host) + " is a registry of " + other.Cloud + ", not of " + c.Name,
			Fix:    "name a registry of " + c.Name + ", or set the controller's AZURE_AUTHORITY_HOST to the other cloud's",
		}
	}
	return ACR{}, err
}

func parseACR(image string, clouds []AzureCloud) (ACR, error) {
	loc, err := parseRepository(image)
	if err != nil {
		return ACR{}, err
	}
	for _, c := range clouds {
		if labels, ok := cutAzureSuffix(loc.host, c.RegistrySuffix); ok {
			return acrOf(loc, labels, c)
		}
	}
	return ACR{}, &Error{
		What: whatRepository, Reason: ReasonHost,
		Detail: quote(loc.host) + " is not a registry host of " + azureNames(clouds),
		Fix:    fixACR(clouds[0]),
	}
}

// acrOf returns the ACR at loc. The host of loc has the given labels, followed by c.RegistrySuffix.
func acrOf(loc location, labels []string, c AzureCloud) (ACR, error) {
	refuse := func(reason Reason, detail, fix string) (ACR, error) {
		return ACR{}, &Error{What: whatRepository, Reason: reason, Detail: detail, Fix: fix}
	}
	r := ACR{Host: loc.host, Name: labels[0], Cloud: c.Name, Repository: strings.TrimPrefix(loc.path, "/")}
	regional := len(labels) == 3 && all(labels[1], isLowerOrDigit)
	switch {
	case len(labels) == 1:
	case regional && labels[2] == "geo":
		r.Region = labels[1]
	case regional && labels[2] == "data":
		return refuse(ReasonHost, quote(loc.host)+" is a data endpoint, which gives no tokens",
			"write the login server, "+labels[0]+"."+c.RegistrySuffix)
	default:
		return refuse(ReasonHost, quote(loc.host)+" is not a login server of Azure Container Registry", fixACR(c))
	}
	switch {
	case !isACRName(r.Name):
		return refuse(ReasonName,
			"the registry name "+quote(r.Name)+" is not 5 to 50 letters and digits, with or without the suffix -<hash>", fixACR(c))
	case loc.port != "":
		return refuse(ReasonPort, "a registry of Azure is named without a port", "remove the port")
	case r.Repository != "" && !isRepository(r.Repository), r.Repository == "" && loc.path != "":
		return refuse(ReasonPath, "its path is not the name of a repository",
			"write lower-case letters, digits and separators (. _ - /), without tag and digest")
	}
	return r, nil
}

func fixACR(c AzureCloud) string {
	if c.RegistrySuffix == "" {
		return "name the suffix of the cloud's registries (containerRegistryDNSSuffix) in the file of AZURE_ENVIRONMENT_FILEPATH"
	}
	return "write <registry>." + c.RegistrySuffix + "/<repository>"
}

func azureNames(clouds []AzureCloud) string {
	if len(clouds) == 1 {
		return clouds[0].Name
	}
	return "Azure"
}

// cutAzureSuffix returns the labels before the suffix, if the host ends in it on a label boundary.
func cutAzureSuffix(host, suffix string) ([]string, bool) {
	if suffix == "" {
		return nil, false
	}
	rest, ok := strings.CutSuffix(host, "."+suffix)
	return strings.Split(rest, "."), ok
}

// isACRName reports whether the label can be the name of a registry: 5 to 50 letters and digits.
// "-" and a hash follow if the registry was created with a domain name label scope. Source: Azure
// Container Registry REST API, Registries - Create (registryName,
// autoGeneratedDomainNameLabelScope).
func isACRName(label string) bool {
	name, hash, hashed := strings.Cut(label, "-")
	return len(name) >= 5 && len(name) <= 50 && all(name, isLowerOrDigit) && (!hashed || all(hash, isLowerOrDigit))
}

// maxRepository is the longest name of a repository, in bytes. Source:
// github.com/distribution/reference, RepositoryNameTotalLengthMax.
const maxRepository = 255

// isRepository reports whether the path is a repository's name: components separated by slashes. A
// component consists of words of lower-case letters and digits, with ".", "_", "__" or hyphens
// between two words. Source: OCI distribution specification, "Pulling manifests".
func isRepository(path string) bool {
	inWord := func(r rune) bool { return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' }
	between := func(r rune) bool { return !inWord(r) }
	for component := range strings.SplitSeq(path, "/") {
		for first := true; component != "" || first; first = false {
			rest := component
			if !first {
				rest = strings.TrimLeftFunc(component, between)
				if !isSeparator(strings.TrimSuffix(component, rest)) {
					return false
				}
			}
			component = strings.TrimLeftFunc(rest, inWord)
			if component == rest {
				return false // no word at the start, or none after a separator
			}
		}
	}
	return len(path) <= maxRepository
}

func isSeparator(s string) bool {
	return s == "." || s == "_" || s == "__" || s != "" && strings.Trim(s, "-") == ""
}

// BlobEndpoint is the blob endpoint of an Azure storage account. It is comparable; its zero value
// is no endpoint.
type BlobEndpoint struct {
	// Host is the endpoint's DNS name in lower case. It has no port.
	Host string
	// Account is the storage account's name.
	Account string
	// Cloud is the name of the cloud that owns the host.
	Cloud string
}

// URL returns the endpoint as https://host.
func (b BlobEndpoint) URL() string { return schemeHTTPS + "://" + b.Host }

// ParseBlobEndpoint returns the blob endpoint of host or https://host. The host must be in a cloud
// of [AzureClouds]. Errors are [*Error], with ReasonHost if no cloud owns the host.
//
// Endpoints are <account>.blob.core.windows.net and, in the public cloud,
// <account>.z<number>.blob.storage.azure.net. "-secondary" after the account names the account's
// second region. Source: Azure Storage, "Storage account overview".
func ParseBlobEndpoint(endpoint string) (BlobEndpoint, error) {
	return parseBlobEndpoint(endpoint, AzureClouds())
}

// ParseBlobEndpoint is like the function [ParseBlobEndpoint], but accepts only storage accounts of
// this cloud.
func (c AzureCloud) ParseBlobEndpoint(endpoint string) (BlobEndpoint, error) {
	return parseBlobEndpoint(endpoint, []AzureCloud{c})
}

func parseBlobEndpoint(endpoint string, clouds []AzureCloud) (BlobEndpoint, error) {
	loc, err := parseHost(whatBlob, endpoint)
	if err != nil {
		return BlobEndpoint{}, err
	}
	for _, c := range clouds {
		account, ok := blobAccount(loc.host, c)
		if !ok {
			continue
		}
		if loc.ownPort() != "" {
			return BlobEndpoint{}, &Error{
				What: whatBlob, Reason: ReasonPort, Detail: "a blob endpoint of Azure has no port but 443", Fix: "remove the port",
			}
		}
		return BlobEndpoint{Host: loc.host, Account: account, Cloud: c.Name}, nil
	}
	return BlobEndpoint{}, &Error{
		What: whatBlob, Reason: ReasonHost,
		Detail: quote(loc.host) + " is not a blob endpoint of " + azureNames(clouds),
		Fix:    "write <account>.blob." + clouds[0].StorageSuffix,
	}
}

// blobZones is the suffix of storage accounts with DNS zone endpoints, which exist only in the
// public cloud. Source: Azure Storage, "Storage account overview", "Azure DNS zone endpoints".
const blobZones = "blob.storage.azure.net"

func blobAccount(host string, c AzureCloud) (string, bool) {
	labels, ok := []string(nil), false
	if c.StorageSuffix != "" {
		labels, ok = cutAzureSuffix(host, "blob."+c.StorageSuffix)
	}
	if zoned, isZoned := cutAzureSuffix(host, blobZones); isZoned && c.Name == AzurePublic().Name && len(zoned) == 2 {
		zone, isZone := strings.CutPrefix(zoned[1], "z")
		labels, ok = zoned[:1], isZone && len(zone) <= 2 && all(zone, isDigit)
	}
	if !ok || len(labels) != 1 {
		return "", false
	}
	account := strings.TrimSuffix(labels[0], "-secondary")
	return account, len(account) >= 3 && len(account) <= 24 && all(account, isLowerOrDigit)
}
