package gcp

import (
	"slices"
	"strings"
	"testing"
)

// TestHosts checks hosts from Google's documentation, which must be accepted, and similar names,
// which must be refused.
func TestHosts(t *testing.T) {
	const public, sovereign = "googleapis.com", "apis-sovereign.example"
	registry := func(location string) endpoint {
		return endpoint{service: ServiceRegistry, universe: public, location: location}
	}
	for host, want := range map[string]endpoint{
		"sts.googleapis.com":                     {service: ServiceSTS, universe: public},
		"sts.us-central1.rep.googleapis.com":     {service: ServiceSTS, universe: public},
		"sts.europe-west12.rep.googleapis.com":   {service: ServiceSTS, universe: public},
		"sts.apis-sovereign.example":             {service: ServiceSTS, universe: sovereign},
		"iamcredentials.googleapis.com":          {service: ServiceIAMCredentials, universe: public},
		"iamcredentials.apis-sovereign.example":  {service: ServiceIAMCredentials, universe: sovereign},
		"storage.googleapis.com":                 {service: ServiceStorage, universe: public},
		"storage.apis-sovereign.example":         {service: ServiceStorage, universe: sovereign},
		"tenant-a-bucket.storage.googleapis.com": {service: ServiceStorage, universe: public, bucket: "tenant-a-bucket"},
		"accounts.google.com":                    {service: ServiceAccounts, universe: public},
		"iam.googleapis.com":                     {service: ServiceIAM, universe: public},
		"iam.apis-sovereign.example":             {service: ServiceIAM, universe: sovereign},
		"cloudresourcemanager.googleapis.com":    {service: ServiceResourceManager, universe: public},
		"serviceusage.googleapis.com":            {service: ServiceUsage, universe: public},
		"artifactregistry.googleapis.com":        {service: ServiceRegistryAPI, universe: public},
		"cloudkms.googleapis.com":                {service: ServiceKMS, universe: public},
		"cloudkms.apis-sovereign.example":        {service: ServiceKMS, universe: sovereign},
		"us-docker.pkg.dev":                      registry("us"),
		"europe-docker.pkg.dev":                  registry("europe"),
		"asia-docker.pkg.dev":                    registry("asia"),
		"us-central1-docker.pkg.dev":             registry("us-central1"),
		"us-east5-docker.pkg.dev":                registry("us-east5"),
		"europe-west1-docker.pkg.dev":            registry("europe-west1"),
		"europe-southwest1-docker.pkg.dev":       registry("europe-southwest1"),
		"northamerica-northeast2-docker.pkg.dev": registry("northamerica-northeast2"),
		"southamerica-west1-docker.pkg.dev":      registry("southamerica-west1"),
		"australia-southeast2-docker.pkg.dev":    registry("australia-southeast2"),
		"asia-northeast3-docker.pkg.dev":         registry("asia-northeast3"),
		"me-central2-docker.pkg.dev":             registry("me-central2"),
		"africa-south1-docker.pkg.dev":           registry("africa-south1"),
		"gcr.io":                                 {service: ServiceRegistry, universe: public, location: "us", gcr: "gcr.io"},
		"us.gcr.io":                              {service: ServiceRegistry, universe: public, location: "us", gcr: "us.gcr.io"},
		"eu.gcr.io":                              {service: ServiceRegistry, universe: public, location: "europe", gcr: "eu.gcr.io"},
		"asia.gcr.io":                            {service: ServiceRegistry, universe: public, location: "asia", gcr: "asia.gcr.io"},

		"storage.europe-west1.rep.googleapis.com": {service: ServiceStorage, universe: public},
		"docker.europe-west1.rep.pkg.dev":         registry("europe-west1"),
		// The universe of this host is s3nsapis.fr. It is not among the two universes that the test
		// passes to parseHost.
		"u-france-east1-docker.s3nsregistry.fr":          {},
		"docker.us.rep.pkg.dev":                          {},
		"docker.mars-central1.rep.pkg.dev":               {},
		"x-docker.europe-west1.rep.pkg.dev":              {},
		"storage.mars-central1.rep.googleapis.com":       {},
		"tenant.storage.europe-west1.rep.googleapis.com": {},
		"storage.storage.googleapis.com":                 {},
		"googleb.storage.googleapis.com":                 {},
		"sts.googleapis.com.example":                     {},
		"sts.example.googleapis.com":                     {},
		"sts-googleapis.com":                             {},
		"xsts.googleapis.com":                            {},
		"sts.mars-central1.rep.googleapis.com":           {},
		"sts.us.rep.googleapis.com":                      {},
		"sts.us-central1.rep.apis-sovereign.example":     {},
		"iamcredentials.us-central1.rep.googleapis.com":  {},
		"iam.us-central1.rep.googleapis.com":             {},
		"cloudkms.us-central1.rep.googleapis.com":        {},
		"kms.googleapis.com":                             {},
		"xiam.googleapis.com":                            {},
		"sts.apis-other.example":                         {},
		"googleapis.com":                                 {},
		"www.googleapis.com":                             {},
		"compute.googleapis.com":                         {},
		"a.b.storage.googleapis.com":                     {},
		"-.storage.googleapis.com":                       {},
		"pkg.dev":                                        {},
		"docker.pkg.dev":                                 {},
		"-docker.pkg.dev":                                {},
		"eu-docker.pkg.dev":                              {},
		"mars-docker.pkg.dev":                            {},
		"us-central1-python.pkg.dev":                     {},
		"us-central1.docker.pkg.dev":                     {},
		"us-central1-docker.pkg.dev.example":             {},
		"evil-us-central1-docker.pkg.dev":                {},
		"us-central1-docker-pkg.dev":                     {},
		"x.gcr.io":                                       {},
		"europe.gcr.io":                                  {},
		"gcr.io.example":                                 {},
		"xgcr.io":                                        {},
		"mirror.gcr.io":                                  {},
		"metadata.google.internal":                       {},
		"":                                               {},
	} {
		got, ok := parseHost(host, []string{public, sovereign})
		if ok != (want != endpoint{}) || (ok && got != want) {
			t.Errorf("%s: %+v %t, want %+v", host, got, ok, want)
		}
	}
}

