package endpoint

import (
	"strconv"
	"strings"
)

const (
	whatGCPAccount  = "service account"
	fixGCPAccount   = "write <name>@<project>.iam.gserviceaccount.com"
	whatGCPProvider = "workload identity provider"
	fixGCPProvider  = "write projects/<number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>"
	whatGKECluster  = "GKE cluster"
	// Limits of the name of a service account, in bytes. Source: IAM API,
	// projects.serviceAccounts.create, accountId.
	minGCPAccount, maxGCPAccount = 6, 30
	// Limits of the ID of a pool or a provider, in bytes. Source: IAM API,
	// projects.locations.workloadIdentityPools.create.
	minGCPPool, maxGCPPool = 4, 32
	// maxGKECluster bounds a cluster's name, in bytes. Source: Kubernetes Engine API, Cluster.
	maxGKECluster = 40
	// maxGCPNumber limits the digits of a project's number, which is a 64-bit integer.
	maxGCPNumber = 19
)

// GCPServiceAccount is the address of an IAM service account. It is comparable; its zero value is
// no account.
type GCPServiceAccount struct {
	// Email is the address, in lower case as Google writes it.
	Email string
	// Universe is the domain of the universe that the account is in.
	Universe string
}

// ParseGCPServiceAccount parses the address of a service account, which has one of these forms:
//
//	<name>@<project>.iam.gserviceaccount.com           an account that a user made
//	<name>@<project>.<domain>.iam.gserviceaccount.com  the same, in project <domain>:<project>
//	<number>-compute@developer.gserviceaccount.com     the default account of Compute Engine
//	<project>[.<domain>]@appspot.gserviceaccount.com   the default account of App Engine
//
// In a [GCPUniverse] with a ProjectPrefix, <domain> is this prefix. There, the default account of
// Compute Engine is at developer.<prefix>-system.iam.gserviceaccount.com.
//
// Errors are [*Error] and name the part that is wrong.
func ParseGCPServiceAccount(address string) (GCPServiceAccount, error) {
	refuse := func(reason Reason, detail, fix string) (GCPServiceAccount, error) {
		return GCPServiceAccount{}, &Error{What: whatGCPAccount, Reason: reason, Detail: detail, Fix: fix}
	}
	switch {
	case address == "":
		return refuse(ReasonEmpty, "it is empty", fixGCPAccount)
	case len(address) > maxHost:
		return refuse(ReasonMalformed, "it is longer than "+strconv.Itoa(maxHost)+" bytes", fixGCPAccount)
	}
	name, host, ok := strings.Cut(address, "@")
	if !ok || strings.Contains(name, "//") || !all(host, isHostByte) || hostFault(host) != "" {
		return refuse(ReasonMalformed, quote(address)+" is not an address in lower case", fixGCPAccount)
	}
	account := GCPServiceAccount{Email: address, Universe: gcpUniverses()[0].Domain}
	switch {
	case host == gcpDefaultAccounts && isComputeAccount(name):
		return account, nil
	case host == gcpAppEngineAccounts && isAppEngineAccount(name):
		return account, nil
	case host == gcpDefaultAccounts, host == gcpAppEngineAccounts:
		return refuse(ReasonName, "an account at "+host+" cannot have the name "+quote(name), fixGCPAccount)
	}
	domain, ok := strings.CutSuffix(host, "."+gcpAccounts)
	if !ok {
		return refuse(ReasonHost, quote(host)+" is not a domain of service accounts", fixGCPAccount)
	}
	project, scope, scoped := strings.Cut(domain, ".")
	// The scope is what follows the project. A scope with a dot is the domain in a project ID
	// <domain>:<project>. Any other scope must be the ProjectPrefix of a GCPUniverse, or
	// <ProjectPrefix>-system.
	known := !scoped || strings.Contains(scope, ".")
	for _, u := range gcpUniverses() {
		switch {
		case u.ProjectPrefix == "":
		case scope == u.ProjectPrefix:
			account.Universe, known = u.Domain, true
		case project == "developer" && scope == u.ProjectPrefix+"-system" && isComputeAccount(name):
			account.Universe = u.Domain
			return account, nil
		}
	}
	switch {
	case !known:
		return refuse(ReasonPartition, quote(scope)+" is neither a domain nor the prefix of a universe", fixGCPAccount)
	case len(name) < minGCPAccount || len(name) > maxGCPAccount || !isGCPName(name):
		return refuse(ReasonName, "the name "+quote(name)+" is not "+strconv.Itoa(minGCPAccount)+" to "+strconv.Itoa(maxGCPAccount)+
			" lower-case letters, digits and hyphens that begin with a letter and do not end in a hyphen", "copy the address from IAM")
	}
	return account, nil
}

