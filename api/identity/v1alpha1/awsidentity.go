package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// DefaultControllerIdentity is the name of the one AWSClusterControllerIdentity of a cluster.
const DefaultControllerIdentity = "default"

// AWSClusterIdentitySpec is the part of the spec that all cluster-scoped AWS identities have.
type AWSClusterIdentitySpec struct {
	// allowedNamespaces says which namespaces may use this identity. {} admits every namespace. Any
	// other value admits the namespaces in list, and the namespaces whose labels match selector. If
	// this identity has a source, each source in its chain must also admit the namespace. Default:
	// no namespace is admitted.
	//
	// +optional
	// +nullable
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`

	// sourceOnly allows this identity only as the source of other identities. No object may name it
	// in spec.identityRef. allowedNamespaces then says for which namespaces this identity may be a
	// source. Default: false.
	//
	// +optional
	SourceOnly bool `json:"sourceOnly,omitempty"`
}

// AWSRoleSpec says how to get a session of an IAM role.
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

	// sessionName is the RoleSessionName: the name of the session in the cloud's audit log. From 2
	// to 64 characters: letters, digits and _+=,.@-. Default: a name made of the identity's name.
	//
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_+=,.@-]+$')",message="sessionName must have only letters, digits and _+=,.@-"
	SessionName string `json:"sessionName,omitempty"`

	// durationSeconds is how long a session lives, from 900 to 43200 seconds. The role's maximum
	// session duration must not be shorter. If the role is assumed with another session, AWS limits
	// the new session to an hour. Default: 3600.
	//
	// +optional
	// +kubebuilder:validation:Minimum=900
	// +kubebuilder:validation:Maximum=43200
	DurationSeconds int32 `json:"durationSeconds,omitempty"`

	// inlinePolicy is an IAM policy in JSON that limits the session further. The session may do
	// only what both this policy and the role's own permissions allow. At most 2048 characters.
	// Default: none.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^[\t\n\r -ÿ]+$`
	InlinePolicy string `json:"inlinePolicy,omitempty"`

	// policyARNs are the ARNs of managed policies that limit the session further. The session may
	// do only what both these policies and the role's own permissions allow. Each policy belongs to
	// AWS or to the role's account. At most 10. Default: none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=20
	// +kubebuilder:validation:items:MaxLength=700
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^arn:(aws|aws-cn|aws-eusc|aws-iso|aws-iso-b|aws-iso-e|aws-iso-f|aws-us-gov):iam::([0-9]{12}|aws):policy(/|/[!-~]{0,510}/)[A-Za-z0-9_+=,.@-]{1,128}$')",message="policyARNs must be ARNs of managed policies, arn:aws:iam::<account>:policy/<name>"
	PolicyARNs []string `json:"policyARNs,omitempty"`
}

// AWSIdentityStatus says whether an AWS identity gives credentials, and for which AWS principal.
// The condition Ready is True while the identity gives credentials.
type AWSIdentityStatus struct {
	meta.Status `json:",inline"`

	// accountID is the AWS account of the credentials, as AWS STS reports it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=12
	AccountID string `json:"accountID,omitempty"`

	// arn is the ARN of the principal that the credentials belong to, as AWS STS reports it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	ARN string `json:"arn,omitempty"`

	// expiresAt is the time, in UTC, when the current credential expires. Lanyard gets the next
	// credential before this time.
	//
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// chain lists the identities that are needed to get the credential, as "<kind>/<name>". The
	// first is this identity. Each further identity is the source of the identity before it.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=320
	Chain []string `json:"chain,omitempty"`

	// usedBy is the number of objects that use this identity, directly or as a source. Objects in
	// namespaces that spec.allowedNamespaces does not admit are not counted. While usedBy is not
	// zero, the identity is not deleted.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	UsedBy int32 `json:"usedBy,omitempty"`
}
