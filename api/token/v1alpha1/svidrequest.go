package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SVIDRequestKind is the value of the field kind in an SVIDRequest.
const SVIDRequestKind = "SVIDRequest"

// SVIDType is the form of an SVID. An object's spec.credential.type has these values too.
type SVIDType string

// The forms of SVIDs.
const (
	// SpiffeJWT is a JWT-SVID; source: SPIFFE, JWT-SVID.
	SpiffeJWT SVIDType = "SpiffeJWT"
	// SpiffeCertificate is an X.509-SVID; source: SPIFFE, X509-SVID.
	SpiffeCertificate SVIDType = "SpiffeCertificate"
)

// SVIDRequest asks for one SVID of an object. It is posted to
// /apis/token.lanyard.dev/v1alpha1/namespaces/<namespace>/<resource>/<name>/svid. In this path,
// <resource> is the plural name of the object's kind. The answer is the same SVIDRequest with a
// status. Whoever may `create` <resource>/svid of the object gets an SVID. The token server reads
// the object, and the object's spec decides the type and the audiences. Neither the request nor the
// SVID is stored.
//
// +kubebuilder:object:root=true
type SVIDRequest struct {
	metav1.TypeMeta `json:",inline"`

	// metadata may have the name and the namespace of the object that the SVID identifies. The
	// request is refused if its URL has another name or namespace.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the requested SVID.
	//
	// +required
	Spec SVIDRequestSpec `json:"spec"`

	// status has the SVID. What a request writes here is ignored.
	//
	// +optional
	Status SVIDRequestStatus `json:"status,omitempty"`
}

// SVIDRequestSpec describes the requested SVID.
type SVIDRequestSpec struct {
	// type is SpiffeJWT or SpiffeCertificate. It must be the same as the object's
	// spec.credential.type. Required.
	//
	// +required
	Type SVIDType `json:"type"`

	// audiences are the values of the claim aud, for SpiffeJWT only: some of the object's
	// audiences, without duplicates. Default: all of the object's audiences.
	//
	// +optional
	// +listType=atomic
	Audiences []string `json:"audiences,omitempty"`

	// publicKey is the public half of the certificate's key, as DER of a SubjectPublicKeyInfo on
	// the curve P-256; source: RFC 5280 §4.1.2.7. It is required for SpiffeCertificate, and refused
	// for SpiffeJWT. The private half stays with the caller.
	//
	// +optional
	PublicKey []byte `json:"publicKey,omitempty"`

	// uid is the UID of the object. It distinguishes the object from a deleted object of the same
	// name. Required.
	//
	// +required
	UID types.UID `json:"uid"`
}

// SVIDRequestStatus is the result of an SVIDRequest.
type SVIDRequestStatus struct {
	// token is the JWT-SVID in compact form (RFC 7519), if the type is SpiffeJWT. The token is a
	// credential: whoever has it acts as the object until it expires.
	//
	// +optional
	Token string `json:"token,omitempty"`

	// certificateChain is the X.509-SVID, followed by the intermediates that lead to the authority,
	// as PEM. Each certificate is signed by the next certificate in the chain. The authority itself
	// is left out; source: SPIFFE, X509-SVID §5. The field is absent unless the type is
	// SpiffeCertificate.
	//
	// +optional
	CertificateChain string `json:"certificateChain,omitempty"`

	// expirationTimestamp is when the SVID expires, UTC.
	//
	// +optional
	ExpirationTimestamp metav1.Time `json:"expirationTimestamp,omitempty"`

	// spiffeID is the SPIFFE ID of the object:
	// spiffe://<trust domain>/<resource>/<namespace>/<name>; source: SPIFFE-ID §2.
	//
	// +optional
	SPIFFEID string `json:"spiffeID,omitempty"`
}
