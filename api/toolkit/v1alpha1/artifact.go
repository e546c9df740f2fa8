package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// Artifact is the last artifact that a source fetched, as the artifact server offers it. It is a
// gzip-compressed tar archive or, if the operation is "copy", the unchanged layer.
type Artifact struct {
	// url is the address of the artifact, for HTTP inside the cluster. The URL is a capability:
	// everybody who knows it may read the artifact. So the URL is as confidential as the artifact
	// itself. The URL changes whenever the content changes.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`

	// path is the path of the artifact, relative to the root of the artifact store.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path"`

	// revision names the upstream state that was fetched. It is "<tag>@<digest>" if a tag was
	// resolved, such as "1.2.0@sha256:3b4c…". If not, it is "<digest>". For an OCI artifact, the
	// digest is the digest of the manifest. For a Bucket, it is a digest of the list of objects and
	// their versions.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Revision string `json:"revision"`

	// digest is the digest of the file that the artifact server delivers, as "<algorithm>:<hex>",
	// such as "sha256:9f86…". The field revision has a different digest: that of the upstream
	// state.
	//
	// +required
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-f0-9]+$`
	Digest string `json:"digest"`

	// size is the size in bytes of the file that the artifact server delivers.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Size int64 `json:"size"`

	// lastUpdateTime is the time, in UTC, when the content last changed in the artifact store.
	//
	// +required
	LastUpdateTime metav1.Time `json:"lastUpdateTime"`

	// metadata contains the annotations of the OCI manifest, such as
	// "org.opencontainers.image.source". The publisher of the artifact wrote these annotations:
	// treat them as untrusted input.
	//
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Publication says whether the artifact is also published to Flux. It is part of the spec of every
// kind that keeps an artifact.
type Publication struct {
	// externalArtifact makes the controller publish the artifact to Flux too. The controller then
	// keeps an ExternalArtifact (source.toolkit.fluxcd.io/v1) with the name and namespace of this
	// object. Flux's Kustomizations and HelmReleases can use the ExternalArtifact as their source.
	// If an ExternalArtifact with this name was not made for this object, the controller does not
	// change it, and this object is not Ready. When the field is set to false again, the controller
	// deletes the ExternalArtifact. The field needs Flux 2.7 or newer, and the value
	// flux.externalArtifacts of Lanyard's chart. Default: false.
	//
	// +optional
	ExternalArtifact bool `json:"externalArtifact,omitempty"`
}

// ArtifactStatus is part of the status of every kind that keeps an artifact.
type ArtifactStatus struct {
	meta.FetchStatus `json:",inline"`

	// artifact is the last artifact that was fetched. It stays in the status and is served while
	// later attempts fail. The condition ArtifactInStorage is absent if the store has lost the
	// artifact and the controller could not fetch it again.
	//
	// +optional
	Artifact *Artifact `json:"artifact,omitempty"`
}
