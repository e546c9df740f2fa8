package v1alpha1

import (
	"bytes"
	"encoding/json"

	kjson "sigs.k8s.io/json"
)

// AllowedNamespaces is a grant: it says which namespaces may use an identity. A nil pointer and the
// zero value admit no namespace. The JSON object {} is not the zero value: it decodes to All, which
// admits every namespace. Encoding and decoding never change which namespaces are admitted. Package
// auth/grant of Lanyard's library decides whether a namespace is admitted.
//
// The schema preserves unknown fields of the grant and of its selector. If the API server dropped
// such a field, the grant could become wider. A grant without other fields would become {}. A
// selector could lose a condition. An admission policy refuses unknown fields. A stored grant with
// an unknown field admits no namespace.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!has(self.selector) || self.selector == null || (has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",message="an empty selector admits nobody: write allowedNamespaces as {} to admit every namespace, or give the selector a condition",fieldPath=".selector"
type AllowedNamespaces struct {
	// All admits every namespace. Its JSON form is {}, the object without fields. If All is true,
	// the other fields must be empty.
	All bool `json:"-"`

	// list contains the names of the namespaces that may use the identity. At most 256 names,
	// without wildcards. An empty list admits no namespace. Default: none.
	//
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="list must have names of namespaces: wildcards do not exist, and allowedNamespaces {} admits every namespace"
	List []string `json:"list"`

	// selector admits the namespaces whose labels match, in addition to the namespaces in list.
	// Default: none.
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

	// operator is In, NotIn, Exists or DoesNotExist. In and NotIn compare the label's value with
	// the list in values. Exists and DoesNotExist only check whether the label exists. Required.
	//
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator string `json:"operator"`

	// values are the values with which In and NotIn compare the label's value. In and NotIn need at
	// least one value. Exists and DoesNotExist need an empty list. At most 64.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="values must be values of labels"
	Values []string `json:"values,omitempty"`
}

// MarshalJSON writes {} only for All. It writes every other grant with its list, even an empty
// list. So a grant does not admit everybody when the last namespace is removed from its list.
func (a AllowedNamespaces) MarshalJSON() ([]byte, error) {
	if a.All && len(a.List) == 0 && a.Selector == nil {
		return []byte("{}"), nil
	}
	if a.List == nil {
		a.List = []string{}
	}
	type fields AllowedNamespaces // has no MarshalJSON, so there is no recursion
	return json.Marshal(fields(a))
}

// UnmarshalJSON decodes {} as All. It returns no error for invalid input, such as an object with an
// unknown field. The grant then admits no namespace. An error for one invalid object would prevent
// a program from reading all other objects. The names of fields are case-sensitive.
func (a *AllowedNamespaces) UnmarshalJSON(data []byte) error {
	*a = AllowedNamespaces{}
	if string(bytes.TrimSpace(data)) == "null" {
		return nil
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil //nolint:nilerr // it admits nobody
	}
	type fields AllowedNamespaces // has no UnmarshalJSON, so there is no recursion
	var read fields
	if strict, err := kjson.UnmarshalStrict(data, &read); err != nil || len(strict) > 0 {
		return nil //nolint:nilerr // it admits nobody
	}
	*a = AllowedNamespaces(read)
	a.All = len(keys) == 0
	return nil
}

// readLender decodes the spec of an identity that is lent to namespaces. The schemas of these specs
// preserve unknown fields, so that readLender can see such fields. If the spec has an unknown
// field, readLender sets the grant to nil, which admits no namespace. The unknown field may be a
// misspelt limit on the identity's use. The admission policy refuses unknown fields, but a stored
// object may have one nevertheless.
func readLender(data []byte, into any, grant **AllowedNamespaces) error {
	unknown, err := kjson.UnmarshalStrict(data, into)
	if len(unknown) > 0 {
		*grant = nil
	}
	return err
}
