package contextobject

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Resolver checks context objects. It implements Contexts of package tokenserver. It reads every
// object from the API server, without a cache, because a new token must not name a deleted object.
type Resolver struct {
	// Kinds are the kinds that context objects may have.
	Kinds Kinds
	// Reviews asks the API server who may do what.
	Reviews typedauthorizationv1.SubjectAccessReviewInterface
	// Objects reads objects with the token server's rights.
	Objects dynamic.Interface
	// Clusters supplies the value of the CEL variable "cluster". The field id is the ID of this
	// cluster. The field spoke is the name of the spoke cluster whose user requests the token. A
	// field without a value is left out.
	Clusters issuer.Clusters
	// Log gets the causes of refusals that callers must not see.
	Log *slog.Logger
}

// Resolve checks that
//
//   - the caller may get the object;
//   - the object exists with its UID; and
//   - the object uses the identity.
//
// It returns what the token says about the object. Its errors are [*apierrors.StatusError] values.
// Resolve reads the object only after the API server has said that the caller may get it. So the
// response time does not reveal whether somebody else's object exists.
func (r Resolver) Resolve(
	ctx context.Context, caller user.Info, identity *identityv1.WorkloadIdentity, object *tokenv1.ContextObject,
) (*issuer.Context, error) {
	kind, wrong := r.Kinds.find(identity, object)
	if wrong != nil {
		return nil, apierrors.NewInvalid(tokenv1.GroupVersion().WithKind(tokenv1.TokenRequestKind).GroupKind(),
			identity.Name, field.ErrorList{wrong})
	}
	q := question{Resolver: r, kind: kind, identity: identity, object: object}
	found, err := q.read(ctx, caller)
	if err != nil {
		return nil, err
	}
	e, err := q.follow(ctx, caller, found)
	if err != nil {
		return nil, err
	}
	if holds, err := e.holds(ctx, kind.relation); err != nil || !holds {
		return nil, q.refuse("does not use this WorkloadIdentity", err)
	}
	further, err := e.claims(ctx, kind.claims)
	if err != nil {
		return nil, q.refuse("has no valid claims", err)
	}
	return &issuer.Context{
		Object: issuer.Reference{
			APIVersion: object.APIVersion, Kind: object.Kind, Namespace: object.Namespace, Name: object.Name, UID: object.UID,
		},
		Further: further,
	}, nil
}

// find returns the configured kind of an object. It refuses unknown kinds, and objects in a wrong
// namespace.
func (k Kinds) find(identity *identityv1.WorkloadIdentity, object *tokenv1.ContextObject) (*kind, *field.Error) {
	at := field.NewPath("spec", "contextObject")
	gvk := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind)
	kind, known := k[gvk]
	if !known {
		var supported []string
		for gvk := range k {
			supported = append(supported, gvk.String())
		}
		slices.Sort(supported)
		return nil, field.NotSupported(at.Child("kind"), gvk.String(), supported)
	}
	at = at.Child("namespace")
	switch {
	case kind.scope == wholeCluster && object.Namespace != "":
		return nil, field.Forbidden(at, "objects of this kind have no namespace")
	case kind.scope != wholeCluster && object.Namespace == "":
		return nil, field.Required(at, "objects of this kind have a namespace")
	case kind.scope == identityNamespace && object.Namespace != identity.Namespace:
		return nil, field.Invalid(at, object.Namespace, "must be the WorkloadIdentity's namespace, "+identity.Namespace)
	}
	return kind, nil
}

// question is the question whether an identity's tokens may be used for an object.
type question struct {
	Resolver

	kind     *kind
	identity *identityv1.WorkloadIdentity
	object   *tokenv1.ContextObject
}

// read returns the object. It requests the object only if the caller may get it.
func (q *question) read(ctx context.Context, caller user.Info) (*unstructured.Unstructured, error) {
	allowed, err := q.mayGet(ctx, caller)
	if err != nil {
		return nil, q.unavailable(fmt.Errorf("ask whether %s may get the context object: %w", caller.GetName(), err))
	}
	if !allowed {
		return nil, q.unreadable()
	}
	found, err := q.Objects.Resource(q.kind.GroupVersionResource).Namespace(q.object.Namespace).Get(ctx, q.object.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, q.unreadable()
	case err != nil:
		return nil, q.unavailable(readError(q.kind.GroupVersionResource, err))
	case found.GetUID() != q.object.UID:
		return nil, q.unreadable()
	}
	return found, nil
}

func (q *question) mayGet(ctx context.Context, caller user.Info) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range caller.GetExtra() {
		extra[key] = values
	}
	review, err := q.Reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: caller.GetName(), UID: caller.GetUID(), Groups: caller.GetGroups(), Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Group: q.kind.Group, Version: q.kind.Version, Resource: q.kind.Resource,
			Namespace: q.object.Namespace, Name: q.object.Name,
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

