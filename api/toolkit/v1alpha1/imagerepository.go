package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// ImageRepositoryKind is the kind of an ImageRepository in manifests.
const ImageRepositoryKind = "ImageRepository"

// DefaultTagExclusion is the expression that stands for an absent
// ImageRepositorySpec.ExclusionList: the tags that cosign keeps signatures
// under.
const DefaultTagExclusion = `^.*\.sig$`

// ImageRepository lists the tags of a repository in an image registry, with a
// credential that belongs to this object's tenant and to nobody else. The
// status holds a summary of the tags, whose revision changes when they do; the
// list itself is kept nowhere.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=lir,categories=lanyard
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`,description="Repository that is scanned"
// +kubebuilder:printcolumn:name="Tags",type=integer,JSONPath=`.status.lastScanResult.tagCount`,description="Number of tags that the last scan found"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once the repository that the spec names was scanned"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is or is not Ready, for programs"
// +kubebuilder:printcolumn:name="Identity",type=string,JSONPath=`.status.identity.cloudIdentity`,description="Cloud identity that was used; empty where the subject is itself known to the cloud, or no cloud was asked"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the object was created"
// +kubebuilder:printcolumn:name="Subject",type=string,JSONPath=`.status.identity.subject`,description="Whose credential was used",priority=1
// +kubebuilder:printcolumn:name="Changed",type=date,JSONPath=`.status.lastScanResult.scanTime`,description="Time since a scan found other tags than the one before",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type ImageRepository struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what to scan, how often, and as whom.
	//
	// +required
	Spec ImageRepositorySpec `json:"spec"`

	// status says what was found last, as whom, and what went wrong. The
	// controller writes it.
	//
	// +optional
	Status ImageRepositoryStatus `json:"status,omitempty"`
}

// ImageRepositorySpec says what to scan, how often, and as whom.
//
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || self.provider == 'generic'",message="secretRef works only with provider generic: a cloud provider uses short-lived credentials; remove secretRef, or set provider: generic",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || !has(self.serviceAccountName)",message="secretRef and serviceAccountName exclude each other: name one source of credentials",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.insecure) || !self.insecure || self.provider == 'generic'",message="insecure works only with provider generic: a short-lived credential is never sent over an unprotected connection; remove insecure",fieldPath=".insecure"
type ImageRepositorySpec struct {
	// image is the repository whose tags are listed, as
	// "<host>[:<port>]/<repository>", such as
	// "123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app" or
	// "docker.io/library/alpine". It holds neither a scheme nor a tag, a digest,
	// a user or a password. The host is always written, that of Docker Hub too.
	// With a cloud provider it must be a registry of that cloud. Required.
	//
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.contains('://')",message="image must hold no scheme: begin with the registry's host, such as registry.example.com/team/app"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@')",message="image must hold no user, password or digest: name the repository alone, put credentials in the Secret of spec.secretRef"
	// +kubebuilder:validation:XValidation:rule="self.contains('://') || !self.matches('^[^/]*/.*:')",message="image must hold no tag: all tags of the repository are listed; leave some out with spec.exclusionList"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(localhost(:[0-9]{1,5})?|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?:[0-9]{1,5}|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+(:[0-9]{1,5})?|[[][0-9A-Fa-f:]+[]](:[0-9]{1,5})?)(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)+$')",message="image must be <host>[:<port>]/<repository> with a repository in lower case, such as registry.example.com/team/app or docker.io/library/alpine"
	Image string `json:"image"`

	// provider says where credentials come from. "generic": from secretRef, or
	// from the image pull secrets of serviceAccountName, or none at all. "aws",
	// "azure", "gcp": a short-lived credential that the cloud issues to the
	// ServiceAccount that serviceAccountName names; nothing is stored.
	// A version of the controller that cannot serve a provider says so in the
	// condition Stalled. Default: "generic".
	//
	// +optional
	// +kubebuilder:validation:Enum=generic;aws;azure;gcp
	// +kubebuilder:default=generic
	Provider string `json:"provider,omitempty"`

	// serviceAccountName names a ServiceAccount in this object's namespace.
	// With a cloud provider the registry is asked as the cloud identity that this
	// account is mapped to by its annotations: for aws
	// "eks.amazonaws.com/role-arn" names the role; for azure
	// "azure.workload.identity/client-id" names the application, and
	// "azure.workload.identity/tenant-id" its tenant where that is not the
	// controller's; for gcp "iam.gke.io/gcp-service-account" names the service
	// account, without which the account itself is the principal, and
	// "gcp.lanyard.dev/workload-identity-provider" the provider that trusts a
	// cluster outside GKE. With provider generic the account's imagePullSecrets
	// are used: of at most 16, the first with an entry for the registry. A
	// lower-case DNS-1123 subdomain, such as
	// "tenant-a-ecr-sa". Default: none. A cloud provider is then refused, unless
	// the controller's administrator has set a default account or lends the
	// controller's own identity to this namespace.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="serviceAccountName must be a lower-case DNS-1123 subdomain, such as tenant-a-ecr-sa; it names an account in this object's namespace"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// secretRef names a Secret in this object's namespace with the registry's
	// user and password, of type kubernetes.io/dockerconfigjson or the older
	// kubernetes.io/dockercfg. Only with provider generic, and not together with
	// serviceAccountName.
	//
	// +optional
	SecretRef *meta.LocalReference `json:"secretRef,omitempty"`

	// certSecretRef names a Secret in this object's namespace with TLS
	// material for the registry: "ca.crt" is the PEM bundle of authorities
	// that the registry's certificate is checked against, "tls.crt" and
	// "tls.key" are a client certificate and its key. It applies to the
	// registry only, never to the exchange of a credential. Not with the
	// controller's own identity.
	//
	// +optional
	CertSecretRef *meta.LocalReference `json:"certSecretRef,omitempty"`

	// proxySecretRef names a Secret in this object's namespace that says how
	// the registry is reached through a proxy: "address" is the proxy's URL
	// without user and password, such as "http://proxy.example.com:3128";
	// "username" and "password" are optional keys of their own. With a cloud
	// provider the exchange of the ServiceAccount's token goes through it too.
	// Not with the controller's own identity.
	//
	// +optional
	ProxySecretRef *meta.LocalReference `json:"proxySecretRef,omitempty"`

	// exclusionList holds at most 25 regular expressions in RE2 syntax, not
	// anchored, of at most 256 characters each; a tag that matches any of them
	// is left out, such as "^.*-rc[.]?[0-9]*$". An empty list leaves out none.
	// Default: the one expression "^.*\.sig$", which leaves out the signatures
	// that cosign keeps as tags.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="''.matches(self) ? true : true",message="exclusionList must hold regular expressions in RE2 syntax"
	// +kubebuilder:default={"^.*\\.sig$"}
	ExclusionList []string `json:"exclusionList,omitzero"`

	// insecure allows plain HTTP to the registry. Only with provider generic:
	// a short-lived credential is never sent over an unprotected connection.
	// Default: false.
	//
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// interval between two scans of the repository, as a Go duration with
	// the units h, m, s and ms, such as "5m" or "1h30m". From 1s to 8760h.
	// Required.
	//
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="interval must be a duration from 1s to 8760h, such as 5m"
	Interval metav1.Duration `json:"interval"`

	// timeout of one scan, the exchange of the credential included, as a Go
	// duration with the units m, s and ms, such as "90s". From 1s to 30m.
	// Default: 60s.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('30m')",message="timeout must be a duration from 1s to 30m, such as 60s"
	// +kubebuilder:default="60s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// suspend stops reconciliation while it is true; what was found last stays
	// in the status. Default: false.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ImageRepositoryStatus says what was found last, as whom, and what went wrong.
type ImageRepositoryStatus struct {
	meta.Status `json:",inline"`

	// canonicalImageName is the repository that was last scanned, with the host
	// in lower case, and Docker Hub's names written out, such as
	// "index.docker.io/library/alpine" for "docker.io/alpine".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	CanonicalImageName string `json:"canonicalImageName,omitempty"`

	// observedExclusionList is the exclusionList of the last scan that succeeded.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	ObservedExclusionList []string `json:"observedExclusionList,omitempty"`

	// lastScanResult is what the last scan that succeeded found. It stays while
	// later scans fail, and is not written again while they find the same tags.
	//
	// +optional
	LastScanResult *ScanResult `json:"lastScanResult,omitempty"`
}

// ScanResult is a summary of a repository's tags.
type ScanResult struct {
	// tagCount is the number of tags, without those that exclusionList leaves
	// out.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	TagCount int `json:"tagCount"`

	// scanTime is when a scan first found these tags, in UTC. Later scans that
	// find the same tags do not change it.
	//
	// +required
	ScanTime metav1.Time `json:"scanTime"`

	// revision is a digest of the tags that were counted, as "sha256:" and 64
	// hexadecimal digits: of their names in ascending order by bytes, each
	// followed by a line feed. It changes when a tag is added or removed, and
	// not when a tag moves to another image.
	//
	// +required
	// +kubebuilder:validation:MaxLength=71
	Revision string `json:"revision"`

	// latestTags is a sample of the tags: the first ten in descending order by
	// bytes. Whoever may push to the repository has chosen their names.
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
