package issuer

import (
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// limits are the limits that a target sets for tokens.
type limits struct {
	// life is the longest life of a token.
	life time.Duration
	// subject is the maximum length of the claim sub, in bytes.
	subject int
	// algorithms are the signature algorithms that the target accepts.
	algorithms []identityv1.Algorithm
}

// maxSubject is the maximum length of the claim sub, in ASCII characters. Source: OpenID Connect
// Core 1.0, section 2.
const maxSubject = 255

// limitsOf returns the limits of a target.
func limitsOf(target string) limits {
	all := []identityv1.Algorithm{identityv1.RS256, identityv1.ES256}
	switch target {
	case identityv1.TargetAzure:
		// Sources: Microsoft Entra's errors AADSTS70023 (life) and AADSTS5002738 (algorithms).
		return limits{life: 24 * time.Hour, subject: maxSubject, algorithms: []identityv1.Algorithm{identityv1.RS256}}
	case identityv1.TargetGCP:
		// Source: Google Cloud IAM, "Workload Identity Federation", requirements of an OIDC token:
		// google.subject has at most 127 bytes, and exp is less than 48 hours after iat.
		return limits{life: 48*time.Hour - time.Second, subject: 127, algorithms: all}
	default:
		return limits{life: math.MaxInt64, subject: maxSubject, algorithms: all}
	}
}

// validateTarget checks the type of the target, and the fields that depend on this type: the
// signing algorithm, the duration and the providerConfig.
func validateTarget(spec *identityv1.WorkloadIdentitySpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	target := spec.TargetSystem.Type
	limits := limitsOf(target)
	switch at := at.Child("targetSystem", "type"); {
	case target == "":
		errs = append(errs, field.Required(at, "name the system that accepts the tokens, such as aws"))
	case len(validation.IsDNS1123Label(target)) > 0:
		errs = append(errs, field.Invalid(at, target, "must have only lower-case letters, digits and hyphens, at most 63"))
	}
	if !slices.Contains(limits.algorithms, spec.SigningAlgorithm) {
		errs = append(errs, field.NotSupported(at.Child("signingAlgorithm"), spec.SigningAlgorithm, limits.algorithms))
	}
	if spec.Duration != nil && spec.Duration.Duration > limits.life {
		errs = append(errs, field.Invalid(at.Child("duration"), spec.Duration.Duration.String(),
			fmt.Sprintf("%s refuses tokens that live longer than %s", target, limits.life)))
	}
	_, wrong := ProviderConfig(&spec.TargetSystem, at.Child("targetSystem", "providerConfig"))
	return append(errs, wrong...)
}
