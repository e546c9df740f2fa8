package gcp

import (
	"slices"
	"strings"
)

// Names of Google Cloud's services in the journal and in faults. No two clouds may use the same
// name for a service. The names "sts" and "registry" are already AWS's.
const (
	// ServiceSTS is the Security Token Service.
	ServiceSTS = "gcp-sts"
	// ServiceIAMCredentials is the IAM Service Account Credentials API.
	ServiceIAMCredentials = "iamcredentials"
	// ServiceIAM is the IAM API: workload identity pools and service accounts.
	ServiceIAM = "gcp-iam"
	// ServiceResourceManager is the Cloud Resource Manager API.
	ServiceResourceManager = "cloudresourcemanager"
	// ServiceUsage is the Service Usage API.
	ServiceUsage = "serviceusage"
	// ServiceRegistryAPI is the Artifact Registry API, which manages repositories.
	ServiceRegistryAPI = "artifactregistry"
	// ServiceKMS is Cloud KMS.
	ServiceKMS = "cloudkms"
	// ServiceMetadata is the metadata server of a GKE node or a virtual machine.
	ServiceMetadata = "metadata"
	// ServiceAccounts is accounts.google.com, the OIDC issuer of the metadata server's identity
	// tokens.
	ServiceAccounts = "google-accounts"
	// ServiceRegistry is Artifact Registry under its Docker hosts, including gcr.io.
	ServiceRegistry = "gar"
	// ServiceStorage is Cloud Storage.
	ServiceStorage = "gcs"
)

// issuerHost is the host of Google's own OIDC issuer.
const issuerHost = "accounts.google.com"

// regions returns Google Cloud's regions. Source: Google Cloud, "Cloud locations" and "Artifact
// Registry: repository locations". The Lanyard library has its own list of regions, so that an
// error in one list is not repeated in the other.
func regions() []string {
	return []string{
		"africa-south1",
		"asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2", "asia-northeast3", "asia-south1", "asia-south2",
		"asia-southeast1", "asia-southeast2", "asia-southeast3", "australia-southeast1", "australia-southeast2",
		"europe-central2", "europe-north1", "europe-north2", "europe-southwest1",
		"europe-west1", "europe-west2", "europe-west3", "europe-west4",
		"europe-west6", "europe-west8", "europe-west9", "europe-west10", "europe-west12",
		"me-central1", "me-central2", "me-west1",
		"northamerica-northeast1", "northamerica-northeast2", "northamerica-south1", "southamerica-east1", "southamerica-west1",
		"us-central1", "us-east1", "us-east4", "us-east5", "us-south1", "us-west1", "us-west2", "us-west3", "us-west4",
	}
}

// multiRegions returns the multi-regions in which Artifact Registry has repositories.
func multiRegions() []string { return []string{"asia", "europe", "us"} }

// containerRegistryHosts maps each host of the former Container Registry to a location. Artifact
// Registry stores the host's content in that location, in a repository with the host's name.
// Source: Artifact Registry, "Transition to repositories with gcr.io domain support".
func containerRegistryHosts() map[string]string {
	return map[string]string{"gcr.io": "us", "us.gcr.io": "us", "eu.gcr.io": "europe", "asia.gcr.io": "asia"}
}

// apis returns the services of a universe, keyed by the first part of their hosts.
func apis() map[string]string {
	return map[string]string{
		"sts": ServiceSTS, "iamcredentials": ServiceIAMCredentials, "storage": ServiceStorage, "iam": ServiceIAM,
		"cloudresourcemanager": ServiceResourceManager, "serviceusage": ServiceUsage, "artifactregistry": ServiceRegistryAPI,
		"cloudkms": ServiceKMS,
	}
}

// endpoint is the service behind a host name.
type endpoint struct {
	service  string
	universe string
	location string // of a registry
	gcr      string // for gcr.io's hosts only: the repository's name
	bucket   string // for hosts <bucket>.storage.<universe> only
}

// parseHost parses a host name of Google Cloud, in lower case and without port. It accepts only
// names that exist in Google Cloud, in one of the given universes.
func parseHost(host string, universes []string) (endpoint, bool) {
	if host == issuerHost {
		return endpoint{service: ServiceAccounts, universe: DefaultUniverse}, true
	}
	if location, ok := containerRegistryHosts()[host]; ok {
		return endpoint{service: ServiceRegistry, universe: DefaultUniverse, location: location, gcr: host}, true
	}
	if ep, ok := parseRegistryHost(host); ok {
		return ep, ep.universe == DefaultUniverse || slices.Contains(universes, ep.universe)
	}
	if rest, ok := strings.CutSuffix(host, ".rep."+DefaultUniverse); ok { // a regional endpoint
		api, region, _ := strings.Cut(rest, ".")
		service := map[string]string{"sts": ServiceSTS, "storage": ServiceStorage}[api]
		return endpoint{service: service, universe: DefaultUniverse}, service != "" && slices.Contains(regions(), region)
	}
	for _, universe := range universes {
		rest, ok := strings.CutSuffix(host, "."+universe)
		if !ok {
			continue
		}
		if service := apis()[rest]; service != "" {
			return endpoint{service: service, universe: universe}, true
		}
		if bucket, ok := strings.CutSuffix(rest, ".storage"); ok && isBucketName(bucket) && !strings.Contains(bucket, ".") {
			return endpoint{service: ServiceStorage, universe: universe, bucket: bucket}, true
		}
	}
	return endpoint{}, false
}
