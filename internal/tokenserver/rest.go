package tokenserver

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// AuditID is the audit annotation with a token's claim jti. It shows which request the token came
// from.
const AuditID = "token.lanyard.dev/jti"

// Identities reads WorkloadIdentities.
type Identities interface {
	// Get returns an identity, or a NotFound error of the API server. uid is the UID that the
	// caller expects; empty for any UID. Get may return an identity with another UID, so the caller
	// must compare.
	Get(ctx context.Context, namespace, name string, uid types.UID) (*identityv1.WorkloadIdentity, error)
}

// Signer signs tokens.
type Signer interface {
	// MaxLife returns the longest life of a token that is signed now with the algorithm. It fails
	// if no key may sign.
	MaxLife(algorithm identityv1.Algorithm) (time.Duration, error)
	// JWT returns a token with the claims. The claim exp must equal expires.
	JWT(algorithm identityv1.Algorithm, claims any, expires time.Time) (string, error)
}

// Contexts checks context objects. A context object is the object that a caller wants to use a
// token for.
type Contexts interface {
	// Resolve checks that the object exists, that the caller may read it, and that it belongs to
	// the identity. It returns the token's claims about the object. Its errors are
	// [*apierrors.StatusError] values. The error is the same if the object does not exist and if
	// the caller may not read it.
	Resolve(
		ctx context.Context, caller user.Info, identity *identityv1.WorkloadIdentity, object *tokenv1.ContextObject,
	) (*issuer.Context, error)
}

// request is a request for a token or an SVID. Its answer has the same kind.
type request interface {
	runtime.Object
	metav1.Object
}

// subresource creates tokens or SVIDs: R is the type of the requests and of their answers.
type subresource[R request] struct {
	kind          string // the name of R's kind
	empty         func() R
	preconditions []*Precondition
	metrics       *Metrics
	create        func(ctx context.Context, name string, request R, dryRun bool) (R, error)
}

var (
	_ rest.Storage                        = (*subresource[*tokenv1.TokenRequest])(nil)
	_ rest.NamedCreater                   = (*subresource[*tokenv1.TokenRequest])(nil)
	_ rest.GroupVersionKindProvider       = (*subresource[*tokenv1.TokenRequest])(nil)
	_ rest.SubresourceObjectMetaPreserver = (*subresource[*tokenv1.TokenRequest])(nil)
)

// New implements [rest.Storage].
func (s *subresource[R]) New() runtime.Object { return s.empty() }

// Destroy implements [rest.Storage].
func (s *subresource[R]) Destroy() {}

// GroupVersionKind implements [rest.GroupVersionKindProvider]: the subresource's kind differs from
// that of its parent.
func (s *subresource[R]) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return tokenv1.GroupVersion().WithKind(s.kind)
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate implements
// [rest.SubresourceObjectMetaPreserver]. It makes the API server's library keep metadata.uid of a
// request. A caller may set this field to the UID that the object in the URL must have.
func (s *subresource[R]) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create implements [rest.NamedCreater].
func (s *subresource[R]) Create(
	ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	release, err := keepPlace(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	request, ok := object.(R)
	if !ok {
		return nil, apierrors.NewBadRequest("the kind of the body is not " + s.kind)
	}
	if validate != nil {
		if err := validate(ctx, object.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	answer, err := s.answer(ctx, name, request, len(options.DryRun) > 0)
	if err != nil {
		s.metrics.refused(err)
		return nil, err
	}
	return answer, nil
}

func (s *subresource[R]) answer(ctx context.Context, name string, request R, dryRun bool) (answer R, err error) {
	if err := firstRefusal(s.preconditions); err != nil {
		return answer, err
	}
	if err := checkNames(ctx, name, request); err != nil {
		return answer, err
	}
	return s.create(ctx, name, request, dryRun)
}

// tokens creates the tokens of WorkloadIdentities.
type tokens struct{ *Config }

func (t *tokens) create(ctx context.Context, name string, request *tokenv1.TokenRequest, dryRun bool) (*tokenv1.TokenRequest, error) {
	identity, err := t.identity(ctx, name, request)
	if err != nil {
		return nil, err
	}
	caller, ok := genericrequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the caller is not known")
	}
	cluster, err := t.Clusters.Of(caller.GetName())
	if err != nil {
		return nil, apierrors.NewForbidden(kinds.WorkloadIdentity().GroupResource(), name, err)
	}
	object, err := t.context(ctx, caller, identity, request.Spec.ContextObject)
	if err != nil {
		return nil, err
	}
	now, id := time.Now(), uuid.NewString()
	claims, wrong := t.Issuer.Claims(identity, &request.Spec, object, id, now)
	if len(wrong) > 0 {
		return nil, invalid(tokenv1.TokenRequestKind, name, wrong)
	}
	longest, err := t.Signer.MaxLife(identity.Spec.SigningAlgorithm)
	if err != nil {
		return nil, unavailable(err)
	}
	claims.Lanyard.Cluster = cluster
	claims.ExpiresAt = min(claims.ExpiresAt, now.Add(longest).Unix())
	expires := time.Unix(claims.ExpiresAt, 0).UTC()
	answer := &tokenv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: identity.Namespace, Name: identity.Name, UID: identity.UID},
		Spec:       request.Spec,
	}
	if dryRun {
		return answer, nil
	}
	token, err := t.Signer.JWT(identity.Spec.SigningAlgorithm, claims, expires)
	if err != nil {
		return nil, unavailable(err)
	}
	audit.AddAuditAnnotation(ctx, AuditID, id)
	t.Metrics.minted(identity)
	answer.Status = tokenv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expires)}
	return answer, nil
}