// FuzzHosts checks that an accepted host name can be rebuilt from its parsed endpoint.
func FuzzHosts(f *testing.F) {
	for _, host := range []string{"sts.googleapis.com", "sts.us-east1.rep.googleapis.com", "us-docker.pkg.dev", "eu.gcr.io", "bucket.storage.googleapis.com", "iam.googleapis.com", "serviceusage.googleapis.com", "docker.us-east1.rep.pkg.dev", "storage.us-east1.rep.googleapis.com", "accounts.google.com"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		ep, ok := parseHost(host, []string{DefaultUniverse})
		if !ok {
			return
		}
		var again []string
		switch ep.service {
		case ServiceSTS:
			again = append(again, "sts."+DefaultUniverse)
			for _, region := range regions() {
				again = append(again, "sts."+region+".rep."+DefaultUniverse)
			}
		case ServiceIAMCredentials:
			again = []string{"iamcredentials." + DefaultUniverse}
		case ServiceIAM:
			again = []string{"iam." + DefaultUniverse}
		case ServiceResourceManager, ServiceUsage, ServiceRegistryAPI, ServiceKMS:
			again = []string{ep.service + "." + DefaultUniverse}
		case ServiceStorage:
			again = []string{strings.TrimPrefix(ep.bucket+".storage."+DefaultUniverse, ".")}
			for _, region := range regions() {
				again = append(again, "storage."+region+".rep."+DefaultUniverse)
			}
		case ServiceRegistry:
			again = []string{ep.gcr, ep.location + "-docker.pkg.dev", "docker." + ep.location + ".rep.pkg.dev"}
		case ServiceAccounts:
			again = []string{issuerHost}
		}
		if !slices.Contains(again, host) {
			t.Errorf("%q is taken as %+v", host, ep)
		}
	})
}
