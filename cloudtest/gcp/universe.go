package gcp

import (
	"slices"
	"strings"
)

// DefaultUniverse is the universe domain of the public Google Cloud.
const DefaultUniverse = "googleapis.com"

// registryUniverse describes the registries of a universe.
type registryUniverse struct {
	domain   string   // of the universe
	registry string   // domain of the registries' hosts
	regions  []string // regions with repositories; for multi-regions, see multiRegions
}

// registryUniverses returns the universes whose registries are known. A universe that a test
// invents has no registries. Sources: for googleapis.com, the sources of [regions]; for
// s3nsapis.fr, Cloud de Confiance by S3NS, "Key differences" and "Artifact Registry: differences";
// for apis-berlin-build0.goog, GoogleCloudPlatform/buildpacks, pkg/tpc. The Lanyard library has its
// own list of universes, so that an error in one list is not repeated in the other.
func registryUniverses() []registryUniverse {
	return []registryUniverse{
		{domain: DefaultUniverse, registry: "pkg.dev", regions: regions()},
		{domain: "s3nsapis.fr", registry: "s3nsregistry.fr", regions: []string{"u-france-east1"}},
		{domain: "apis-berlin-build0.goog", registry: "pkg-berlin-build0.goog", regions: []string{"u-germany-northeast1"}},
	}
}

// hasRepositories reports whether Artifact Registry has repositories in a location of a universe.
func hasRepositories(universe, location string) bool {
	return slices.ContainsFunc(registryUniverses(), func(u registryUniverse) bool {
		return u.domain == universe &&
			(slices.Contains(u.regions, location) || (universe == DefaultUniverse && slices.Contains(multiRegions(), location)))
	})
}

// parseRegistryHost parses <location>-docker.<domain>, and the regional endpoint
// docker.<region>.rep.pkg.dev.
func parseRegistryHost(host string) (endpoint, bool) {
	for _, u := range registryUniverses() {
		location, ok := strings.CutSuffix(host, "-docker."+u.registry)
		if !ok && u.domain == DefaultUniverse {
			rest, prefixed := strings.CutPrefix(host, "docker.")
			location, ok = strings.CutSuffix(rest, ".rep."+u.registry)
			ok = ok && prefixed && !slices.Contains(multiRegions(), location)
		}
		if ok {
			return endpoint{service: ServiceRegistry, universe: u.domain, location: location}, hasRepositories(u.domain, location)
		}
	}
	return endpoint{}, false
}

// kubernetesPool returns the workload identity pool of a project's GKE clusters. Outside the public
// universe, the pool's name begins with the project ID in the form of [addressForm]. Sources: GKE,
// "About Workload Identity Federation for GKE"; Cloud de Confiance by S3NS, "GKE: differences".
func kubernetesPool(projectID, universe string) string {
	if universe != DefaultUniverse {
		return addressForm(projectID) + workloadPool
	}
	return projectID + workloadPool
}

// containerService returns the prefix of the URLs that identify a universe's GKE clusters.
func containerService(universe string) string { return "https://container." + universe + "/v1/" }

// clusterURL returns the URL that identifies a GKE cluster. Requests to STS and the names of
// principals contain this URL. It is also the cluster's issuer, unless another issuer is
// configured.
func clusterURL(universe, projectID, location, name string) string {
	return containerService(universe) + "projects/" + projectID + "/locations/" + location + "/clusters/" + name
}
