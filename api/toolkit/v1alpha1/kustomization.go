package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// ExternalArtifactKind is the name of Flux's kind for artifacts that others publish
// (source.toolkit.fluxcd.io/v1).
const ExternalArtifactKind = "ExternalArtifact"

// KustomizationKind is the kind of a Kustomization in manifests.
const KustomizationKind = "Kustomization"

// Kustomization builds manifests from a source's artifact, and applies them to the cluster as a
// ServiceAccount of its tenant. The API server decides each object with the rights of this account.
// The fields have the names and the meaning of Flux's Kustomization.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=lks,categories=lanyard
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters, because each applied object gets the name as a label"
// +kubebuilder:validation:XValidation:rule="has(self.spec.kubeConfig) == has(oldSelf.spec.kubeConfig) || !has(self.status) || !has(self.status.inventory) || size(self.status.inventory.entries) == 0",message="spec.kubeConfig cannot be added or removed while status.inventory has objects, because nobody would delete them: delete this Kustomization, and create it anew"
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.sourceRef.name`,description="Source whose artifact is applied"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once the cluster has the objects that the artifact asks for"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready, for programs"
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="Healthy")].status`,description="True while the objects that this object waits for are healthy; empty if it waits for none",priority=1
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.spec.serviceAccountName`,description="ServiceAccount that applies; empty for the administrator's default"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the object was created"
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=`.spec.path`,description="Folder in the artifact",priority=1
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.lastAppliedRevision`,description="Revision that was applied last",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type Kustomization struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what to build, and how and as whom to apply it.
	//
	// +required
	Spec KustomizationSpec `json:"spec"`

	// status says what was applied, and what went wrong. The controller writes the status.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status KustomizationStatus `json:"status,omitempty"`
}

// Values of KustomizationSpec.DeletionPolicy.
const (
	// DeletionPolicyMirrorPrune deletes the applied objects if spec.prune is true.
	DeletionPolicyMirrorPrune = "MirrorPrune"
	// DeletionPolicyDelete deletes the applied objects.
	DeletionPolicyDelete = "Delete"
	// DeletionPolicyWaitForTermination deletes the applied objects, and keeps the Kustomization
	// until they are gone.
	DeletionPolicyWaitForTermination = "WaitForTermination"
	// DeletionPolicyOrphan leaves the applied objects in the cluster.
	DeletionPolicyOrphan = "Orphan"
)

