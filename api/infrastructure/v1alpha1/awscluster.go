package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// AWSClusterKind is the kind of an AWSCluster in manifests.
const AWSClusterKind = "AWSCluster"

// Condition types that only an AWSCluster has.
const (
	// ConditionPrincipalUsageAllowed is True while the AWSCluster's namespace may use the
	// AWSCluster's identity and each source in the chain of this identity.
	ConditionPrincipalUsageAllowed = "PrincipalUsageAllowed"

	// ConditionPrincipalCredentialRetrieved is True while the identity gives credentials.
	ConditionPrincipalCredentialRetrieved = "PrincipalCredentialRetrieved"

	// ConditionClusterNameUnique is False while another AWSCluster has the same name and account.
	// The AWS cloud provider finds the resources of a cluster by the cluster's name. So it cannot
	// distinguish the resources of these clusters.
	ConditionClusterNameUnique = "ClusterNameUnique"
)

// AWSCluster describes the AWS account and region of a cluster, and the identity that manages the
// cluster there.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=awsclusters,scope=Namespaced,shortName=lac,categories=lanyard
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.spec.region`,description="Region of the cluster"
// +kubebuilder:printcolumn:name="Identity",type=string,JSONPath=`.spec.identityRef.name`,description="Identity that manages the cluster"
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.status.accountID`,description="AWS account of the credentials"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True while the identity gives credentials for the right account"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready, for programs"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the AWSCluster was created"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type AWSCluster struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says where the cluster is, and which identity manages it.
	//
	// +required
	Spec AWSClusterSpec `json:"spec"`

	// status says whether the identity gives credentials. Lanyard's identity controller writes the
	// status.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status AWSClusterStatus `json:"status,omitempty"`
}

// AWSClusterSpec says where the cluster is, and which identity manages it.
type AWSClusterSpec struct {
	// region is the AWS region of the cluster, such as "eu-west-1". Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]{2,4}(-[a-z]+){1,2}-[0-9]{1,2}$')",message="region must be a region of AWS, such as eu-west-1"
	Region string `json:"region"`

	// identityRef names the identity that manages the cluster. It may be changed; the next
	// reconciliation uses the new identity. Default: the AWSClusterControllerIdentity with the name
	// default.
	//
	// +optional
	// +kubebuilder:default={"kind":"AWSClusterControllerIdentity","name":"default"}
	IdentityRef *meta.AWSIdentityReference `json:"identityRef,omitempty"`

	// accountID is the AWS account that the identity's credentials must belong to, twelve digits.
	// If they belong to another account, the AWSCluster is not Ready. Default: any account.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=12
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{12}$')",message="accountID must be twelve digits"
	AccountID string `json:"accountID,omitempty"`
}

// AWSClusterStatus says whether the identity gives credentials.
type AWSClusterStatus struct {
	meta.FetchStatus `json:",inline"`

	// accountID is the AWS account of the credentials, as AWS STS reports it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=12
	AccountID string `json:"accountID,omitempty"`
}

// GetStatus returns the part of the status that all kinds have, for reading and writing.
func (o *AWSCluster) GetStatus() *meta.Status { return &o.Status.Status }

// GetFetchStatus returns the object's [meta.FetchStatus], for reading and writing.
func (o *AWSCluster) GetFetchStatus() *meta.FetchStatus { return &o.Status.FetchStatus }

// AWSClusterList is a list of AWSCluster objects.
//
// +kubebuilder:object:root=true
type AWSClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []AWSCluster `json:"items"`
}
