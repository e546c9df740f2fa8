package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// WorkloadIdentityBindingKind is the kind of a WorkloadIdentityBinding in manifests.
const WorkloadIdentityBindingKind = "WorkloadIdentityBinding"

// WorkloadIdentityBinding keeps a fresh credential of one identity in one Secret, for programs that
// do not support workload identity. Whoever writes a binding decides which identity's credential
// goes into which Secret. So roles of tenants must not allow writing bindings.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=workloadidentitybindings,scope=Namespaced,shortName=lwib,categories=lanyard
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.spec.store.secretRef.name`,description="Secret that has the credential"
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.type`,description="System that the credential is for"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True while the Secret has a credential that is fresh"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready, for programs"
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.expiresAt`,description="When the credential in the Secret ends, UTC"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the binding was created"
// +kubebuilder:printcolumn:name="Format",type=string,JSONPath=`.spec.store.format`,description="What the Secret has",priority=1
// +kubebuilder:printcolumn:name="Renews",type=string,JSONPath=`.status.renewAt`,description="When the credential is renewed, UTC",priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What happened last, and how to fix it"
type WorkloadIdentityBinding struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which identity's credential goes into which Secret, and in which format.
	//
	// +required
	Spec WorkloadIdentityBindingSpec `json:"spec"`

	// status says how long the credential in the Secret lives. Lanyard's identity controller writes
	// the status.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status WorkloadIdentityBindingStatus `json:"status,omitempty"`
}

// WorkloadIdentityBindingSpec says which identity's credential goes into which Secret, and in which
// format. The identity is a WorkloadIdentity (workloadIdentity) or an AWS identity (identityRef).
// The fields providerConfig and contextObject are allowed only with workloadIdentity.
//
// +kubebuilder:validation:XValidation:rule="has(self.workloadIdentity) != has(self.identityRef)",message="name exactly one of workloadIdentity and identityRef"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || self.store.format in ['aws-session-keys', 'dockerconfigjson']",message="format must be aws-session-keys or dockerconfigjson with identityRef: an AWS identity has no token",fieldPath=".store.format"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.contextObject)",message="contextObject is for workloadIdentity alone: an AWS identity has no token that could name an object",fieldPath=".contextObject"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.providerConfig)",message="providerConfig is for workloadIdentity alone: an AWS identity says itself what it stands for",fieldPath=".providerConfig"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.type) || self.type == 'aws'",message="type must be aws with identityRef",fieldPath=".type"
type WorkloadIdentityBindingSpec struct {
	// type is the expected type of the identity's target system. If the identity has another type,
	// nothing is written. Default: the identity's type.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="type must have only lower-case letters, digits and hyphens, such as aws"
	Type string `json:"type,omitempty"`

	// providerConfig is the expected providerConfig of the identity's target system. If the
	// identity has another providerConfig, nothing is written. Default: the identity's
	// providerConfig.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	ProviderConfig *runtime.RawExtension `json:"providerConfig,omitempty"`

	// contextObject is the object that the credential is used for. The issuer checks that the
	// object exists and refers to the WorkloadIdentity, directly or through other objects. The
	// token then has claims about the object. Default: the binding itself. If the WorkloadIdentity
	// is in a hub cluster, the default is none, because the hub does not have the binding.
	//
	// +optional
	ContextObject *ContextObject `json:"contextObject,omitempty"`

	// workloadIdentity names the WorkloadIdentity, in the namespace of the binding. If you name
	// another WorkloadIdentity later, it must be for the same type of target system. If it is for
	// another account of the cloud, the annotation "lanyard.dev/allow-account-change" of the
	// binding must name that account. Default: none.
	//
	// +optional
	WorkloadIdentity *WorkloadIdentityReference `json:"workloadIdentity,omitempty"`

	// identityRef names an AWS identity. An AWSServiceAccountIdentity must be in the binding's
	// namespace. An AWSClusterRoleIdentity must admit this namespace in its allowedNamespaces. When
	// the identity no longer admits the namespace, the credential is removed from the Secret.
	// Default: none.
	//
	// +optional
	IdentityRef *BindingIdentityReference `json:"identityRef,omitempty"`

	// store says where the credential is written. Required.
	//
	// +required
	Store BindingStore `json:"store"`
}

// WorkloadIdentityReference names a WorkloadIdentity of the same namespace.
type WorkloadIdentityReference struct {
	// name is the name of the WorkloadIdentity. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be a lower-case DNS-1123 subdomain, such as banana-testing"
	Name string `json:"name"`
}

// BindingIdentityReference names an AWS identity whose credential a binding may write into a
// Secret.
type BindingIdentityReference struct {
	// kind is the kind of the identity. Required.
	//
	// +required
	// +kubebuilder:validation:Enum=AWSClusterRoleIdentity;AWSServiceAccountIdentity
	Kind string `json:"kind"`

	// name is the name of the identity. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be a lower-case DNS-1123 subdomain, such as test-account-role"
	Name string `json:"name"`
}

// ContextObject names the object that a credential is used for.
type ContextObject struct {
	// apiVersion is the group and version of the object, such as "core.gardener.cloud/v1beta1".
	// Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind is the kind of the object, such as "Shoot". Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// namespace is the namespace of the object. It is absent for a cluster-scoped object. The
	// issuer's configuration decides in which namespace an object of this kind must be.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the object. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is the UID of the object. It distinguishes the object from a deleted object of the same
	// name. Required.
	//
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid"`
}

