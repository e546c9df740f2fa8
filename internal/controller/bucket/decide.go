package bucket

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// plan is a spec that is understood.
type plan struct {
	// service is nil for a provider that this controller does not have, which is refused with the identity.
	service Service
	place   Place
	bucket  string
	prefix  string
	// source names the bucket and the prefix, for the index.
	source string
	ignore archive.Patterns
	// stored: the artifact in the status can be served, and updated.
	stored bool
}

// Decide implements source.Kind.
func (k kind) Decide(o *v1alpha1.Bucket, stored bool) (plan, error) {
	s := o.Spec
	if s.Provider == "" {
		s.Provider = v1alpha1.ProviderGeneric
	}
	if err := checkFormats(s); err != nil {
		return plan{}, err
	}
	p := plan{service: k.services[s.Provider], bucket: s.BucketName, prefix: s.Prefix, stored: stored, ignore: archive.DefaultPatterns()}
	var err error
	if s.Ignore != nil {
		if p.ignore, err = archive.ParsePatterns(*s.Ignore); err != nil {
			return plan{}, source.Invalid("spec.ignore", "", "%w", err)
		}
	}
	if p.service == nil {
		return p, nil
	}
	if p.place, err = p.service.Locate(s); err != nil {
		return plan{}, err
	}
	p.source = fmt.Sprintf("%s %s %s %q", s.Provider, strings.ToLower(p.place.Endpoint), s.BucketName, s.Prefix)
	return p, nil
}

// Bounds of the schema, in bytes.
const (
	maxPrefix   = 1024
	maxEndpoint = 259
)

// The schema's rules once more.
var (
	namePattern      = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[$]web|[$]root)$`)
	awsNamePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*([.][a-z0-9-]+)*$`)
	azureNamePattern = regexp.MustCompile(`^([$]web|[$]root|[a-z0-9]+(-[a-z0-9]+)*)$`)
	gcpNamePattern   = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?([.][a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$`)
	endpointPattern  = regexp.MustCompile(
		`^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|[[][0-9A-Fa-f:]+[]])(:[0-9]{1,5})?$`)
	regionPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$`)
)

// isName reports whether a bucket of the provider can have the name, and says the rule.
func isName(provider, name string) (ok bool, rule string) {
	pattern, longest, rule := namePattern, 222, "letters, digits, dots, hyphens and underscores"
	switch provider {
	case v1alpha1.ProviderAWS:
		pattern, longest, rule = awsNamePattern, 63, "lower-case letters, digits, dots and hyphens"
	case v1alpha1.ProviderAzure:
		pattern, longest, rule = azureNamePattern, 63, "lower-case letters, digits and single hyphens"
	case v1alpha1.ProviderGCP:
		pattern, rule = gcpNamePattern, "lower-case letters, digits, dots, hyphens and underscores"
	}
	ok = len(name) >= 3 && len(name) <= longest && pattern.MatchString(name) && !strings.HasSuffix(name, "-")
	return ok, fmt.Sprintf("3 to %d %s that begin and end with a letter or digit", longest, rule)
}

// checkFormats holds the schema's rules for what is not identity.
func checkFormats(s v1alpha1.BucketSpec) error {
	named, rule := isName(s.Provider, s.BucketName)
	switch {
	case !named:
		return source.Invalid("spec.bucketName", "write "+rule, "it is no bucket's name with provider %s", s.Provider)
	case strings.Contains(s.Endpoint, "://"):
		return source.Invalid("spec.endpoint", "write the host alone", "it has a scheme")
	case s.Endpoint == "" && (s.Provider == v1alpha1.ProviderGeneric || s.Provider == v1alpha1.ProviderAzure):
		return source.Invalid("spec.endpoint", "write the host that serves the bucket", "it is required with provider %s", s.Provider)
	case s.Endpoint != "" && (len(s.Endpoint) > maxEndpoint || !endpointPattern.MatchString(s.Endpoint)):
		return source.Invalid("spec.endpoint", "write <host> or <host>:<port>", "it is no host")
	case s.Region != "" && s.Provider != v1alpha1.ProviderGeneric && s.Provider != v1alpha1.ProviderAWS:
		return source.Invalid("spec.region", "remove it", "it works only with the providers generic and aws")
	case s.Region != "" && !regionPattern.MatchString(s.Region):
		return source.Invalid("spec.region", "write a region such as eu-west-1", "it is no region")
	case len(s.Prefix) > maxPrefix:
		return source.Invalid("spec.prefix", "shorten it", "it is longer than %d bytes", maxPrefix)
	default:
		return nil
	}
}
