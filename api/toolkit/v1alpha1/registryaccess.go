package v1alpha1

// RegistryAccess says how the controller talks to a registry, and with whose credential. It is
// part of the spec of every kind that names a repository.
//
// +kubebuilder:validation:XValidation:rule="!has(self.workloadIdentityName) || self.provider != 'generic' || has(self.credential)",message="workloadIdentityName does not work with provider generic without credential: set provider to the identity's targetSystem.type, or credential.type to WorkloadIdentityToken",fieldPath=".workloadIdentityName"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || self.provider == 'generic'",message="credential works only with provider generic: a cloud provider issues a credential of its own; remove credential, or set provider: generic",fieldPath=".credential"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || !has(self.secretRef)",message="credential and secretRef exclude each other: name one source of credentials",fieldPath=".credential"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || !has(self.insecure) || !self.insecure",message="insecure and credential exclude each other: a short-lived credential is never sent over an unprotected connection; remove insecure",fieldPath=".insecure"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || self.credential.type != 'WorkloadIdentityToken' || has(self.workloadIdentityName)",message="credential.type WorkloadIdentityToken needs workloadIdentityName: name the WorkloadIdentity whose token is used",fieldPath=".credential"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || self.credential.type != 'ServiceAccountToken' || !has(self.workloadIdentityName)",message="credential.type ServiceAccountToken and workloadIdentityName exclude each other: set credential.type to WorkloadIdentityToken, or remove workloadIdentityName",fieldPath=".credential"
// +kubebuilder:validation:XValidation:rule="!has(self.credential) || !self.credential.type.startsWith('Spiffe') || !has(self.serviceAccountName) && !has(self.workloadIdentityName)",message="a SPIFFE credential proves the object itself: remove serviceAccountName and workloadIdentityName",fieldPath=".credential"
type RegistryAccess struct {
	Access `json:",inline"`

	// credential lets the controller authenticate directly at the registry, without a cloud. It
	// selects a short-lived token or certificate. The registry must trust the identity in this
	// token or certificate. The field works only with provider generic, and not together with
	// secretRef. Default: none.
	//
	// +optional
	Credential *Credential `json:"credential,omitempty"`
}
