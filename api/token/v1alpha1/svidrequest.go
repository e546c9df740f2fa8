package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SVIDRequestKind is the kind of an SVIDRequest in requests.
const SVIDRequestKind = "SVIDRequest"

// SVIDType is the form of an SVID. The names are those of spec.credential.type of an object.
type SVIDType string

// The forms of SVIDs.
const (
	// SpiffeJWT is a JWT-SVID; source: SPIFFE, JWT-SVID.
	SpiffeJWT SVIDType = "SpiffeJWT"
	// SpiffeCertificate is an X.509-SVID; source: SPIFFE, X509-SVID.
	SpiffeCertificate SVIDType = "SpiffeCertificate"
)

// SVIDRequest asks for one SVID of an object. It is posted to
// /apis/token.lanyard.dev/v1alpha1/namespaces/<namespace>/<resource>/<name>/svid, where the
// resource is the plural name of the object's kind, and the answer has the same object with its
// status. Whoever may `create` <resource>/svid of the object gets an SVID. The token server reads
// the object itself: its spec decides the type and the audiences. Neither the request nor the SVID
// is stored.
//
// +kubebuilder:object:root=true
type SVIDRequest struct {
	metav1.TypeMeta `json:",inline"`

	// metadata may name the object; a name or namespace other than the path's is refused.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what the SVID must be.
	//
	// +required
	Spec SVIDRequestSpec `json:"spec"`

	// status has the SVID. What a request writes here is ignored.
	//
	// +optional
	Status SVIDRequestStatus `json:"status,omitempty"`
}

// SVIDRequestSpec says what an SVID must be.
type SVIDRequestSpec struct {
	// type is SpiffeJWT or SpiffeCertificate, and must be what the object's spec.credential.type
	// is. Required.
	//
	// +required
	Type SVIDType `json:"type"`

	// audiences are the values of the claim aud, for SpiffeJWT only: some of the object's
	// audiences, none twice. Default: all of the object's audiences.
	//
	// +optional
	// +listType=atomic
	Audiences []string `json:"audiences,omitempty"`

	// publicKey is the public half of the certificate's key, for SpiffeCertificate only and there
	// required: DER of a SubjectPublicKeyInfo on the curve P-256; source: RFC 5280 §4.1.2.7. The
	// private half stays with the caller.
	//
	// +optional
	PublicKey []byte `json:"publicKey,omitempty"`

	// uid is the UID of the object, so that an object that was deleted and created again is not
	// taken for the former. Required.
	//
	// +required
	UID types.UID `json:"uid"`
}

// SVIDRequestStatus is the result of an SVIDRequest.
type SVIDRequestStatus struct {
	// token is the JWT-SVID in compact form (RFC 7519), of SpiffeJWT. It is a credential: whoever
	// has it acts as the object until it expires.
	//
	// +optional
	Token string `json:"token,omitempty"`

	// certificateChain is the X.509-SVID of SpiffeCertificate and the intermediates that lead to
	// the authority, as PEM: the SVID first, each certificate signed by the next, the authority
	// itself left out; source: SPIFFE, X509-SVID §5.
	//
	// +optional
	CertificateChain string `json:"certificateChain,omitempty"`

	// expirationTimestamp is when the SVID expires, UTC.
	//
	// +optional
	ExpirationTimestamp metav1.Time `json:"expirationTimestamp,omitempty"`

	// spiffeID is who the SVID is for: spiffe://<trust domain>/<resource>/<namespace>/<name>;
	// source: SPIFFE-ID §2.
	//
	// +optional
	SPIFFEID string `json:"spiffeID,omitempty"`
}
