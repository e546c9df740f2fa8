package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TokenRequestKind is the value of the field kind in a TokenRequest.
const TokenRequestKind = "TokenRequest"

// TokenRequest asks for one token of a WorkloadIdentity. It is posted to
// /apis/token.lanyard.dev/v1alpha1/namespaces/<namespace>/workloadidentities/<name>/token. The
// answer is the same TokenRequest with a status. Whoever may `create` workloadidentities/token of
// the WorkloadIdentity gets a token. Neither the request nor the token is stored.
//
// +kubebuilder:object:root=true
type TokenRequest struct {
	metav1.TypeMeta `json:",inline"`

	// metadata may have the name and the namespace of the WorkloadIdentity. The request is refused
	// if its URL has another name or namespace.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the requested token.
	//
	// +optional
	Spec TokenRequestSpec `json:"spec,omitempty"`

	// status has the token. What a request writes here is ignored.
	//
	// +optional
	Status TokenRequestStatus `json:"status,omitempty"`
}

// TokenRequestSpec describes the requested token.
type TokenRequestSpec struct {
	// audiences are the values of the claim aud: some of the WorkloadIdentity's audiences, without
	// duplicates. Default: all of the WorkloadIdentity's audiences.
	//
	// +optional
	// +listType=atomic
	Audiences []string `json:"audiences,omitempty"`

	// expirationSeconds is how long the token may live, in seconds. It can only shorten the life
	// that the WorkloadIdentity, its target and the issuer allow. A life below the issuer's minimum
	// is refused. Default: the WorkloadIdentity's duration, else the issuer's default.
	//
	// +optional
	ExpirationSeconds *int64 `json:"expirationSeconds,omitempty"`

	// contextObject is the object that the token is used for. The issuer checks that the object
	// exists, that the caller may read it, and that it refers to the WorkloadIdentity, directly or
	// through other objects. The token then has claims about the object. Default: none.
	//
	// +optional
	ContextObject *ContextObject `json:"contextObject,omitempty"`
}

// ContextObject names the object that a token is used for.
type ContextObject struct {
	// apiVersion is the group and version of the object, such as "toolkit.lanyard.dev/v1alpha1".
	// Required.
	//
	// +required
	APIVersion string `json:"apiVersion"`

	// kind is the kind of the object, such as "OCIRepository". Required.
	//
	// +required
	Kind string `json:"kind"`

	// namespace is the namespace of the object. It is absent for a cluster-scoped object. The
	// issuer's configuration decides which namespace an object of this kind must be in. Usually, it
	// is the WorkloadIdentity's namespace.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the object. Required.
	//
	// +required
	Name string `json:"name"`

	// uid is the UID of the object. It distinguishes the object from a deleted object of the same
	// name. Required.
	//
	// +required
	UID types.UID `json:"uid"`
}

// TokenRequestStatus is the result of a TokenRequest.
type TokenRequestStatus struct {
	// token is a signed JWT in compact form (RFC 7519). The token is a credential: whoever has it
	// acts as the WorkloadIdentity until it expires.
	//
	// +optional
	Token string `json:"token,omitempty"`

	// expirationTimestamp is the claim exp of the token, UTC.
	//
	// +optional
	ExpirationTimestamp metav1.Time `json:"expirationTimestamp,omitempty"`
}
