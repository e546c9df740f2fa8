package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Schedule says when the controller works on an object. It is part of the spec of every kind of
// this group.
type Schedule struct {
	// interval is the time between two reconciliations of the object, as a Go duration with the
	// units h, m, s and ms, such as "5m" or "1h30m". Each reconciliation asks the server that the
	// spec names. From 1s to 8760h. Required.
	//
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="interval must be a duration from 1s to 8760h, such as 5m"
	Interval metav1.Duration `json:"interval"`

	// timeout limits the total time of one reconciliation's calls to the server that the spec
	// names. The exchange of the credential counts too. timeout is a Go duration with the units m,
	// s and ms, such as "90s". From 1s to 30m. Default: 60s.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('30m')",message="timeout must be a duration from 1s to 30m, such as 60s"
	// +kubebuilder:default="60s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// suspend stops reconciliation while it is true. The last result stays in the status. An
	// artifact is still served. Default: false.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}
