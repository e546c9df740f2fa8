package v1alpha1

import "github.com/lanyard-dev/lanyard/api/meta"

// RegistryAccess says with whose credential, and how, the controller talks to a registry. It is
// part of the spec of every kind that names a repository.
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
type RegistryAccess struct {
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
	// controller asks the registry as a cloud identity, which the account's annotations select.
	// For aws, "eks.amazonaws.com/role-arn" names the role. For azure,
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

	// identityRef names an AWS identity with which the controller asks the registry, in place of
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

	// insecure allows plain HTTP to the registry. It is allowed only with provider generic and
	// without credential, because a short-lived credential is never sent over an unprotected
	// connection. Default: false.
	//
	// +optional
	Insecure bool `json:"insecure,omitempty"`
}
