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

// OCIRepository fetches an artifact from a repository of an OCI registry, and offers its content
// to other controllers over HTTP. The credential for the registry belongs only to the tenant of
// this object.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=loci,categories=lanyard
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`,description="Repository that is fetched"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once the artifact that the spec asks for is served"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready, for programs"
// +kubebuilder:printcolumn:name="Identity",type=string,JSONPath=`.status.identity.cloudIdentity`,description="Cloud identity that was used; empty if the cloud knows the subject itself, or if no cloud was asked"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the object was created"
// +kubebuilder:printcolumn:name="Subject",type=string,JSONPath=`.status.identity.subject`,description="Subject that the credential was issued for",priority=1
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.artifact.revision`,description="Revision that is served",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type OCIRepository struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what to fetch, how often, and with whose credential.
	//
	// +required
	Spec OCIRepositorySpec `json:"spec"`

	// status says what the controller last fetched, with whose credential, and what went wrong.
	// The controller writes the status.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status OCIRepositoryStatus `json:"status,omitempty"`
}

// OCIRepositorySpec says what to fetch, how often, and with whose credential.
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
type OCIRepositorySpec struct {
	// url is the address of the repository, as "oci://<host>[:<port>]/<repository>", such as
	// "oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app". A tag or a digest
	// belongs in ref. A user and a password belong in the Secret that secretRef names. With a
	// cloud provider, the host must be a registry of that cloud. Required.
	//
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.startsWith('oci://')",message="url must start with oci://"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@')",message="url must not contain a user, a password or a digest: put a digest into spec.ref.digest, and credentials into the Secret that spec.secretRef names"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^oci://[^/]*/.*:')",message="url must not contain a tag: put the tag into spec.ref.tag"
	// +kubebuilder:validation:XValidation:rule="self.matches('^oci://([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|[[][0-9A-Fa-f:]+[]])(:[0-9]{1,5})?(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)+$')",message="url must be oci://<host>[:<port>]/<repository> with a repository in lower case, such as oci://registry.example.com/team/app"
	URL string `json:"url"`

	// ref selects the artifact in the repository. Default: the tag "latest".
	//
	// +optional
	Ref *OCIRepositoryRef `json:"ref,omitempty"`

	// layerSelector selects the layer of the artifact that is offered, and says how to offer it.
	// Default: the first layer, extracted.
	//
	// +optional
	LayerSelector *OCILayerSelector `json:"layerSelector,omitempty"`

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
	// controller fetches the artifact as a cloud identity, which the account's annotations
	// select. For aws, "eks.amazonaws.com/role-arn" names the role. For azure,
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

	// identityRef names an AWS identity with which the controller pulls the artifact, in place of
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

	// verify is a field of Flux that Lanyard does not have. It is refused.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="verify is not supported: Lanyard does not verify signatures yet; remove verify only if you accept that no signature is verified"
	Verify *Unsupported `json:"verify,omitempty"`

	// ignore is a list of patterns, one per line, in the format of .gitignore. Files that match,
	// such as "*.md", are left out when a layer is extracted. Files of version control systems
	// are always left out. Default: patterns for CI configuration, pictures and archives, the
	// same as Flux's. Patterns replace the default, but a text without patterns, such as "", does
	// not: to keep these files, write a pattern such as "!*.zip". The operation copy ignores this
	// field.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Ignore *string `json:"ignore,omitempty"`

	// insecure allows plain HTTP to the registry. It is allowed only with provider generic and
	// without credential, because a short-lived credential is never sent over an unprotected
	// connection. Default: false.
	//
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// interval is the time between two checks of the repository, as a Go duration with the units
	// h, m, s and ms, such as "5m" or "1h30m". From 1s to 8760h. Required.
	//
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="interval must be a duration from 1s to 8760h, such as 5m"
	Interval metav1.Duration `json:"interval"`

	// timeout limits the time of one reconciliation's calls to the registry, including the
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

// OCIRepositoryRef selects one artifact in a repository. When several fields
// are set, digest wins over semver, and semver wins over tag.
//
// +kubebuilder:validation:XValidation:rule="!has(self.semverFilter) || has(self.semver)",message="semverFilter filters the tags that semver chooses from: set semver too, or remove semverFilter",fieldPath=".semverFilter"
type OCIRepositoryRef struct {
	// tag is the tag of the artifact, such as "1.2.0" or "latest". The artifact is fetched again
	// when the tag moves. The field is ignored when digest or semver is set.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9._-]*$')",message="tag must consist of 1 to 128 letters, digits, dots, underscores and dashes, and begin with a letter, a digit or an underscore (OCI distribution specification)"
	Tag string `json:"tag,omitempty"`

	// semver is a range of versions, such as ">=1.2.0 <2.0.0" or "~1.2". The tag with the highest
	// version in the range is fetched. A version has three numbers, which may have leading zeros,
	// such as "1.2.0", "v1.2.0-rc.1" or "2024.01.15". If layerSelector selects a Helm chart, "_" in
	// a tag stands for the "+" of its version. Pre-releases are used only when the range names a
	// pre-release. The field is ignored when digest is set.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Semver string `json:"semver,omitempty"`

	// semverFilter is a regular expression in RE2 syntax, such as ".*-rc.*". semver chooses only
	// from tags that match the expression. It is allowed only with semver.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="''.matches(self) ? true : true",message="semverFilter must be a regular expression in RE2 syntax"
	SemverFilter string `json:"semverFilter,omitempty"`

	// digest is the digest of the artifact's manifest: "sha256:" followed by 64 hexadecimal
	// digits in lower case. An artifact with a given digest never changes. The field wins over
	// semver and tag.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[a-f0-9]{64}$')",message="digest must be sha256: followed by 64 hexadecimal digits in lower case"
	Digest string `json:"digest,omitempty"`
}

// OCILayerSelector selects the layer of an artifact that is offered, and says how to offer it.
type OCILayerSelector struct {
	// mediaType is the media type of the layer, such as
	// "application/vnd.cncf.helm.chart.content.v1.tar+gzip". The first layer of this type is
	// used. Default: the first layer of any type.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*$')",message="mediaType must be a type and a subtype without parameters, such as application/vnd.oci.image.layer.v1.tar+gzip"
	MediaType string `json:"mediaType,omitempty"`

	// operation says what the controller does with the layer. "extract" unpacks the layer, which
	// is a tar archive with or without gzip compression, and offers its files as a new archive,
	// without the files that ignore names. "copy" offers the bytes of the layer as the registry
	// stores them. Default: "extract".
	//
	// +optional
	// +kubebuilder:validation:Enum=extract;copy
	// +kubebuilder:default=extract
	Operation string `json:"operation,omitempty"`
}

// OCIRepositoryStatus says what the controller last fetched, with whose credential, and what
// went wrong.
type OCIRepositoryStatus struct {
	meta.FetchStatus `json:",inline"`

	// artifact is the last artifact that was fetched. It stays in the status and is served while
	// later attempts fail. The condition ArtifactInStorage is absent if the store has lost the
	// artifact and the controller could not fetch it again.
	//
	// +optional
	Artifact *Artifact `json:"artifact,omitempty"`

	// observedIgnore is the spec.ignore that was used for the artifact. When spec.ignore changes,
	// the controller makes the artifact again.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	ObservedIgnore *string `json:"observedIgnore,omitempty"`

	// observedLayerSelector is the spec.layerSelector that was used for the artifact. When
	// spec.layerSelector changes, the controller makes the artifact again.
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

// Unsupported is a field of Flux's kinds that Lanyard does not have. If the schema did not know the
// field, an API server could drop it silently. So the schema knows it, and a rule refuses every
// value.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Unsupported struct{}
