package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// AWSClusterRoleIdentityKind is the kind of an AWSClusterRoleIdentity in manifests.
const AWSClusterRoleIdentityKind = "AWSClusterRoleIdentity"

// AWSClusterRoleIdentity is an IAM role that is assumed with another identity. The role may belong
// to any account.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=awsclusterroleidentities,scope=Cluster,shortName=lacri,categories=lanyard
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.roleARN`,description="Role that is assumed",priority=1
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True while the identity gives credentials"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready, for programs"
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.status.accountID`,description="AWS account of the credentials"
// +kubebuilder:printcolumn:name="Used By",type=integer,JSONPath=`.status.usedBy`,description="Objects that use the identity"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the identity was created"
// +kubebuilder:printcolumn:name="ARN",type=string,JSONPath=`.status.arn`,description="Who the credentials speak as",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
// +kubebuilder:validation:XValidation:rule="!(has(self.spec.sourceIdentityRef) && self.spec.sourceIdentityRef.kind == 'AWSClusterRoleIdentity' && self.spec.sourceIdentityRef.name == self.metadata.name)",message="an identity cannot be its own source: name another identity",fieldPath=".spec.sourceIdentityRef.name"
type AWSClusterRoleIdentity struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which role is assumed, how, and for which namespaces.
	//
	// +required
	Spec AWSClusterRoleIdentitySpec `json:"spec"`

	// status says whether the identity gives credentials. Lanyard's identity controller writes the
	// status.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status AWSIdentityStatus `json:"status,omitempty"`
}

// AWSClusterRoleIdentitySpec says which role is assumed, how, and for which namespaces.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!has(self.transitiveTags) || self.transitiveTags.all(t, has(self.tags) && t in self.tags)",message="transitiveTags must be keys of tags",fieldPath=".transitiveTags"
type AWSClusterRoleIdentitySpec struct {
	AWSClusterIdentitySpec `json:",inline"`
	AWSRoleSpec            `json:",inline"`

	// externalID is the external ID (sts:ExternalId) that the role's trust policy may require. The
	// administrator of the role's account chooses this ID, so that others cannot use the role
	// through Lanyard. From 2 to 1224 characters: letters, digits and _+=,.@:/-. Default: none.
	//
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=1224
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_+=,.@:/-]+$')",message="externalID must have only letters, digits and _+=,.@:/-"
	ExternalID string `json:"externalID,omitempty"`

	// tags are the session tags of the role's session. At most 50, with keys of 1 to 128 characters
	// and values of at most 256. Keys must differ even if case is ignored, and must not begin with
	// "aws:". Default: none.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) >= 1 && size(k) <= 128 && !k.matches('^[aA][wW][sS]:') && size(self[k]) <= 256)",message="tags must have keys of 1 to 128 characters that do not begin with aws:, and values of at most 256 characters"
	Tags map[string]string `json:"tags,omitempty"`

	// transitiveTags lists keys from spec.tags. A session that is obtained with the role's session
	// inherits the tags with these keys. Default: none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	TransitiveTags []string `json:"transitiveTags,omitempty"`

	// sourceIdentity is a text in the cloud's audit log (sts:SourceIdentity). The log shows the
	// text for this session and for all sessions that are obtained with it. From 2 to 64
	// characters: letters, digits and _+=,.@-. Default: none.
	//
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_+=,.@-]+$')",message="sourceIdentity must have only letters, digits and _+=,.@-"
	SourceIdentity string `json:"sourceIdentity,omitempty"`

	// sessionPer says which objects share a session. "Identity": all objects that use this
	// identity. "Namespace": all objects of one namespace that use this identity. With "Namespace",
	// the session's name ends in "@" and the namespace, so that the cloud's audit log shows the
	// tenant. Default: "Identity".
	//
	// +optional
	// +kubebuilder:validation:Enum=Identity;Namespace
	// +kubebuilder:default=Identity
	SessionPer string `json:"sessionPer,omitempty"`

	// sourceIdentityRef names the identity whose credentials are used to assume the role. The
	// source's own allowedNamespaces must also admit each namespace that uses this identity.
	// Default: the AWSClusterControllerIdentity with the name default.
	//
	// +optional
	// +kubebuilder:default={"kind":"AWSClusterControllerIdentity","name":"default"}
	SourceIdentityRef *AWSClusterIdentityReference `json:"sourceIdentityRef,omitempty"`
}

// Values of AWSClusterRoleIdentitySpec.SessionPer.
const (
	SessionPerIdentity  = "Identity"
	SessionPerNamespace = "Namespace"
)

// AWSClusterIdentityReference names a cluster-scoped AWS identity.
type AWSClusterIdentityReference struct {
	// kind is the kind of the identity. Required.
	//
	// +required
	// +kubebuilder:validation:Enum=AWSClusterControllerIdentity;AWSClusterStaticIdentity;AWSClusterRoleIdentity
	Kind string `json:"kind"`

	// name is the name of the identity. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be a lower-case DNS-1123 subdomain, such as test-account"
	Name string `json:"name"`
}

// UnmarshalJSON decodes a spec. A spec with an unknown field admits no namespace.
func (s *AWSClusterRoleIdentitySpec) UnmarshalJSON(data []byte) error {
	type fields AWSClusterRoleIdentitySpec // has no UnmarshalJSON, so there is no recursion
	*s = AWSClusterRoleIdentitySpec{}
	return readLender(data, (*fields)(s), &s.AllowedNamespaces)
}

// GetStatus returns the part of the status that all kinds have, for reading and writing.
func (o *AWSClusterRoleIdentity) GetStatus() *meta.Status { return &o.Status.Status }

// GetIdentityStatus returns the whole status of the identity, for reading and writing.
func (o *AWSClusterRoleIdentity) GetIdentityStatus() *AWSIdentityStatus { return &o.Status }

// AWSClusterRoleIdentityList is a list of AWSClusterRoleIdentity objects.
//
// +kubebuilder:object:root=true
type AWSClusterRoleIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []AWSClusterRoleIdentity `json:"items"`
}
