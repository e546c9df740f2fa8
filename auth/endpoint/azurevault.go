package endpoint

import (
	"strconv"
	"strings"
)

const (
	whatVaultKey = "key of Azure Key Vault"
	// Limits of names, in bytes. Source: Azure Key Vault, "Object identifiers".
	minVault, maxVault, maxVaultKey = 3, 24, 127
	// vaultVersion is the number of digits of a key's version. Source: the same page.
	vaultVersion = 32
)

// VaultKey is a key in a key vault or a managed HSM of Azure. It is comparable; its zero value is
// no key.
type VaultKey struct {
	// Host is the DNS name of the vault or managed HSM in lower case. It has no port.
	Host string
	// ManagedHSM: the host is a managed HSM, not a vault.
	ManagedHSM bool
	// Cloud is the name of the cloud that owns the host.
	Cloud string
	// Audience is the resource named in tokens for the host. It follows from the cloud alone. An
	// answer of the host must not change it.
	Audience string
	// Name is the key's name.
	Name string
	// Version is the key's version, 32 hexadecimal digits; empty for the newest version.
	Version string
}

// URL returns the key's identifier, https://<host>/keys/<name>[/<version>].
func (k VaultKey) URL() string {
	url := location{host: k.Host}.url() + "/keys/" + k.Name
	if k.Version != "" {
		url += "/" + k.Version
	}
	return url
}

// ParseVaultKey returns the key with the given name and version. The version may be empty. The URL
// of the vault or managed HSM has the form https://<vault>.<suffix>. The suffix must be in the table
// of [AzureClouds], and the port must be 443. User, path and query are refused. Errors are [*Error],
// with ReasonHost if no cloud owns the host, such as a look-alike.
//
// Sources: Azure Key Vault, "Object identifiers"; Azure Resource Manager, "Naming rules and
// restrictions".
func ParseVaultKey(vaultURL, name, version string) (VaultKey, error) {
	return parseVaultKey(vaultURL, name, version, AzureClouds())
}

// ParseVaultKey is like the function [ParseVaultKey], but accepts only vaults and managed HSMs of
// this cloud. The error for a vault of another cloud has ReasonPartition.
func (c AzureCloud) ParseVaultKey(vaultURL, name, version string) (VaultKey, error) {
	k, err := parseVaultKey(vaultURL, name, version, []AzureCloud{c})
	if err == nil {
		return k, nil
	}
	if other, otherErr := ParseVaultKey(vaultURL, name, version); otherErr == nil && other.Cloud != c.Name {
		return VaultKey{}, &Error{
			What: whatVaultKey, Reason: ReasonPartition,
			Detail: quote(other.Host) + " is a host of " + other.Cloud + ", not of " + c.Name,
			Fix:    "name a key of " + c.Name + ", or set the controller's AZURE_AUTHORITY_HOST to the other cloud's",
		}
	}
	return VaultKey{}, err
}

func parseVaultKey(vaultURL, name, version string, clouds []AzureCloud) (VaultKey, error) {
	refuse := func(reason Reason, detail, fix string) (VaultKey, error) {
		return VaultKey{}, &Error{What: whatVaultKey, Reason: reason, Detail: detail, Fix: fix}
	}
	loc, err := parseRoot(whatVaultKey, vaultURL)
	if err != nil {
		return VaultKey{}, err
	}
	k, ok := vaultHost(loc.host, clouds)
	switch {
	case !ok:
		return refuse(ReasonHost, quote(loc.host)+" is not a key vault or managed HSM of "+azureNames(clouds), fixVault(clouds[0]))
	case loc.ownPort() != "":
		return refuse(ReasonPort, "a key vault of Azure has no port but 443", "remove the port")
	case len(name) > maxVaultKey || !all(name, func(c byte) bool { return isWordByte(c) && c != '_' }):
		return refuse(ReasonName, "the key name "+quote(name)+" is not 1 to "+strconv.Itoa(maxVaultKey)+" letters, digits and hyphens",
			"copy the name from the key's identifier, https://<vault>/keys/<name>/<version>")
	case version != "" && (len(version) != vaultVersion || !all(lowerASCII(version), isHex)):
		return refuse(ReasonName, "the version "+quote(version)+" is not "+strconv.Itoa(vaultVersion)+" hexadecimal digits",
			"copy the version from the key's identifier, or leave it out")
	}
	k.Name, k.Version = name, version
	return k, nil
}

func fixVault(c AzureCloud) string {
	rule := ", with a name of " + strconv.Itoa(minVault) + " to " + strconv.Itoa(maxVault) +
		" letters, digits and hyphens that begins with a letter"
	switch {
	case c.KeyVaultSuffix == "":
		return "name the suffix of the cloud's key vaults (keyVaultDNSSuffix) in the file of AZURE_ENVIRONMENT_FILEPATH"
	case c.ManagedHSMSuffix == "":
		return "write https://<vault>." + c.KeyVaultSuffix + rule
	default:
		return "write https://<vault>." + c.KeyVaultSuffix + " or https://<HSM>." + c.ManagedHSMSuffix + rule
	}
}

// vaultHost returns the vault or managed HSM with this host, as a key without a name. It returns
// false if the host is in none of the clouds.
func vaultHost(host string, clouds []AzureCloud) (VaultKey, bool) {
	for _, c := range clouds {
		if labels, ok := cutAzureSuffix(host, c.KeyVaultSuffix); ok && len(labels) == 1 && isVaultName(labels[0]) {
			return VaultKey{Host: host, Cloud: c.Name, Audience: c.KeyVaultAudience}, true
		}
		if labels, ok := cutAzureSuffix(host, c.ManagedHSMSuffix); ok && len(labels) == 1 && isVaultName(labels[0]) {
			return VaultKey{Host: host, Cloud: c.Name, Audience: c.ManagedHSMAudience, ManagedHSM: true}, true
		}
	}
	return VaultKey{}, false
}

// isVaultName reports whether the label can be the name of a vault or a managed HSM. Both have the
// same rules: 3 to 24 letters, digits and single hyphens, with a letter first and no hyphen last.
// Sources: Azure Resource Manager, "Naming rules and restrictions", Microsoft.KeyVault; Azure Key
// Vault, "Object identifiers".
func isVaultName(label string) bool {
	return len(label) >= minVault && len(label) <= maxVault && isGCPName(label) && !strings.Contains(label, "--")
}
