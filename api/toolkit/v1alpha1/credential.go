package v1alpha1

// Values of Credential.Type.
const (
	// CredentialServiceAccountToken is a token of a ServiceAccount, issued by the cluster.
	CredentialServiceAccountToken = "ServiceAccountToken"
	// CredentialWorkloadIdentityToken is a token of a WorkloadIdentity, issued by Lanyard.
	CredentialWorkloadIdentityToken = "WorkloadIdentityToken"
	// CredentialSpiffeJWT is a JWT-SVID of the object itself.
	CredentialSpiffeJWT = "SpiffeJWT" //nolint:gosec // the name of a type
	// CredentialSpiffeCertificate is an X.509-SVID of the object itself.
	CredentialSpiffeCertificate = "SpiffeCertificate" //nolint:gosec // the name of a type
)

// Credential selects the short-lived credential that the controller shows to a registry.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'SpiffeCertificate' || !has(self.audiences) || size(self.audiences) == 0",message="audiences do not work with type SpiffeCertificate: a certificate names no audience; remove audiences",fieldPath=".audiences"
type Credential struct {
	// type is the type of the credential:
	//
	//   - "ServiceAccountToken": a token of the ServiceAccount that serviceAccountName names. The
	//     cluster issues it.
	//   - "WorkloadIdentityToken": a token of the WorkloadIdentity that workloadIdentityName names.
	//   - "SpiffeJWT": a SPIFFE JWT-SVID of this object itself. Its subject is
	//     spiffe://<trust domain>/<resource>/<namespace>/<name>, such as
	//     "spiffe://example.com/ocirepositories/production/my-app".
	//   - "SpiffeCertificate": a SPIFFE X.509-SVID of this object, as client certificate in TLS.
	//
	// Tokens and certificates are valid for one hour at most. A token is sent as a bearer token. If
	// the server asks for a user and a password, the token is the password. The user is then the
	// value of the annotation "lanyard.dev/registry-username" of the ServiceAccount or the
	// WorkloadIdentity. Required.
	//
	// +required
	// +kubebuilder:validation:Enum=ServiceAccountToken;WorkloadIdentityToken;SpiffeJWT;SpiffeCertificate
	Type string `json:"type"`

	// audiences are the receivers of a token (claim aud), such as "registry.example.com". They must
	// not be audiences of the cluster's API server or of a cloud's token service. Otherwise a
	// receiver could use the token there. Default: the unchanged text of spec.url (OCIRepository)
	// or of spec.image (ImageRepository).
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[!-~]+$')",message="an audience must have only printable ASCII characters and no space, such as registry.example.com"
	Audiences []string `json:"audiences,omitempty"`
}
