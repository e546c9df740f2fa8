package meta

// Identity reports whose credential the controller used for an object, so that people can see it
// without reading logs. It contains names, and never a token, a key or an assertion.
type Identity struct {
	// subject is the subject that the credential was issued for. For a ServiceAccount, it is the
	// name that the Kubernetes API server uses in tokens, such as
	// "system:serviceaccount:tenant-a:tenant-a-ecr-sa". For a WorkloadIdentity, it is
	// "lanyard.dev:workloadidentity:<namespace>:<name>"; tokens add ":<uid>" unless the
	// subjectFormat is Name. An object with a SPIFFE credential is its own subject, such as
	// "lanyard.dev:ocirepository:<namespace>:<name>". For an AWS identity that an administrator
	// lends, the subject has no namespace, such as "lanyard.dev:awsclusterroleidentity:<name>".
	// "controller" means that the controller lent its own identity. "secret:<namespace>:<name>",
	// such as "secret:tenant-a:registry-pull", means that a password was read from that Secret. For
	// a password from a ServiceAccount's image pull secrets, the subject is the ServiceAccount.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Subject string `json:"subject"`

	// provider is the issuer of the credential: "aws", "azure" or "gcp". For a stored password and
	// for spec.credential, it is "generic". With spec.sts, it is the protocol of the token service:
	// "aws".
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider"`

	// cloudIdentity is the identity that the subject has at the provider. AWS: the ARN of the IAM
	// role, such as "arn:aws:iam::123456789123:role/tenant-a-ecr". Azure: tenant and client ID of
	// the application, as "<tenant>/<client>". GCP: the address of the service account, the name of
	// the workload identity provider, or both as "<provider>/serviceAccounts/<address>". SPIFFE:
	// the SPIFFE ID. ServiceAccountToken and WorkloadIdentityToken: the user name that is sent with
	// the token, if the subject's annotation sets one. The field is absent if the subject is itself
	// the principal (GKE without a service account), or if no cloud was asked. For the controller's
	// own identity, it is also absent if the provider does not report the identity.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	CloudIdentity string `json:"cloudIdentity,omitempty"`
}
