package meta

// AWSIdentityReference names the AWS identity that is used for an object. An
// AWSServiceAccountIdentity must be in the object's own namespace. The other kinds are
// cluster-scoped; their spec.allowedNamespaces must admit the object's namespace.
type AWSIdentityReference struct {
	// kind is the kind of the identity, in the group identity.lanyard.dev. Required.
	//
	// +required
	// +kubebuilder:validation:Enum=AWSClusterControllerIdentity;AWSClusterStaticIdentity;AWSClusterRoleIdentity;AWSServiceAccountIdentity
	Kind string `json:"kind"`

	// name is the name of the identity. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be a lower-case DNS-1123 subdomain, such as test-account-role"
	Name string `json:"name"`
}
