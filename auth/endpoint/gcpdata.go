package endpoint

// gcpUniverses is the table of Google Cloud's universes, the public one first.
//
// Sources: of the public one, Artifact Registry's "Docker authentication" and the host list of docker-credential-gcr; of Cloud de
// Confiance by S3NS, documentation.s3ns.fr, "Key differences" and Artifact Registry's page of differences; of Google Cloud
// Dedicated in Germany, the same pages of its documentation, and the hosts in GoogleCloudPlatform/buildpacks, pkg/tpc.
func gcpUniverses() [3]GCPUniverse {
	return [...]GCPUniverse{
		{
			Domain:                 "googleapis.com",
			RegistryDomain:         "pkg.dev",
			RegionalRegistryDomain: "rep.pkg.dev",
			RegionalAPIDomain:      "rep.googleapis.com",
		},
		{
			Domain:         "s3nsapis.fr",
			RegistryDomain: "s3nsregistry.fr",
			ProjectPrefix:  "s3ns",
		},
		{
			Domain:         "apis-berlin-build0.goog",
			RegistryDomain: "pkg-berlin-build0.goog",
			ProjectPrefix:  "eu0",
		},
	}
}

// gcrHost is a host of the former Container Registry, which Artifact Registry serves.
type gcrHost struct{ host, location string }

// gcrHosts are all of them; there are none outside the public universe. Source: Artifact Registry, "Transition to repositories with
// gcr.io domain support".
func gcrHosts() [4]gcrHost {
	return [...]gcrHost{
		{host: "gcr.io", location: "us"},
		{host: "us.gcr.io", location: "us"},
		{host: "eu.gcr.io", location: "europe"},
		{host: "asia.gcr.io", location: "asia"},
	}
}

// gcpMultiRegions are the locations of repositories that are no regions. Source: Artifact Registry, "Repository locations".
func gcpMultiRegions() [3]string { return [...]string{"asia", "europe", "us"} }

// Hosts of service accounts' addresses. Source: IAM, "Service account types".
const (
	gcpAccounts          = "iam.gserviceaccount.com"
	gcpDefaultAccounts   = "developer.gserviceaccount.com"
	gcpAppEngineAccounts = "appspot.gserviceaccount.com"
)
