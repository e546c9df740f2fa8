package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// AWSClusterStaticIdentityKind is the kind of an AWSClusterStaticIdentity in manifests.
const AWSClusterStaticIdentityKind = "AWSClusterStaticIdentity"

// SecretTypeAWSStatic is the type of the Secrets that an AWSClusterStaticIdentity reads.
const SecretTypeAWSStatic = "identity.lanyard.dev/aws-static"

// AWSClusterStaticIdentity is an AWS access key in a Secret. Use it only where nothing else works:
// prefer an identity without stored keys.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=awsclusterstaticidentities,scope=Cluster,shortName=lacsi,categories=lanyard
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True while the identity gives credentials"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready, for programs"
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.status.accountID`,description="AWS account of the credentials"
// +kubebuilder:printcolumn:name="Used By",type=integer,JSONPath=`.status.usedBy`,description="Objects that use the identity"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the identity was created"
// +kubebuilder:printcolumn:name="ARN",type=string,JSONPath=`.status.arn`,description="Who the credentials speak as",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type AWSClusterStaticIdentity struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names the Secret and says which namespaces may use the identity.
	//
	// +required
	Spec AWSClusterStaticIdentitySpec `json:"spec"`

	// status says whether the identity gives credentials. Lanyard's identity controller writes the
	// status.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status AWSIdentityStatus `json:"status,omitempty"`
}

// AWSClusterStaticIdentitySpec names the Secret and says which namespaces may use the identity.
//
// +kubebuilder:pruning:PreserveUnknownFields
type AWSClusterStaticIdentitySpec struct {
	AWSClusterIdentitySpec `json:",inline"`

	// secretRef names the Secret with the AWS access key. The Secret's type is
	// identity.lanyard.dev/aws-static. Its data has the keys accessKeyID, secretAccessKey and
	// optionally sessionToken. The spellings AccessKeyID, SecretAccessKey and SessionToken are
	// accepted too. Required.
	//
	// +required
	SecretRef AWSClusterSecretReference `json:"secretRef"`
}

// AWSClusterSecretReference names a Secret in the namespace that is reserved for identities.
type AWSClusterSecretReference struct {
	// name is the name of the Secret. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be a lower-case DNS-1123 subdomain, such as test-account-creds"
	Name string `json:"name"`

	// namespace is the namespace of the Secret. It must be the namespace that the administrator has
	// reserved for identities (identity.secretNamespace of the Helm chart). Secrets of other
	// namespaces are never read. Default: the reserved namespace.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",message="namespace must be the name of a namespace"
	Namespace string `json:"namespace,omitempty"`
}

// UnmarshalJSON decodes a spec. A spec with an unknown field admits no namespace.
func (s *AWSClusterStaticIdentitySpec) UnmarshalJSON(data []byte) error {
	type fields AWSClusterStaticIdentitySpec // has no UnmarshalJSON, so there is no recursion
	*s = AWSClusterStaticIdentitySpec{}
	return readLender(data, (*fields)(s), &s.AllowedNamespaces)
}

// GetStatus returns the part of the status that all kinds have, for reading and writing.
func (o *AWSClusterStaticIdentity) GetStatus() *meta.Status { return &o.Status.Status }

// GetIdentityStatus returns the whole status of the identity, for reading and writing.
func (o *AWSClusterStaticIdentity) GetIdentityStatus() *AWSIdentityStatus { return &o.Status }

// AWSClusterStaticIdentityList is a list of AWSClusterStaticIdentity objects.
//
// +kubebuilder:object:root=true
type AWSClusterStaticIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []AWSClusterStaticIdentity `json:"items"`
}
