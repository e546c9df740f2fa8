package oci

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// Repository identifies a repository in a registry. It is parsed once and comparable. The zero
// value is not a repository.
type Repository struct {
	field string // for errors: the field that names the repository, such as spec.url
	host  string
	repo  name.Repository
}

// The patterns are compiled on first use, because compiling them takes half a millisecond.
//
//nolint:gochecknoglobals // they do not change
var (
	// repositoryPattern is the distribution specification's <name>.
	repositoryPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	})
	// hostPattern matches a DNS name. IP addresses are parsed without it.
	hostPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([a-z0-9]|[a-z0-9][a-z0-9-]{0,61}[a-z0-9])(\.([a-z0-9]|[a-z0-9][a-z0-9-]{0,61}[a-z0-9]))*$`)
	})
)

// The fields in which objects name a repository.
const (
	fieldURL   = "spec.url"
	fieldImage = "spec.image"
)

// secretRef is the error text that tells the user where to put an object's credential.
const secretRef = "put credentials into the Secret of spec.secretRef"

// spelling describes how a field or an argument names a repository, such as an OCIRepository's
// spec.url. The fields form, tag, digest and login are advice in the errors about a wrong name.
type spelling struct {
	field  string
	scheme string // prefix, such as "oci://"; empty for none
	form   string // advice if the name has a wrong form
	tag    string // advice if the name has a tag
	digest string // advice if the name has a digest
	login  string // advice if the name has a user or a password
}

// ParseURL parses an OCIRepository's spec.url, oci://host[:port]/repository. It refuses a tag,
// digest, user, query or fragment. The error is an *origin.Error with CodeInvalidURL.
func ParseURL(raw string) (Repository, error) {
	return spelling{
		field: fieldURL, scheme: "oci://", form: "write it as oci://host/repository",
		tag: "move the tag to spec.ref.tag", digest: "move the digest to spec.ref.digest", login: secretRef,
	}.parse(raw)
}

// ParseImage parses an ImageRepository's spec.image, host[:port]/repository. Scheme, tag and digest
// are refused. The first part must look like a host. "team/app" is refused, because Docker Hub is
// not the default. The error is an *origin.Error with CodeInvalidURL.
func ParseImage(raw string) (Repository, error) {
	s := spelling{
		field: fieldImage, form: "write it as host/repository, such as registry.example.com/team/app",
		tag: "name the repository alone: all its tags are listed", digest: "name the repository alone", login: secretRef,
	}
	if strings.Contains(raw, "://") {
		return Repository{}, s.invalid(s.form, "the image has a scheme")
	}
	if host, _, _ := strings.Cut(raw, "/"); host != "localhost" && !strings.ContainsAny(host, ".:") {
		return Repository{}, s.invalid(s.form, "the image does not begin with a registry's host")
	}
	return s.parse(raw)
}

// ParseField parses the value of a field that names a repository. It calls [ParseImage] for
// spec.image, and [ParseURL] for any other field.
func ParseField(field, raw string) (Repository, error) {
	if field == fieldImage {
		return ParseImage(raw)
	}
	return ParseURL(raw)
}

// ParseArtifact parses the argument of a command: oci://host[:port]/repository, optionally with
// :tag or @sha256:digest. User, query and fragment are refused. The error is an *origin.Error with
// CodeInvalidURL or CodeInvalidReference.
func ParseArtifact(raw string) (Repository, Reference, error) {
	s := spelling{
		field: "the artifact", scheme: "oci://", form: "write it as oci://host/repository:tag",
		tag: "write one tag", digest: "write one digest",
		login: "use --creds, or docker login",
	}
	rest, digest, digested := strings.Cut(raw, "@")
	ref := Reference{Digest: digest}
	if slash := strings.LastIndex(rest, "/"); slash > len(s.scheme) {
		name, tag, tagged := strings.Cut(rest[slash:], ":")
		switch {
		case tagged && digested:
			return Repository{}, Reference{}, s.invalid("remove the tag: the digest says more", "it has a tag and a digest")
		case tagged && !IsTag(tag):
			return Repository{}, Reference{}, s.invalid(s.form, "%q is no tag", shorten(tag))
		}
		rest, ref.Tag = rest[:slash]+name, tag
	}
	if digested && (!strings.Contains(strings.TrimPrefix(rest, s.scheme), "/") || checkDigest(digest) != nil) {
		// Do not quote the text: a password may precede the "@".
		if !strings.HasPrefix(digest, "sha256:") {
			return Repository{}, Reference{}, s.invalid(s.login, "it has user information, or a digest that is none of sha256")
		}
		return Repository{}, Reference{}, s.invalid("write it as oci://host/repository@sha256:<64 lower-case hex digits>",
			"it has no sha256 digest")
	}
	repo, err := s.parse(rest)
	return repo, ref, err
}

func (s spelling) parse(raw string) (Repository, error) {
	if len(raw) > 1024 {
		return Repository{}, s.invalid(s.form, "it is longer than 1024 bytes")
	}
	rest, ok := strings.CutPrefix(raw, s.scheme)
	if !ok {
		return Repository{}, s.invalid(s.form, "it does not begin with %s", s.scheme)
	}
	if strings.ContainsAny(rest, "?#") {
		return Repository{}, s.invalid(s.form, "it has a query or a fragment")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(authority, "@") {
		// Do not quote the text: it may have a password.
		return Repository{}, s.invalid(s.login, "it has user information")
	}
	host := strings.ToLower(authority)
	if err := checkHost(host); err != nil {
		return Repository{}, s.invalid(s.form, "%w", err)
	}
	switch {
	case path == "":
		return Repository{}, s.invalid(s.form, "it names no repository")
	case strings.Contains(path, "@"):
		return Repository{}, s.invalid(s.digest, "it has a digest")
	case strings.Contains(path, ":"):
		return Repository{}, s.invalid(s.tag, "it has a tag")
	case len(path) > 255 || !repositoryPattern().MatchString(path):
		return Repository{}, s.invalid(s.form, "%q is no repository name", path)
	}
	registry, err := name.NewRegistry(host, name.StrictValidation)
	if err != nil {
		return Repository{}, s.invalid(s.form, "%q is no registry host", host)
	}
	// Expand Docker Hub's short names, so that equal repositories are equal values.
	return Repository{field: s.field, host: host, repo: registry.Repo(registry.Repo(path).RepositoryStr())}, nil
}

func (s spelling) invalid(fix, format string, args ...any) *origin.Error {
	return invalidRepository(s.field, fix, format, args...)
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
	if len(name) > 253 || !hostPattern().MatchString(name) {
		return fmt.Errorf("%q is no host name", name)
	}
	return nil
}

func invalidRepository(field, fix, format string, args ...any) *origin.Error {
	return &origin.Error{Code: origin.CodeInvalidURL, Field: field, Fix: fix, Err: fmt.Errorf(format, args...)}
}

// Host returns the host[:port] of the repository's URL, in lower case. Credentials are looked up
// under this host.
func (r Repository) Host() string { return r.host }

// Name returns the repository's name in the registry, such as "team/app".
func (r Repository) Name() string { return r.repo.RepositoryStr() }

// Image returns the repository's full name, host/repository. For Docker Hub it adds Docker Hub's
// own host and, if missing, "library/", as in "index.docker.io/library/alpine".
func (r Repository) Image() string {
	if r.IsZero() {
		return ""
	}
	return r.repo.Name()
}

// String returns the URL, oci://host/repository.
func (r Repository) String() string {
	if r.IsZero() {
		return ""
	}
	return "oci://" + r.host + "/" + r.Name()
}

// IsZero reports whether r is the zero value, which is not a repository.
func (r Repository) IsZero() bool { return r == Repository{} }

// target returns the repository as go-containerregistry's type. If insecure is true, that library
// may use http.
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
