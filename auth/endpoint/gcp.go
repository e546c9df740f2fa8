package endpoint

import (
	"slices"
	"strings"
)

// GCP is Google Cloud, with all of its universes.
const GCP Provider = "gcp"

const (
	fixGAR = "write <location>-docker.pkg.dev/<project>/<repository>/<image>, or gcr.io, us.gcr.io, eu.gcr.io or asia.gcr.io in place " +
		"of the host"
	whatGCS = "bucket endpoint"
	fixGCS  = "write storage.googleapis.com, or its universe's domain in place of googleapis.com"
)

// GCPUniverse is a separate Google Cloud, with its own hosts, projects and accounts. In all
// universes, resource names have the same form and contain iam.googleapis.com. A GCPUniverse is
// comparable; its zero value is no universe.
type GCPUniverse struct {
	// Domain is the end of the host names of the universe's APIs, such as "googleapis.com".
	Domain string
	// RegistryDomain is the end of the host names of the universe's Artifact Registry.
	RegistryDomain string
	// RegionalRegistryDomain is the end of the names of Artifact Registry's regional hosts, whose
	// traffic stays in their region; empty if there are none.
	RegionalRegistryDomain string
	// RegistryLocation is the location of the Artifact Registry host docker.<RegistryDomain>; empty
	// if the universe has no such host.
	RegistryLocation string
	// RegionalAPIDomain is the end of the names of regional API hosts, whose traffic stays in their
	// region; empty if there are none.
	RegionalAPIDomain string
	// ProjectPrefix is the beginning of the IDs of the universe's projects, <prefix>:<project>. It
	// is also a part of the domains of accounts and pools. Empty for the public universe.
	ProjectPrefix string
}

// GCPUniverses returns every universe, the public one first; the caller owns the slice.
func GCPUniverses() []GCPUniverse {
	table := gcpUniverses()
	return table[:]
}

// ParseGCPUniverse returns the universe with the given domain. It refuses an unknown domain,
// because proofs would be sent to hosts of that domain. The error is an [*Error] with
// ReasonPartition.
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

// APIHost returns the host of an API, such as "sts".
func (u GCPUniverse) APIHost(service string) string { return service + "." + u.Domain }

// WorkloadPool returns the workload identity pool of a project's GKE clusters. The pool's name is
// also the audience of proofs for the pool. Sources: GKE, "About Workload Identity Federation for
// GKE"; documentation.s3ns.fr, GKE's page of differences.
func (u GCPUniverse) WorkloadPool(project string) string {
	if id, ok := strings.CutPrefix(project, u.ProjectPrefix+":"); ok && u.ProjectPrefix != "" {
		return id + "." + u.ProjectPrefix + ".svc.id.goog"
	}
	return project + ".svc.id.goog"
}

// ParseGAR returns the registry of an image repository, host[/path] or oci://host[/path]. The host
// must be a host of Artifact Registry in one of the universes; it may have upper-case letters.
// Partition is the universe's domain, and Region the repository's location. Errors are [*Error],
// with ReasonHost if Google does not own the host, such as a look-alike.
//
// Only the host is checked; a parser of image references checks the path.
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

// garHost returns the universe and the location of a host of Artifact Registry. If the host has the
// right form but an unknown location, the location is empty. For any other host, both are empty.
func garHost(host string) (universe, location string) {
	for _, g := range gcrHosts() {
		if host == g.host {
			return gcpUniverses()[0].Domain, g.location
		}
	}
	label, rest, _ := strings.Cut(host, ".")
	for _, u := range gcpUniverses() {
		if label == "docker" && rest == u.RegistryDomain && u.RegistryLocation != "" {
			return u.Domain, u.RegistryLocation
		}
		if location, ok := strings.CutSuffix(label, "-docker"); ok && rest == u.RegistryDomain {
			if !isGCPRegion(location) && !slices.Contains(gcpMultiRegions(), location) {
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
	// Host is the DNS name in lower case.
	Host string
	// Universe is the domain of the universe that owns the host.
	Universe string
	// Region is the region that all traffic stays in; empty for the ordinary host.
	Region string
}

// URL returns the endpoint as https://host.
func (g GCS) URL() string { return schemeHTTPS + "://" + g.Host }

// ParseGCS parses the host of a bucket's endpoint, written as host or https://host. The host must
// be a host of Cloud Storage in one of the universes. Errors are [*Error], with ReasonHost for any
// other host, even for <bucket>.storage.googleapis.com.
//
// The flag --allowed-endpoint-hosts cannot allow other hosts here. The host receives an access
// token with each request, and could do everything that this token permits.
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

// isGCPRegion reports whether the name has the form of a region: <area>-<direction><number>.
// Universes other than the public one have u- before this form. Only the form is checked, so that
// future regions work too.
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

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
