package azure

import "slices"

// Names of Azure's services in the journal and in faults.
const (
	// ServiceEntra is Entra ID, the directory and token service.
	ServiceEntra = "entra"
	// ServiceIMDS is the instance metadata service, of which there is the part that gives tokens of managed identities.
	ServiceIMDS = "imds"
)

// endpoint is what a host name means.
type endpoint struct {
	service     string
	environment *Environment
}

// parseHost says what a host name, in lower case and without port, means. Only names that Azure has are accepted.
func (c *Cloud) parseHost(host string) (endpoint, bool) {
	for _, e := range c.environments {
		if slices.Contains(e.AuthorityHosts, host) {
			return endpoint{service: ServiceEntra, environment: e}, true
		}
	}
	return endpoint{}, false
}
