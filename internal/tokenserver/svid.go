package tokenserver

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// AuditSerial is the audit annotation with the serial number of the certificate that a request got.
// AuditSPIFFEID is the audit annotation with the SPIFFE ID of the SVID.
const (
	AuditSerial   = "token.lanyard.dev/serial"
	AuditSPIFFEID = "token.lanyard.dev/spiffe-id"
)

// SVIDSigner signs SVIDs.
type SVIDSigner interface {
	// JWT returns a token with the claims. The claim exp must equal expires.
	JWT(algorithm identityv1.Algorithm, claims any, expires time.Time) (string, error)
	// Certificate returns a certificate for the SPIFFE ID and the public key.
	Certificate(id spiffeid.ID, public *ecdsa.PublicKey) (svid.Certificate, error)
}

// SVIDs is an issuer of SVIDs for objects.
type SVIDs struct {
	// TrustDomain is the trust domain of all SPIFFE IDs. Required.
	TrustDomain spiffeid.TrustDomain
	// Issuer is the claim iss of JWT-SVIDs; empty if only certificates are issued.
	Issuer string
	// Algorithm is how JWT-SVIDs are signed.
	Algorithm identityv1.Algorithm
	// APIAudiences are the audiences that the cluster's API server accepts. No SVID may have one of
	// them.
	APIAudiences []string
	// Objects reads objects from the API server, never from memory. Required.
	Objects dynamic.Interface
	// Signer signs with the keys of the ring. Required.
	Signer SVIDSigner
}

// svids creates the SVIDs of the objects of one kind.
type svids struct {
	*SVIDs

	kind    kinds.Kind
	metrics *Metrics
}

func (s *svids) create(ctx context.Context, name string, request *tokenv1.SVIDRequest, dryRun bool) (*tokenv1.SVIDRequest, error) {
	public, wrong := validateSVID(&request.Spec)
	if len(wrong) > 0 {
		return nil, invalid(tokenv1.SVIDRequestKind, name, wrong)
	}
	object, err := s.object(ctx, name, request)
	if err != nil {
		return nil, err
	}
	audiences, wrong := s.judge(ctx, object, &request.Spec)
	if len(wrong) > 0 {
		return nil, invalid(tokenv1.SVIDRequestKind, name, wrong)
	}
	id, err := svid.ID(s.TrustDomain, s.kind.Plural, object.GetNamespace(), object.GetName())
	if err != nil {
		return nil, invalid(tokenv1.SVIDRequestKind, name,
			field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), name, err.Error())})
	}
	answer := &tokenv1.SVIDRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()},
		Spec:       request.Spec,
		Status:     tokenv1.SVIDRequestStatus{SPIFFEID: id.String()},
	}
	if dryRun {
		return answer, nil
	}
	if public != nil {
		err = s.certificate(ctx, id, public, &answer.Status)
	} else {
		err = s.token(ctx, id, audiences, &answer.Status)
	}
	if err != nil {
		return nil, err
	}
	audit.AddAuditAnnotation(ctx, AuditSPIFFEID, id.String())
	s.metrics.mintedSVID(request.Spec.Type, s.kind.Plural)
	return answer, nil
}

// token puts a JWT-SVID into the answer.
func (s *svids) token(ctx context.Context, id spiffeid.ID, audiences []string, into *tokenv1.SVIDRequestStatus) error {
	jti := uuid.NewString()
	claims, err := svid.NewClaims(s.Issuer, id, audiences, jti, time.Now())
	if err != nil {
		return apierrors.NewBadRequest(err.Error()) // should not occur: the audiences are checked
	}
	expires := time.Unix(claims.ExpiresAt, 0).UTC()
	token, err := s.Signer.JWT(s.Algorithm, claims, expires)
	if err != nil {
		return unavailable(err)
	}
	audit.AddAuditAnnotation(ctx, AuditID, jti)
	into.Token, into.ExpirationTimestamp = token, metav1.NewTime(expires)
	return nil
}

// certificate puts an X.509-SVID into the answer.
func (s *svids) certificate(ctx context.Context, id spiffeid.ID, public *ecdsa.PublicKey, into *tokenv1.SVIDRequestStatus) error {
	certificate, err := s.Signer.Certificate(id, public)
	if err != nil {
		return unavailable(err)
	}
	audit.AddAuditAnnotation(ctx, AuditSerial, certificate.Serial)
	into.CertificateChain, into.ExpirationTimestamp = certificate.Chain(), metav1.NewTime(certificate.NotAfter)
	return nil
}

