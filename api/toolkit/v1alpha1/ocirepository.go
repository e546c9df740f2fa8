package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// OCIRepositoryKind is the kind of an OCIRepository in manifests.
const OCIRepositoryKind = "OCIRepository"

// Values of OCIRepositorySpec.Provider.
const (
	// ProviderGeneric authenticates with static credentials, or with none.
	ProviderGeneric = "generic"
	// ProviderAWS authenticates at Amazon ECR as an IAM role.
	ProviderAWS = "aws"
	// ProviderAzure authenticates at Azure Container Registry.
	ProviderAzure = "azure"
	// ProviderGCP authenticates at Google Artifact Registry.
	ProviderGCP = "gcp"
)

// Values of OCILayerSelector.Operation.
const (
	// LayerExtract unpacks the selected layer and offers its files.
	LayerExtract = "extract"
	// LayerCopy offers the selected layer as the registry stores it.
	LayerCopy = "copy"
)

// OCIRepository fetches an artifact from a repository of an OCI registry, with
// a credential that belongs to this object's tenant and to nobody else, and
// offers its content to other controllers over HTTP.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=loci,categories=lanyard
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`,description="Repository that is fetched"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once the artifact that the spec asks for is served"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is or is not Ready, for programs"
// +kubebuilder:printcolumn:name="Identity",type=string,JSONPath=`.status.identity.cloudIdentity`,description="Cloud identity that was used; empty where the subject is itself known to the cloud, or no cloud was asked"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the object was created"
// +kubebuilder:printcolumn:name="Subject",type=string,JSONPath=`.status.identity.subject`,description="Whose credential was used",priority=1
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.artifact.revision`,description="Revision that is served",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type OCIRepository struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what to fetch, how often, and as whom.
	//
	// +required
	Spec OCIRepositorySpec `json:"spec"`

	// status says what was fetched last, as whom, and what went wrong. The
	// controller writes it.
	//
	// +optional
	Status OCIRepositoryStatus `json:"status,omitempty"`
}

