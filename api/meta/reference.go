package meta

// LocalReference names an object in the namespace of the object that has the reference. It has
// no namespace field on purpose: a tenant's input never names another tenant's namespace.
type LocalReference struct {
	// name is the name of the object, in the namespace of the object that has the reference. It
	// is a lower-case DNS-1123 subdomain of at most 253 characters, such as "registry-pull".
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be a lower-case DNS-1123 subdomain, such as registry-pull"
	Name string `json:"name"`
}
