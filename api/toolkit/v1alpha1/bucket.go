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
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || self.provider == 'generic'",message="secretRef works only with provider generic: a cloud provider uses short-lived credentials; remove secretRef, or set provider: generic",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || !has(self.serviceAccountName)",message="secretRef and serviceAccountName exclude each other: name one source of credentials",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.insecure) || !self.insecure || self.provider == 'generic'",message="insecure works only with provider generic: a short-lived credential is never sent over an unprotected connection; remove insecure",fieldPath=".insecure"
// +kubebuilder:validation:XValidation:rule="!has(self.insecure) || !self.insecure || !has(self.sts)",message="insecure and sts exclude each other: a short-lived credential is never sent over an unprotected connection; remove insecure",fieldPath=".insecure"
// +kubebuilder:validation:XValidation:rule="!has(self.sts) || self.provider == 'generic' || self.provider == 'aws'",message="sts works only with the providers generic and aws; remove sts",fieldPath=".sts"
// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccountName) || self.provider != 'generic' || has(self.sts)",message="serviceAccountName with provider generic needs sts: set sts.endpoint to the service that exchanges the account's token, or set provider to the bucket's cloud",fieldPath=".serviceAccountName"
// +kubebuilder:validation:XValidation:rule="!has(self.sts) || self.provider != 'generic' || has(self.serviceAccountName) || has(self.workloadIdentityName)",message="sts with provider generic needs serviceAccountName or workloadIdentityName: name the identity whose token is exchanged, or remove sts",fieldPath=".sts"
// +kubebuilder:validation:XValidation:rule="!has(self.workloadIdentityName) || !has(self.serviceAccountName)",message="workloadIdentityName and serviceAccountName exclude each other: name one identity",fieldPath=".workloadIdentityName"
// +kubebuilder:validation:XValidation:rule="!has(self.workloadIdentityName) || !has(self.secretRef)",message="workloadIdentityName and secretRef exclude each other: name one source of credentials",fieldPath=".workloadIdentityName"
// +kubebuilder:validation:XValidation:rule="!has(self.workloadIdentityName) || self.provider != 'generic' || has(self.sts)",message="workloadIdentityName does not work with provider generic without sts: set provider to the identity's targetSystem.type, or set sts",fieldPath=".workloadIdentityName"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || self.provider == 'aws'",message="identityRef works only with provider aws: it names an AWS identity; remove identityRef, or set provider: aws",fieldPath=".identityRef"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.serviceAccountName) && !has(self.workloadIdentityName)",message="identityRef excludes serviceAccountName and workloadIdentityName: name one identity",fieldPath=".identityRef"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || self.identityRef.kind == 'AWSServiceAccountIdentity' || !has(self.certSecretRef) && !has(self.proxySecretRef)",message="an identity of an administrator is not used over a connection that the object chooses: remove certSecretRef and proxySecretRef, or name an AWSServiceAccountIdentity",fieldPath=".identityRef"
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

	// endpoint is the host that serves the bucket, as "<host>" or "<host>:<port>", without scheme
	// and path. With provider generic, it is any service that speaks the protocol of Amazon S3,
	// such as "minio.example.com:9000". With azure, it is the storage account's host, such as
	// "myaccount.blob.core.windows.net"; "https://" may stand before it. With a cloud provider, the
	// host must belong to that cloud. With aws, it may also be a host that the controller's
	// administrator has listed. Required with generic and azure. Default: with aws the region's own
	// host, with gcp "storage.googleapis.com".
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=268
	// +kubebuilder:validation:XValidation:rule="self.matches('^(https://)?([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|[[][0-9A-Fa-f:]+[]])(:[0-9]{1,5})?/?$') && (self.startsWith('https://') || !self.endsWith('/'))",message="endpoint must be <host> or <host>:<port>, without path, user and query, such as minio.example.com:9000"
	Endpoint string `json:"endpoint,omitempty"`

	// region is the region of the bucket, such as "eu-west-1". Default with aws: the region in the
	// host of endpoint, or without endpoint the controller's own region (AWS_REGION). Default for
	// other services than Amazon's: "us-east-1", which these services expect. With gcp, it changes
	// nothing, because Google Cloud Storage finds a bucket by its name. It is not allowed with
	// azure.
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

	// ignore is a list of patterns, one per line, in the format of .gitignore. Objects that
	// match, such as "*.md", are not fetched, and their keys need not be valid names of files.
	// Default: no patterns.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Ignore *string `json:"ignore,omitempty"`

	// provider names the service of the bucket and the source of credentials. "generic": any
	// service that speaks the protocol of Amazon S3. Credentials are the keys of secretRef, a
	// session that sts issues to serviceAccountName, or none. "aws" (Amazon S3), "azure" (Azure
	// Blob Storage) and "gcp" (Google Cloud Storage): the cloud issues a short-lived credential
	// to the ServiceAccount that serviceAccountName names; nothing is stored. A controller that
	// does not support a provider sets the condition Stalled. Default: "generic".
	//
	// +optional
	// +kubebuilder:validation:Enum=generic;aws;azure;gcp
	// +kubebuilder:default=generic
	Provider string `json:"provider,omitempty"`

	// sts names the service that exchanges the token of serviceAccountName for a session. It is
	// required when provider generic has a serviceAccountName. With aws, it replaces the region's
	// own AWS STS. Default: none.
	//
	// +optional
	STS *BucketSTS `json:"sts,omitempty"`

	// serviceAccountName names a ServiceAccount in this object's namespace, such as
	// "tenant-a-s3-sa". It is a lower-case DNS-1123 subdomain. With a cloud provider, the
	// controller reads the bucket as a cloud identity, which the account's annotations select.
	// For aws, "eks.amazonaws.com/role-arn" names the role. For azure,
	// "azure.workload.identity/client-id" names the application.
	// "azure.workload.identity/tenant-id" names its tenant, if that is not the controller's
	// tenant. For gcp, "iam.gke.io/gcp-service-account" names the service account. Without this
	// annotation, the account itself is the principal. In a cluster outside GKE,
	// "gcp.lanyard.dev/workload-identity-provider" names the provider that trusts the cluster.
	// With provider generic, the account's token is exchanged at sts.endpoint, so sts must be
	// set, and "eks.amazonaws.com/role-arn" names the role there. Default: none. Without an
	// account, a cloud provider is refused, unless the controller's administrator has set a
	// default account or lends the controller's own identity to this namespace.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="serviceAccountName must be a lower-case DNS-1123 subdomain, such as tenant-a-s3-sa; it names an account in this object's namespace"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// workloadIdentityName names a WorkloadIdentity in this object's namespace, such as
	// "tenant-a-puller". It is a lower-case DNS-1123 subdomain. The object then proves itself with a
	// token of Lanyard's own issuer instead of a ServiceAccount's. The provider must be the
	// identity's targetSystem.type, and the identity's audiences must contain the audience that the
	// provider expects. It excludes serviceAccountName and secretRef. Default: none.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="workloadIdentityName must be a lower-case DNS-1123 subdomain, such as tenant-a-puller; it names a WorkloadIdentity in this object's namespace"
	WorkloadIdentityName string `json:"workloadIdentityName,omitempty"`

	// identityRef names an AWS identity with which the controller reads the bucket, in place of
	// serviceAccountName. An AWSServiceAccountIdentity is one of this object's namespace. The other
	// kinds belong to administrators, who lend them to namespaces with spec.allowedNamespaces, and
	// are not used over a connection of certSecretRef and proxySecretRef. It is allowed only with
	// provider aws. It excludes serviceAccountName and workloadIdentityName. Default: none.
	//
	// +optional
	IdentityRef *meta.AWSIdentityReference `json:"identityRef,omitempty"`

	// secretRef names a Secret in this object's namespace with the keys of a user of the service:
	// "accesskey" and "secretkey". It is allowed only with provider generic, and not together
	// with serviceAccountName.
	//
	// +optional
	SecretRef *meta.LocalReference `json:"secretRef,omitempty"`

	// certSecretRef names a Secret in this object's namespace with TLS material for the endpoint.
	// "ca.crt" is a PEM bundle of the authorities that alone may sign the endpoint's certificate.
	// "tls.crt" and "tls.key" are a client certificate and its key. Flux's older keys
	// "caFile", "certFile" and "keyFile" work too. The Secret applies only to the endpoint, never
	// to the exchange of a credential. It is not allowed with the controller's own identity.
	//
	// +optional
	CertSecretRef *meta.LocalReference `json:"certSecretRef,omitempty"`

	// proxySecretRef names a Secret in this object's namespace with the proxy for the endpoint.
	// "address" is the proxy's URL without user and password, such as
	// "http://proxy.example.com:3128". "username" and "password" are optional keys. The exchange
	// of the ServiceAccount's token uses the proxy too. It is not allowed with the controller's
	// own identity.
	//
	// +optional
	ProxySecretRef *meta.LocalReference `json:"proxySecretRef,omitempty"`

	// insecure allows plain HTTP to the endpoint. It is allowed only with provider generic and
	// without sts, because a short-lived credential is never sent over an unprotected connection.
	// Default: false.
	//
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// interval is the time between two checks of the bucket, as a Go duration with the units h,
	// m, s and ms, such as "5m" or "1h30m". From 1s to 8760h. Required.
	//
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="interval must be a duration from 1s to 8760h, such as 5m"
	Interval metav1.Duration `json:"interval"`

	// timeout limits the time of one reconciliation's calls to the endpoint, including the
	// exchange of the credential. It is a Go duration with the units m, s and ms, such as "90s".
	// From 1s to 30m. Default: 60s.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('30m')",message="timeout must be a duration from 1s to 30m, such as 60s"
	// +kubebuilder:default="60s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// externalArtifact also publishes the artifact to Flux, as an ExternalArtifact
	// (source.toolkit.fluxcd.io/v1) with the name and namespace of this object. Flux's
	// Kustomizations and HelmReleases can use the ExternalArtifact as their source. If an
	// ExternalArtifact of this name exists that was not made for this object, the controller does
	// not change it, and this object is not Ready. When the field is set to false again, the
	// controller deletes the ExternalArtifact. The field needs Flux 2.7 or newer, and the value
	// flux.externalArtifacts of Lanyard's chart. Default: false.
	//
	// +optional
	ExternalArtifact bool `json:"externalArtifact,omitempty"`

	// suspend stops reconciliation while it is true. The last artifact is still served. Default:
	// false.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// BucketSTS names a security token service.
type BucketSTS struct {
	// provider names the protocol of the service. "aws": AssumeRoleWithWebIdentity of AWS STS;
	// MinIO and others speak this protocol too. Required.
	//
	// +required
	// +kubebuilder:validation:Enum=aws
	Provider string `json:"provider"`

	// endpoint is the URL of the service, as "https://<host>" or "https://<host>:<port>", such as
	// "https://minio.example.com:9000". The ServiceAccount's token is sent to this host. So the
	// host must belong to AWS STS, or the controller's administrator must have listed it. A listed
	// host accepts the token's audience "<host>", or "<host>:<port>" if the port is not 443.
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
	meta.FetchStatus `json:",inline"`

	// artifact is the last artifact that was fetched. It stays in the status and is served while
	// later attempts fail. The condition ArtifactInStorage is absent if the store has lost the
	// artifact and the controller could not fetch it again.
	//
	// +optional
	Artifact *Artifact `json:"artifact,omitempty"`
}

// BucketList is a list of Bucket objects.
//
// +kubebuilder:object:root=true
type BucketList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []Bucket `json:"items"`
}
