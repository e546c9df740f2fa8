package meta

// Condition types of every object that Lanyard reconciles. Ready, Reconciling and Stalled follow
// kstatus (sigs.k8s.io/cli-utils, pkg/kstatus). Ready is always present once an object was
// reconciled. Reconciling and Stalled are present only while they are true, and never together.
const (
	// ConditionReady is True when the last reconciliation reached what the spec asks for, and
	// False when the reconciliation failed. It is Unknown while the first reconciliation runs.
	ConditionReady = "Ready"

	// ConditionReconciling is True while work is under way, or will be retried without help from
	// people.
	ConditionReconciling = "Reconciling"

	// ConditionStalled is True when a retry cannot help: the object, its ServiceAccount or the
	// controller's flags must change first.
	ConditionStalled = "Stalled"

	// ConditionArtifactInStorage is True while the artifact that the status names is in the
	// artifact store and is served.
	ConditionArtifactInStorage = "ArtifactInStorage"

	// ConditionExternalArtifactPublished is True while Flux's ExternalArtifact with the object's
	// name offers the artifact that the status names. It is False while the ExternalArtifact cannot
	// offer it, and Unknown before the first attempt. The condition is absent if
	// spec.externalArtifact is false and no earlier ExternalArtifact remains.
	ConditionExternalArtifactPublished = "ExternalArtifactPublished"

	// ConditionHealthy is True while the objects that a Kustomization waits for are healthy. It is
	// Unknown during the wait, and while the manifests cannot be applied. It is False once an object
	// has failed or the wait took too long. The condition is absent if spec.wait is false and
	// spec.healthChecks is empty.
	ConditionHealthy = "Healthy"

	// ConditionHubReachable is False while a binding's hub does not answer, or refuses the
	// binding's cluster. The hub is another cluster, which has the WorkloadIdentity of the binding.
	// While the condition is False, the credential stays in the Secret until it expires. The
	// condition is absent if the WorkloadIdentity is in the binding's own cluster.
	ConditionHubReachable = "HubReachable"
)

