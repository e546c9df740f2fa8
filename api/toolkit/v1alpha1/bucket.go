package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// BucketKind is the kind of a Bucket in manifests.
const BucketKind = "Bucket"

// STSProviderAWS exchanges tokens at AWS STS, or at a service that speaks the protocol of AWS
// STS.
const STSProviderAWS = "aws"

// Bucket fetches the objects of a bucket, and offers them to other controllers over HTTP as one
// archive. The credential for the bucket belongs only to the tenant of this object.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=lbkt,categories=lanyard
// +kubebuilder:printcolumn:name="Bucket",type=string,JSONPath=`.spec.bucketName`,description="Bucket that is fetched"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once the artifact that the spec asks for is served"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready, for programs"
// +kubebuilder:printcolumn:name="Identity",type=string,JSONPath=`.status.identity.cloudIdentity`,description="Cloud identity that was used; empty if the cloud knows the subject itself, or if no cloud was asked"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the object was created"
// +kubebuilder:printcolumn:name="Subject",type=string,JSONPath=`.status.identity.subject`,description="Subject that the credential was issued for",priority=1
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.endpoint`,description="Host that serves the bucket, if the spec names it",priority=1
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.artifact.revision`,description="Revision that is served",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type Bucket struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what to fetch, how often, and with whose credential.
	//
	// +required
	Spec BucketSpec `json:"spec"`

	// status says what the controller last fetched, with whose credential, and what went wrong.
	// The controller writes the status.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status BucketStatus `json:"status,omitempty"`
}

// BucketSpec says what to fetch, how often, and with whose credential.
//
// +kubebuilder:validation:XValidation:rule="has(self.endpoint) || self.provider == 'aws' || self.provider == 'gcp'",message="endpoint is required with the providers generic and azure: write the host that serves the bucket, such as minio.example.com:9000 or myaccount.blob.core.windows.net",fieldPath=".endpoint"
// +kubebuilder:validation:XValidation:rule="self.provider != 'aws' || self.bucketName.matches('^[a-z0-9][a-z0-9-]*([.][a-z0-9-]+)*$') && size(self.bucketName) <= 63 && !self.bucketName.endsWith('-')",message="bucketName must be a bucket name of Amazon S3: 3 to 63 lower-case letters, digits, dots and hyphens, which begin and end with a letter or digit",fieldPath=".bucketName"
// +kubebuilder:validation:XValidation:rule="self.provider != 'azure' || self.bucketName.matches('^([$]web|[$]root|[a-z0-9]+(-[a-z0-9]+)*)$') && size(self.bucketName) <= 63",message="bucketName must be a container name of Azure Blob Storage: 3 to 63 lower-case letters, digits and single hyphens, which begin and end with a letter or digit",fieldPath=".bucketName"
// +kubebuilder:validation:XValidation:rule="self.provider != 'gcp' || self.bucketName.matches('^[a-z0-9]([a-z0-9_-]*[a-z0-9])?([.][a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$')",message="bucketName must be a bucket name of Google Cloud Storage: 3 to 222 lower-case letters, digits, dots, hyphens and underscores, which begin and end with a letter or digit",fieldPath=".bucketName"
// +kubebuilder:validation:XValidation:rule="!has(self.endpoint) || self.provider == 'azure' || !self.endpoint.contains('://')",message="endpoint must not have a scheme: write only the host, such as s3.eu-west-1.amazonaws.com; the controller uses https unless insecure is set",fieldPath=".endpoint"
// +kubebuilder:validation:XValidation:rule="!has(self.region) || self.provider != 'azure'",message="region does not work with provider azure, which finds a container by the storage account's host; remove region",fieldPath=".region"
// +kubebuilder:validation:XValidation:rule="!has(self.insecure) || !self.insecure || !has(self.sts)",message="insecure and sts exclude each other: a short-lived credential is never sent over an unprotected connection; remove insecure",fieldPath=".insecure"
// +kubebuilder:validation:XValidation:rule="!has(self.sts) || self.provider == 'generic' || self.provider == 'aws'",message="sts works only with the providers generic and aws; remove sts",fieldPath=".sts"
// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccountName) || self.provider != 'generic' || has(self.sts)",message="serviceAccountName with provider generic needs sts: set sts.endpoint to the service that exchanges the account's token, or set provider to the bucket's cloud",fieldPath=".serviceAccountName"
// +kubebuilder:validation:XValidation:rule="!has(self.sts) || self.provider != 'generic' || has(self.serviceAccountName) || has(self.workloadIdentityName)",message="sts with provider generic needs serviceAccountName or workloadIdentityName: name the identity whose token is exchanged, or remove sts",fieldPath=".sts"
// +kubebuilder:validation:XValidation:rule="!has(self.workloadIdentityName) || self.provider != 'generic' || has(self.sts)",message="workloadIdentityName does not work with provider generic without sts: set provider to the identity's targetSystem.type, or set sts",fieldPath=".workloadIdentityName"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.sts)",message="identityRef and sts exclude each other: an AWS identity is used only at AWS STS; remove sts",fieldPath=".identityRef"
type BucketSpec struct {
	// bucketName is the name of the bucket, such as "tenant-a-manifests". Azure calls a bucket a
	// container. The provider's cloud decides which names are valid. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=222
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[$]web|[$]root)$')",message="bucketName must consist of letters, digits, dots, hyphens and underscores, and begin and end with a letter or digit"
	BucketName string `json:"bucketName"`

	// endpoint is the host that serves the bucket, as "<host>" or "<host>:<port>", without a path.
	// Only with azure, "https://" may stand before the host. The provider decides which hosts are
	// allowed:
	//
	//   - generic: any service that speaks the protocol of Amazon S3, such as
	//     "minio.example.com:9000". Required.
	//   - aws: a host of Amazon S3, or a host that the controller's administrator has listed.
	//     Default: the region's own host.
	//   - azure: the storage account's host in the controller's Azure cloud, such as
	//     "myaccount.blob.core.windows.net". Required.
	//   - gcp: a host of Google Cloud Storage in the controller's universe. Default:
	//     "storage.<universe>", such as "storage.googleapis.com".
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=268
	// +kubebuilder:validation:XValidation:rule="self.matches('^(https://)?([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|[[][0-9A-Fa-f:]+[]])(:[0-9]{1,5})?/?$') && (self.startsWith('https://') || !self.endsWith('/'))",message="endpoint must be <host> or <host>:<port>, without path, user and query, such as minio.example.com:9000"
	Endpoint string `json:"endpoint,omitempty"`

	// region is the region of the bucket, such as "eu-west-1". With gcp, it changes nothing,
	// because Google Cloud Storage finds a bucket by its name. It is not allowed with azure.
	//
	// The default depends on provider and endpoint:
	//
	//   - aws without endpoint: the controller's own region (AWS_REGION)
	//   - aws with a host of Amazon S3: the region in the host, or "us-east-1" if it has none
	//   - aws with any other host, and generic: "us-east-1", which services other than Amazon's
	//     expect
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$')",message="region must consist of letters, digits, hyphens and underscores, such as eu-west-1"
	Region string `json:"region,omitempty"`

	// prefix selects the objects whose keys begin with this text, such as "clusters/a/". Objects
	// keep their whole keys as names in the artifact. Default: all objects.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Prefix string `json:"prefix,omitempty"`

	// ignore is a list of patterns, one per line, in the format of .gitignore. Objects that match a
	// pattern, such as "*.md", are not fetched. The key of each fetched object must be a valid name
	// of a file. Default: no patterns.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Ignore *string `json:"ignore,omitempty"`

	Access `json:",inline"`

	// sts names the service that exchanges the token of serviceAccountName or workloadIdentityName
	// for a session. It is required with provider generic if one of these fields is set. With aws,
	// it replaces the region's own AWS STS. Default: none.
	//
	// +optional
	STS *BucketSTS `json:"sts,omitempty"`

	Schedule `json:",inline"`

	Publication `json:",inline"`
}