// identity returns the identity that a request is for, if the identity can have a token.
func (t *tokens) identity(ctx context.Context, name string, request *tokenv1.TokenRequest) (*identityv1.WorkloadIdentity, error) {
	resource := kinds.WorkloadIdentity().GroupResource()
	identity, err := t.Identities.Get(ctx, genericrequest.NamespaceValue(ctx), name, request.UID)
	switch {
	case apierrors.IsNotFound(err):
		return nil, apierrors.NewNotFound(resource, name)
	case err != nil:
		return nil, unavailable(err)
	case identity.DeletionTimestamp != nil:
		return nil, apierrors.NewConflict(resource, name, errors.New("the WorkloadIdentity is being deleted"))
	case request.UID != "" && request.UID != identity.UID:
		return nil, apierrors.NewConflict(resource, name,
			errors.New("the WorkloadIdentity has another UID than metadata.uid: it was deleted and created again"))
	}
	return identity, nil
}

// context checks the object that a caller uses a token for. It returns nil if object is nil.
func (t *tokens) context(
	ctx context.Context, caller user.Info, identity *identityv1.WorkloadIdentity, object *tokenv1.ContextObject,
) (*issuer.Context, error) {
	if object == nil {
		return nil, nil // no object is no error
	}
	if wrong := validateContext(object); len(wrong) > 0 {
		return nil, invalid(tokenv1.TokenRequestKind, identity.Name, wrong)
	}
	return t.Contexts.Resolve(ctx, caller, identity, object)
}

// checkNames refuses a request if its metadata and its URL name different objects.
func checkNames(ctx context.Context, name string, request metav1.Object) error {
	switch {
	case request.GetName() != "" && request.GetName() != name:
		return apierrors.NewBadRequest("metadata.name is not the name in the URL")
	case request.GetNamespace() != "" && request.GetNamespace() != genericrequest.NamespaceValue(ctx):
		return apierrors.NewBadRequest("metadata.namespace is not the namespace in the URL")
	}
	return nil
}

// invalid is the answer to a request that has wrong fields.
func invalid(kind, name string, wrong field.ErrorList) error {
	return apierrors.NewInvalid(tokenv1.GroupVersion().WithKind(kind).GroupKind(), name, wrong)
}

// unavailable is the answer while no token can be made, for a temporary reason. The caller does not
// get the reason: the log and the readiness check have it.
func unavailable(cause error) error {
	status := apierrors.NewServiceUnavailable("the token server cannot make tokens now; try again")
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 5}
	return &refusal{StatusError: status, cause: cause}
}

// parent is a resource without verbs. Only its subresource is served, but an API group cannot have
// a subresource without its parent. In OpenAPI, the names of the subresource's operations contain
// the parent's kind.
type parent struct{ kind string }

var (
	_ rest.Storage                  = parent{}
	_ rest.Scoper                   = parent{}
	_ rest.SingularNameProvider     = parent{}
	_ rest.GroupVersionKindProvider = parent{}
)

// New implements [rest.Storage].
func (parent) New() runtime.Object { return &metav1.PartialObjectMetadata{} }

// GroupVersionKind implements [rest.GroupVersionKindProvider].
func (p parent) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return tokenv1.GroupVersion().WithKind(p.kind)
}

// Destroy implements [rest.Storage].
func (parent) Destroy() {}

// NamespaceScoped implements [rest.Scoper].
func (parent) NamespaceScoped() bool { return true }

// GetSingularName implements [rest.SingularNameProvider].
func (p parent) GetSingularName() string { return strings.ToLower(p.kind) }
