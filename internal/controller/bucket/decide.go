package bucket

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// plan is a spec after it was parsed and checked.
type plan struct {
	service buckets.Service
	place   buckets.Place
	bucket  string
	prefix  string
	// source identifies the provider, the endpoint, the bucket and the prefix. It is part of the
	// artifact's index. If it changes, all objects are fetched again.
	source string
	ignore archive.Patterns
}

// Decide implements source.Kind.
func (k kind) Decide(o *v1alpha1.Bucket, call source.Call) (plan, error) {
	s := o.Spec
	s.Provider = cmp.Or(s.Provider, v1alpha1.ProviderGeneric)
	s.Endpoint = buckets.Host(s)
	if err := checkFormats(s); err != nil {
		return plan{}, err
	}
	service, ok := k.services[s.Provider]
	if !ok {
		return plan{}, fmt.Errorf("provider %q has rules but no service", s.Provider)
	}
	var ignore archive.Patterns
	if s.Ignore != nil {
		var err error
		if ignore, err = archive.ParsePatterns(*s.Ignore); err != nil {
			return plan{}, object.Invalid("spec.ignore", "", "%w", err)
		}
	}
	place, err := service.Locate(s)
	if invalid, ok := errors.AsType[*buckets.InvalidError](err); ok {
		return plan{}, object.Invalid(invalid.Field, invalid.Fix, "%w", invalid.Err)
	}
	if err != nil {
		return plan{}, err
	}
	if err := checkLent(call, place); err != nil {
		return plan{}, err
	}
	return plan{
		service: service, place: place, bucket: s.BucketName, prefix: s.Prefix, ignore: ignore,
		source: fmt.Sprintf("%s %s %s %q", s.Provider, strings.ToLower(place.Endpoint), s.BucketName, s.Prefix),
	}, nil
}

// checkLent refuses to use a lent identity at hosts that do not belong to the cloud: a signed
// request would show the session's token to the host.
func checkLent(call source.Call, place buckets.Place) error {
	if !place.Listed || !call.Lent() {
		return nil
	}
	return &auth.Error{
		Stage: auth.StageExchange, Code: auth.CodeEndpointRefused,
		Fix: "use an identity of this namespace (spec.serviceAccountName, without spec.identityRef), or leave out spec.endpoint",
		Err: errors.New("spec.endpoint is not a host of Amazon S3, and an identity that is only lent to this namespace is used only there"),
	}
}

// Bounds of the schema, in bytes.
const (
	maxPrefix   = 1024
	maxEndpoint = 259 // without a scheme
)

// The schema's rules, which Decide checks again.
var (
	namePattern      = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[$]web|[$]root)$`)
	awsNamePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*([.][a-z0-9-]+)*$`)
	azureNamePattern = regexp.MustCompile(`^([$]web|[$]root|[a-z0-9]+(-[a-z0-9]+)*)$`)
	gcpNamePattern   = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?([.][a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$`)
	endpointPattern  = regexp.MustCompile(
		`^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|[[][0-9A-Fa-f:]+[]])(:[0-9]{1,5})?$`)
	regionPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$`)
)

// isName reports whether the provider accepts the name for a bucket, and returns the provider's
// rule for such names.
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

// checkFormats checks the schema's rules for all fields that do not choose the identity.
func checkFormats(s v1alpha1.BucketSpec) error {
	named, rule := isName(s.Provider, s.BucketName)
	switch {
	case !named:
		return object.Invalid("spec.bucketName", "write "+rule, "it is no bucket's name with provider %s", s.Provider)
	case strings.Contains(s.Endpoint, "://"):
		return object.Invalid("spec.endpoint", "write the host alone", "it has a scheme")
	case s.Endpoint == "" && (s.Provider == v1alpha1.ProviderGeneric || s.Provider == v1alpha1.ProviderAzure):
		return object.Invalid("spec.endpoint", "write the host that serves the bucket", "it is required with provider %s", s.Provider)
	case s.Endpoint != "" && (len(s.Endpoint) > maxEndpoint || !endpointPattern.MatchString(s.Endpoint)):
		return object.Invalid("spec.endpoint", "write <host> or <host>:<port>", "it is no host")
	case s.Region != "" && s.Provider == v1alpha1.ProviderAzure:
		return object.Invalid("spec.region", "remove it", "it does not work with provider azure")
	case s.Region != "" && !regionPattern.MatchString(s.Region):
		return object.Invalid("spec.region", "write a region such as eu-west-1", "it is no region")
	case len(s.Prefix) > maxPrefix:
		return object.Invalid("spec.prefix", "shorten it", "it is longer than %d bytes", maxPrefix)
	default:
		return nil
	}
}
