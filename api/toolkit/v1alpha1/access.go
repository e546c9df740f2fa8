package v1alpha1

import "github.com/lanyard-dev/lanyard/api/meta"

// Values of Access.Provider.
const (
	// ProviderGeneric authenticates with static credentials, with spec.credential, or without
	// credentials.
	ProviderGeneric = "generic"
	// ProviderAWS authenticates at Amazon Web Services.
	ProviderAWS = "aws"
	// ProviderAzure authenticates at Microsoft Azure.
	ProviderAzure = "azure"
	// ProviderGCP authenticates at Google Cloud.
	ProviderGCP = "gcp"
)

// Access says how the controller connects to the server that an object names, and with whose
// credential. It is part of the spec of every kind of this group that names a server.
//
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || self.provider == 'generic'",message="secretRef works only with provider generic: a cloud provider uses short-lived credentials; remove secretRef, or set provider: generic",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || !has(self.serviceAccountName)",message="secretRef and serviceAccountName exclude each other: name one source of credentials",fieldPath=".secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.insecure) || !self.insecure || self.provider == 'generic'",message="insecure works only with provider generic: a short-lived credential is never sent over an unprotected connection; remove insecure",fieldPath=".insecure"
// +kubebuilder:validation:XValidation:rule="!has(self.workloadIdentityName) || !has(self.serviceAccountName)",message="workloadIdentityName and serviceAccountName exclude each other: name one identity",fieldPath=".workloadIdentityName"
// +kubebuilder:validation:XValidation:rule="!has(self.workloadIdentityName) || !has(self.secretRef)",message="workloadIdentityName and secretRef exclude each other: name one source of credentials",fieldPath=".workloadIdentityName"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || self.provider == 'aws'",message="identityRef works only with provider aws: it names an AWS identity; remove identityRef, or set provider: aws",fieldPath=".identityRef"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.serviceAccountName) && !has(self.workloadIdentityName)",message="identityRef excludes serviceAccountName and workloadIdentityName: name one identity",fieldPath=".identityRef"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || self.identityRef.kind == 'AWSServiceAccountIdentity' || !has(self.certSecretRef) && !has(self.proxySecretRef)",message="an identity of an administrator is not used over a connection that the object chooses: remove certSecretRef and proxySecretRef, or name an AWSServiceAccountIdentity",fieldPath=".identityRef"
type Access struct {
	// provider says which service the server is, and where credentials come from. "generic": any
	// OCI registry, or any service that speaks the protocol of Amazon S3. Other fields decide
	// whether the controller uses a stored credential, a short-lived token, or no credential. "aws"
	// (Amazon ECR, Amazon S3), "azure" (Azure Container Registry, Azure Blob Storage) and "gcp"
	// (Google Artifact Registry, Google Cloud Storage): the cloud issues a short-lived credential
	// to the object's identity, such as a ServiceAccount; nothing is stored. A controller that does
	// not support a provider sets the condition Stalled. Default: "generic".
	//
	// +optional
	// +kubebuilder:validation:Enum=generic;aws;azure;gcp
	// +kubebuilder:default=generic
	Provider string `json:"provider,omitempty"`

	// serviceAccountName names a ServiceAccount in this object's namespace, such as "tenant-a-sa".
	// It is a lower-case DNS-1123 subdomain. With a cloud provider, the controller authenticates as
	// a cloud identity, which the account's annotations select. For aws,
	// "eks.amazonaws.com/role-arn" names the role. For azure, "azure.workload.identity/client-id"
	// names the application. "azure.workload.identity/tenant-id" names its tenant, if that is not
	// the controller's tenant. For gcp, "iam.gke.io/gcp-service-account" names the service account.
	// Without this annotation, the Kubernetes ServiceAccount is the principal. In a cluster outside
	// GKE, "gcp.lanyard.dev/workload-identity-provider" names the provider that trusts the cluster.
	// With provider generic, the kind of this object decides how the controller uses the account. A
	// kind that names a repository uses a token of the account if credential.type is
	// ServiceAccountToken. Otherwise it uses the first Secret in the account's imagePullSecrets
	// that has an entry for the registry. An account with more than 16 imagePullSecrets is refused.
	// For a Bucket, the controller exchanges the account's token at sts.endpoint, so sts must be
	// set. The annotation "eks.amazonaws.com/role-arn" then names the role. An object with none of
	// serviceAccountName, workloadIdentityName and identityRef cannot use a cloud provider or a
	// ServiceAccountToken, unless the controller's administrator has set a default account or lends
	// the controller's own identity to this namespace. Default: none.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="serviceAccountName must be a lower-case DNS-1123 subdomain, such as tenant-a-sa; it names an account in this object's namespace"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// workloadIdentityName names a WorkloadIdentity in this object's namespace, such as
	// "tenant-a-puller". It is a lower-case DNS-1123 subdomain. With this field, the controller
	// uses a token of Lanyard's own issuer instead of a ServiceAccount's token. With a cloud
	// provider, the identity's targetSystem.type must be the same provider, and the identity's
	// audiences must contain the audience that the provider expects. With credential.type
	// WorkloadIdentityToken, which a Bucket does not have, the token itself is the credential. The
	// targetSystem.type must then not be a cloud, and the identity's audiences must contain
	// credential.audiences. The field excludes serviceAccountName, identityRef and secretRef.
	// Default: none.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="workloadIdentityName must be a lower-case DNS-1123 subdomain, such as tenant-a-puller; it names a WorkloadIdentity in this object's namespace"
	WorkloadIdentityName string `json:"workloadIdentityName,omitempty"`

	// identityRef names the AWS identity that the controller uses for the server, in place of
	// serviceAccountName. An AWSServiceAccountIdentity must be in this object's namespace. The
	// other kinds belong to administrators, who lend them to namespaces with
	// spec.allowedNamespaces. These kinds are not used together with certSecretRef or
	// proxySecretRef. The field is allowed only with provider aws. It excludes serviceAccountName
	// and workloadIdentityName. Default: none.
	//
	// +optional
	IdentityRef *meta.AWSIdentityReference `json:"identityRef,omitempty"`

	// secretRef names a Secret in this object's namespace with a stored credential. For a
	// repository, the Secret has the registry's user and password, and the type
	// kubernetes.io/dockerconfigjson or the older kubernetes.io/dockercfg. For a bucket, the Secret
	// has a user's access key in "accesskey" and the secret key in "secretkey". The field is
	// allowed only with provider generic, and not together with serviceAccountName.
	//
	// +optional
	SecretRef *meta.LocalReference `json:"secretRef,omitempty"`

	// certSecretRef names a Secret in this object's namespace with TLS material for the server.
	// "ca.crt" is a PEM bundle of authorities. Only these authorities may sign the server's
	// certificate. "tls.crt" and "tls.key" are a client certificate and its key. Flux's older keys
	// "caFile", "certFile" and "keyFile" work too. The Secret applies only to the server, never to
	// the exchange of a credential. With credential.type SpiffeCertificate, which a Bucket does not
	// have, only "ca.crt" is used. The field is not allowed with the controller's own identity.
	//
	// +optional
	CertSecretRef *meta.LocalReference `json:"certSecretRef,omitempty"`

	// proxySecretRef names a Secret in this object's namespace with the proxy for the server.
	// "address" is the proxy's URL without user and password, such as
	// "http://proxy.example.com:3128". "username" and "password" are optional keys. An exchange of
	// a token at a cloud or at spec.sts uses the proxy too. The field is not allowed with the
	// controller's own identity.
	//
	// +optional
	ProxySecretRef *meta.LocalReference `json:"proxySecretRef,omitempty"`

	// insecure allows plain HTTP to the server. It is allowed only with provider generic, and only
	// without the fields credential and sts, because a short-lived credential is never sent over an
	// unprotected connection. Default: false.
	//
	// +optional
	Insecure bool `json:"insecure,omitempty"`
}
