package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// BucketKind is the kind of a Bucket in manifests.
const BucketKind = "Bucket"

// STSProviderAWS exchanges at AWS STS, or at a service that speaks its protocol.
const STSProviderAWS = "aws"

// Bucket fetches the objects of a bucket, with a credential that belongs to this
// object's tenant and to nobody else, and offers them to other controllers over
// HTTP as one archive.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=lbkt,categories=lanyard
// +kubebuilder:printcolumn:name="Bucket",type=string,JSONPath=`.spec.bucketName`,description="Bucket that is fetched"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once the artifact that the spec asks for is served"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is or is not Ready, for programs"
// +kubebuilder:printcolumn:name="Identity",type=string,JSONPath=`.status.identity.cloudIdentity`,description="Cloud identity that was used; empty where the subject is itself known to the cloud, or no cloud was asked"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the object was created"
// +kubebuilder:printcolumn:name="Subject",type=string,JSONPath=`.status.identity.subject`,description="Whose credential was used",priority=1
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.endpoint`,description="Host that serves the bucket, where it is named",priority=1
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.artifact.revision`,description="Revision that is served",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type Bucket struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what to fetch, how often, and as whom.
	//
	// +required
	Spec BucketSpec `json:"spec"`

	// status says what was fetched last, as whom, and what went wrong. The
	// controller writes it.
	//
	// +optional
	Status BucketStatus `json:"status,omitempty"`
}