// follow reads the objects that the entries of q.kind.via lead to. It returns an evaluation in
// which expressions can use these objects and the context object.
func (q *question) follow(ctx context.Context, caller user.Info, found *unstructured.Unstructured) (*evaluation, error) {
	identity, err := runtime.DefaultUnstructuredConverter.ToUnstructured(q.identity)
	if err != nil {
		return nil, q.unavailable(err)
	}
	spoke, err := q.Clusters.Spoke(caller.GetName())
	if err != nil {
		return nil, q.refuse("cannot be used by this account", err)
	}
	cluster := map[string]any{}
	for name, value := range map[string]string{"id": q.Clusters.ID, "spoke": spoke} {
		if value != "" {
			cluster[name] = value
		}
	}
	e := &evaluation{variables: map[string]any{objectVariable: found.Object, identityVariable: identity, clusterVariable: cluster}}
	for _, via := range q.kind.via {
		namespace, name, err := via.locate(ctx, e, q.object.Namespace)
		if err != nil {
			return nil, q.refuse(fmt.Sprintf("leads to no valid %s", via.kind.Kind), err)
		}
		if name == "" {
			e.set(via.as, nil)
			continue
		}
		next, err := q.Objects.Resource(via.GroupVersionResource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, q.refuse(fmt.Sprintf("leads to a %s that does not exist", via.kind.Kind), nil)
		}
		if err != nil {
			return nil, q.unavailable(readError(via.GroupVersionResource, err))
		}
		e.set(via.as, next.Object)
	}
	return e, nil
}

// locate computes the namespace and name of the object that v leads to. Both are empty if v leads
// to no object. The argument home is the namespace of the context object. A namespaced object must
// be in this namespace, or in one of v.namespaces. A tenant may have chosen the namespace and the
// name, and both become parts of a URL's path. So locate checks them.
func (v *via) locate(ctx context.Context, e *evaluation, home string) (namespace, name string, err error) {
	name, err = e.name(ctx, v.name)
	if err != nil || name == "" {
		return "", "", err
	}
	if wrong := content.IsPathSegmentName(name); len(wrong) > 0 || len(name) > maxName {
		return "", "", fmt.Errorf("expression %q: %.100q is not the name of an object", v.name.text, name)
	}
	if v.namespace == nil {
		return "", name, nil
	}
	namespace, err = e.name(ctx, *v.namespace)
	if err != nil {
		return "", "", err
	}
	if namespace == "" || namespace != home && !slices.Contains(v.namespaces, namespace) {
		return "", "", fmt.Errorf("expression %q: the namespace %.100q is neither the context object's nor in namespaces",
			v.namespace.text, namespace)
	}
	return namespace, name, nil
}

// maxName is the longest name of an object. Source: RFC 1123 subdomain names in apimachinery.
const maxName = validation.DNS1123SubdomainMaxLength

// unreadable returns the answer if the object does not exist, if it has another UID, or if the
// caller may not get it. These cases have the same answer, to hide which objects exist.
func (q *question) unreadable() error {
	return q.answer("does not exist with this UID, or the caller may not get it")
}

// refuse returns the refusal of a token if the caller may read the context object. The refusal
// tells the caller only the reason. The log gets the cause too, if the cause is not nil. If the
// expressions ran out of time, the result asks the caller to try again.
func (q *question) refuse(reason string, cause error) error {
	if errors.Is(cause, errTooSlow) {
		return q.unavailable(fmt.Errorf("%s/%s: %w", q.object.Namespace, q.object.Name, cause))
	}
	if cause != nil {
		q.Log.Warn("a context object is refused", "kind", q.object.Kind,
			"namespace", q.object.Namespace, "name", q.object.Name, "error", cause)
	}
	return q.answer(reason)
}

func (q *question) answer(reason string) *apierrors.StatusError {
	refused := fmt.Errorf("spec.contextObject: the %s %s", q.object.Kind, reason)
	return apierrors.NewForbidden(kinds.WorkloadIdentity().GroupResource(), q.identity.Name, refused)
}

// unavailable returns the answer if an error prevents the check of the object. Only the log gets
// the cause.
func (q *question) unavailable(cause error) error {
	q.Log.Error("a context object cannot be checked", "kind", q.object.Kind, "error", cause)
	answer := apierrors.NewServiceUnavailable("the token server cannot check the context object now; try again")
	answer.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	return answer
}

// retryAfterSeconds is the time after which a caller may try again.
const retryAfterSeconds = 5

// readError returns the error for the log. If the API server forbids the read, the error also says
// which right to grant.
func readError(resource schema.GroupVersionResource, err error) error {
	fix := ""
	if apierrors.IsForbidden(err) {
		fix = "; grant the token server the verb get for " + resource.GroupResource().String()
	}
	return fmt.Errorf("read a %s: %w%s", resource.GroupResource(), err, fix)
}
