// Package oidc has a verifier and issuers of OpenID Connect tokens for the local cloud. A
// [Verifier] checks tokens as a cloud does: it fetches the issuer's discovery document and keys.
// There are three kinds of issuers:
//   - [Issuer] mints good and bad tokens for tests.
//   - [Static] serves fixed keys.
//   - [Proxy] serves a kube-apiserver's documents under a public name.
package oidc

import (
	"net/url"
	"strconv"
	"strings"
)

// URLError says why a URL cannot be an issuer.
type URLError struct {
	// URL is the invalid URL.
	URL string
	// Fix tells the user how to correct the URL, such as "write the host in lower case".
	Fix string
}

// Error returns the URL and the fix.
func (e *URLError) Error() string { return "issuer " + strconv.Quote(e.URL) + ": " + e.Fix }

// ParseURL parses an issuer URL. Like the clouds, it requires:
//   - the scheme https
//   - a host name in lower case, without a port
//   - no user, query, fragment or escaped character
//   - at most 255 bytes
//
// The URL may end in one slash, as AKS's issuers do
// (https://<region>.oic.prod-aks.azure.com/<tenant>/<cluster>/). The slash is significant, because
// clouds compare issuer URLs character by character. Source: OpenID Connect Discovery 1.0 §3; AWS
// IAM, CreateOpenIDConnectProvider.
func ParseURL(issuer string) (*url.URL, error) {
	refuse := func(fix string) (*url.URL, error) { return nil, &URLError{URL: issuer, Fix: fix} }
	u, err := url.Parse(issuer)
	switch {
	case err != nil:
		return refuse("give a URL")
	case len(issuer) > 255:
		return refuse("give at most 255 characters")
	case u.Scheme != "https" || u.Opaque != "":
		return refuse("begin it with https://")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(issuer, "#"):
		return refuse("leave user, query and fragment out")
	case u.Hostname() == "":
		return refuse("name a host")
	case u.Host != u.Hostname():
		return refuse("leave the port out, clouds refuse it")
	case u.Host != strings.ToLower(u.Host):
		return refuse("write the host in lower case")
	case u.String() != issuer || u.EscapedPath() != u.Path || strings.Contains(u.Path, "//") || strings.Contains(u.Path, "/."):
		return refuse("write the path plainly")
	}
	return u, nil
}

// documentURL returns the URL of an issuer's document: the issuer without its trailing slash,
// followed by path. Source: OpenID Connect Discovery 1.0 §4.
func documentURL(issuer, path string) string { return strings.TrimSuffix(issuer, "/") + path }