// BucketSpec says what to fetch, how often, and as whom.
//
// +kubebuilder:validation:XValidation:rule="has(self.endpoint) || self.provider == 'aws' || self.provider == 'gcp'",message="endpoint is required with the providers generic and azure: write the host that serves the bucket, such as minio.example.com:9000 or myaccount.blob.core.windows.net",fieldPath=".endpoint"
// +kubebuilder:validation:XValidation:rule="self.provider != 'aws' || self.bucketName.matches('^[a-z0-9][a-z0-9-]*([.][a-z0-9-]+)*$') && size(self.bucketName) <= 63 && !self.bucketName.endsWith('-')",message="bucketName must be a name of Amazon S3: 3 to 63 lower-case letters, digits, dots and hyphens that begin and end with a letter or digit",fieldPath=".bucketName"
// +kubebuilder:validation:XValidation:rule="self.provider != 'azure' || self.bucketName.matches('^([$]web|[$]root|[a-z0-9]+(-[a-z0-9]+)*)$') && size(self.bucketName) <= 63",message="bucketName must be a container of Azure Blob Storage: 3 to 63 lower-case letters, digits and single hyphens that begin and end with a letter or digit",fieldPath=".bucketName"
// +kubebuilder:validation:XValidation:rule="self.provider != 'gcp' || self.bucketName.matches('^[a-z0-9]([a-z0-9_-]*[a-z0-9])?([.][a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$')",message="bucketName must be a name of Google Cloud Storage: 3 to 222 lower-case letters, digits, dots, hyphens and underscores that begin and end with a letter or digit",fieldPath=".bucketName"
// +kubebuilder:validation:XValidation:rule="!has(self.region) || self.provider == 'generic' || self.provider == 'aws'",message="region works only with the providers generic and aws: buckets of azure and gcp are found without it; remove region",fieldPath=".region"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || self.provider == 'generic'",message="secretRef works only with provider generic: a cloud provider uses short-lived credentials; remove secretRef, or set provider: generic",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || !has(self.serviceAccountName)",message="secretRef and serviceAccountName exclude each other: name one source of credentials",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.insecure) || !self.insecure || self.provider == 'generic'",message="insecure works only with provider generic: a short-lived credential is never sent over an unprotected connection; remove insecure",fieldPath=".insecure"
// +kubebuilder:validation:XValidation:rule="!has(self.insecure) || !self.insecure || !has(self.sts)",message="insecure and sts exclude each other: a short-lived credential is never sent over an unprotected connection; remove insecure",fieldPath=".insecure"
// +kubebuilder:validation:XValidation:rule="!has(self.sts) || self.provider == 'generic' || self.provider == 'aws'",message="sts works only with the providers generic and aws; remove sts",fieldPath=".sts"
// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccountName) || self.provider != 'generic' || has(self.sts)",message="serviceAccountName with provider generic needs sts: name in sts.endpoint where the account's token is exchanged, or set provider to the bucket's cloud",fieldPath=".serviceAccountName"
// +kubebuilder:validation:XValidation:rule="!has(self.sts) || self.provider != 'generic' || has(self.serviceAccountName)",message="sts with provider generic needs serviceAccountName: name the ServiceAccount whose token is exchanged, or remove sts",fieldPath=".sts"
type BucketSpec struct {
	// bucketName is the bucket, called a container by Azure, such as
	// "tenant-a-manifests". The rules are those of the provider's cloud.
	// Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=222
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[$]web|[$]root)$')",message="bucketName must be letters, digits, dots, hyphens and underscores that begin and end with a letter or digit"
	BucketName string `json:"bucketName"`

	// endpoint is the host that serves the bucket, as "<host>" or
	// "<host>:<port>" without scheme and path. With provider generic any service
	// that speaks the protocol of Amazon S3, such as "minio.example.com:9000".
	// With azure the storage account's host, such as
	// "myaccount.blob.core.windows.net". With a cloud provider the host must be
	// one of that cloud; with aws also one that the controller's administrator
	// has listed. Required with generic and azure. Default: with aws the
	// region's own host, with gcp "storage.googleapis.com".
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=259
	// +kubebuilder:validation:XValidation:rule="!self.contains('://')",message="endpoint must have no scheme: write the host alone, such as s3.eu-west-1.amazonaws.com; it is reached by https unless insecure is set"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|[[][0-9A-Fa-f:]+[]])(:[0-9]{1,5})?$')",message="endpoint must be <host> or <host>:<port>, without path, user and query, such as minio.example.com:9000"
	Endpoint string `json:"endpoint,omitempty"`

	// region of the bucket, such as "eu-west-1". Only with the providers generic
	// and aws. Default: with aws the region in the host of endpoint, or without
	// endpoint the controller's own (AWS_REGION). For services other than
	// Amazon's, "us-east-1", which they expect.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$')",message="region must be letters, digits, hyphens and underscores, such as eu-west-1"
	Region string `json:"region,omitempty"`

	// prefix selects the objects whose keys begin with it, such as "clusters/a/".
	// Objects keep their whole keys as names in the artifact. Default: all
	// objects.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Prefix string `json:"prefix,omitempty"`

	// ignore holds patterns, one per line in the format of .gitignore, of
	// objects that are not fetched, such as "*.md". Files of version control
	// systems are always left out. Default: patterns for CI configuration,
	// pictures and archives, the same as Flux's; set it to "" to fetch those
	// objects.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Ignore *string `json:"ignore,omitempty"`

	// provider says which service has the bucket and where credentials come
	// from. "generic": any service that speaks the protocol of Amazon S3, with
	// the keys of secretRef, with a session that sts issues to
	// serviceAccountName, or with no credentials. "aws" (Amazon S3), "azure"
	// (Azure Blob Storage) and "gcp" (Google Cloud Storage): a short-lived
	// credential that the cloud issues to the ServiceAccount that
	// serviceAccountName names; nothing is stored. A version of the controller
	// that cannot serve a provider says so in the condition Stalled.
	// Default: "generic".
	//
	// +optional
	// +kubebuilder:validation:Enum=generic;aws;azure;gcp
	// +kubebuilder:default=generic
	Provider string `json:"provider,omitempty"`

	// sts is where a token of serviceAccountName is exchanged for a session.
	// Required when provider generic has a serviceAccountName; with aws it
	// replaces the region's own AWS STS. Default: none.
	//
	// +optional
	STS *BucketSTS `json:"sts,omitempty"`

	// serviceAccountName names a ServiceAccount in this object's namespace. With
	// a cloud provider the bucket is read as the cloud identity that this
	// account is mapped to. With provider generic the account's token is
	// exchanged at sts.endpoint, so sts must be set. Annotations of the account
	// say what it is mapped to: for aws and sts "eks.amazonaws.com/role-arn"
	// names the role; for azure "azure.workload.identity/client-id" names the
	// application, and "azure.workload.identity/tenant-id" its tenant where that
	// is not the controller's; for gcp "iam.gke.io/gcp-service-account" names the
	// service account, without which the account itself is the principal, and
	// "gcp.lanyard.dev/workload-identity-provider" the provider that trusts a
	// cluster outside GKE. A lower-case DNS-1123 subdomain, such as
	// "tenant-a-s3-sa". Default: none. A cloud provider is then refused, unless
	// the controller's administrator has set a default account or lends the
	// controller's own identity to this namespace.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="serviceAccountName must be a lower-case DNS-1123 subdomain, such as tenant-a-s3-sa; it names an account in this object's namespace"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// secretRef names a Secret in this object's namespace with the keys of a
	// user of the service: "accesskey" and "secretkey". Only with provider
	// generic, and not together with serviceAccountName.
	//
	// +optional
	SecretRef *meta.LocalReference `json:"secretRef,omitempty"`

	// certSecretRef names a Secret in this object's namespace with TLS material
	// for the endpoint: "ca.crt" is the PEM bundle of authorities that the
	// endpoint's certificate is checked against, "tls.crt" and "tls.key" are a
	// client certificate and its key. It applies to the endpoint only, never to
	// the exchange of a credential. Not with the controller's own identity.
	//
	// +optional
	CertSecretRef *meta.LocalReference `json:"certSecretRef,omitempty"`

	// proxySecretRef names a Secret in this object's namespace that says how the
	// endpoint is reached through a proxy: "address" is the proxy's URL without
	// user and password, such as "http://proxy.example.com:3128"; "username" and
	// "password" are optional keys of their own. The exchange of the
	// ServiceAccount's token goes through it too. Not with the controller's own
	// identity.
	//
	// +optional
	ProxySecretRef *meta.LocalReference `json:"proxySecretRef,omitempty"`

	// insecure allows plain HTTP to the endpoint. Only with provider generic and
	// without sts: a short-lived credential is never sent over an unprotected
	// connection. Default: false.
	//
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// interval between two checks of the bucket, as a Go duration with the units
	// h, m, s and ms, such as "5m" or "1h30m". From 1s to 8760h. Required.
	//
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="interval must be a duration from 1s to 8760h, such as 5m"
	Interval metav1.Duration `json:"interval"`

	// timeout of one reconciliation's calls to the endpoint, the exchange of the
	// credential included, as a Go duration with the units m, s and ms, such as
	// "90s". From 1s to 30m. Default: 60s.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('30m')",message="timeout must be a duration from 1s to 30m, such as 60s"
	// +kubebuilder:default="60s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// externalArtifact also publishes the artifact to Flux, as an
	// ExternalArtifact (source.toolkit.fluxcd.io/v1) of this object's name in
	// its namespace, which Flux's Kustomizations and HelmReleases can name as
	// their source. An ExternalArtifact of that name which was not made for
	// this object is left alone, and this object is not Ready then. Switched
	// off, the ExternalArtifact is deleted. It takes Flux 2.7 or newer, and the
	// value flux.externalArtifacts of Lanyard's chart. Default: false.
	//
	// +optional
	ExternalArtifact bool `json:"externalArtifact,omitempty"`

	// suspend stops reconciliation while it is true; what was fetched last stays
	// served. Default: false.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// BucketSTS is a security token service.