// KustomizationSpec says what to build, and how and as whom to apply it.
type KustomizationSpec struct {
	// sourceRef names the source of the artifact, in this object's namespace. Required.
	//
	// +required
	SourceRef SourceReference `json:"sourceRef"`

	// dependsOn names Kustomizations of this object's namespace that must be Ready before this object
	// is applied. If they have the same source, they must have applied the same revision.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	DependsOn []KustomizationDependency `json:"dependsOn,omitempty"`

	// path is the folder in the artifact, such as "./apps/production". If the folder has no
	// kustomization file, all its YAML files are applied. Default: the artifact's root.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// prune deletes objects that were applied before, and that the artifact has no longer. Required.
	//
	// +required
	Prune bool `json:"prune"`

	// deletionPolicy says what happens with the applied objects when this object is deleted:
	//   - "MirrorPrune": they are deleted if prune is true.
	//   - "Delete": they are deleted.
	//   - "WaitForTermination": they are deleted, and this object stays until they are gone.
	//   - "Orphan": they stay.
	//
	// Default: "MirrorPrune".
	//
	// +optional
	// +kubebuilder:validation:Enum=MirrorPrune;Delete;WaitForTermination;Orphan
	DeletionPolicy string `json:"deletionPolicy,omitempty"`

	// serviceAccountName names the ServiceAccount in this object's namespace that applies, such as
	// "deployer". All requests for the applied objects are sent as this account. Default: the
	// account that the controller's administrator has set (--default-service-account). Without
	// both, the object becomes Stalled. With kubeConfig, there is no default: the user of the file
	// applies.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// interval is the time between two reconciliations, as a Go duration with the units h, m, s and
	// ms, such as "10m". Each reconciliation undoes changes that others have made to the applied
	// objects. From 1s to 8760h. Required.
	//
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="interval must be a duration from 1s to 8760h, such as 10m"
	Interval metav1.Duration `json:"interval"`

	// retryInterval is the longest time from a failure to the next attempt. Attempts begin after a
	// second, and the time doubles. From 1s to 8760h. Default: 2m.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="retryInterval must be a duration from 1s to 8760h, such as 1m"
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`

	// timeout limits the time of one reconciliation, and then the time until the applied objects are
	// healthy. From 1s to 30m. Default: interval less 30s, but at least 30s and at most 30m.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('30m')",message="timeout must be a duration from 1s to 30m, such as 5m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// suspend stops reconciliation while it is true. The applied objects stay. Default: false.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// targetNamespace replaces the namespace of all objects that have a namespace.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// namePrefix is added before the names of all objects.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	NamePrefix string `json:"namePrefix,omitempty"`

	// nameSuffix is added after the names of all objects.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	NameSuffix string `json:"nameSuffix,omitempty"`

	// commonMetadata has labels and annotations for all objects. They replace those of the artifact.
	//
	// +optional
	CommonMetadata *CommonMetadata `json:"commonMetadata,omitempty"`

	// patches change objects after the patches of the kustomization file.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Patches []Patch `json:"patches,omitempty"`

	// images change the images of containers. They override those of the kustomization file.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Images []Image `json:"images,omitempty"`

	// components are folders with kustomize Components, relative to path.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=1024
	Components []string `json:"components,omitempty"`

	// ignoreMissingComponents leaves out components that the artifact does not have. Default: false.
	//
	// +optional
	IgnoreMissingComponents bool `json:"ignoreMissingComponents,omitempty"`

	// buildMetadata adds annotations that say where an object comes from ("originAnnotations") and
	// which transformers changed it ("transformerAnnotations").
	//
	// +optional
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=originAnnotations;transformerAnnotations
	BuildMetadata []string `json:"buildMetadata,omitempty"`

	// postBuild replaces variables such as ${cluster} in the built manifests. An object with the
	// label or annotation kustomize.toolkit.lanyard.dev/substitute: disabled is left as it is.
	//
	// +optional
	PostBuild *PostBuild `json:"postBuild,omitempty"`

	// force deletes an object and creates it anew if a field changed that cannot be changed.
	// Default: false.
	//
	// +optional
	Force bool `json:"force,omitempty"`

	// ignore has fields of applied objects that other programs manage. Changes of these fields stay.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Ignore []IgnoreRule `json:"ignore,omitempty"`

	// wait makes this object Ready only once all applied objects are healthy. healthChecks has no
	// effect then. Default: false.
	//
	// +optional
	Wait bool `json:"wait,omitempty"`

	// healthChecks names objects that must be healthy before this object is Ready. They are read as the
	// ServiceAccount that applies.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=256
	HealthChecks []HealthCheck `json:"healthChecks,omitempty"`

	// healthCheckExprs says for some kinds which of their objects are healthy. Other kinds are judged by
	// the rules of kstatus, as kubectl and Flux do. Has an effect only with wait or healthChecks.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	HealthCheckExprs []HealthCheckExpr `json:"healthCheckExprs,omitempty"`

	// decryption says how files that SOPS encrypted are decrypted, before the build. Default: a Secret
	// that is encrypted is refused.
	//
	// +optional
	Decryption *Decryption `json:"decryption,omitempty"`

	// kubeConfig names another cluster that gets the manifests. The user of the kubeconfig file acts
	// there. If serviceAccountName is set, this user impersonates
	// system:serviceaccount:<namespace>:<serviceAccountName> there. The controller's default account is
	// never impersonated in another cluster. Default: this cluster.
	//
	// +optional
	KubeConfig *KubeConfigReference `json:"kubeConfig,omitempty"`
}

// Decryption says how encrypted files are decrypted, and with whose identity. Which cloud is asked
// follows from the master keys in each file.
//
// +kubebuilder:validation:XValidation:rule="!has(self.workloadIdentityName) || !has(self.serviceAccountName)",message="workloadIdentityName and serviceAccountName exclude each other: name one identity",fieldPath=".workloadIdentityName"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.serviceAccountName) && !has(self.workloadIdentityName)",message="identityRef excludes serviceAccountName and workloadIdentityName: name one identity",fieldPath=".identityRef"
type Decryption struct {
	// provider must be "sops". Required.
	//
	// +required
	// +kubebuilder:validation:Enum=sops
	Provider string `json:"provider"`

	// serviceAccountName names the ServiceAccount that asks the key services of clouds, in this
	// object's namespace. It is another one than spec.serviceAccountName, which applies. Default: the
	// administrator's default account for decryption. Without this default, the controller's own
	// identity asks if the administrator lends it to this namespace. Otherwise no cloud is asked.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// workloadIdentityName names a WorkloadIdentity in this object's namespace. The WorkloadIdentity
	// asks a key service in place of a ServiceAccount. Its spec.targetSystem.type says which cloud is
	// asked: "aws", "azure" or "gcp". Its audiences must contain the audience that this cloud expects.
	//
	// The administrator must have installed Lanyard's token server. Default: none.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	WorkloadIdentityName string `json:"workloadIdentityName,omitempty"`

	// identityRef names the AWS identity that asks AWS KMS, in place of serviceAccountName. No other
	// cloud is asked. An AWSServiceAccountIdentity must be in this object's namespace. An identity of
	// any other kind belongs to an administrator, who lends it to namespaces with
	// spec.allowedNamespaces. Default: none.
	//
	// +optional
	IdentityRef *meta.AWSIdentityReference `json:"identityRef,omitempty"`

	// secretRef names a Secret with private keys, in this object's namespace: identities of age in
	// keys that end in ".agekey", and OpenPGP keys without a passphrase in keys that end in ".asc".
	//
	// +optional
	SecretRef *meta.LocalReference `json:"secretRef,omitempty"`
}

// DecryptionSOPS is the value of Decryption.Provider.
const DecryptionSOPS = "sops"

// KubeConfigReference names a kubeconfig file.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) || has(self.configMapRef)",message="secretRef is required: name the Secret with the kubeconfig file"
type KubeConfigReference struct {
	// secretRef names the Secret with the file, in this object's namespace. Required.
	//
	// +optional
	SecretRef *SecretKeyReference `json:"secretRef,omitempty"`

	// configMapRef is a field of Flux that Lanyard does not have yet. It is refused.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="a cluster without a stored credential (configMapRef) is not supported yet: use secretRef, or let Flux apply this Kustomization"
	ConfigMapRef *Unsupported `json:"configMapRef,omitempty"`
}

// SecretKeyReference names a key of a Secret in the same namespace.
type SecretKeyReference struct {
	meta.LocalReference `json:",inline"`

	// key is the key of the Secret's data. Default: "value" or, if the Secret does not have this key,
	// "value.yaml".
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// KustomizationDependency names a Kustomization in the same namespace.
type KustomizationDependency struct {
	meta.LocalReference `json:",inline"`

	// readyExpr is a CEL expression that says whether the other Kustomization is ready. It replaces the
	// comparison of the condition Ready and of the revision. The variable "self" is this object, and
	// "dep" is the other one. Example: "dep.status.lastAppliedRevision.startsWith('1.')".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ReadyExpr string `json:"readyExpr,omitempty"`
}

// HealthCheck names an object that must be healthy.
type HealthCheck struct {
	// apiVersion is the API group and version, such as "apps/v1". Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind is the kind, such as "Deployment". Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Kind string `json:"kind"`

	// name is the name of the object. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace is the object's namespace. Default: this object's namespace. It has no effect for a
	// cluster-scoped kind.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// HealthCheckExpr says which objects of a kind are healthy. The expressions are evaluated in the order
// inProgress, failed, current, and the first that is true decides. If none is true, or if a field does
// not exist, the object is in progress. An expression that needs too much time or memory counts as
// failed. The variables of an expression are the object's fields, such as "status".
type HealthCheckExpr struct {
	// apiVersion has the API group, such as "bitnami.com/v1alpha1". Its version has no effect. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind is the kind, such as "SealedSecret". Default: all kinds of the group.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Kind string `json:"kind,omitempty"`

	// current is a CEL expression. If it is true, the object is healthy. Required. Example:
	// "status.conditions.filter(e, e.type == 'Synced').all(e, e.status == 'True')".
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Current string `json:"current"`

	// inProgress is a CEL expression. If it is true, the object may become healthy.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	InProgress string `json:"inProgress,omitempty"`

	// failed is a CEL expression. If it is true, the object does not become healthy without help.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Failed string `json:"failed,omitempty"`
}

// SourceReference names a source in the same namespace.
type SourceReference struct {
	// kind is the kind of the source: OCIRepository, Bucket, or Flux's ExternalArtifact. Required.
	//
	// +required
	// +kubebuilder:validation:Enum=OCIRepository;Bucket;ExternalArtifact
	Kind string `json:"kind"`

	// name is the name of the source. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// CommonMetadata has labels and annotations.
type CommonMetadata struct {
	// labels are added to all objects.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are added to all objects.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Patch is a strategic merge patch, or a JSON patch (RFC 6902), for some objects.
type Patch struct {
	// patch is the text of the patch, in YAML or JSON. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Patch string `json:"patch"`

	// target selects the objects. Default: the object that the patch names.
	//
	// +optional
	Target *Selector `json:"target,omitempty"`
}

// Selector selects objects. A field that is not set selects all objects. The fields except the
// selectors are regular expressions that match the whole value.
type Selector struct {
	// group is the API group, such as "apps".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// version is the version of the API group, such as "v1".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// kind is the kind, such as "Deployment".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Kind string `json:"kind,omitempty"`

	// name is the object's name.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// namespace is the object's namespace.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace,omitempty"`

	// labelSelector selects objects by their labels, such as "app=web,tier!=test".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LabelSelector string `json:"labelSelector,omitempty"`

	// annotationSelector selects objects by their annotations, in the format of labelSelector.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	AnnotationSelector string `json:"annotationSelector,omitempty"`
}

