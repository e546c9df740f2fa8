package endpoint_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// TestErrorsHaveNoPassword asserts that the errors do not repeat the password of a URL. Somebody may
// write such a URL into any field by mistake.
func TestErrorsHaveNoPassword(t *testing.T) {
	const url = "https://user:hunter2"
	for _, input := range []string{
		url + "@host.example/path", url + "@p.iam.gserviceaccount.com", url + "@developer.gserviceaccount.com", url + ",@host.example",
		"https://user:x@hunter2,y@host.example", "https://user:x@p.hunter2.iam.gserviceaccount.com,y@host.example",
		url + "=@host.example", "arn:aws:iam::111122223333:role/reader " + url + "==@host.example",
		"arn:aws:iam::111122223333:role/" + url + "@host.example", "arn:aws:iam::111122223333:user/" + url + "@host.example",
		"arn:aws:kms:" + url + "@host.example:key/a", "arn:aws:kms:eu-west-1:" + url + "@host.example:key/a",
		"arn:aws:kms:eu-west-1:111122223333:" + url + "@host.example", "arn:aws:kms:eu-west-1:111122223333:key/" + url + "@host.example",
		"arn:aws:kms:eu-west-1:111122223333:key//user:hunter2@host.example", "arn:aws:kms:eu-west-1:111122223333:alias//user:hunter2@host.example",
		"projects/" + url + "@host.example/locations/global/keyRings/r/cryptoKeys/k", "projects/p/locations/global/keyRings/r/cryptoKeys/" + url + "@host.example",
		"projects/p/locations/global/keyRings/" + url + "@host.example/cryptoKeyVersions/1",
		"arn:minio:iam:::" + url + "@host.example", "arn:minio:iam:::role/" + url + "@host.example",
	} {
		for name, parse := range map[string]func(string) error{
			"ParseAllowed":             parser(func(s string) (endpoint.Allowed, error) { return endpoint.ParseAllowed(s) }),
			"ParseAssumption":          parser(endpoint.ParseAssumption),
			"ParseRoleARN":             parser(endpoint.ParseRoleARN),
			"ParseAWSRegion":           parser(endpoint.ParseAWSRegion),
			"ParseAzureAuthority":      parser(endpoint.ParseAzureAuthority),
			"ParseACR":                 parser(endpoint.ParseACR),
			"ParseBlobEndpoint":        parser(endpoint.ParseBlobEndpoint),
			"ParseGUID":                parser(endpoint.ParseGUID),
			"ParseCIDRs":               parser(func(s string) (endpoint.CIDRs, error) { return endpoint.ParseCIDRs(s) }),
			"ParseECR":                 parser(endpoint.ParseECR),
			"ParseGCPUniverse":         parser(endpoint.ParseGCPUniverse),
			"ParseGAR":                 parser(endpoint.ParseGAR),
			"ParseGCS":                 parser(endpoint.ParseGCS),
			"ParseGCPServiceAccount":   parser(endpoint.ParseGCPServiceAccount),
			"ParseGCPWorkloadProvider": parser(endpoint.ParseGCPWorkloadProvider),
			"ParseGCPImpersonation":    parser(endpoint.ParseGCPImpersonation),
			"ParseKMSKey":              parser(endpoint.ParseKMSKey),
			"ParseCloudKMSKey":         parser(endpoint.ParseCloudKMSKey),
			"ParseVaultKey, URL":       parser(func(s string) (endpoint.VaultKey, error) { return endpoint.ParseVaultKey(s, "sops", "") }),
			"ParseVaultKey, name": parser(func(s string) (endpoint.VaultKey, error) {
				return endpoint.ParseVaultKey("https://contoso.vault.azure.net", s, "")
			}),
			"ParseVaultKey, version": parser(func(s string) (endpoint.VaultKey, error) {
				return endpoint.ParseVaultKey("https://contoso.vault.azure.net", "sops", s)
			}),
			"ParseS3":             parser(endpoint.ParseS3),
			"ParseSTS":            parser(endpoint.ParseSTS),
			"ParseStoreRoleARN":   endpoint.ParseStoreRoleARN,
			"CIDRs.Set":           new(endpoint.CIDRs).Set,
			"Allowed.Set":         new(endpoint.Allowed).Set,
			"GKECluster.Project":  func(s string) error { return endpoint.GKECluster{Project: s}.Check() },
			"GKECluster.Location": func(s string) error { return endpoint.GKECluster{Project: "my-project", Location: s}.Check() },
		} {
			err := parse(input)
			if _, ok := errors.AsType[*endpoint.Error](err); !ok || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s(%q): %v", name, input, err)
			}
		}
	}
}

// parser returns a function that calls parse, and returns only the error.
func parser[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		_, err := parse(s)
		return err
	}
}
