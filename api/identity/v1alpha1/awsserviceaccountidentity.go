package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// AWSServiceAccountIdentityKind is the kind of an AWSServiceAccountIdentity in manifests.
const AWSServiceAccountIdentityKind = "AWSServiceAccountIdentity"

// AWSServiceAccountIdentity is an IAM role that is assumed with a token of the ServiceAccount of
// the same name and namespace. Only objects in this namespace can name the identity. It is never
// the source of another identity. The role's trust policy must name the subject
// system:serviceaccount:<namespace>:<name>.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=awsserviceaccountidentities,scope=Namespaced,shortName=lasai,categories=lanyard
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.roleARN`,description="Role that is assumed",priority=1
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True while the identity gives credentials"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready, for programs"
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.status.accountID`,description="AWS account of the credentials"
// +kubebuilder:printcolumn:name="Used By",type=integer,JSONPath=`.status.usedBy`,description="Objects that use the identity"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the identity was created"
// +kubebuilder:printcolumn:name="ARN",type=string,JSONPath=`.status.arn`,description="Who the credentials speak as",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type AWSServiceAccountIdentity struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which role is assumed, and how.
	//
	// +required
	Spec AWSServiceAccountIdentitySpec `json:"spec"`

	// status says whether the identity gives credentials. Lanyard's identity controller writes the
	// status.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status AWSIdentityStatus `json:"status,omitempty"`
}

// AWSServiceAccountIdentitySpec says which role is assumed, and how.
//
// +kubebuilder:pruning:PreserveUnknownFields
type AWSServiceAccountIdentitySpec struct {
	AWSRoleSpec `json:",inline"`

	// audiences are the values of the claim aud in the ServiceAccount's token. IAM's identity
	// provider for the cluster must list one of these audiences. At least one, at most 16.
	// Audiences of the cluster's API server itself are refused. Default: ["sts.amazonaws.com"].
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[!-~]+$')",message="an audience must have only printable ASCII characters and no space"
	// +kubebuilder:default={"sts.amazonaws.com"}
	Audiences []string `json:"audiences,omitempty"`

	// expirationSeconds is how long the ServiceAccount's token is valid, from 600 to 86400 seconds.
	// Lanyard exchanges the token at once. Default: 3600.
	//
	// +optional
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:default=3600
	ExpirationSeconds int32 `json:"expirationSeconds,omitempty"`
}

// GetStatus returns the part of the status that all kinds have, for reading and writing.
func (o *AWSServiceAccountIdentity) GetStatus() *meta.Status { return &o.Status.Status }

// GetIdentityStatus returns the whole status of the identity, for reading and writing.
func (o *AWSServiceAccountIdentity) GetIdentityStatus() *AWSIdentityStatus { return &o.Status }

// AWSServiceAccountIdentityList is a list of AWSServiceAccountIdentity objects.
//
// +kubebuilder:object:root=true
type AWSServiceAccountIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []AWSServiceAccountIdentity `json:"items"`
}
