package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// DefaultControllerIdentity is the name of the one AWSClusterControllerIdentity of a cluster.
const DefaultControllerIdentity = "default"

// AWSClusterIdentitySpec is the part of the spec that all cluster-scoped AWS identities have.
type AWSClusterIdentitySpec struct {
	// allowedNamespaces says which namespaces may use this identity. {}: every namespace. Otherwise
	// those in list, and those whose labels match selector. The same rule is asked for each
	// identity of a chain. Default: nobody.
	//
	// +optional
	// +nullable
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`

	// sourceOnly allows this identity only as the source of other identities: no object may name it
	// in spec.identityRef. allowedNamespaces then counts for chains alone. Default: false.
	//
	// +optional
	SourceOnly bool `json:"sourceOnly,omitempty"`
}

// AWSRoleSpec says how a session of an IAM role is got.
//
// +kubebuilder:validation:XValidation:rule="!has(self.policyARNs) || self.policyARNs.all(p, p.split(':')[4] in ['aws', self.roleARN.split(':')[4]])",message="policyARNs must name managed policies of AWS or of the role's account",fieldPath=".policyARNs"
type AWSRoleSpec struct {
	// roleARN is the Amazon Resource Name of the role, such as
	// "arn:aws:iam::123456789123:role/CAPARole". Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=20
	// +kubebuilder:validation:MaxLength=640
	// +kubebuilder:validation:XValidation:rule="self.matches('^arn:(aws|aws-cn|aws-eusc|aws-iso|aws-iso-b|aws-iso-e|aws-iso-f|aws-us-gov):iam::[0-9]{12}:role(/|/[!-~]{0,510}/)[A-Za-z0-9_+=,.@-]{1,64}$')",message="roleARN must be the ARN of a role, arn:aws:iam::<account of twelve digits>:role/<name>"
	RoleARN string `json:"roleARN"`

	// sessionName is the name of the session in the cloud's audit log, RoleSessionName. From 2 to
	// 64 characters: letters, digits and _+=,.@-. Default: made of the identity's name.
	//
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_+=,.@-]+$')",message="sessionName must have only letters, digits and _+=,.@-"
	SessionName string `json:"sessionName,omitempty"`

	// durationSeconds is how long a session lives, from 900 to 43200 seconds. The role's maximum
	// must allow it. A session that is got with another session lives at most an hour, because AWS
	// allows no more. Default: 3600.
	//
	// +optional
	// +kubebuilder:validation:Minimum=900
	// +kubebuilder:validation:Maximum=43200
	DurationSeconds int32 `json:"durationSeconds,omitempty"`

	// inlinePolicy is an IAM policy in JSON that bounds what the session may do, in addition to the
	// role's own permissions. At most 2048 characters. Default: none.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^[\t\n\r -ÿ]+$`
	InlinePolicy string `json:"inlinePolicy,omitempty"`

	// policyARNs are managed policies that bound what the session may do, in addition to the role's
	// own permissions. Each belongs to AWS or to the role's account. At most 10. Default: none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=20
	// +kubebuilder:validation:items:MaxLength=700
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^arn:(aws|aws-cn|aws-eusc|aws-iso|aws-iso-b|aws-iso-e|aws-iso-f|aws-us-gov):iam::([0-9]{12}|aws):policy(/|/[!-~]{0,510}/)[A-Za-z0-9_+=,.@-]{1,128}$')",message="policyARNs must be ARNs of managed policies, arn:aws:iam::<account>:policy/<name>"
	PolicyARNs []string `json:"policyARNs,omitempty"`
}

// AWSIdentityStatus says whether an AWS identity gives credentials, and as whom. The condition
// Ready is True while it does.
type AWSIdentityStatus struct {
	meta.Status `json:",inline"`

	// accountID is the AWS account of the credentials, as AWS STS names it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=12
	AccountID string `json:"accountID,omitempty"`

	// arn is who the credentials speak as, as AWS STS names it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	ARN string `json:"arn,omitempty"`

	// expiresAt is when the credential ends that is in use now, UTC. Its successor is got before.
	//
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// chain lists the identities with which the credential is got, as "<kind>/<name>": this identity
	// first, then its source, and so on.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=320
	Chain []string `json:"chain,omitempty"`

	// usedBy is how many objects use this identity, directly or as a source. An object that is not
	// admitted does not count. While it is not zero, the identity is not deleted.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	UsedBy int32 `json:"usedBy,omitempty"`
}