// Image changes the images with a name.
type Image struct {
	// name is the image without tag and digest, such as "registry.example.com/web". Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`

	// newName replaces the name.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	NewName string `json:"newName,omitempty"`

	// newTag replaces the tag.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	NewTag string `json:"newTag,omitempty"`

	// digest replaces the tag by a digest, such as "sha256:…". It takes precedence over newTag.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Digest string `json:"digest,omitempty"`
}

// Values of PostBuild.SubstituteStrategy.
const (
	// SubstituteWithVariables replaces variables only if there is at least one value.
	SubstituteWithVariables = "WithVariables"
	// SubstituteAlways replaces variables by their defaults even if there is no value.
	SubstituteAlways = "Always"
)

// PostBuild says which variables are replaced after the build.
type PostBuild struct {
	// substituteStrategy is "WithVariables" to replace variables only if there is at least one
	// value, or "Always" to replace them by their defaults otherwise. Default: "WithVariables".
	//
	// +optional
	// +kubebuilder:validation:Enum=WithVariables;Always
	SubstituteStrategy string `json:"substituteStrategy,omitempty"`

	// substitute has the value of each variable. It takes precedence over substituteFrom.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=1024
	Substitute map[string]string `json:"substitute,omitempty"`

	// substituteFrom names ConfigMaps and Secrets in this object's namespace. Each of their keys is
	// a variable. A later one takes precedence. They are read as the ServiceAccount that applies.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	SubstituteFrom []SubstituteReference `json:"substituteFrom,omitempty"`
}

