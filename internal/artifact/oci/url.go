package oci

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Repository is a repository in a registry. It is parsed once and comparable; its zero value is no repository.
type Repository struct {
	host string
	repo name.Repository
}

// repositoryPattern is the distribution specification's <name>.
var repositoryPattern = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)

// hostPattern is a DNS name; addresses are parsed.
var hostPattern = regexp.MustCompile(`^([a-z0-9]|[a-z0-9][a-z0-9-]{0,61}[a-z0-9])(\.([a-z0-9]|[a-z0-9][a-z0-9-]{0,61}[a-z0-9]))*$`)

// ParseURL reads an object's spec.url, oci://host[:port]/repository. Tag and digest, user, query and fragment are refused.
// The error is an *Error with CodeInvalidURL.
func ParseURL(raw string) (Repository, error) {
	const form = "write it as oci://host/repository"
	if len(raw) > 1024 {
		return Repository{}, invalidURL(form, "the URL is longer than 1024 bytes")
	}
	rest, ok := strings.CutPrefix(raw, "oci://")
	if !ok {
		return Repository{}, invalidURL(form, "the URL does not begin with oci://")
	}
	if strings.ContainsAny(rest, "?#") {
		return Repository{}, invalidURL(form, "the URL has a query or a fragment")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(authority, "@") {
		// Not quoted: there may be a password in it.
		return Repository{}, invalidURL("put credentials into the Secret of spec.secretRef", "the URL has user information")
	}
	host := strings.ToLower(authority)
	if err := checkHost(host); err != nil {
		return Repository{}, invalidURL(form, "%w", err)
	}
	switch {
	case path == "":
		return Repository{}, invalidURL(form, "the URL names no repository")
	case strings.Contains(path, "@"):
		return Repository{}, invalidURL("move the digest to spec.ref.digest", "the URL has a digest")
	case strings.Contains(path, ":"):
		return Repository{}, invalidURL("move the tag to spec.ref.tag", "the URL has a tag")
	case len(path) > 255 || !repositoryPattern.MatchString(path):
		return Repository{}, invalidURL(form, "%q is no repository name", path)
	}
	registry, err := name.NewRegistry(host, name.StrictValidation)
	if err != nil {
		return Repository{}, invalidURL(form, "%q is no registry host", host)
	}
	// Docker Hub's short names are completed once, so that equal repositories are equal values.
	return Repository{host: host, repo: registry.Repo(registry.Repo(path).RepositoryStr())}, nil
}

func checkHost(host string) error {
	u, err := url.Parse("//" + host)
	if err != nil || u.Host != host || u.Hostname() == "" {
		return fmt.Errorf("%q is no host", host)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%q is no port", port)
		}
	} else if strings.HasSuffix(host, ":") {
		return errors.New("the port is empty")
	}
	name := u.Hostname()
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	if len(name) > 253 || !hostPattern.MatchString(name) {
		return fmt.Errorf("%q is no host name", name)
	}
	return nil
}

func invalidURL(fix, format string, args ...any) *Error {
	return &Error{Code: CodeInvalidURL, Field: "spec.url", Fix: fix, Err: fmt.Errorf(format, args...)}
}

// Host is the registry's host[:port] in lower case as the URL gives it; what credentials are chosen by.
func (r Repository) Host() string { return r.host }

// Name is the repository's name in the registry, such as "team/app".
func (r Repository) Name() string { return r.repo.RepositoryStr() }

// String returns the URL, oci://host/repository.
func (r Repository) String() string {
	if r.IsZero() {
		return ""
	}
	return "oci://" + r.host + "/" + r.Name()
}

// IsZero reports whether r is no repository.
func (r Repository) IsZero() bool { return r == Repository{} }

// target returns the library's repository for the scheme that may be used.
func (r Repository) target(insecure bool) (name.Repository, error) {
	options := []name.Option{name.StrictValidation}
	if insecure {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(r.host, options...)
	if err != nil {
		return name.Repository{}, err
	}
	return registry.Repo(r.Name()), nil
}