// OCIRepositorySpec says what to fetch, how often, and as whom.
//
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || self.provider == 'generic'",message="secretRef works only with provider generic: a cloud provider uses short-lived credentials; remove secretRef, or set provider: generic",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || !has(self.serviceAccountName)",message="secretRef and serviceAccountName exclude each other: name one source of credentials",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.insecure) || !self.insecure || self.provider == 'generic'",message="insecure works only with provider generic: a short-lived credential is never sent over an unprotected connection; remove insecure",fieldPath=".insecure"
type OCIRepositorySpec struct {
	// url of the repository, as "oci://<host>[:<port>]/<repository>", such as
	// "oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app".
	// It holds neither a tag nor a digest (these are in ref) nor a user or a
	// password (these are in the Secret that secretRef names). With a cloud
	// provider the host must be a registry of that cloud. Required.
	//
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.startsWith('oci://')",message="url must start with oci://"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@')",message="url must hold no user, password or digest: put a digest in spec.ref.digest, credentials in the Secret of spec.secretRef"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^oci://[^/]*/.*:')",message="url must hold no tag: put it in spec.ref.tag"
	// +kubebuilder:validation:XValidation:rule="self.matches('^oci://([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|[[][0-9A-Fa-f:]+[]])(:[0-9]{1,5})?(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)+$')",message="url must be oci://<host>[:<port>]/<repository> with a repository in lower case, such as oci://registry.example.com/team/app"
	URL string `json:"url"`

	// ref selects the artifact in the repository. Default: the tag "latest".
	//
	// +optional
	Ref *OCIRepositoryRef `json:"ref,omitempty"`

	// layerSelector says which layer of the artifact is offered, and how.
	// Default: the first layer, extracted.
	//
	// +optional
	LayerSelector *OCILayerSelector `json:"layerSelector,omitempty"`

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
	// With a cloud provider the artifact is fetched as the cloud identity that this
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

	// ignore holds patterns, one per line in the format of .gitignore, of
	// files that are left out when a layer is extracted, such as "*.md".
	// Files of version control systems are always left out. Default: patterns
	// for CI configuration, pictures and archives, the same as Flux's; set it to
	// "" to keep those files. It has no effect with the operation copy.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Ignore *string `json:"ignore,omitempty"`

	// insecure allows plain HTTP to the registry. Only with provider generic:
	// a short-lived credential is never sent over an unprotected connection.
	// Default: false.
	//
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// interval between two checks of the repository, as a Go duration with
	// the units h, m, s and ms, such as "5m" or "1h30m". From 1s to 8760h.
	// Required.
	//
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="interval must be a duration from 1s to 8760h, such as 5m"
	Interval metav1.Duration `json:"interval"`

	// timeout of one reconciliation's calls to the registry, the exchange of
	// the credential included, as a Go duration with the units m, s and ms,
	// such as "90s". From 1s to 30m. Default: 60s.
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

	// suspend stops reconciliation while it is true; what was fetched last
	// stays served. Default: false.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// OCIRepositoryRef selects one artifact in a repository. When several fields
// are set, digest wins over semver, and semver wins over tag.
//
// +kubebuilder:validation:XValidation:rule="!has(self.semverFilter) || has(self.semver)",message="semverFilter filters the tags that semver chooses from: set semver too, or remove semverFilter",fieldPath=".semverFilter"
type OCIRepositoryRef struct {
	// tag of the artifact, such as "1.2.0" or "latest". The artifact is
	// fetched again when the tag moves. Ignored when digest or semver is set.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9._-]*$')",message="tag must be 1 to 128 letters, digits, dots, underscores and dashes that begin with a letter, a digit or an underscore (OCI distribution specification)"
	Tag string `json:"tag,omitempty"`

	// semver is a range of versions, such as ">=1.2.0 <2.0.0" or "~1.2"; the
	// tag with the highest version in the range is fetched. Pre-releases are
	// chosen only when the range names one. Ignored when digest is set.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Semver string `json:"semver,omitempty"`

	// semverFilter is a regular expression in RE2 syntax; only tags that match
	// it are candidates of semver, such as ".*-rc.*". Only with semver.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="''.matches(self) ? true : true",message="semverFilter must be a regular expression in RE2 syntax"
	SemverFilter string `json:"semverFilter,omitempty"`

	// digest of the artifact's manifest, as "sha256:" and 64 hexadecimal
	// digits in lower case. An artifact that is named by it never changes. It
	// wins over semver and tag.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[a-f0-9]{64}$')",message="digest must be sha256: and 64 hexadecimal digits in lower case"
	Digest string `json:"digest,omitempty"`
}

// OCILayerSelector says which layer of an artifact is offered, and how.
type OCILayerSelector struct {
	// mediaType of the layer, such as
	// "application/vnd.cncf.helm.chart.content.v1.tar+gzip"; the first layer
	// of this type is taken. Default: the first layer of any type.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*$')",message="mediaType must be a type and a subtype without parameters, such as application/vnd.oci.image.layer.v1.tar+gzip"
	MediaType string `json:"mediaType,omitempty"`

	// operation says what happens to the layer. "extract" unpacks it (a tar
	// archive, gzip-compressed or not) and offers its files as a new archive,
	// without those that ignore names. "copy" offers the layer's bytes as the
	// registry stores them. Default: "extract".
	//
	// +optional
	// +kubebuilder:validation:Enum=extract;copy
	// +kubebuilder:default=extract
	Operation string `json:"operation,omitempty"`
}

// OCIRepositoryStatus says what was fetched last, as whom, and what went wrong.
type OCIRepositoryStatus struct {
	meta.Status `json:",inline"`

	// artifact is what was fetched last. It stays, and stays served, while later
	// attempts fail. The condition ArtifactInStorage is absent when the store
	// has lost it and it could not be fetched again.
	//
	// +optional
	Artifact *Artifact `json:"artifact,omitempty"`

	// observedIgnore is the spec.ignore that the artifact was made with. When
	// spec.ignore differs from it, the artifact is made again.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	ObservedIgnore *string `json:"observedIgnore,omitempty"`

	// observedLayerSelector is the spec.layerSelector that the artifact was
	// made with. When spec.layerSelector differs from it, the artifact is made
	// again.
	//
	// +optional
	ObservedLayerSelector *OCILayerSelector `json:"observedLayerSelector,omitempty"`
}

// OCIRepositoryList is a list of OCIRepository objects.
//
// +kubebuilder:object:root=true
type OCIRepositoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []OCIRepository `json:"items"`
}
