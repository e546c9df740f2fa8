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
	// provider says which service the server is, and where credentials come from:
	//   - "generic": any OCI registry, or any service that speaks the protocol of Amazon S3. Other
	//     fields decide whether the controller uses a stored credential, a short-lived token, or no
	//     credential.
	//   - "aws": Amazon ECR or Amazon S3.
	//   - "azure": Azure Container Registry or Azure Blob Storage.
	//   - "gcp": Google Artifact Registry or Google Cloud Storage.
	//
	// For "aws", "azure" and "gcp", the cloud issues a short-lived credential to the object's
	// identity, such as a ServiceAccount. Nothing is stored. A controller that does not support a
	// provider sets the condition Stalled. Default: "generic".
	//
	// +optional
	// +kubebuilder:validation:Enum=generic;aws;azure;gcp
	// +kubebuilder:default=generic
	Provider string `json:"provider,omitempty"`

	// serviceAccountName names a ServiceAccount in this object's namespace, such as "tenant-a-sa".
	// It is a lower-case DNS-1123 subdomain.
	//
	// With a cloud provider, the controller authenticates as a cloud identity. Annotations of the
	// ServiceAccount select the cloud identity:
	//   - For aws, "eks.amazonaws.com/role-arn" names the role.
	//   - For azure, "azure.workload.identity/client-id" names the application.
	//     "azure.workload.identity/tenant-id" names the application's tenant, if that is not the
	//     controller's tenant.
	//   - For gcp, "iam.gke.io/gcp-service-account" names the Google service account. Without this
	//     annotation, the Kubernetes ServiceAccount is the principal. In a cluster outside GKE,
	//     "gcp.lanyard.dev/workload-identity-provider" names the provider that trusts the cluster.
	//
	// With provider generic, the kind of this object decides how the controller uses the
	// ServiceAccount. A kind that names a repository uses a token of the ServiceAccount if
	// credential.type is ServiceAccountToken. Without the field credential, such a kind uses the
	// ServiceAccount's imagePullSecrets: the first Secret that has an entry for the registry. A
	// ServiceAccount with more than 16 imagePullSecrets is refused. For a Bucket, the controller
	// exchanges the ServiceAccount's token at sts.endpoint, so sts must be set.
	// "eks.amazonaws.com/role-arn" then names the role.
	//
	// An object may have none of serviceAccountName, workloadIdentityName and identityRef. Such an
	// object can use a cloud provider or a ServiceAccountToken in two cases only:
	//   - The controller's administrator has set a default ServiceAccount.
	//   - The administrator lends the controller's own identity to this namespace.
	//
	// Default: none.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="serviceAccountName must be a lower-case DNS-1123 subdomain, such as tenant-a-sa; it names an account in this object's namespace"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// workloadIdentityName names a WorkloadIdentity in this object's namespace, such as
	// "tenant-a-puller". It is a lower-case DNS-1123 subdomain. With this field, the controller
	// uses a token of Lanyard's own issuer instead of a ServiceAccount's token. The field excludes
	// serviceAccountName, identityRef and secretRef.
	//
	// With a cloud provider, the WorkloadIdentity's targetSystem.type must be the same as provider.
	// The WorkloadIdentity's audiences must contain the audience that the cloud expects.
	//
	// With credential.type WorkloadIdentityToken, the token itself is the credential. The
	// targetSystem.type must not be a cloud, and the WorkloadIdentity's audiences must contain
	// credential.audiences. A Bucket does not have this credential.type.
	//
	// Default: none.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="workloadIdentityName must be a lower-case DNS-1123 subdomain, such as tenant-a-puller; it names a WorkloadIdentity in this object's namespace"
	WorkloadIdentityName string `json:"workloadIdentityName,omitempty"`

	// identityRef names the AWS identity that the controller uses for the server, in place of
	// serviceAccountName. The field is allowed only with provider aws. It excludes
	// serviceAccountName and workloadIdentityName. Default: none.
	//
	// The other rules depend on the identity's kind:
	//   - An AWSServiceAccountIdentity must be in this object's namespace.
	//   - An identity of any other kind belongs to an administrator, who lends it to namespaces
	//     with spec.allowedNamespaces. Such an identity excludes certSecretRef and proxySecretRef.
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
	// have, only "ca.crt" is used. An object that uses the controller's own identity (see
	// serviceAccountName) must not set this field.
	//
	// +optional
	CertSecretRef *meta.LocalReference `json:"certSecretRef,omitempty"`

	// proxySecretRef names a Secret in this object's namespace with the proxy for the server.
	// "address" is the proxy's URL without user and password, such as
	// "http://proxy.example.com:3128". "username" and "password" are optional keys. An exchange of
	// a token at a cloud or at spec.sts uses the proxy too. An object that uses the controller's
	// own identity (see serviceAccountName) must not set this field.
	//
	// +optional
	ProxySecretRef *meta.LocalReference `json:"proxySecretRef,omitempty"`

	// insecure allows plain HTTP to the server. It is allowed only with provider generic, and only
	// without the fields credential and sts. A short-lived credential is never sent over an
	// unprotected connection. Default: false.
	//
	// +optional
	Insecure bool `json:"insecure,omitempty"`
}