// BindingStore says where a credential is written, and in which format.
//
// +kubebuilder:validation:XValidation:rule="(self.format == 'dockerconfigjson') == has(self.images)",message="images lists the repositories of format dockerconfigjson, and is for this format alone",fieldPath=".images"
// +kubebuilder:validation:XValidation:rule="(self.format == 'dockerconfigjson') == (oldSelf.format == 'dockerconfigjson')",message="format cannot change from or to dockerconfigjson, because the type of a Secret is immutable: create another binding",fieldPath=".format"
type BindingStore struct {
	// secretRef names the Secret, in the namespace of the binding. A Secret that exists already
	// must have the annotation "lanyard.dev/adopt" with the name of the binding. Immutable.
	// Required.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="secretRef is immutable: create another binding for another Secret"
	SecretRef BindingSecretReference `json:"secretRef"`

	// format decides which keys the Secret has.
	//
	// "sdk": workloadIdentityToken, workloadIdentityConfig, and the keys that the SDK of the target
	// system reads. A key in capitals has the value of the environment variable of that name. Any
	// other key has the content of a file. The keys for the SDKs are:
	//   - aws: AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE, AWS_REGION if the providerConfig has a
	//     region, and config.
	//   - azure: AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_FEDERATED_TOKEN_FILE, and
	//     AZURE_SUBSCRIPTION_ID if the providerConfig has a subscriptionID.
	//   - gcp: GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_CLOUD_PROJECT if the providerConfig has a
	//     projectID, and credentials.json.
	//   - alibaba: ALIBABA_CLOUD_ROLE_ARN, ALIBABA_CLOUD_OIDC_PROVIDER_ARN and
	//     ALIBABA_CLOUD_OIDC_TOKEN_FILE.
	//   - vault: VAULT_ADDR, and login.json, the body of a login request.
	//   - kubernetes: KUBECONFIG, and kubeconfig.
	//   - any other type: no further keys.
	//
	// "token": workloadIdentityToken, a JWT, and workloadIdentityConfig, the providerConfig in
	// JSON.
	//
	// "dockerconfigjson": .dockerconfigjson, with logins for the registries of the field images.
	// The Secret has the type kubernetes.io/dockerconfigjson. A binding cannot change from or to
	// this format.
	//
	// "aws-session-keys": AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
	// AWS_CREDENTIAL_EXPIRATION, AWS_REGION if a region is known, and credentials, an AWS
	// credentials file.
	//
	// Default: "sdk".
	//
	// +optional
	// +kubebuilder:validation:Enum=sdk;token;dockerconfigjson;aws-session-keys
	// +kubebuilder:default=sdk
	Format StoreFormat `json:"format,omitempty"`

	// mountPath is the folder in which the consumer finds the keys of the Secret as files. Paths
	// inside the Secret's data begin with this folder. An absolute path of letters, digits and ._-/
	// without "..", at most 255 characters. Default:
	// "/var/run/secrets/lanyard.dev/workload-identity".
	//
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$')",message="mountPath must be an absolute path, such as /var/run/secrets/lanyard.dev/workload-identity"
	// +kubebuilder:default="/var/run/secrets/lanyard.dev/workload-identity"
	MountPath string `json:"mountPath,omitempty"`

	// images are the repositories for which the format dockerconfigjson has logins, such as
	// "123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app", without tag and digest. At least
	// one, at most 16, without duplicates. Required for this format, and not allowed for other
	// formats.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=3
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[0-9]{1,5})?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)+$')",message="an image must be <registry>/<repository> without tag and digest"
	Images []string `json:"images,omitempty"`
}

