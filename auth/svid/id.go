package svid

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Limits of SPIFFE IDs, in bytes. Source: SPIFFE-ID §2.1 and §2.3.
const (
	maxTrustDomain = 255
	maxID          = 2048
)

// ParseTrustDomain parses the name of a trust domain, such as "example.com". SPIFFE limits the
// characters. ParseTrustDomain also refuses an empty label, as in "a..b". Verifiers refuse it in
// the host of a URI in a certificate.
func ParseTrustDomain(name string) (spiffeid.TrustDomain, error) {
	switch {
	case strings.Contains(name, "/"):
		return spiffeid.TrustDomain{}, errors.New("a trust domain is a name such as example.com, without spiffe:// and without a path")
	case len(name) > maxTrustDomain:
		return spiffeid.TrustDomain{}, fmt.Errorf("a trust domain has at most %d characters, not %d", maxTrustDomain, len(name))
	case strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, ".."):
		return spiffeid.TrustDomain{}, errors.New("a trust domain must not begin or end with a dot, or have two dots in a row")
	}
	return spiffeid.TrustDomainFromString(name)
}

// ID returns the SPIFFE ID of an object: spiffe://<trust domain>/<resource>/<namespace>/<name>. The
// resource is the plural name of the object's kind, such as "ocirepositories". Two objects of a
// cluster never have the same ID.
func ID(domain spiffeid.TrustDomain, resource, namespace, name string) (spiffeid.ID, error) {
	id, err := spiffeid.FromSegments(domain, resource, namespace, name)
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("the SPIFFE ID of %s %.80q in namespace %.80q: %w", resource, name, namespace, err)
	}
	if n := len(id.String()); n > maxID {
		return spiffeid.ID{}, fmt.Errorf("the SPIFFE ID would have %d characters, and at most %d are allowed: shorten the object's name",
			n, maxID)
	}
	return id, nil
}
