package meta

// Identity reports whose credential the controller used for an object, so that people can see it
// without reading logs. It contains names, and never a token, a key or an assertion.
type Identity struct {
	// subject is the subject that the credential was issued for:
	//   - For a ServiceAccount, it is the name that the Kubernetes API server uses in tokens, such
	//     as "system:serviceaccount:tenant-a:tenant-a-ecr-sa".
	//   - For a WorkloadIdentity, it is "lanyard.dev:workloadidentity:<namespace>:<name>". Tokens
	//     add ":<uid>" unless the subjectFormat is Name.
	//   - For a SPIFFE credential, it is the object itself, such as
	//     "lanyard.dev:ocirepository:<namespace>:<name>".
	//   - For an AWS identity that an administrator lends, it has no namespace, such as
	//     "lanyard.dev:awsclusterroleidentity:<name>".
	//   - For the controller's own identity, it is "controller".
	//   - For a password from a Secret that the spec names, it is "secret:<namespace>:<name>", such
	//     as "secret:tenant-a:registry-pull".
	//   - For a password from a ServiceAccount's image pull secrets, it is the ServiceAccount.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Subject string `json:"subject"`

	// provider says where the credential comes from:
	//   - "aws", "azure" or "gcp" for a credential of that cloud
	//   - "aws" with spec.sts, because the token service speaks the protocol of AWS STS
	//   - "generic" for a stored password and for spec.credential
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider"`

	// cloudIdentity is the identity that the subject has at the provider:
	//   - AWS: the ARN of the IAM role, such as "arn:aws:iam::123456789123:role/tenant-a-ecr".
	//   - Azure: tenant and client ID of the application, as "<tenant>/<client>".
	//   - GCP: the address of the service account, the name of the workload identity provider, or
	//     both as "<provider>/serviceAccounts/<address>".
	//   - SPIFFE: the SPIFFE ID.
	//   - ServiceAccountToken and WorkloadIdentityToken: the user name that is sent with the token,
	//     if the subject's annotation sets one.
	//
	// The field is absent in these cases:
	//   - The cloud accepts the subject itself (GKE without a Google service account).
	//   - The credential is a stored password.
	//   - The controller used its own identity, and the provider does not report this identity.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	CloudIdentity string `json:"cloudIdentity,omitempty"`
}
