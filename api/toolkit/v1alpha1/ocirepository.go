package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// OCIRepositoryKind is the kind of an OCIRepository in manifests.
const OCIRepositoryKind = "OCIRepository"

// Values of OCILayerSelector.Operation.
const (
	// LayerExtract unpacks the selected layer and serves its files in a new archive.
	LayerExtract = "extract"
	// LayerCopy serves the selected layer as the registry stores it.
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

	// layerSelector says which layer of the artifact is served, and whether it is extracted first.
	// Default: the first layer, extracted.
	//
	// +optional
	LayerSelector *OCILayerSelector `json:"layerSelector,omitempty"`

	RegistryAccess `json:",inline"`

	// verify is a field of Flux that Lanyard does not have. It is refused.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="verify is not supported: Lanyard does not verify signatures yet; remove verify only if you accept that no signature is verified"
	Verify *Unsupported `json:"verify,omitempty"`

	// ignore is a list of patterns, one per line, in the format of .gitignore. Files that match a
	// pattern, such as "*.md", are left out when a layer is extracted. The field has no effect if
	// the operation is "copy".
	//
	// Default: Flux's patterns for version control, CI configuration, pictures and archives. A
	// pattern in this field replaces the default patterns, except those for version control. A text
	// without patterns, such as "", replaces none of them. To extract pictures and archives too,
	// write a pattern that leaves out no file, such as "!*.zip".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Ignore *string `json:"ignore,omitempty"`

	Schedule `json:",inline"`

	Publication `json:",inline"`
}

// OCIRepositoryRef selects one artifact in a repository. When several fields are set, digest wins
// over semver, and semver wins over tag.
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

// OCILayerSelector says which layer of an artifact is served, and whether it is extracted first.
type OCILayerSelector struct {
	// mediaType is the media type of the layer, such as
	// "application/vnd.cncf.helm.chart.content.v1.tar+gzip". The first layer of this type is
	// used. Default: the first layer of any type.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*$')",message="mediaType must be a type and a subtype without parameters, such as application/vnd.oci.image.layer.v1.tar+gzip"
	MediaType string `json:"mediaType,omitempty"`

	// operation says what the controller does with the layer. "extract" unpacks the layer, packs
	// its files into a new archive, and serves this archive. Files that match spec.ignore are left
	// out. The layer must be a tar archive, with or without gzip compression. "copy" serves the
	// bytes of the layer as the registry stores them. Default: "extract".
	//
	// +optional
	// +kubebuilder:validation:Enum=extract;copy
	// +kubebuilder:default=extract
	Operation string `json:"operation,omitempty"`
}

// OCIRepositoryStatus says what the controller last fetched, with whose credential, and what
// went wrong.
type OCIRepositoryStatus struct {
	ArtifactStatus `json:",inline"`

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

// GetStatus returns the part of the status that all kinds have, for reading and writing.
func (o *OCIRepository) GetStatus() *meta.Status { return &o.Status.Status }

// GetFetchStatus returns the object's [meta.FetchStatus], for reading and writing.
func (o *OCIRepository) GetFetchStatus() *meta.FetchStatus { return &o.Status.FetchStatus }

// GetSchedule returns the [Schedule] in the object's spec.
func (o *OCIRepository) GetSchedule() *Schedule { return &o.Spec.Schedule }

// GetAccess returns the [Access] in the object's spec.
func (o *OCIRepository) GetAccess() *Access { return &o.Spec.Access }

// GetCredential returns spec.credential; nil if the field is absent.
func (o *OCIRepository) GetCredential() *Credential { return o.Spec.Credential }

// GetArtifactStatus returns the part of the status that all kinds with artifacts have, for reading
// and writing.
func (o *OCIRepository) GetArtifactStatus() *ArtifactStatus { return &o.Status.ArtifactStatus }

// GetPublication returns the part of the spec that says whether the artifact is also published to
// Flux.
func (o *OCIRepository) GetPublication() *Publication { return &o.Spec.Publication }

// OCIRepositoryList is a list of OCIRepository objects.
//
// +kubebuilder:object:root=true
type OCIRepositoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []OCIRepository `json:"items"`
}

// Unsupported is the type of the fields of Flux that Lanyard does not have. If the schema lacked
// such a field, an API server could drop the field silently. So the schema has the field, and a
// rule refuses every value.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Unsupported struct{}

// UnmarshalJSON accepts every value and drops it, because a validation rule refuses the value
// anyway. Without this method, strict decoders would report the fields of the value.
func (*Unsupported) UnmarshalJSON([]byte) error { return nil }
