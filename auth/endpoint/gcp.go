package endpoint

import "strings"

// GCP is Google Cloud, all of its universes.
const GCP Provider = "gcp"

const (
	fixGAR  = "write <location>-docker.pkg.dev/<project>/<repository>/<image>, or gcr.io, us.gcr.io, eu.gcr.io or asia.gcr.io in place of the host"
	whatGCS = "bucket endpoint"
	fixGCS  = "write storage.googleapis.com, or its universe's domain in place of googleapis.com"
)

// GCPUniverse is a separate Google Cloud, with hosts, projects and accounts of its own. Resource names are the same in all universes,
// including the iam.googleapis.com within them. It is comparable; its zero value is no universe.
type GCPUniverse struct {
	// Domain ends the hosts of its APIs, such as "googleapis.com".
	Domain string
	// RegistryDomain ends the hosts of its Artifact Registry.
	RegistryDomain string
	// RegionalRegistryDomain ends the hosts of Artifact Registry that do not leave their region; empty where there are none.
	RegionalRegistryDomain string
	// RegionalAPIDomain ends the hosts of APIs that do not leave their region; empty where there are none.
	RegionalAPIDomain string
	// ProjectPrefix stands before the IDs of its projects, <prefix>:<project>, and in the domains of its accounts and pools; empty
	// for the public universe.
	ProjectPrefix string
}

// GCPUniverses returns every universe, the public one first; the caller owns the slice.
func GCPUniverses() []GCPUniverse {
	table := gcpUniverses()
	return table[:]
}

// ParseGCPUniverse returns the universe of that domain. An unknown domain is an [*Error] with ReasonPartition, because proofs are sent
// to the hosts of a universe.
func ParseGCPUniverse(domain string) (GCPUniverse, error) {
	table := gcpUniverses()
	domains := make([]string, len(table))
	for i, u := range table {
		if u.Domain == domain {
			return u, nil
		}
		domains[i] = u.Domain
	}
	return GCPUniverse{}, &Error{
		What: "universe domain", Reason: ReasonPartition,
		Detail: quote(domain) + " is the domain of no universe of Google Cloud",
		Fix:    "write one of " + strings.Join(domains, ", "),
	}
}

// APIHost is the host of an API, such as "sts".
func (u GCPUniverse) APIHost(service string) string { return service + "." + u.Domain }

// WorkloadPool is the workload identity pool of a project's GKE clusters, and the audience of proofs for it. Sources: GKE, "About
// Workload Identity Federation for GKE"; documentation.s3ns.fr, GKE's page of differences.
func (u GCPUniverse) WorkloadPool(project string) string {
	if id, ok := strings.CutPrefix(project, u.ProjectPrefix+":"); ok && u.ProjectPrefix != "" {
		return id + "." + u.ProjectPrefix + ".svc.id.goog"
	}
	return project + ".svc.id.goog"
}

// ParseGAR returns the registry of an image repository, host[/path] or oci://host[/path], whose host is Artifact Registry's in one of
// the universes: Partition is the universe's domain, Region the repository's location. Upper-case letters of the host count as
// lower-case ones. Errors are [*Error]; a host that Google does not own, a look-alike included, has ReasonHost.
//
// Only the host is checked; the path is left to the parser of image references.
func ParseGAR(image string) (Registry, error) {
	loc, err := parseRepository(image)
	if err != nil {
		return Registry{}, err
	}
	refuse := func(reason Reason, detail string) (Registry, error) {
		return Registry{}, &Error{What: whatRepository, Reason: reason, Detail: detail, Fix: fixGAR}
	}
	universe, location := garHost(loc.host)
	switch {
	case universe == "":
		return refuse(ReasonHost, quote(loc.host)+" is not a registry host of Google Cloud")
	case location == "":
		return refuse(ReasonRegion, quote(loc.host)+" names no location that Artifact Registry can have")
	case loc.port != "":
		return refuse(ReasonPort, "a registry of Google Cloud is named without a port")
	}
	return Registry{Host: loc.host, Provider: GCP, Partition: universe, Region: location}, nil
}

