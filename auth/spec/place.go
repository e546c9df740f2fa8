package spec

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// ResolveAt decides whose credential the object gets at the given cloud. It is for objects whose
// kind has no spec.provider: fields.ProviderLater must be true. ResolveAt decides and refuses as
// [Resolve] does for an object whose spec.provider is this cloud. But it ignores spec.secretRef.
func ResolveAt(ctx context.Context, cloud string, fields Fields, rules Rules) (Identity, error) {
	if !fields.ProviderLater {
		return Identity{}, fields.place(refuse(auth.CodeOptionInvalid, fields.providerField(),
			"the object itself names its provider", "set spec.provider"))
	}
	return Resolve(ctx, fields.at(cloud), rules)
}

// at returns the fields of an object without spec.provider (ProviderLater), completed for one
// cloud. It sets Provider to this cloud, and removes SecretRef.
func (f Fields) at(cloud string) Fields {
	f.Provider, f.SecretRef, f.decided = cloud, nil, true
	return f
}

// providerField returns the path of the refused field, for errors about the provider. It returns
// "spec" if the object's kind has no spec.provider.
func (f Fields) providerField() string {
	if f.ProviderLater {
		return pathSpec
	}
	return pathSpec + ".provider"
}

// pathSpec is the path of the identity fields in the errors of this package.
const pathSpec = "spec"

// Reference is a field through which an object uses the identity of another object. An image
// automation, for example, uses the identity of its Git repository.
type Reference struct {
	// Field is the path of the field, such as spec.sourceRef. Required.
	Field string
	// From is the namespace of the object that has the field. Required.
	From string
	// Kind, Namespace and Name identify the object whose identity is used. For spec.sourceRef of an
	// image automation, it is the Git repository. Required.
	Kind            auth.Kind
	Namespace, Name string
}

// Check refuses a reference to another namespace, and a malformed reference. Call Check before the
// named object is read. [Resolve] calls Check too.
func (r Reference) Check() error {
	const own = "name an object of the object's own namespace"
	if _, err := auth.Object(r.Kind, r.Namespace, r.Name); err != nil {
		return refuse(auth.CodeSubjectInvalid, r.Field,
			fmt.Sprintf("Invalid value: kind %.80q, namespace %.80q, name %.80q", r.Kind, r.Namespace, r.Name), own)
	}
	if r.Namespace != r.From {
		return refuse(auth.CodeNotGranted, r.Field,
			fmt.Sprintf("%s is in namespace %s, and an identity is used only in its own namespace", r, r.Namespace), own)
	}
	return nil
}

// String returns the kind and name of the object whose identity is used.
func (r Reference) String() string { return fmt.Sprintf("%s %s", r.Kind, r.Name) }

// check returns an error if r is malformed, or if the fields do not belong to the object that r
// names.
func (r *Reference) check(fields Fields) error {
	if r == nil {
		return nil
	}
	if err := r.Check(); err != nil {
		return err
	}
	if r.Kind != fields.Kind || r.Namespace != fields.Namespace || r.Name != fields.Name {
		return refuse(auth.CodeSubjectInvalid, r.Field,
			fmt.Sprintf("the identity fields are those of %.80q, not of %s", fields.Name, r), "use the fields of the object that is named")
	}
	return nil
}

// place changes an error of [resolve], so that people find the refused field:
//
//   - If Path is set, it replaces "spec" at the start of the field's path.
//   - If Via is set, another object uses the identity of this object. The error is then
//     about Via.Field, the other object's reference to this object. The message begins with the
//     kind and name of this object, and the path of its refused field.
func (f Fields) place(err error) error {
	typed, ok := errors.AsType[*auth.Error](err)
	refused, refusal := errors.AsType[*Refusal](err)
	switch {
	case f.Path == "" && f.Via == nil:
		return err
	case !ok || !refusal: // the error is not about a field
		if f.Via != nil {
			return fmt.Errorf("%s: %s: %w", f.Via.Field, f.Via, err)
		}
		return err
	}
	placed, moved := *typed, *refused
	if rest, below := strings.CutPrefix(moved.Field, pathSpec); below && f.Path != "" {
		moved.Field = f.Path + rest
		placed.Fix = strings.ReplaceAll(placed.Fix, pathSpec+".", f.Path+".")
	}
	if f.Via != nil {
		moved.Field, moved.Message = f.Via.Field, fmt.Sprintf("%s: %s", f.Via, &moved)
		placed.Fix = fmt.Sprintf("in %s, %s", f.Via, placed.Fix)
	}
	placed.Err = &moved
	return &placed
}
