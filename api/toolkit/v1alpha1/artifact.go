package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Artifact is what a source last fetched, as the artifact server offers it: one
// gzip-compressed tar archive, or the layer as it is with the operation copy.
type Artifact struct {
	// url is where the artifact can be fetched over HTTP inside the cluster.
	// It is a capability: whoever knows it may read the artifact, so it is as
	// confidential as the artifact itself. It changes whenever the content does.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`

	// path of the artifact relative to the root of the artifact store.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path"`

	// revision names the upstream state that was fetched: "<tag>@<digest>"
	// where a tag was resolved, else "<digest>", such as
	// "1.2.0@sha256:3b4c…". The digest is that of the OCI manifest, or, of a
	// Bucket, of the list of its objects and their versions.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Revision string `json:"revision"`

	// digest of the file that the artifact server delivers, as
	// "<algorithm>:<hex>", such as "sha256:9f86…". It is not the digest in
	// revision, which is that of the source.
	//
	// +required
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-f0-9]+$`
	Digest string `json:"digest"`

	// size of the file that the artifact server delivers, in bytes.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Size int64 `json:"size"`

	// lastUpdateTime is when the content last changed in the artifact store,
	// in UTC.
	//
	// +required
	LastUpdateTime metav1.Time `json:"lastUpdateTime"`

	// metadata holds the annotations of the OCI manifest, such as
	// "org.opencontainers.image.source". Whoever pushed the artifact wrote
	// them: treat them as untrusted input.
	//
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
}