// Reasons of conditions. If an object gets no credential, the reason can also be an error code of
// the auth library. In the comments below, "Terminal" means that the object becomes Stalled.
// "Retried" means that the controller tries again.
const (
	// ReasonSucceeded says that the last reconciliation reached what the spec asks for.
	ReasonSucceeded = "Succeeded"

	// ReasonProgressing says that work is under way.
	ReasonProgressing = "Progressing"

	// ReasonProgressingWithRetry says that an attempt failed and will be repeated, with growing
	// pauses.
	ReasonProgressingWithRetry = "ProgressingWithRetry"

	// ReasonSuspended says that the object is not reconciled, because spec.suspend is true.
	ReasonSuspended = "Suspended"

	// ReasonInvalidSpec says that the spec has an invalid value that the API server did not
	// catch. Terminal.
	ReasonInvalidSpec = "InvalidSpec"

	// ReasonUnsupportedProvider says that this build of the controller does not support the
	// provider in the spec. Terminal.
	ReasonUnsupportedProvider = "UnsupportedProvider"

	// ReasonInvalidURL says that spec.url or spec.image is not a repository address that the
	// provider can serve. Terminal.
	ReasonInvalidURL = "InvalidURL"

	// ReasonSecretRefused says one of these:
	//   - A Secret named in the spec is missing, has the wrong type, or lacks a key.
	//   - The ServiceAccount has too many imagePullSecrets, or none of them can be used.
	ReasonSecretRefused = "SecretRefused"

	// ReasonContentStays is the reason of an event, and is never the reason of a condition. The
	// event says that an object was deleted, but that a Secret with the object's data still exists.
	ReasonContentStays = "ContentStays"

	// ReasonUnencryptedSecrets is the reason of an event, and is never the reason of a condition. The
	// event says that an artifact with encrypted files also has Secrets that are not encrypted.
	ReasonUnencryptedSecrets = "UnencryptedSecrets" //nolint:gosec // a reason, no credential

	// ReasonReferenceNotFound says that no tag, version or digest in the repository matches
	// spec.ref.
	ReasonReferenceNotFound = "ReferenceNotFound"

	// ReasonRegistryUnreachable says that the registry did not answer in time, throttled the
	// request, or answered with a 5xx status.
	ReasonRegistryUnreachable = "RegistryUnreachable"

	// ReasonRegistryRefused says one of these:
	//   - The registry refused the credential or the repository (401, 403, 404).
	//   - The registry's answer breaks the protocol, or asks for a redirect or another request that
	//     the controller refuses.
	ReasonRegistryRefused = "RegistryRefused"

	// ReasonBucketUnreachable says that the service of a bucket did not answer in time, throttled
	// the request, or answered with a 5xx status.
	ReasonBucketUnreachable = "BucketUnreachable"

	// ReasonBucketRefused says one of these:
	//   - The service of a bucket refused the credential or the bucket (401, 403, 404).
	//   - The service's answer breaks the protocol, or is a redirect, which the controller does not
	//     follow.
	//   - The bucket has no object to fetch.
	ReasonBucketRefused = "BucketRefused"

	// ReasonBucketChanged says that an object of the bucket changed after it was listed and
	// before it was read.
	ReasonBucketChanged = "BucketChanged"

	// ReasonDigestMismatch says that the content does not match its digest: it is truncated, or
	// was changed on the way.
	ReasonDigestMismatch = "DigestMismatch"

	// ReasonLayerNotFound says that no layer matches spec.layerSelector.
	ReasonLayerNotFound = "LayerNotFound"

	// ReasonArchiveRefused says one of these:
	//   - The layer is not a safe archive: it has a path that leaves the root, a device file, or
	//     more data than the limit.
	//   - The manifest or the list of tags is too long to read.
	ReasonArchiveRefused = "ArchiveRefused"

	// ReasonStorageFailed says that the artifact store could not keep the artifact.
	ReasonStorageFailed = "StorageFailed"

	// ReasonStorageFull says one of these:
	//   - The artifact store (--artifact-store-max-size), or its volume, has no room for the
	//     artifact.
	//   - The artifact would exceed the namespace's size limit (--artifact-namespace-max-size), or
	//     the namespace's share of the store.
	ReasonStorageFull = "StorageFull"

	// ReasonExternalArtifactRefused says that the ExternalArtifact with the object's name was not
	// made for the object. The controller does not change this ExternalArtifact.
	ReasonExternalArtifactRefused = "ExternalArtifactRefused"

	// ReasonExternalArtifactUnavailable says that the controller cannot write ExternalArtifacts:
	// the cluster does not have the kind, the controller lacks the right, or the last
	// ExternalArtifact is still being deleted.
	ReasonExternalArtifactUnavailable = "ExternalArtifactUnavailable"

	// ReasonSourceNotReady says that the source of a Kustomization does not exist, or has no
	// artifact yet. A change of the source wakes the Kustomization.
	ReasonSourceNotReady = "SourceNotReady"

	// ReasonDependencyNotReady says that a Kustomization that spec.dependsOn names does not exist, is
	// not Ready, or has not applied the revision yet. A change of it wakes the Kustomization.
	ReasonDependencyNotReady = "DependencyNotReady"

	// ReasonArtifactRefused says that the artifact of a source must not be downloaded: its server is
	// not listed, its URL is another object's, or it is too large. Terminal.
	ReasonArtifactRefused = "ArtifactRefused"

	// ReasonArtifactUnavailable says that the artifact of a source could not be downloaded, or does
	// not match its digest. Retried.
	ReasonArtifactUnavailable = "ArtifactUnavailable"

	// ReasonBuildFailed says that the manifests of an artifact cannot be built. The message names
	// the file and the field. Terminal.
	ReasonBuildFailed = "BuildFailed"

	// ReasonBuildUnavailable says that the controller could not start a build. Retried.
	ReasonBuildUnavailable = "BuildUnavailable"

	// ReasonDecryptionFailed says that an encrypted file cannot be decrypted. The message names the
	// file, its keys, who asked each key service, and the answer. Terminal if only another artifact
	// helps, and otherwise retried.
	ReasonDecryptionFailed = "DecryptionFailed"

	// ReasonSubstitutionFailed says that a ConfigMap or a Secret of spec.postBuild.substituteFrom
	// cannot be read as the tenant. Retried.
	ReasonSubstitutionFailed = "SubstitutionFailed"

	// ReasonKubeConfigRefused says that the kubeconfig file of spec.kubeConfig is missing, or that it
	// has a field that is refused. The message names the field. Retried.
	ReasonKubeConfigRefused = "KubeConfigRefused"

	// ReasonApplyRefused says that the API server does not accept an object from the tenant. The
	// message names the tenant, the object and the request. Retried.
	ReasonApplyRefused = "ApplyRefused"

	// ReasonApplyFailed says that objects could not be applied or deleted in time, because the API
	// server did not answer or somebody changed them at the same time. Retried.
	ReasonApplyFailed = "ApplyFailed"

	// ReasonHealthCheckFailed says that an object for which a Kustomization waits has failed, cannot be
	// read, or did not become healthy within spec.timeout. Retried.
	ReasonHealthCheckFailed = "HealthCheckFailed"

	// ReasonTerminating says that objects of a deleted Kustomization are still being deleted.
	// Retried.
	ReasonTerminating = "Terminating"

	// ReasonIssuerNotPublished says that a WorkloadIdentity gets no tokens yet, because its
	// signature algorithm has no active key. A key becomes active only after it was seen in the
	// issuer's public document, or people have confirmed that it is there.
	ReasonIssuerNotPublished = "IssuerNotPublished"

	// ReasonIssuerUnavailable says that the issuer of a WorkloadIdentity cannot sign: its KeyRing
	// does not exist, belongs to another issuer, or has an active key without a private half.
	ReasonIssuerUnavailable = "IssuerUnavailable"

	// ReasonHubUnreachable says that the hub did not answer in time, or answered with a 5xx status.
	ReasonHubUnreachable = "HubUnreachable"

	// ReasonHubRefused says that the hub answered, and refused the spoke's request.
	ReasonHubRefused = "HubRefused"

	// ReasonNamespaceNotMapped says that the namespace of a binding is not mapped to a namespace at
	// the hub. Terminal.
	ReasonNamespaceNotMapped = "NamespaceNotMapped"

	// ReasonPrincipalUsageUnauthorized says that the namespace may not use the AWS identity that
	// the object names. Terminal.
	ReasonPrincipalUsageUnauthorized = "PrincipalUsageUnauthorized"

	// ReasonSourcePrincipalUsageUnauthorized says that a source of the object's AWS identity does
	// not admit the namespace. The identity's status.chain lists its sources. Terminal.
	ReasonSourcePrincipalUsageUnauthorized = "SourcePrincipalUsageUnauthorized"

	// ReasonSourceOnly says that the AWS identity may only be the source of other identities.
	// Terminal.
	ReasonSourceOnly = "SourceOnly"

	// ReasonSourceCycle says that the sources of an AWS identity form a cycle. Terminal.
	ReasonSourceCycle = "SourceCycle"

	// ReasonSourceChainTooLong says that the chain of an AWS identity has more than five
	// identities. Terminal.
	ReasonSourceChainTooLong = "SourceChainTooLong"

	// ReasonControllerIdentityMissing says that the AWSClusterControllerIdentity "default" does not
	// exist. Only this object lends the AWS identity of Lanyard's own programs to namespaces.
	// Terminal.
	ReasonControllerIdentityMissing = "ControllerIdentityMissing"

	// ReasonSecretNamespaceRefused says that a static AWS identity names a Secret outside the
	// namespace that is reserved for these Secrets. Terminal.
	ReasonSecretNamespaceRefused = "SecretNamespaceRefused"

	// ReasonStaticIdentityNotForSources says that the chain of an AWS identity ends in static keys,
	// but the controller that uses the identity does not read static keys. Terminal.
	ReasonStaticIdentityNotForSources = "StaticIdentityNotForSources"

	// ReasonAccountMismatch says that the identity's credentials belong to the wrong account. An
	// AWSCluster requires the account in spec.accountID. A binding requires the account of the
	// credential that is already in the Secret. Terminal.
	ReasonAccountMismatch = "AccountMismatch"

	// ReasonPrincipalCredentialRetrievalFailed says, in the condition PrincipalCredentialRetrieved,
	// that the AWS identity of an AWSCluster gave no credential. The condition Ready has a more
	// specific reason.
	ReasonPrincipalCredentialRetrievalFailed = "PrincipalCredentialRetrievalFailed"

	// ReasonIdentityInUse says that an AWS identity is being deleted, but objects still use it. The
	// identity stays until no object uses it any more.
	ReasonIdentityInUse = "IdentityInUse"

	// ReasonClusterNameTaken says that another AWSCluster has the same name and AWS account.
	ReasonClusterNameTaken = "ClusterNameTaken"

	// ReasonControllerForbidden says that the Kubernetes API does not let the controller do what
	// the object needs, such as reading a Secret of the object's namespace. The message names the
	// missing rule. Retried.
	ReasonControllerForbidden = "ControllerForbidden"

	// ReasonInternalError says that something failed for which no other reason fits, such as a call
	// to the Kubernetes API. Retried.
	ReasonInternalError = "InternalError"
)
