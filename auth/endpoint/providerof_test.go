package endpoint_test

import (
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestProviderOf(t *testing.T) {
	for host, want := range map[string]string{
		"123456789123.dkr.ecr.eu-west-1.amazonaws.com": "aws",
		"public.ecr.aws":                                    "aws",
		"s3.eu-west-1.amazonaws.com":                        "aws",
		"tenant-a.s3.eu-west-1.amazonaws.com":               "aws",
		"sts.eu-west-1.amazonaws.com":                       "aws",
		"contoso.azurecr.io":                                "azure",
		"contoso.westeurope.data.azurecr.io":                "azure",
		"contoso.blob.core.windows.net":                     "azure",
		"kms.eu-west-1.amazonaws.com":                       "aws",
		"kms-fips.us-gov-west-1.api.aws":                    "aws",
		"contoso.vault.azure.net":                           "azure",
		"contoso.managedhsm.azure.cn":                       "azure",
		"cloudkms.googleapis.com":                           "gcp",
		"cloudkms.s3nsapis.fr":                              "gcp",
		"kms.cn-north-1.amazonaws.com":                      "",
		"kms..amazonaws.com":                                "",
		"kms.eu-west-1.amazonaws.com.":                      "",
		"kms.eu-west-1.amazonaws.com/x":                     "",
		"kms.eu-west-1.on.aws":                              "",
		"a/b.vault.azure.net":                               "",
		"vault.azure.net":                                   "",
		"cloudkms.googleapis.com.example.com":               "",
		"europe-docker.pkg.dev":                             "gcp",
		"gcr.io":                                            "gcp",
		"storage.googleapis.com":                            "gcp",
		"ghcr.io":                                           "",
		"localhost:5000":                                    "",
		"":                                                  "",
		"contoso.azurecr.io.example.com":                    "",
		"123456789123.dkr.ecr.eu-west-1.amazonaws.com.evil": "",
	} {
		if got := endpoint.ProviderOf(host); got != want {
			t.Errorf("%q is of provider %q, want %q", host, got, want)
		}
	}
}
