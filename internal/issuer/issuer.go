package issuer

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/memory"
)

// Limits bound the life of tokens.
type Limits struct {
	// Min is the shortest life of a token. A request for a shorter life is refused, never raised.
	Min time.Duration
	// Default is the life of a token whose WorkloadIdentity has no duration.
	Default time.Duration
	// Max is the longest life of any token.
	Max time.Duration
}

// Issuer makes the claims of tokens. Do not change its fields after the first use.
type Issuer struct {
	// URL is the claim iss.
	URL string
	// Limits bound the life of tokens.
	Limits Limits
	// APIAudiences are the audiences that the cluster's API server accepts. Tokens never have these
	// audiences, so that no WorkloadIdentity gets access to the cluster.
	APIAudiences []string
}

// Check returns an error if a limit is invalid. The error names the limit.
func (l Limits) Check() error {
	switch {
	case l.Min <= 0:
		return errors.New("the minimum duration of tokens must be positive")
	case l.Min > auth.ProofLifetime:
		return fmt.Errorf("the minimum duration of tokens, %s, must be at most %s, for which Lanyard's controllers ask",
			l.Min, auth.ProofLifetime)
	case l.Default < l.Min || l.Default > l.Max:
		return fmt.Errorf("the default duration of tokens, %s, must be between the minimum, %s, and the maximum, %s",
			l.Default, l.Min, l.Max)
	}
	return nil
}

// Check returns an error if a setting of the issuer is missing or wrong. The error names the
// setting. With a wrong URL, services could not find the issuer's documents. Without APIAudiences,
// a token could give access to the cluster. With wrong Limits, some tokens could not be made, or
// would not live as long as set. Source of the rules for the URL: OpenID Connect Discovery 1.0,
// section 3.
func (i *Issuer) Check() error {
	if err := CheckURL(i.URL); err != nil {
		return fmt.Errorf("the URL of the issuer %w", err)
	}
	if len(i.APIAudiences) == 0 {
		return errors.New("the audiences of the cluster's API server are not known")
	}
	return i.Limits.Check()
}

// CheckURL returns an error for a URL that no issuer may have. The URL must be https. It must not
// have a user, a query, a fragment, or a slash at its end.
func CheckURL(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil:
		return errors.New("is not a URL; write https://<host>[/<path>]")
	case u.Scheme != "https" || u.Host == "":
		return errors.New("must begin with https:// and a host, because services read its documents there")
	case u.User != nil:
		return errors.New("must not have a user or password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("must not have a query or a fragment")
	case u.Path != "" && u.Path[len(u.Path)-1] == '/':
		return errors.New("must not end with a slash: services compare the claim iss byte by byte")
	}
	return nil
}

// Validate returns the errors of an identity's fields. The API server makes most of these checks
// when the identity is written. Validate repeats them, because some identities were written without
// these checks. If the identity is too large for the cache, the caller has only a stub of it; see
// [memory.Refused]. The error of a stub names the field that is too large.
func (i *Issuer) Validate(identity *identityv1.WorkloadIdentity) field.ErrorList {
	if excess := memory.Refused(identity); excess != nil {
		return field.ErrorList{field.Invalid(field.NewPath(excess.Field), "", excess.Error()+"; "+excess.Fix())}
	}
	spec := field.NewPath("spec")
	return slices.Concat(
		i.validateAudiences(identity.Spec.Audiences, spec.Child("audiences")),
		validateSubject(identity),
		validateTarget(&identity.Spec, spec),
		i.validateDuration(identity, spec.Child("duration")),
	)
}

func (i *Issuer) validateDuration(identity *identityv1.WorkloadIdentity, at *field.Path) field.ErrorList {
	life := i.longest(identity)
	if life >= i.Limits.Min {
		return nil
	}
	return field.ErrorList{field.Invalid(at, life.String(),
		fmt.Sprintf("tokens must live at least %s, the issuer's minimum: raise the duration", i.Limits.Min))}
}

func (i *Issuer) validateAudiences(audiences []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(audiences) == 0 {
		errs = append(errs, field.Required(at, "name who accepts the tokens, such as sts.amazonaws.com"))
	}
	if len(audiences) > maxAudiences {
		return field.ErrorList{field.TooMany(at, len(audiences), maxAudiences)}
	}
	seen := map[string]bool{}
	for n, audience := range audiences {
		switch at := at.Index(n); {
		case audience == "":
			errs = append(errs, field.Required(at, "an audience must not be empty"))
		case len(audience) > maxAudience:
			errs = append(errs, field.TooLong(at, "", maxAudience))
		case !printable(audience):
			errs = append(errs, field.Invalid(at, audience, "must have only printable ASCII characters and no space"))
		case slices.Contains(i.APIAudiences, audience):
			errs = append(errs, field.Forbidden(at,
				"the cluster's API server accepts this audience, and no token of a WorkloadIdentity may open the cluster"))
		}
		if seen[audience] {
			errs = append(errs, field.Duplicate(at.Index(n), audience))
		}
		seen[audience] = true
	}
	return errs
}

// maxAudiences is the maximum number of audiences, as in the schema. It bounds the size of tokens.
const maxAudiences = 16

// maxAudience is the longest audience in bytes. Source: AWS IAM API reference,
// AddClientIDToOpenIDConnectProvider, ClientID.
const maxAudience = 255

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}

// audiences returns the audiences of a token: the audiences of the request, or all audiences of the
// identity if the request has none.
func audiences(identity *identityv1.WorkloadIdentity, request *tokenv1.TokenRequestSpec) ([]string, field.ErrorList) {
	if len(request.Audiences) == 0 {
		return identity.Spec.Audiences, nil
	}
	at := field.NewPath("spec", "audiences")
	var errs field.ErrorList
	seen := map[string]bool{}
	for n, audience := range request.Audiences {
		if !slices.Contains(identity.Spec.Audiences, audience) {
			errs = append(errs, field.NotSupported(at.Index(n), audience, identity.Spec.Audiences))
		}
		if seen[audience] {
			errs = append(errs, field.Duplicate(at.Index(n), audience))
		}
		seen[audience] = true
	}
	return request.Audiences, errs
}

// longest returns the maximum life of an identity's tokens. It is the duration in the identity's
// spec or, without one, the issuer's default. It is at most the maximum of the issuer, and at most
// the maximum of the target system.
func (i *Issuer) longest(identity *identityv1.WorkloadIdentity) time.Duration {
	life := i.Limits.Default
	if identity.Spec.Duration != nil {
		life = identity.Spec.Duration.Duration
	}
	return min(life, i.Limits.Max, limitsOf(identity.Spec.TargetSystem.Type).life)
}

// lifetime returns the life of a token. It is the requested life, but at most the longest life that
// the identity allows. Without a requested life, it is this longest life. A requested life below
// the issuer's minimum is an error.
func (i *Issuer) lifetime(identity *identityv1.WorkloadIdentity, request *tokenv1.TokenRequestSpec) (time.Duration, *field.Error) {
	at := field.NewPath("spec", "expirationSeconds")
	life := i.longest(identity)
	if request.ExpirationSeconds == nil {
		return life, nil
	}
	seconds := *request.ExpirationSeconds
	if seconds < int64(i.Limits.Min/time.Second) {
		return 0, field.Invalid(at, seconds, fmt.Sprintf("must be at least %d, the issuer's minimum", int64(i.Limits.Min/time.Second)))
	}
	if seconds < int64(life/time.Second) {
		life = time.Duration(seconds) * time.Second
	}
	return life, nil
}
