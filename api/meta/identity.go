package meta

// Identity reports whose credential a reconciler used for an object, so that
// people can see it without reading logs. It holds names and never
// a token, a key or an assertion.
type Identity struct {
	// subject is who the credential was issued for: a ServiceAccount as the
	// Kubernetes API server names it in tokens, such as
	// "system:serviceaccount:tenant-a:tenant-a-ecr-sa"; or "controller" where
	// the controller lent its own identity; or "secret:<namespace>:<name>", such
	// as "secret:tenant-a:registry-pull", where a password was read from that
	// Secret. For a password from a ServiceAccount's image pull secrets it is
	// the ServiceAccount.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Subject string `json:"subject"`

	// provider is what issued the credential: aws, azure or gcp; or generic for
	// a password that was stored. With spec.sts it is the protocol of that
	// service: aws.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider"`

	// cloudIdentity is the identity that the subject stands for at the
	// provider. AWS: the ARN of the IAM role, such as
	// "arn:aws:iam::123456789123:role/tenant-a-ecr". Azure: tenant and client ID
	// of the application, as "<tenant>/<client>". GCP: the address of the
	// service account, or the name of the workload identity provider, or both
	// as "<provider>/serviceAccounts/<address>". Absent where the subject is
	// itself the principal (GKE without a service account), where no cloud was
	// asked, and where the provider does not tell (the controller's own
	// identity).
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	CloudIdentity string `json:"cloudIdentity,omitempty"`
}
