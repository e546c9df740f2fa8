package endpoint_test

import (
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestProviderOf(t *testing.T) {
	for host, want := range map[string]string{
		"123456789123.dkr.ecr.eu-west-1.amazonaws.com": "aws",
		"public.ecr.aws":                      "aws",
		"s3.eu-west-1.amazonaws.com":          "aws",
		"tenant-a.s3.eu-west-1.amazonaws.com": "aws",
		"sts.eu-west-1.amazonaws.com":         "aws",
		"contoso.azurecr.io":                  "azure",
		"contoso.westeurope.data.azurecr.io":  "azure",
		"contoso.blob.core.windows.net":       "azure",
		"europe-docker.pkg.dev":               "gcp",
		"gcr.io":                              "gcp",
		"storage.googleapis.com":              "gcp",
		"ghcr.io":                             "",
		"localhost:5000":                      "",
		"":                                    "",
		"contoso.azurecr.io.example.com":      "",
		"123456789123.dkr.ecr.eu-west-1.amazonaws.com.evil": "",
	} {
		if got := endpoint.ProviderOf(host); got != want {
			t.Errorf("%q is of provider %q, want %q", host, got, want)
		}
	}
}
