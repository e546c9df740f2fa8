package issuer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
)

// Subject returns the claim sub of an identity's tokens. Subject uses the metadata, which the API
// server writes, and not the status.
func Subject(identity *identityv1.WorkloadIdentity) string {
	sub := "lanyard.dev:workloadidentity:" + identity.Namespace + ":" + identity.Name
	if identity.Spec.SubjectFormat == identityv1.SubjectFormatName {
		return sub
	}
	return sub + ":" + string(identity.UID)
}

func validateSubject(identity *identityv1.WorkloadIdentity) field.ErrorList {
	at := field.NewPath("metadata", "name")
	limit := limitsOf(identity.Spec.TargetSystem.Type).subject
	formats := []string{identityv1.SubjectFormatUID, identityv1.SubjectFormatName}
	switch sub := Subject(identity); {
	case !slices.Contains(formats, identity.Spec.SubjectFormat):
		return field.ErrorList{field.NotSupported(field.NewPath("spec", "subjectFormat"), identity.Spec.SubjectFormat, formats)}
	case len(validation.IsDNS1123Label(identity.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(identity.Name)) > 0:
		return field.ErrorList{field.Invalid(at, identity.Name, "the claim sub contains it, so it must be a name that Kubernetes accepts")}
	case identity.Spec.SubjectFormat != identityv1.SubjectFormatName && identity.UID == "":
		return field.ErrorList{field.Required(field.NewPath("metadata", "uid"), "the claim sub contains it")}
	case !printable(sub):
		return field.ErrorList{field.Invalid(at, identity.Name, "the claim sub must have only printable ASCII characters")}
	case len(sub) > limit:
		return field.ErrorList{field.Invalid(at, identity.Name, fmt.Sprintf(
			"the claim sub would have %d characters, and %s accepts at most %d: shorten the name by %d",
			len(sub), identity.Spec.TargetSystem.Type, limit, len(sub)-limit))}
	}
	return nil
}

// Claims are the claims of one token. Their JSON is the payload of the token. Source: RFC 7519,
// section 4.1.
type Claims struct {
	Issuer    string   `json:"iss"`
	Subject   string   `json:"sub"`
	Audiences []string `json:"aud"` // always a list
	ExpiresAt int64    `json:"exp"` // seconds since 1970, UTC
	IssuedAt  int64    `json:"iat"` // seconds since 1970, UTC
	NotBefore int64    `json:"nbf"` // seconds since 1970, UTC
	ID        string   `json:"jti"`
	Lanyard   Lanyard  `json:"lanyard.dev"`
	// Further has top-level claims about the context object, by name. Their names differ from the
	// names of all other claims.
	Further map[string]any `json:"-"`
}

// Lanyard is the claim lanyard.dev.
type Lanyard struct {
	WorkloadIdentity Reference  `json:"workloadIdentity"`
	Context          *Reference `json:"context,omitempty"`
	Cluster          *Cluster   `json:"cluster,omitempty"`
}

// Cluster is the claim lanyard.dev.cluster.
type Cluster struct {
	ID string `json:"id"`
}

// Reference is a claim's reference to an object.
type Reference struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// Context has a token's claims about the object that the token is used for. The token server makes
// the Context after it has checked the object.
type Context struct {
	// Object is the claim lanyard.dev.context.
	Object Reference
	// Further has top-level claims, by name.
	Further map[string]any
}

// notBeforeMargin is the time from nbf to iat, so that services whose clock is behind accept a new
// token.
const notBeforeMargin = time.Minute

// Reserved returns the names of the claims that a [Context] cannot set.
func Reserved() []string {
	return []string{"iss", "sub", "aud", "exp", "iat", "nbf", "jti", "lanyard.dev"}
}

// Claims returns the claims of a token, or the wrong fields of the request and of the identity. The
// token's ID must be unique. The context object may be nil. Claims leaves out the claim
// lanyard.dev.cluster, which depends on the user: [Clusters.Of] returns it.
func (i *Issuer) Claims(
	identity *identityv1.WorkloadIdentity, request *tokenv1.TokenRequestSpec, object *Context, id string, now time.Time,
) (Claims, field.ErrorList) {
	errs := i.Validate(identity)
	audiences, wrong := audiences(identity, request)
	errs = append(errs, wrong...)
	life, tooShort := i.lifetime(identity, request)
	if tooShort != nil {
		errs = append(errs, tooShort)
	}
	if len(errs) > 0 {
		return Claims{}, errs
	}
	claims := Claims{
		Issuer: i.URL, Subject: Subject(identity), Audiences: audiences, ID: id,
		IssuedAt: now.Unix(), NotBefore: now.Add(-notBeforeMargin).Unix(), ExpiresAt: now.Add(life).Unix(),
		Lanyard: Lanyard{WorkloadIdentity: Reference{Namespace: identity.Namespace, Name: identity.Name, UID: identity.UID}},
	}
	if object != nil {
		claims.Lanyard.Context, claims.Further = &object.Object, object.Further
	}
	return claims, nil
}

// MarshalJSON returns the payload of the token. It fails if a further claim has the name of another
// claim.
func (c Claims) MarshalJSON() ([]byte, error) {
	for _, name := range Reserved() {
		if _, taken := c.Further[name]; taken {
			return nil, fmt.Errorf("the claim %s cannot be set", name)
		}
	}
	type own Claims
	payload, err := json.Marshal(own(c))
	if err != nil || len(c.Further) == 0 {
		return payload, err
	}
	further, err := json.Marshal(c.Further)
	if err != nil {
		return nil, err
	}
	return slices.Concat(payload[:len(payload)-1], []byte(","), further[1:]), nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