type BucketSTS struct {
	// provider is the protocol of the service. "aws": AssumeRoleWithWebIdentity
	// of AWS STS, which MinIO and others speak too. Required.
	//
	// +required
	// +kubebuilder:validation:Enum=aws
	Provider string `json:"provider"`

	// endpoint is the service's URL, as "https://<host>" or
	// "https://<host>:<port>", such as "https://minio.example.com:9000". The host
	// must be one of AWS STS, or listed by the controller's administrator: the
	// ServiceAccount's token is sent there. Required.
	//
	// +required
	// +kubebuilder:validation:MaxLength=268
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://')",message="sts.endpoint must start with https://: a token is never sent over an unprotected connection"
	// +kubebuilder:validation:XValidation:rule="self.matches('^https://([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|[[][0-9A-Fa-f:]+[]])(:[0-9]{1,5})?/?$') || !self.startsWith('https://')",message="sts.endpoint must be https://<host> or https://<host>:<port>, without path, user and query, such as https://minio.example.com:9000"
	Endpoint string `json:"endpoint"`
}

// BucketStatus says what was fetched last, as whom, and what went wrong.
type BucketStatus struct {
	meta.Status `json:",inline"`

	// artifact is what was fetched last. It stays, and stays served, while later
	// attempts fail. The condition ArtifactInStorage is absent when the store
	// has lost it and it could not be fetched again.
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
