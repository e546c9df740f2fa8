package v1alpha1

import (
	"bytes"
	"encoding/json"

	kjson "sigs.k8s.io/json"
)

// AllowedNamespaces says which namespaces may use an identity. Nil admits nobody, and so does the
// zero value. Encoding and decoding never change who is admitted. Package auth/grant of Lanyard's
// library decides.
//
// The schema keeps unknown fields, here and in the selector. If the API server dropped an unknown
// field, {} could remain, which admits every namespace, or a selector without one of its
// conditions. An admission policy refuses unknown fields. A stored grant with an unknown field
// admits nobody.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!has(self.selector) || self.selector == null || (has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",message="an empty selector admits nobody: write allowedNamespaces as {} to admit every namespace, or give the selector a condition",fieldPath=".selector"
type AllowedNamespaces struct {
	// All admits every namespace. In JSON it is the object without fields, {}. The other fields
	// must then be empty.
	All bool `json:"-"`

	// list names the namespaces that are admitted. At most 256, no wildcards. An empty list admits
	// nobody. Default: none.
	//
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="list must have names of namespaces: wildcards do not exist, and allowedNamespaces {} admits every namespace"
	List []string `json:"list"`

	// selector admits the namespaces whose labels match, in addition to those of the list. Default:
	// none.
	//
	// +optional
	// +nullable
	Selector *NamespaceSelector `json:"selector,omitempty"`
}

// NamespaceSelector is a Kubernetes label selector for namespaces. A namespace matches if it meets
// all conditions. An empty selector matches no namespace.
//
// +kubebuilder:pruning:PreserveUnknownFields
type NamespaceSelector struct {
	// matchLabels are labels that a namespace must have, all of them and with exactly these values.
	// At most 32.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// matchExpressions are further conditions, which must all be true. At most 32.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MatchExpressions []NamespaceRequirement `json:"matchExpressions,omitempty"`
}

// NamespaceRequirement is one condition on one label of a namespace.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="In and NotIn need at least one value, Exists and DoesNotExist take none",fieldPath=".values"
type NamespaceRequirement struct {
	// key is the label's key. Required.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="key must be the key of a label, such as team or example.com/team"
	Key string `json:"key"`

	// operator compares the label with the values: In, NotIn, Exists or DoesNotExist. Required.
	//
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator string `json:"operator"`

	// values has at least one value with In and NotIn, and none with Exists and DoesNotExist. At
	// most 64.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="values must be values of labels"
	Values []string `json:"values,omitempty"`
}

// MarshalJSON writes {} only for All. It writes every other grant with its list, even an empty
// list, so that removing the last namespace of a list never admits everybody.
func (a AllowedNamespaces) MarshalJSON() ([]byte, error) {
	if a.All && len(a.List) == 0 && a.Selector == nil {
		return []byte("{}"), nil
	}
	if a.List == nil {
		a.List = []string{}
	}
	type fields AllowedNamespaces // has the fields, not this method
	return json.Marshal(fields(a))
}

// UnmarshalJSON reads {} as All. What cannot be read as a grant, such as an object with an unknown
// field, is a grant that admits nobody and not an error: one such object must not keep a program
// from reading all others. A field in the wrong letter case is unknown, also in the selector.
func (a *AllowedNamespaces) UnmarshalJSON(data []byte) error {
	*a = AllowedNamespaces{}
	if string(bytes.TrimSpace(data)) == "null" {
		return nil
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil //nolint:nilerr // it admits nobody
	}
	type fields AllowedNamespaces // has the fields, not this method
	var read fields
	if strict, err := kjson.UnmarshalStrict(data, &read); err != nil || len(strict) > 0 {
		return nil //nolint:nilerr // it admits nobody
	}
	*a = AllowedNamespaces(read)
	a.All = len(keys) == 0
	return nil
}

// readLender reads the spec of an identity that is lent. The schema keeps unknown fields, because a
// misspelt field is one that limits the use of the identity. An admission policy refuses such
// fields. A spec with an unknown field that is stored all the same lends to nobody.
func readLender(data []byte, into any, grant **AllowedNamespaces) error {
	unknown, err := kjson.UnmarshalStrict(data, into)
	if len(unknown) > 0 {
		*grant = nil
	}
	return err
}