// isComputeAccount reports whether the name is <project number>-compute.
func isComputeAccount(name string) bool {
	number, ok := strings.CutSuffix(name, "-compute")
	return ok && isGCPNumber(number)
}

// isAppEngineAccount reports whether the name is <project>[.<domain>].
func isAppEngineAccount(name string) bool {
	_, domain, scoped := strings.Cut(name, ".")
	return all(name, isHostByte) && hostFault(name) == "" && (!scoped || strings.Contains(domain, "."))
}

// GCPWorkloadProvider is an OIDC provider of a workload identity pool. It is comparable; its zero
// value is no provider.
type GCPWorkloadProvider struct {
	// ProjectNumber is the number of the pool's project, decimal.
	ProjectNumber string
	// Pool and Provider are the IDs of the pool and of the provider.
	Pool, Provider string
}

// gcpIAM is the beginning of full resource names of IAM, in every universe. Source:
// documentation.s3ns.fr, "Key differences".
const gcpIAM = "//iam.googleapis.com/"

// String returns the provider's resource name, projects/….
func (p GCPWorkloadProvider) String() string { return p.pool() + "/providers/" + p.Provider }

// FullName returns the provider's full resource name, //iam.googleapis.com/projects/…, which the
// Security Token Service expects.
func (p GCPWorkloadProvider) FullName() string { return gcpIAM + p.String() }

// Audience returns the audience of a proof for the provider: its full resource name as a URL. By
// default a provider accepts this audience. Source: IAM API,
// projects.locations.workloadIdentityPools.providers, Oidc.allowedAudiences.
func (p GCPWorkloadProvider) Audience() string { return schemeHTTPS + ":" + p.FullName() }

// Principal returns the name that IAM policies use for a subject of the pool. Source: IAM,
// "Principal identifiers".
func (p GCPWorkloadProvider) Principal(subject string) string {
	return "principal:" + gcpIAM + p.pool() + "/subject/" + subject
}

func (p GCPWorkloadProvider) pool() string {
	return "projects/" + p.ProjectNumber + "/locations/global/workloadIdentityPools/" + p.Pool
}