// garHost finds the host among Artifact Registry's. The location is empty when only the host's form is.
func garHost(host string) (universe, location string) {
	for _, g := range gcrHosts() {
		if host == g.host {
			return gcpUniverses()[0].Domain, g.location
		}
	}
	label, rest, _ := strings.Cut(host, ".")
	for _, u := range gcpUniverses() {
		if location, ok := strings.CutSuffix(label, "-docker"); ok && rest == u.RegistryDomain {
			if !isGCPRegion(location) && !isGCPMultiRegion(location) {
				location = ""
			}
			return u.Domain, location
		}
		if region, suffix, _ := strings.Cut(rest, "."); label == "docker" && suffix == u.RegionalRegistryDomain && suffix != "" {
			if !isGCPRegion(region) {
				region = ""
			}
			return u.Domain, region
		}
	}
	return "", ""
}

// GCS is a host of Google Cloud Storage. It is comparable; its zero value is no host.
type GCS struct {
	// Host is its DNS name in lower case.
	Host string
	// Universe is the domain of its universe.
	Universe string
	// Region is the region that requests do not leave; empty for the ordinary host.
	Region string
}

// URL is the endpoint as https://host.
func (g GCS) URL() string { return schemeHTTPS + "://" + g.Host }

// ParseGCS returns the host of a bucket's endpoint, host or https://host, that is Cloud Storage's own in one of the universes. Errors
// are [*Error]; other hosts have ReasonHost, <bucket>.storage.googleapis.com included. No list of allowed hosts is consulted: an
// access token can be used for everything that its identity may do, by anyone who sees it.
func ParseGCS(endpoint string) (GCS, error) {
	loc, err := parseHost(whatGCS, endpoint)
	if err != nil {
		return GCS{}, err
	}
	refuse := func(reason Reason, detail string) (GCS, error) {
		return GCS{}, &Error{What: whatGCS, Reason: reason, Detail: detail, Fix: fixGCS}
	}
	g := GCS{Host: loc.host}
	service, rest, _ := strings.Cut(loc.host, ".")
	for _, u := range gcpUniverses() {
		region, suffix, _ := strings.Cut(rest, ".")
		switch {
		case service != "storage":
		case rest == u.Domain:
			g.Universe = u.Domain
		case suffix == u.RegionalAPIDomain && suffix != "" && isGCPRegion(region):
			g.Universe, g.Region = u.Domain, region
		}
	}
	switch {
	case g.Universe == "":
		return refuse(ReasonHost, quote(loc.host)+" is not a host of Google Cloud Storage")
	case loc.ownPort() != "":
		return refuse(ReasonPort, "Google Cloud Storage has no port but 443")
	}
	return g, nil
}

// isGCPRegion reports whether the name has the form of a region, <area>-<direction><number>, in universes other than the public one
// after "u-". Like AWS's, regions are known by their form, so that one that opens tomorrow works today.
func isGCPRegion(name string) bool {
	area, rest, ok := strings.Cut(strings.TrimPrefix(name, "u-"), "-")
	direction := strings.TrimRight(rest, "0123456789")
	return ok && len(name) <= maxLabel && all(area, isLower) && all(direction, isLower) && direction != rest
}

// isGCPLocation reports whether the name has the form of a region or of a zone, <region>-<letter>.
func isGCPLocation(name string) bool {
	if n := len(name) - 2; n > 0 && name[n] == '-' && isLower(name[n+1]) && isGCPRegion(name[:n]) {
		return true
	}
	return isGCPRegion(name)
}

func isGCPMultiRegion(name string) bool {
	for _, m := range gcpMultiRegions() {
		if name == m {
			return true
		}
	}
	return false
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
