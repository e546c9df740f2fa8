package meta

// Condition types of every object that Lanyard reconciles. Ready, Reconciling
// and Stalled follow kstatus (sigs.k8s.io/cli-utils, pkg/kstatus): Ready is
// always present once an object was reconciled; the other two are present only
// while they are true, and never both.
const (
	// ConditionReady is True when the object's last reconciliation reached
	// what the spec asks for, False when it failed, Unknown while the first
	// one runs.
	ConditionReady = "Ready"

	// ConditionReconciling is True while work is under way or will be retried
	// without anybody's help.
	ConditionReconciling = "Reconciling"

	// ConditionStalled is True when retrying cannot help: the object, its
	// ServiceAccount or the controller's flags must change first.
	ConditionStalled = "Stalled"

	// ConditionArtifactInStorage is True while the artifact that the status
	// names lies in the artifact store and is served.
	ConditionArtifactInStorage = "ArtifactInStorage"

	// ConditionExternalArtifactPublished is True while Flux's ExternalArtifact
	// of the object's name offers the artifact that the status names, False
	// while it cannot, Unknown until that was tried. It is absent where nothing
	// is published (spec.externalArtifact), and nothing that was is left.
	ConditionExternalArtifactPublished = "ExternalArtifactPublished"
)

// Condition reasons that do not come from a credential. A refused or failed
// credential has the code of the auth library's error as its reason instead.
const (
	// ReasonSucceeded says that the spec is fulfilled.
	ReasonSucceeded = "Succeeded"

	// ReasonProgressing says that work is under way.
	ReasonProgressing = "Progressing"

	// ReasonProgressingWithRetry says that an attempt failed and will be
	// repeated with backoff.
	ReasonProgressingWithRetry = "ProgressingWithRetry"

	// ReasonSuspended says that spec.suspend holds the object; it is not
	// reconciled.
	ReasonSuspended = "Suspended"

	// ReasonInvalidSpec says that a stored object breaks a rule of its schema:
	// it was written before the rule, or around it. Terminal.
	ReasonInvalidSpec = "InvalidSpec"

	// ReasonUnsupportedProvider says that this version of the controller does
	// not exchange credentials with spec.provider. Terminal.
	ReasonUnsupportedProvider = "UnsupportedProvider"

	// ReasonInvalidURL says that spec.url, or spec.image, is no repository
	// address that the provider can serve. Terminal.
	ReasonInvalidURL = "InvalidURL"

	// ReasonSecretRefused says that a Secret named in the spec is missing, of
	// the wrong type, or lacks a key; or that the imagePullSecrets of the
	// ServiceAccount are too many, or none of them can be used.
	ReasonSecretRefused = "SecretRefused"

	// ReasonReferenceNotFound says that no tag, version or digest in the
	// repository fits spec.ref.
	ReasonReferenceNotFound = "ReferenceNotFound"

	// ReasonRegistryUnreachable says that the registry did not answer in time,
	// or answered with a 5xx status.
	ReasonRegistryUnreachable = "RegistryUnreachable"

	// ReasonRegistryRefused says that the registry answered, and refused the
	// credential or the repository (401, 403, 404).
	ReasonRegistryRefused = "RegistryRefused"

	// ReasonBucketUnreachable says that the service of a bucket did not answer
	// in time, answered with a 5xx status, or asked for a pause.
	ReasonBucketUnreachable = "BucketUnreachable"

	// ReasonBucketRefused says that the service of a bucket answered, and
	// refused the credential or the bucket (401, 403, 404), or that no object is
	// there to fetch.
	ReasonBucketRefused = "BucketRefused"

	// ReasonBucketChanged says that an object changed after it was listed and
	// before it was read.
	ReasonBucketChanged = "BucketChanged"

	// ReasonDigestMismatch says that the content is not what its digest
	// promises: truncated, or changed on the way.
	ReasonDigestMismatch = "DigestMismatch"

	// ReasonLayerNotFound says that no layer fits spec.layerSelector.
	ReasonLayerNotFound = "LayerNotFound"

	// ReasonArchiveRefused says that the layer is not a safe archive: a path
	// that leaves the root, a device file, or more data than the limit; or that
	// the manifest or the list of tags is too long to read.
	ReasonArchiveRefused = "ArchiveRefused"

	// ReasonStorageFailed says that the artifact store could not keep the
	// artifact.
	ReasonStorageFailed = "StorageFailed"

	// ReasonStorageFull says that the artifact store, or the namespace's part
	// of it, has reached its size limit (--artifact-store-max-size,
	// --artifact-namespace-max-size).
	ReasonStorageFull = "StorageFull"

	// ReasonExternalArtifactRefused says that an ExternalArtifact of the
	// object's name exists which was not made for the object. It is left as it
	// is.
	ReasonExternalArtifactRefused = "ExternalArtifactRefused"

	// ReasonExternalArtifactUnavailable says that ExternalArtifacts cannot be
	// written: the cluster does not have the kind, the controller lacks the
	// right, or the last one is still being deleted.
	ReasonExternalArtifactUnavailable = "ExternalArtifactUnavailable"

	// ReasonControllerForbidden says that the Kubernetes API does not let the
	// controller do what the object needs, such as reading a Secret of its
	// namespace. The message names the rule that is missing. Retried.
	ReasonControllerForbidden = "ControllerForbidden"

	// ReasonInternalError says that something failed which has no reason of its
	// own, such as a call to the Kubernetes API. Retried.
	ReasonInternalError = "InternalError"
)
