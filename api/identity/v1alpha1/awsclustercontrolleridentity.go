package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// AWSClusterControllerIdentityKind is the kind of an AWSClusterControllerIdentity in manifests.
const AWSClusterControllerIdentityKind = "AWSClusterControllerIdentity"

// AWSClusterControllerIdentity lends the AWS identity of Lanyard's own programs to namespaces. The
// programs get this AWS identity from their environment. spec.allowedNamespaces selects the
// namespaces. A cluster has at most one AWSClusterControllerIdentity, and its name is default.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=awsclustercontrolleridentities,scope=Cluster,shortName=lacci,categories=lanyard
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True while the identity gives credentials"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready, for programs"
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.status.accountID`,description="AWS account of the credentials"
// +kubebuilder:printcolumn:name="Used By",type=integer,JSONPath=`.status.usedBy`,description="Objects that use the identity"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the identity was created"
// +kubebuilder:printcolumn:name="ARN",type=string,JSONPath=`.status.arn`,description="Who the credentials speak as",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="the name must be default: there is only one AWSClusterControllerIdentity"
type AWSClusterControllerIdentity struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which namespaces may use the identity.
	//
	// +optional
	Spec AWSClusterControllerIdentitySpec `json:"spec,omitempty"`

	// status says whether the identity gives credentials. Lanyard's identity controller writes the
	// status.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status AWSIdentityStatus `json:"status,omitempty"`
}

// AWSClusterControllerIdentitySpec says which namespaces may use the identity.
//
// +kubebuilder:pruning:PreserveUnknownFields
type AWSClusterControllerIdentitySpec struct {
	AWSClusterIdentitySpec `json:",inline"`
}

// UnmarshalJSON decodes a spec. A spec with an unknown field admits no namespace.
func (s *AWSClusterControllerIdentitySpec) UnmarshalJSON(data []byte) error {
	type fields AWSClusterControllerIdentitySpec // has no UnmarshalJSON, so there is no recursion
	*s = AWSClusterControllerIdentitySpec{}
	return readLender(data, (*fields)(s), &s.AllowedNamespaces)
}

// GetStatus returns the part of the status that all kinds have, for reading and writing.
func (o *AWSClusterControllerIdentity) GetStatus() *meta.Status { return &o.Status.Status }

// GetIdentityStatus returns the whole status of the identity, for reading and writing.
func (o *AWSClusterControllerIdentity) GetIdentityStatus() *AWSIdentityStatus { return &o.Status }

// AWSClusterControllerIdentityList is a list of AWSClusterControllerIdentity objects.
//
// +kubebuilder:object:root=true
type AWSClusterControllerIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []AWSClusterControllerIdentity `json:"items"`
}
