package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// WorkloadIdentityKind is the kind of a WorkloadIdentity in manifests.
const WorkloadIdentityKind = "WorkloadIdentity"

// WorkloadIdentity is an identity for which Lanyard's own issuer signs tokens. Services that trust
// the issuer accept the tokens, even if they cannot reach the API server of the cluster. A token is
// made for each request (`create` on workloadidentities/token of the group token.lanyard.dev), and
// is never stored.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=workloadidentities,scope=Namespaced,shortName=lwi,categories=lanyard
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.targetSystem.type`,description="System that the tokens are for"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True while tokens can be requested, and services can check them"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready, for programs"
// +kubebuilder:printcolumn:name="Subject",type=string,JSONPath=`.status.sub`,description="Claim sub of the tokens, which trust policies name"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the identity was created"
// +kubebuilder:printcolumn:name="Issuer",type=string,JSONPath=`.status.issuer`,description="Claim iss of the tokens",priority=1
// +kubebuilder:printcolumn:name="Audiences",type=string,JSONPath=`.spec.audiences`,description="Audiences that tokens may be requested for",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type WorkloadIdentity struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says who accepts the tokens, how long the tokens live, and which identity the holder of
	// a token has at the target.
	//
	// +required
	Spec WorkloadIdentitySpec `json:"spec"`

	// status says which subject the tokens have, and whether tokens can be requested. Lanyard's
	// identity controller writes the status.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status WorkloadIdentityStatus `json:"status,omitempty"`
}

// WorkloadIdentitySpec says who accepts the tokens, how long the tokens live, and which identity
// the holder of a token has at the target.
//
// +kubebuilder:validation:XValidation:rule="self.targetSystem.type != 'azure' || self.signingAlgorithm == 'RS256'",message="signingAlgorithm must be RS256 for targetSystem.type azure: Microsoft Entra accepts no other algorithm",fieldPath=".signingAlgorithm"
// +kubebuilder:validation:XValidation:rule="self.targetSystem.type != 'azure' || !has(self.duration) || duration(self.duration) <= duration('24h')",message="duration must be at most 24h for targetSystem.type azure: Microsoft Entra refuses tokens that live longer",fieldPath=".duration"
// +kubebuilder:validation:XValidation:rule="self.targetSystem.type != 'gcp' || !has(self.duration) || duration(self.duration) < duration('48h')",message="duration must be below 48h for targetSystem.type gcp: Google's STS refuses tokens that live longer",fieldPath=".duration"
type WorkloadIdentitySpec struct {
	// audiences are the values that the claim aud of a token may have, such as "sts.amazonaws.com".
	// At least one, at most 16, each with 1 to 255 printable ASCII characters, without duplicates.
	// A request may ask for some of these audiences; by default a token has all of them. Audiences
	// of the cluster's API server itself are refused. Required.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[!-~]+$')",message="an audience must have only printable ASCII characters and no space"
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a == b))",message="audiences must not repeat a value: remove the duplicate"
	Audiences []string `json:"audiences"`

	// duration is how long a token lives, as a Go duration with the units h, m and s, such as "1h".
	// From 10m to 48h. For the target system azure at most 24h, for gcp below 48h. A request may
	// ask for less and never gets more. The administrator may set narrower limits. Default: the
	// issuer's default, usually 1h.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10m') && duration(self) <= duration('48h')",message="duration must be from 10m to 48h, such as 1h"
	Duration *metav1.Duration `json:"duration,omitempty"`

	// subjectFormat decides the claim sub of the tokens. "UID":
	// "lanyard.dev:workloadidentity:<namespace>:<name>:<uid>". With "UID", an identity that is
	// deleted and created again needs new trust policies. "Name": the same without ":<uid>". With
	// "Name", trust policies survive a restore from a backup, but also accept any later identity of
	// the same name. Immutable. Default: "UID".
	//
	// +optional
	// +kubebuilder:validation:Enum=UID;Name
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="subjectFormat is immutable: trust policies name the subject; create another WorkloadIdentity"
	// +kubebuilder:default=UID
	SubjectFormat string `json:"subjectFormat,omitempty"`

	// signingAlgorithm is the algorithm of the tokens' signatures: "RS256" or "ES256". RFC 7518,
	// section 3.1 defines these names. All clouds accept RS256. ES256 makes shorter tokens. For
	// azure only RS256. Default: "RS256".
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self in ['RS256', 'ES256']",message="signingAlgorithm must be RS256 or ES256"
	// +kubebuilder:default=RS256
	SigningAlgorithm Algorithm `json:"signingAlgorithm,omitempty"`

	// targetSystem is the system that accepts the tokens. Required.
	//
	// +required
	TargetSystem TargetSystem `json:"targetSystem"`
}

// TargetSystem is the system that accepts the tokens of a WorkloadIdentity.
type TargetSystem struct {
	// type names the system: "aws", "azure", "gcp", "alibaba", "vault", "kubernetes", or any other
	// name of lower-case letters, digits and hyphens, at most 63 characters. The providerConfig and
	// the limits of the system are checked only for the six systems named here. Immutable.
	// Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="type must have only lower-case letters, digits and hyphens, such as aws"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="type is immutable: create another WorkloadIdentity for another system"
	Type string `json:"type"`

	// providerConfig says which identity the holder of a token has at the target. Each field is a
	// string.
	//
	// For aws: iamRoleARN, the ARN of a role. Optionally assumeRole, the ARN of a second role,
	// which is assumed with the session of the first role. Optionally region, for clients that read
	// the Secret of a binding. In assumeRole, the ARN may be followed by externalID=<ID>,
	// sessionName=<name> and durationSeconds=<seconds>, with single spaces between them.
	//
	// For azure: clientID and tenantID, and optionally subscriptionID, each a GUID.
	//
	// For gcp: workloadIdentityProvider, and optionally serviceAccountEmail, projectID and
	// impersonate. The value of impersonate is a list of service accounts, separated by commas:
	// first the delegates, and last the account to impersonate.
	//
	// For alibaba: roleARN and oidcProviderARN, of Resource Access Management.
	//
	// For vault: address, an https URL without path; mount, the path of the auth method; and role.
	//
	// For kubernetes: server, the https URL of an API server, and optionally
	// certificateAuthorityData, PEM certificates in base64, at most 64 KiB.
	//
	// apiVersion and kind are allowed and ignored. Other fields of these systems are refused. At
	// most 72 KiB of JSON. Default: none.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	ProviderConfig *runtime.RawExtension `json:"providerConfig,omitempty"`
}

// Names of the target systems whose limits and providerConfig are checked.
const (
	TargetAWS        = "aws"
	TargetAzure      = "azure"
	TargetGCP        = "gcp"
	TargetAlibaba    = "alibaba"
	TargetVault      = "vault"
	TargetKubernetes = "kubernetes"
)

// Values of WorkloadIdentitySpec.SubjectFormat.
const (
	SubjectFormatUID  = "UID"
	SubjectFormatName = "Name"
)

// WorkloadIdentityStatus says which subject the tokens have, and whether tokens can be requested.
// The condition Ready is True while tokens can be requested, and services can check the tokens with
// the published keys.
type WorkloadIdentityStatus struct {
	meta.Status `json:",inline"`

	// sub is the claim sub that tokens of this identity have, for trust policies. The issuer
	// computes the claim for each token and never reads this field.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Sub string `json:"sub,omitempty"`

	// issuer is the claim iss of this identity's tokens, a URL. Services must be able to read the
	// issuer's discovery document.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Issuer string `json:"issuer,omitempty"`

	// keyRing is the metadata.uid of the KeyRing with which services can check this identity's
	// tokens. If the issuer gets a new KeyRing, this field keeps the old UID until services can use
	// the new keys. The old UID shows the token server that services may have cached the old keys.
	// Then even the first keys of the new KeyRing wait for the publish delay before they sign.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KeyRing string `json:"keyRing,omitempty"`
}

// GetStatus returns the part of the status that all kinds have, for reading and writing.
func (o *WorkloadIdentity) GetStatus() *meta.Status { return &o.Status.Status }

// WorkloadIdentityList is a list of WorkloadIdentity objects.
//
// +kubebuilder:object:root=true
type WorkloadIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []WorkloadIdentity `json:"items"`
}
