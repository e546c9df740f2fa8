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
// registry belongs only to the tenant of this object. The status has a summary of the tags, but not
// the whole list. The summary's revision changes when a tag is added or removed.
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
type ImageRepositorySpec struct {
	// image is the repository whose tags are listed, as "<host>[:<port>]/<repository>", such as
	// "123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app" or "docker.io/library/alpine". It
	// must not contain a scheme, a tag, a digest, a user or a password. The host is always
	// required, even for Docker Hub. With a cloud provider, the host must be a registry of that
	// cloud. Required.
	//
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.contains('://')",message="image must not contain a scheme: begin with the registry's host, such as registry.example.com/team/app"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@')",message="image must not contain a user, a password or a digest: write only the repository, and put credentials into the Secret that spec.secretRef names"
	// +kubebuilder:validation:XValidation:rule="self.contains('://') || !self.matches('^[^/]*/.*:')",message="image must not contain a tag: all tags of the repository are listed; exclude some with spec.exclusionList"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(localhost(:[0-9]{1,5})?|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?:[0-9]{1,5}|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+(:[0-9]{1,5})?|[[][0-9A-Fa-f:]+[]](:[0-9]{1,5})?)(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)+$')",message="image must be <host>[:<port>]/<repository> with a repository in lower case, such as registry.example.com/team/app or docker.io/library/alpine"
	Image string `json:"image"`

	RegistryAccess `json:",inline"`

	// accessFrom is a field of Flux that Lanyard does not have. It is refused.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="accessFrom is not supported: an ImageRepository is used only in its own namespace; remove it"
	AccessFrom *Unsupported `json:"accessFrom,omitempty"`

	// exclusionList is a list of regular expressions in RE2 syntax. A tag is left out if an
	// expression, such as "^.*-rc[.]?[0-9]*$", matches the tag or a part of it. The list has at
	// most 25 expressions, each of at most 256 characters. An empty list leaves out no tag.
	// Default: the expression "^.*\.sig$", which leaves out the signatures that cosign keeps as
	// tags.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="''.matches(self) ? true : true",message="exclusionList must contain regular expressions in RE2 syntax"
	// +kubebuilder:default={"^.*\\.sig$"}
	ExclusionList []string `json:"exclusionList,omitzero"`

	Schedule `json:",inline"`
}

// ImageRepositoryStatus says what the controller last found, with whose credential, and what
// went wrong.
type ImageRepositoryStatus struct {
	meta.FetchStatus `json:",inline"`

	// canonicalImageName is the full name of the repository that was last scanned. The host is in
	// lower case. Names of Docker Hub are complete: "index.docker.io/library/alpine" stands for
	// "docker.io/alpine".
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

	// lastScanResult is the result of the last successful scan. It stays the same while later scans
	// fail, or find the same tags of the same repository.
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

	// revision is a digest of the names of the tags that tagCount counts: "sha256:" followed by 64
	// hexadecimal digits. The names are sorted bytewise in ascending order, and a line feed follows
	// each name. The revision changes when a tag is added or removed. It does not change when a tag
	// moves to another image.
	//
	// +required
	// +kubebuilder:validation:MaxLength=71
	Revision string `json:"revision"`

	// latestTags is a sample of the tags: the first ten in descending bytewise order. The names
	// are untrusted text, because anyone who may push to the repository chooses them.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	LatestTags []string `json:"latestTags,omitempty"`
}

// GetStatus returns the part of the status that all kinds have, for reading and writing.
func (o *ImageRepository) GetStatus() *meta.Status { return &o.Status.Status }

// GetFetchStatus returns the object's [meta.FetchStatus], for reading and writing.
func (o *ImageRepository) GetFetchStatus() *meta.FetchStatus { return &o.Status.FetchStatus }

// GetSchedule returns the [Schedule] in the object's spec.
func (o *ImageRepository) GetSchedule() *Schedule { return &o.Spec.Schedule }

// GetAccess returns the [Access] in the object's spec.
func (o *ImageRepository) GetAccess() *Access { return &o.Spec.Access }

// GetCredential returns spec.credential; nil if the field is absent.
func (o *ImageRepository) GetCredential() *Credential { return o.Spec.Credential }

// ImageRepositoryList is a list of ImageRepository objects.
//
// +kubebuilder:object:root=true
type ImageRepositoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []ImageRepository `json:"items"`
}