// ParseGCPWorkloadProvider parses a provider's resource name,
// projects/<number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>. The name
// may begin with //iam.googleapis.com/ or https://iam.googleapis.com/. Errors are [*Error] and name
// the part that is wrong.
func ParseGCPWorkloadProvider(name string) (GCPWorkloadProvider, error) {
	refuse := func(reason Reason, detail, fix string) (GCPWorkloadProvider, error) {
		return GCPWorkloadProvider{}, &Error{What: whatGCPProvider, Reason: reason, Detail: detail, Fix: fix}
	}
	if name == "" {
		return refuse(ReasonEmpty, "it is empty", fixGCPProvider)
	}
	rest := name
	for _, prefix := range [...]string{gcpIAM, schemeHTTPS + ":" + gcpIAM} {
		if after, ok := strings.CutPrefix(name, prefix); ok {
			rest = after
		}
	}
	if strings.HasPrefix(rest, "//") || strings.Contains(rest, "://") {
		return refuse(ReasonHost, quote(name)+" is not a resource name of iam.googleapis.com", fixGCPProvider)
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 8 || parts[0] != "projects" || parts[2] != "locations" || parts[4] != "workloadIdentityPools" || parts[6] != "providers" {
		return refuse(ReasonResource, quote(rest)+" is not the name of a provider", fixGCPProvider)
	}
	p := GCPWorkloadProvider{ProjectNumber: parts[1], Pool: parts[5], Provider: parts[7]}
	switch {
	case !isGCPNumber(p.ProjectNumber):
		return refuse(ReasonAccount, "the project "+quote(p.ProjectNumber)+" is not a number",
			"write the project's number (gcloud projects describe <project>), not its ID")
	case parts[3] != "global":
		return refuse(ReasonRegion, "the location "+quote(parts[3])+" is not global", "write locations/global")
	case !isGCPPool(p.Pool):
		return refuse(ReasonName, "the pool "+quote(p.Pool)+" is not 4 to 32 lower-case letters, digits and hyphens", fixGCPProvider)
	case !isGCPPool(p.Provider):
		return refuse(ReasonName, "the provider "+quote(p.Provider)+" is not 4 to 32 lower-case letters, digits and hyphens", fixGCPProvider)
	}
	return p, nil
}

// GKECluster is a cluster of Google Kubernetes Engine. It is comparable; its zero value is no
// cluster.
type GKECluster struct {
	// Project is the ID of the cluster's project, with the prefix of its domain or universe if it
	// has one: "project", "example.com:project".
	Project string
	// ProjectNumber is the number of the project, decimal; empty if the number is not known.
	ProjectNumber string
	// Location is the cluster's region or zone.
	Location string
	// Name is the cluster's name.
	Name string
}

// Check returns an [*Error] if a field is not valid in Google Cloud. The fields become parts of
// audiences, which must not contain invalid text.
func (c GKECluster) Check() error {
	refuse := func(reason Reason, detail string) error {
		return &Error{What: whatGKECluster, Reason: reason, Detail: detail, Fix: "check which server answers as the metadata server"}
	}
	switch {
	case !isGCPProject(c.Project):
		return refuse(ReasonAccount, "the project "+quote(c.Project)+" is not a project ID")
	case c.ProjectNumber != "" && !isGCPNumber(c.ProjectNumber):
		return refuse(ReasonAccount, "the project "+quote(c.ProjectNumber)+" is not a number")
	case !isGCPLocation(c.Location):
		return refuse(ReasonRegion, "the location "+quote(c.Location)+" is neither a region nor a zone")
	case len(c.Name) > maxGKECluster || !isGCPName(c.Name):
		return refuse(ReasonName, "the name "+quote(c.Name)+" is not a cluster's")
	}
	return nil
}

// URL returns the cluster's URL in the universe u. This URL is the issuer of the cluster's tokens.
// Source: Kubernetes Engine API, Cluster.selfLink.
func (c GKECluster) URL(u GCPUniverse) string {
	return schemeHTTPS + "://" + u.APIHost("container") + "/v1/projects/" + c.Project + "/locations/" + c.Location + "/clusters/" + c.Name
}

// FullName returns the name by which the Security Token Service knows the cluster. It consists of
// the cluster's pool and issuer. Source: the credential configuration of GKE's fleet workload
// identity, which has the same form.
func (c GKECluster) FullName(u GCPUniverse) string {
	return "identitynamespace:" + u.WorkloadPool(c.Project) + ":" + c.URL(u)
}

// Principal returns the name that IAM policies use for a ServiceAccount of the cluster. The name is
// the same in all clusters of a project. If c.ProjectNumber is empty, the name has its older form,
// serviceAccount:<pool>[<namespace>/<name>]. Source: GKE, "About Workload Identity Federation for
// GKE".
func (c GKECluster) Principal(u GCPUniverse, namespace, name string) string {
	pool := u.WorkloadPool(c.Project)
	if c.ProjectNumber == "" {
		return "serviceAccount:" + pool + "[" + namespace + "/" + name + "]"
	}
	return GCPWorkloadProvider{ProjectNumber: c.ProjectNumber, Pool: pool}.Principal("ns/" + namespace + "/sa/" + name)
}

// isGCPProject reports whether s is a project's ID or number, with the prefix of its domain or
// universe if it has one: "project", "example.com:project".
func isGCPProject(s string) bool {
	scope, id, scoped := strings.Cut(s, ":")
	if !scoped {
		id = scope
	}
	return hostFault(scope) == "" && hostFault(id) == "" && !strings.Contains(id, ".")
}

// isGCPNumber reports whether s is a project's number: decimal digits without leading zeros.
func isGCPNumber(s string) bool { return len(s) <= maxGCPNumber && all(s, isDigit) && s[0] != '0' }

func isGCPPool(s string) bool {
	return len(s) >= minGCPPool && len(s) <= maxGCPPool && all(s, func(c byte) bool { return isLowerOrDigit(c) || c == '-' })
}

// isGCPName reports whether s is a name by RFC 1035: lower-case letters, digits and hyphens, with a
// letter first and no hyphen last.
func isGCPName(s string) bool {
	return all(s, func(c byte) bool { return isLowerOrDigit(c) || c == '-' }) && isLower(s[0]) && s[len(s)-1] != '-'
}

func isHostByte(c byte) bool { return isLowerOrDigit(c) || c == '-' || c == '.' }