// object reads from the API server the object that a request is for. It returns an error if the
// object cannot have an SVID.
func (s *svids) object(ctx context.Context, name string, request *tokenv1.SVIDRequest) (*unstructured.Unstructured, error) {
	namespace := genericrequest.NamespaceValue(ctx)
	object, err := s.Objects.Resource(s.kind.GroupVersion().WithResource(s.kind.Plural)).
		Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	resource := s.kind.GroupResource()
	switch {
	case apierrors.IsNotFound(err):
		return nil, apierrors.NewNotFound(resource, name)
	case err != nil:
		return nil, unavailable(fmt.Errorf("read %s %s/%s: %w", resource, namespace, name, err))
	case object.GetDeletionTimestamp() != nil:
		return nil, apierrors.NewConflict(resource, name, errors.New("the object is being deleted"))
	case request.Spec.UID != object.GetUID():
		return nil, apierrors.NewConflict(resource, name,
			errors.New("the object has another UID than spec.uid: it was deleted and created again"))
	case request.UID != "" && request.UID != object.GetUID():
		return nil, apierrors.NewConflict(resource, name,
			errors.New("the object has another UID than metadata.uid: it was deleted and created again"))
	}
	return object, nil
}

// judge checks a request against the object's spec, which decides what type of SVID the object may
// have. Controllers apply the same rules. judge returns the SVID's audiences. These are the
// request's audiences or, if the request has none, the object's.
func (s *svids) judge(
	ctx context.Context, object *unstructured.Unstructured, request *tokenv1.SVIDRequestSpec,
) ([]string, field.ErrorList) {
	at := field.NewPath("spec")
	named, err := s.fields(object)
	if err != nil {
		return nil, field.ErrorList{field.Forbidden(at, "the object's spec cannot be read")}
	}
	identity, err := spec.Resolve(ctx, named, spec.Rules{TokenServer: true})
	switch {
	case err != nil:
		return nil, field.ErrorList{field.Forbidden(at.Child("type"), "the object gets no credential: "+err.Error())}
	case identity.Source != spec.Proof || string(identity.Credential) != string(request.Type):
		return nil, field.ErrorList{
			field.Forbidden(at.Child("type"), fmt.Sprintf("the object's spec.credential.type is %q", identity.Credential)),
		}
	case identity.Credential == spec.SpiffeCertificate:
		return nil, nil
	case s.Issuer == "":
		return nil, field.ErrorList{
			field.Forbidden(at.Child("type"), "JWT-SVIDs need an issuer: set --spiffe-issuer (spiffe.issuer of the Helm chart)"),
		}
	}
	audiences := identity.Audiences.Values()
	var wrong field.ErrorList
	for i, audience := range request.Audiences {
		if !slices.Contains(audiences, audience) {
			wrong = append(wrong, field.Forbidden(at.Child("audiences").Index(i), "the object does not have this audience"))
		}
	}
	if len(request.Audiences) > 0 {
		audiences = request.Audiences
	}
	for _, audience := range audiences {
		// The object's tenant decides where the SVID is sent, so no SVID may be for the API server.
		if slices.Contains(s.APIAudiences, audience) {
			wrong = append(wrong, field.Forbidden(at.Child("audiences"),
				fmt.Sprintf("the cluster's API server accepts %.80q, and no SVID may open the cluster", audience)))
		}
	}
	if err := svid.CheckAudiences(audiences); err != nil {
		wrong = append(wrong, field.Invalid(at.Child("audiences"), "", err.Error()))
	}
	return audiences, wrong
}

// fields returns the identity fields of an object. It fails if a field of the spec does not have
// the type that the schema requires.
func (s *svids) fields(object *unstructured.Unstructured) (spec.Fields, error) {
	typed := s.kind.New()
	read := map[string]any{"spec": object.Object["spec"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(read, typed); err != nil {
		return spec.Fields{}, err
	}
	typed.SetNamespace(object.GetNamespace())
	typed.SetName(object.GetName())
	return s.kind.Fields(typed), nil
}

// validateSVID checks the form of a request. It returns the public key for a certificate, or nil if
// the request is for a token.
func validateSVID(request *tokenv1.SVIDRequestSpec) (*ecdsa.PublicKey, field.ErrorList) {
	at := field.NewPath("spec")
	var wrong field.ErrorList
	if request.UID == "" {
		wrong = append(wrong, field.Required(at.Child("uid"), "names the object that the SVID is for"))
	}
	switch request.Type {
	case tokenv1.SpiffeJWT:
		if len(request.PublicKey) > 0 {
			wrong = append(wrong, field.Forbidden(at.Child("publicKey"), "a token has no key of its own"))
		}
		if len(request.Audiences) > 0 {
			if err := svid.CheckAudiences(request.Audiences); err != nil {
				wrong = append(wrong, field.Invalid(at.Child("audiences"), "", err.Error()))
			}
		}
		return nil, wrong
	case tokenv1.SpiffeCertificate:
		if len(request.Audiences) > 0 {
			wrong = append(wrong, field.Forbidden(at.Child("audiences"), "a certificate has no audience"))
		}
		public, err := svid.ParsePublicKey(request.PublicKey)
		if err != nil {
			wrong = append(wrong, field.Invalid(at.Child("publicKey"), "", err.Error()))
		}
		return public, wrong
	case "":
		return nil, append(wrong, field.Required(at.Child("type"), "says which form the SVID has"))
	}
	forms := []tokenv1.SVIDType{tokenv1.SpiffeJWT, tokenv1.SpiffeCertificate}
	return nil, append(wrong, field.NotSupported(at.Child("type"), request.Type, forms))
}
