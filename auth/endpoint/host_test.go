package endpoint_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// TestSchemesMayBeLeftOut checks that the parsers accept a host without a scheme. They also accept
// it with the scheme oci for an image, or https for an endpoint. No error text may contain a
// password, or a URL, which the test recognizes by https://.
func TestSchemesMayBeLeftOut(t *testing.T) {
	parsers := map[string]struct {
		host, scheme string
		parse        func(string) (string, error)
	}{
		"ECR": {"public.ecr.aws", "oci", func(s string) (string, error) { r, err := endpoint.ParseECR(s); return r.Host, err }},
		"ACR": {"contoso.azurecr.io", "oci", func(s string) (string, error) { r, err := endpoint.ParseACR(s); return r.Host, err }},
		"GAR": {"eu.gcr.io", "oci", func(s string) (string, error) { r, err := endpoint.ParseGAR(s); return r.Host, err }},
		"S3":  {"s3.eu-west-1.amazonaws.com", "https", func(s string) (string, error) { e, err := endpoint.ParseS3(s); return e.Host, err }},
		"Blob": {"contoso.blob.core.windows.net", "https", func(s string) (string, error) {
			e, err := endpoint.ParseBlobEndpoint(s)
			return e.Host, err
		}},
		"GCS": {"storage.googleapis.com", "https", func(s string) (string, error) { e, err := endpoint.ParseGCS(s); return e.Host, err }},
	}
	for name, p := range parsers {
		for _, given := range []string{p.host, p.scheme + "://" + p.host, strings.ToUpper(p.host)} {
			if got, err := p.parse(given); got != p.host || err != nil {
				t.Errorf("%s of %s: %q, %v", name, given, got, err)
			}
		}
		for given, reason := range map[string]endpoint.Reason{
			"http://" + p.host:                 endpoint.ReasonScheme,
			"://" + p.host:                     endpoint.ReasonScheme,
			p.scheme + "://":                   endpoint.ReasonEmpty,
			p.scheme + "://oci://" + p.host:    endpoint.ReasonPort,
			p.host + "/https://example.org":    endpoint.ReasonScheme,
			"a:s3cr3t@" + p.host:               endpoint.ReasonCredentials,
			"a:s3cr3t@x://" + p.host:           endpoint.ReasonScheme,
			"example.org":                      endpoint.ReasonHost,
			p.host + ".example.org":            endpoint.ReasonHost,
			"":                                 endpoint.ReasonEmpty,
			p.scheme + ":" + p.host:            endpoint.ReasonMalformed,
			p.host + "?" + p.host:              endpoint.ReasonPath,
			"[::1]":                            endpoint.ReasonHost,
			p.scheme + "://[::1]":              endpoint.ReasonHost,
			p.host + "\\.example.org":          endpoint.ReasonMalformed,
			p.scheme + "://" + p.host + "\x00": endpoint.ReasonMalformed,
		} {
			got, err := p.parse(given)
			refused(t, err, reason)
			if got != "" || err != nil && (strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "https://")) {
				t.Errorf("%s of %s: %q, %v", name, given, got, err)
			}
		}
	}
}