// SubstituteReference names a ConfigMap or a Secret with variables.
type SubstituteReference struct {
	// kind is "ConfigMap" or "Secret". Required.
	//
	// +required
	// +kubebuilder:validation:Enum=ConfigMap;Secret
	Kind string `json:"kind"`

	// name is the name of the object. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// optional lets the build go on without the object if the object does not exist. Default:
	// false.
	//
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// IgnoreRule names fields that other programs manage.
type IgnoreRule struct {
	// paths are the fields, as JSON pointers (RFC 6901) such as "/spec/replicas". Required.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	Paths []string `json:"paths"`

	// target selects the objects. Default: all objects.
	//
	// +optional
	Target *Selector `json:"target,omitempty"`
}

// KustomizationStatus says what was applied.
type KustomizationStatus struct {
	meta.Status `json:",inline"`

	// lastAppliedRevision is the revision of the artifact that was applied last without error.
	//
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// lastAppliedOriginRevision is the revision of the source code from which that artifact was
	// made, if the source knows it.
	//
	// +optional
	LastAppliedOriginRevision string `json:"lastAppliedOriginRevision,omitempty"`

	// lastAttemptedRevision is the revision of the artifact of the last attempt.
	//
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// inventory lists the objects that were applied, or are about to be applied. Objects that leave
	// the list are deleted if spec.prune is true.
	//
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`

	// decryption says which keys decrypted the files of the manifests that were applied last. The field
	// is absent if no file was encrypted.
	//
	// +optional
	Decryption *DecryptionStatus `json:"decryption,omitempty"`

	// history has what was applied, the last first. It has at most five entries. An entry changes when
	// manifests are applied for the first time, when objects had to be changed, and when the result or
	// the revision changes. A reconciliation that finds everything in place changes no entry.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=5
	History []HistoryEntry `json:"history,omitempty"`
}

// DecryptionStatus says which keys decrypted files.
type DecryptionStatus struct {
	// files has the first files by name, at most 10.
	//
	// +required
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	Files []DecryptedFile `json:"files"`

	// otherFiles is the number of files that are not in the list.
	//
	// +optional
	OtherFiles int32 `json:"otherFiles,omitempty"`
}

// DecryptedFile is a file that was decrypted.
type DecryptedFile struct {
	// name is the path of the file in the artifact. A value in the data of a Secret can also be an
	// encrypted file. Its name is the path of the manifest, the Secret, and the key of the data.
	//
	// +required
	Name string `json:"name"`

	// keys are the master keys that decrypted the file's data key. Each key group that was needed has
	// one key. At most three keys are listed.
	//
	// +required
	// +kubebuilder:validation:MaxItems=3
	// +listType=atomic
	Keys []DecryptionKey `json:"keys"`
}

// DecryptionKey is a master key that decrypted a data key.
type DecryptionKey struct {
	// name is the type and the name of the key, such as "AWS KMS key arn:…".
	//
	// +required
	Name string `json:"name"`

	// subject names the identity that asked the key service, such as
	// "system:serviceaccount:tenant-a:kms". The field is absent for a private key in a Secret.
	//
	// +optional
	Subject string `json:"subject,omitempty"`
}

// HistoryEntry says how some manifests were applied.
type HistoryEntry struct {
	// digest identifies the manifests, such as "sha256:…". If they have values of Secrets, it identifies
	// what they were built from.
	//
	// +required
	Digest string `json:"digest"`

	// firstReconciled is when the manifests were applied for the first time.
	//
	// +required
	FirstReconciled metav1.Time `json:"firstReconciled"`

	// lastReconciled is when the entry was changed last.
	//
	// +required
	LastReconciled metav1.Time `json:"lastReconciled"`

	// lastReconciledDuration is how long the last change took, with the time until the objects were
	// healthy.
	//
	// +required
	// +kubebuilder:validation:Type=string
	LastReconciledDuration metav1.Duration `json:"lastReconciledDuration"`

	// lastReconciledStatus is the reason of the condition Ready then, such as "Succeeded" or
	// "HealthCheckFailed".
	//
	// +required
	LastReconciledStatus string `json:"lastReconciledStatus"`

	// totalReconciliations is how often the entry was changed.
	//
	// +required
	TotalReconciliations int64 `json:"totalReconciliations"`

	// metadata has the revision of the artifact ("revision") and, if it is known, of the source code
	// ("originRevision").
	//
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Inventory lists applied objects.
type Inventory struct {
	// entries has one entry for each object, sorted by id.
	//
	// +required
	Entries []InventoryEntry `json:"entries"`
}

// InventoryEntry names an applied object.
type InventoryEntry struct {
	// id is "<namespace>_<name>_<group>_<kind>". The namespace is empty for a cluster-scoped object,
	// and the group for the core group. A colon in the name of an RBAC object is written as "__".
	//
	// +required
	ID string `json:"id"`

	// v is the version of the API with which the object was applied, such as "v1".
	//
	// +required
	Version string `json:"v"`
}

// KustomizationList is a list of Kustomizations.
//
// +kubebuilder:object:root=true
type KustomizationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []Kustomization `json:"items"`
}

// GetStatus returns the common part of the status, for reading and writing.
func (o *Kustomization) GetStatus() *meta.Status { return &o.Status.Status }
