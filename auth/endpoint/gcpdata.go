package endpoint

// gcpUniverses is the table of Google Cloud's universes, the public one first. Sources:
//
//   - The public universe: Artifact Registry, "Docker authentication"; the host list of
//     docker-credential-gcr.
//   - Cloud de Confiance by S3NS: documentation.s3ns.fr, "Key differences" and Artifact Registry's
//     page of differences.
//   - Google Cloud Dedicated in Germany: the same pages of its documentation.
//   - The hosts docker.<RegistryDomain>: GoogleCloudPlatform/buildpacks, pkg/tpc;
//     documentation.s3ns.fr, Container-Optimized OS's page of differences.
func gcpUniverses() [3]GCPUniverse {
	return [...]GCPUniverse{
		{
			Domain:                 "googleapis.com",
			RegistryDomain:         "pkg.dev",
			RegionalRegistryDomain: "rep.pkg.dev",
			RegionalAPIDomain:      "rep.googleapis.com",
		},
		{
			Domain:           "s3nsapis.fr",
			RegistryDomain:   "s3nsregistry.fr",
			RegistryLocation: "u-france-east1",
			ProjectPrefix:    "s3ns",
		},
		{
			Domain:           "apis-berlin-build0.goog",
			RegistryDomain:   "pkg-berlin-build0.goog",
			RegistryLocation: "u-germany-northeast1",
			ProjectPrefix:    "eu0",
		},
	}
}

// gcrHost is a host of the former Container Registry, which Artifact Registry now serves.
type gcrHost struct{ host, location string }

// gcrHosts returns all hosts of the former Container Registry. They exist only in the public
// universe. Sources: Artifact Registry, "Transition to repositories with gcr.io domain support";
// for the Marketplace's host, the host list of docker-credential-gcr.
func gcrHosts() [5]gcrHost {
	return [...]gcrHost{
		{host: "gcr.io", location: "us"},
		{host: "us.gcr.io", location: "us"},
		{host: "eu.gcr.io", location: "europe"},
		{host: "asia.gcr.io", location: "asia"},
		{host: "marketplace.gcr.io", location: "us"},
	}
}

// gcpMultiRegions returns the locations that span several regions. Source: Artifact Registry,
// "Repository locations".
func gcpMultiRegions() []string { return []string{"asia", "europe", "us"} }

// Domains of service accounts' addresses. Source: IAM, "Service account types".
const (
	gcpAccounts          = "iam.gserviceaccount.com"
	gcpDefaultAccounts   = "developer.gserviceaccount.com"
	gcpAppEngineAccounts = "appspot.gserviceaccount.com"
)