// BindingSecretReference names a Secret of the same namespace.
type BindingSecretReference struct {
	// name is the name of the Secret. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be a lower-case DNS-1123 subdomain, such as cloudprovider"
	Name string `json:"name"`
}

// StoreFormat decides which keys the Secret of a binding has.
type StoreFormat string

// Values of BindingStore.Format.
const (
	// StoreSDK stores a token, the identity's providerConfig, and the variables and files that the
	// SDK of the target system reads.
	StoreSDK StoreFormat = "sdk"
	// StoreToken stores only a token and the identity's providerConfig.
	StoreToken StoreFormat = "token"
	// StoreDockerConfigJSON stores logins that a cloud issues for its registries.
	StoreDockerConfigJSON StoreFormat = "dockerconfigjson"
	// StoreAWSSessionKeys stores a session that AWS STS issues.
	StoreAWSSessionKeys StoreFormat = "aws-session-keys"
)

// Label and annotations of Secrets that the binding controller reads or writes.
const (
	// ProviderLabel is on each Secret of a binding. Its value is the type of the target system.
	ProviderLabel = "workloadidentity.lanyard.dev/provider"

	// BindingAnnotation is on each Secret of a binding. Its value is the name of the binding. Only
	// this binding writes the Secret.
	BindingAnnotation = "workloadidentity.lanyard.dev/binding"

	// AdoptAnnotation on an existing Secret allows a binding to write the Secret, unless the Secret
	// belongs to another binding. Its value is the name of the binding.
	AdoptAnnotation = "lanyard.dev/adopt"
)

// WorkloadIdentityBindingStatus says how long the credential in the Secret lives. The condition
// Ready is True while the credential is fresh.
type WorkloadIdentityBindingStatus struct {
	meta.Status `json:",inline"`

	// issuedAt is when the credential in the Secret was issued, UTC.
	//
	// +optional
	IssuedAt *metav1.Time `json:"issuedAt,omitempty"`

	// expiresAt is the time, in UTC, when the credential in the Secret expires.
	//
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// renewAt is the planned time, in UTC, of the next renewal of the credential. A request, a
	// revoked key, or a change to the Secret or an input (see digest) causes an earlier renewal.
	//
	// +optional
	RenewAt *metav1.Time `json:"renewAt,omitempty"`

	// kid is the ID of the key that signed the token in the Secret. It is empty if the Secret has
	// an exchanged credential instead of a token.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	KID string `json:"kid,omitempty"`

	// digest is the SHA-256, in hex, of the Secret's data and of the inputs from which the data was
	// made. The inputs are the identity, spec.store and the context object. If the Secret or an
	// input has changed, the controller writes the Secret again.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Digest string `json:"digest,omitempty"`

	// keys are the data keys that the binding has written into the Secret, sorted. The binding
	// removes these keys with the credential, whoever has changed their values.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Keys []string `json:"keys,omitempty"`

	// type is the type of the target system that the Secret has a credential for. It never changes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type,omitempty"`

	// account is the cloud account that the Secret has a credential for, such as the ID of an AWS
	// account. The field is empty if Lanyard cannot tell the account from the identity, for example
	// because the target system has no accounts.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Account string `json:"account,omitempty"`
}

// GetStatus returns the part of the status that all kinds have, for reading and writing.
func (o *WorkloadIdentityBinding) GetStatus() *meta.Status { return &o.Status.Status }

// WorkloadIdentityBindingList is a list of WorkloadIdentityBinding objects.
//
// +kubebuilder:object:root=true
type WorkloadIdentityBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []WorkloadIdentityBinding `json:"items"`
}
