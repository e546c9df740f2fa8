package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// ImageRepositoryKind is the kind of an ImageRepository in manifests.
const ImageRepositoryKind = "ImageRepository"

// DefaultTagExclusion is the expression that is used when ImageRepositorySpec.ExclusionList is
// absent. It matches the tags under which cosign keeps signatures.
const DefaultTagExclusion = `^.*\.sig$`

// ImageRepository lists the tags of a repository in an image registry. The credential for the
// registry belongs only to the tenant of this object. The status has a summary of the tags with
// a revision, which changes when the tags change. The list itself is not kept.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=lir,categories=lanyard
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`,description="Repository that is scanned"
// +kubebuilder:printcolumn:name="Tags",type=integer,JSONPath=`.status.lastScanResult.tagCount`,description="Number of tags that the last scan found"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True after the repository that the spec names was scanned"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready, for programs"
// +kubebuilder:printcolumn:name="Identity",type=string,JSONPath=`.status.identity.cloudIdentity`,description="Cloud identity that was used; empty if the cloud knows the subject itself, or if no cloud was asked"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the object was created"
// +kubebuilder:printcolumn:name="Subject",type=string,JSONPath=`.status.identity.subject`,description="Subject that the credential was issued for",priority=1
// +kubebuilder:printcolumn:name="Changed",type=date,JSONPath=`.status.lastScanResult.scanTime`,description="Time since a scan found different tags than the scan before",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type ImageRepository struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what to scan, how often, and with whose credential.
	//
	// +required
	Spec ImageRepositorySpec `json:"spec"`

	// status says what the controller last found, with whose credential, and what went wrong. The
	// controller writes the status.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ImageRepositoryStatus `json:"status,omitempty"`
}

// ImageRepositorySpec says what to scan, how often, and with whose credential.
//
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || self.provider == 'generic'",message="secretRef works only with provider generic: a cloud provider uses short-lived credentials; remove secretRef, or set provider: generic",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || !has(self.serviceAccountName)",message="secretRef and serviceAccountName exclude each other: name one source of credentials",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.insecure) || !self.insecure || self.provider == 'generic'",message="insecure works only with provider generic: a short-lived credential is never sent over an unprotected connection; remove insecure",fieldPath=".insecure"
// +kubebuilder:validation:XValidation:rule="!has(self.workloadIdentityName) || !has(self.serviceAccountName)",message="workloadIdentityName and serviceAccountName exclude each other: name one identity",fieldPath=".workloadIdentityName"
// +kubebuilder:validation:XValidation:rule="!has(self.workloadIdentityName) || !has(self.secretRef)",message="workloadIdentityName and secretRef exclude each other: name one source of credentials",fieldPath=".workloadIdentityName"
// +kubebuilder:validation:XValidation:rule="!has(self.workloadIdentityName) || self.provider != 'generic' || has(self.credential)",message="workloadIdentityName does not work with provider generic without credential: set provider to the identity's targetSystem.type, or credential.type to WorkloadIdentityToken",fieldPath=".workloadIdentityName"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || self.provider == 'generic'",message="credential works only with provider generic: a cloud provider issues a credential of its own; remove credential, or set provider: generic",fieldPath=".credential"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || !has(self.secretRef)",message="credential and secretRef exclude each other: name one source of credentials",fieldPath=".credential"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || !has(self.insecure) || !self.insecure",message="insecure and credential exclude each other: a short-lived credential is never sent over an unprotected connection; remove insecure",fieldPath=".insecure"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || self.credential.type != 'WorkloadIdentityToken' || has(self.workloadIdentityName)",message="credential.type WorkloadIdentityToken needs workloadIdentityName: name the WorkloadIdentity whose token is used",fieldPath=".credential"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || self.credential.type != 'ServiceAccountToken' || !has(self.workloadIdentityName)",message="credential.type ServiceAccountToken and workloadIdentityName exclude each other: set credential.type to WorkloadIdentityToken, or remove workloadIdentityName",fieldPath=".credential"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || !self.credential.type.startsWith('Spiffe') || !has(self.serviceAccountName) && !has(self.workloadIdentityName)",message="a SPIFFE credential proves the object itself: remove serviceAccountName and workloadIdentityName",fieldPath=".credential"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || self.provider == 'aws'",message="identityRef works only with provider aws: it names an AWS identity; remove identityRef, or set provider: aws",fieldPath=".identityRef"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.serviceAccountName) && !has(self.workloadIdentityName)",message="identityRef excludes serviceAccountName and workloadIdentityName: name one identity",fieldPath=".identityRef"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || self.identityRef.kind == 'AWSServiceAccountIdentity' || !has(self.certSecretRef) && !has(self.proxySecretRef)",message="an identity of an administrator is not used over a connection that the object chooses: remove certSecretRef and proxySecretRef, or name an AWSServiceAccountIdentity",fieldPath=".identityRef"
type ImageRepositorySpec struct {
	// image is the repository whose tags are listed, as "<host>[:<port>]/<repository>", such as
	// "123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app" or "docker.io/library/alpine".
	// It must not contain a scheme, a tag, a digest, a user or a password. The host is always
	// required, for Docker Hub too. With a cloud provider, the host must be a registry of that
	// cloud. Required.
	//
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.contains('://')",message="image must not contain a scheme: begin with the registry's host, such as registry.example.com/team/app"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@')",message="image must not contain a user, a password or a digest: write only the repository, and put credentials into the Secret that spec.secretRef names"
	// +kubebuilder:validation:XValidation:rule="self.contains('://') || !self.matches('^[^/]*/.*:')",message="image must not contain a tag: all tags of the repository are listed; exclude some with spec.exclusionList"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(localhost(:[0-9]{1,5})?|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?:[0-9]{1,5}|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+(:[0-9]{1,5})?|[[][0-9A-Fa-f:]+[]](:[0-9]{1,5})?)(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)+$')",message="image must be <host>[:<port>]/<repository> with a repository in lower case, such as registry.example.com/team/app or docker.io/library/alpine"
	Image string `json:"image"`

	// provider says where credentials come from. "generic": from credential, from secretRef, from
	// the image pull secrets of serviceAccountName, or no credentials. "aws", "azure", "gcp": the
	// cloud issues a short-lived credential to the ServiceAccount that serviceAccountName names;
	// nothing is stored. A controller that does not support a provider sets the condition Stalled.
	// Default: "generic".
	//
	// +optional
	// +kubebuilder:validation:Enum=generic;aws;azure;gcp
	// +kubebuilder:default=generic
	Provider string `json:"provider,omitempty"`

	// serviceAccountName names a ServiceAccount in this object's namespace, such as
	// "tenant-a-ecr-sa". It is a lower-case DNS-1123 subdomain. With a cloud provider, the
	// controller asks the registry as a cloud identity, which the account's annotations select.
	// For aws, "eks.amazonaws.com/role-arn" names the role. For azure,
	// "azure.workload.identity/client-id" names the application.
	// "azure.workload.identity/tenant-id" names its tenant, if that is not the controller's
	// tenant. For gcp, "iam.gke.io/gcp-service-account" names the service account. Without this
	// annotation, the account itself is the principal. In a cluster outside GKE,
	// "gcp.lanyard.dev/workload-identity-provider" names the provider that trusts the cluster.
	// With credential.type ServiceAccountToken, a token of the account is the credential. Otherwise,
	// with provider generic, the controller uses the account's imagePullSecrets: of at most 16, the
	// first that has an entry for the registry. Default: none. Without an account, a cloud provider
	// and a ServiceAccountToken are refused, unless the controller's administrator has set a default
	// account or lends the controller's own identity to this namespace.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="serviceAccountName must be a lower-case DNS-1123 subdomain, such as tenant-a-ecr-sa; it names an account in this object's namespace"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// workloadIdentityName names a WorkloadIdentity in this object's namespace, such as
	// "tenant-a-puller". It is a lower-case DNS-1123 subdomain. The object then proves itself with a
	// token of Lanyard's own issuer instead of a ServiceAccount's. The provider must be the
	// identity's targetSystem.type, and the identity's audiences must contain the audience that the
	// provider expects. With credential.type WorkloadIdentityToken, the token itself is the
	// credential: then the targetSystem.type must not be a cloud, and the identity's audiences must
	// contain credential.audiences. It excludes serviceAccountName and secretRef. Default: none.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="workloadIdentityName must be a lower-case DNS-1123 subdomain, such as tenant-a-puller; it names a WorkloadIdentity in this object's namespace"
	WorkloadIdentityName string `json:"workloadIdentityName,omitempty"`

	// identityRef names an AWS identity with which the controller lists the tags, in place of
	// serviceAccountName. An AWSServiceAccountIdentity is one of this object's namespace. The other
	// kinds belong to administrators, who lend them to namespaces with spec.allowedNamespaces, and
	// are not used over a connection of certSecretRef and proxySecretRef. It is allowed only with
	// provider aws. It excludes serviceAccountName and workloadIdentityName. Default: none.
	//
	// +optional
	IdentityRef *meta.AWSIdentityReference `json:"identityRef,omitempty"`

	// credential has the controller authenticate at the registry with a short-lived token or
	// certificate itself, without a cloud. Such a token or certificate is the proof of an identity
	// that the registry trusts. It works only with provider generic, and not together with
	// secretRef. Default: none.
	//
	// +optional
	Credential *Credential `json:"credential,omitempty"`

	// secretRef names a Secret in this object's namespace with the registry's user and password.
	// Its type is kubernetes.io/dockerconfigjson or the older kubernetes.io/dockercfg. It is
	// allowed only with provider generic, and not together with serviceAccountName.
	//
	// +optional
	SecretRef *meta.LocalReference `json:"secretRef,omitempty"`

	// certSecretRef names a Secret in this object's namespace with TLS material for the registry.
	// "ca.crt" is a PEM bundle of the authorities that alone may sign the registry's certificate.
	// "tls.crt" and "tls.key" are a client certificate and its key. Flux's older keys
	// "caFile", "certFile" and "keyFile" work too. The Secret applies only to the registry, never
	// to the exchange of a credential. With credential.type SpiffeCertificate, only "ca.crt" is used.
	// It is not allowed with the controller's own identity.
	//
	// +optional
	CertSecretRef *meta.LocalReference `json:"certSecretRef,omitempty"`

	// proxySecretRef names a Secret in this object's namespace with the proxy for the registry.
	// "address" is the proxy's URL without user and password, such as
	// "http://proxy.example.com:3128". "username" and "password" are optional keys. With a cloud
	// provider, the exchange of the ServiceAccount's token uses the proxy too. It is not allowed
	// with the controller's own identity.
	//
	// +optional
	ProxySecretRef *meta.LocalReference `json:"proxySecretRef,omitempty"`

	// accessFrom is a field of Flux that Lanyard does not have. It is refused.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="accessFrom is not supported: an ImageRepository is used only in its own namespace; remove it"
	AccessFrom *Unsupported `json:"accessFrom,omitempty"`

	// exclusionList is a list of at most 25 regular expressions in RE2 syntax, each of at most
	// 256 characters. The expressions are not anchored. A tag that matches any of them, such as
	// "^.*-rc[.]?[0-9]*$", is left out. An empty list leaves out no tag. Default: the expression
	// "^.*\.sig$", which leaves out the signatures that cosign keeps as tags.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="''.matches(self) ? true : true",message="exclusionList must contain regular expressions in RE2 syntax"
	// +kubebuilder:default={"^.*\\.sig$"}
	ExclusionList []string `json:"exclusionList,omitzero"`

	// insecure allows plain HTTP to the registry. It is allowed only with provider generic and
	// without credential, because a short-lived credential is never sent over an unprotected
	// connection. Default: false.
	//
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// interval is the time between two scans of the repository, as a Go duration with the units
	// h, m, s and ms, such as "5m" or "1h30m". From 1s to 8760h. Required.
	//
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="interval must be a duration from 1s to 8760h, such as 5m"
	Interval metav1.Duration `json:"interval"`

	// timeout limits the time of one scan, including the exchange of the credential. It is a Go
	// duration with the units m, s and ms, such as "90s". From 1s to 30m. Default: 60s.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('30m')",message="timeout must be a duration from 1s to 30m, such as 60s"
	// +kubebuilder:default="60s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// suspend stops reconciliation while it is true. The last result stays in the status.
	// Default: false.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ImageRepositoryStatus says what the controller last found, with whose credential, and what
// went wrong.
type ImageRepositoryStatus struct {
	meta.FetchStatus `json:",inline"`

	// canonicalImageName is the full name of the repository that was last scanned. The host is in
	// lower case, and names of Docker Hub are complete, such as "index.docker.io/library/alpine"
	// for "docker.io/alpine".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	CanonicalImageName string `json:"canonicalImageName,omitempty"`

	// observedExclusionList is the exclusionList of the last successful scan.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	ObservedExclusionList []string `json:"observedExclusionList,omitempty"`

	// lastScanResult is the result of the last successful scan. It stays while later scans fail.
	// The controller does not write it again while later scans find the same tags.
	//
	// +optional
	LastScanResult *ScanResult `json:"lastScanResult,omitempty"`
}

// ScanResult is a summary of a repository's tags.
type ScanResult struct {
	// tagCount is the number of tags, without the tags that exclusionList leaves out.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	TagCount int `json:"tagCount"`

	// scanTime is the time, in UTC, when a scan first found these tags. Later scans that find the
	// same tags do not change it.
	//
	// +required
	ScanTime metav1.Time `json:"scanTime"`

	// revision is a digest of the names of the counted tags: "sha256:" followed by 64 hexadecimal
	// digits. The names are sorted by bytes in ascending order, and a line feed follows each
	// name. The revision changes when a tag is added or removed. It does not change when a tag
	// moves to another image.
	//
	// +required
	// +kubebuilder:validation:MaxLength=71
	Revision string `json:"revision"`

	// latestTags is a sample of the tags: the first ten in descending order by bytes. The people
	// who push to the repository choose these names.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	LatestTags []string `json:"latestTags,omitempty"`
}

// ImageRepositoryList is a list of ImageRepository objects.
//
// +kubebuilder:object:root=true
type ImageRepositoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []ImageRepository `json:"items"`
}