// BucketSTS names a security token service.
type BucketSTS struct {
	// provider names the protocol of the service. The only value is "aws", which means the
	// operation AssumeRoleWithWebIdentity of AWS STS. MinIO and other services offer it too.
	// Required.
	//
	// +required
	// +kubebuilder:validation:Enum=aws
	Provider string `json:"provider"`

	// endpoint is the URL of the service, as "https://<host>" or "https://<host>:<port>", such as
	// "https://minio.example.com:9000". The controller sends the identity's token to this host. So
	// the host must belong to AWS STS, or the controller's administrator must have listed it. For a
	// listed host, the token has the audience "<host>", or "<host>:<port>" if the port is not 443.
	// Required.
	//
	// +required
	// +kubebuilder:validation:MaxLength=268
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://')",message="sts.endpoint must start with https://: a token is never sent over an unprotected connection"
	// +kubebuilder:validation:XValidation:rule="self.matches('^https://([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|[[][0-9A-Fa-f:]+[]])(:[0-9]{1,5})?/?$') || !self.startsWith('https://')",message="sts.endpoint must be https://<host> or https://<host>:<port>, without path, user and query, such as https://minio.example.com:9000"
	Endpoint string `json:"endpoint"`

	// secretRef is a field of Flux that Lanyard does not have. It is refused.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="sts.secretRef is not supported: sts exchanges the token of serviceAccountName, and a password is not the identity of a workload; remove it"
	SecretRef *Unsupported `json:"secretRef,omitempty"`

	// certSecretRef is a field of Flux that Lanyard does not have. It is refused.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="sts.certSecretRef is not supported: the controller itself must trust the certificate of the STS, because it sends a token there; remove it"
	CertSecretRef *Unsupported `json:"certSecretRef,omitempty"`
}

// BucketStatus says what the controller last fetched, with whose credential, and what went
// wrong.
type BucketStatus struct {
	ArtifactStatus `json:",inline"`
}

// GetStatus returns the part of the status that all kinds have, for reading and writing.
func (o *Bucket) GetStatus() *meta.Status { return &o.Status.Status }

// GetFetchStatus returns the object's [meta.FetchStatus], for reading and writing.
func (o *Bucket) GetFetchStatus() *meta.FetchStatus { return &o.Status.FetchStatus }

// GetSchedule returns the [Schedule] in the object's spec.
func (o *Bucket) GetSchedule() *Schedule { return &o.Spec.Schedule }

// GetAccess returns the [Access] in the object's spec.
func (o *Bucket) GetAccess() *Access { return &o.Spec.Access }

// GetArtifactStatus returns the part of the status that all kinds with artifacts have, for reading
// and writing.
func (o *Bucket) GetArtifactStatus() *ArtifactStatus { return &o.Status.ArtifactStatus }

// GetPublication returns the part of the spec that says whether the artifact is also published to
// Flux.
func (o *Bucket) GetPublication() *Publication { return &o.Spec.Publication }

// BucketList is a list of Bucket objects.
//
// +kubebuilder:object:root=true
type BucketList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []Bucket `json:"items"`
}
