package spec

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// ResolveAt decides whose credential the object gets at a cloud, for fields with ProviderLater. The
// decision and the refusals are those of [Resolve] for an object that names this cloud in
// spec.provider, except that spec.secretRef is ignored.
func ResolveAt(ctx context.Context, cloud string, fields Fields, rules Rules) (Identity, error) {
	if !fields.ProviderLater {
		return Identity{}, fields.place(refuse(auth.CodeOptionInvalid, fields.providerField(),
			"the object itself names its provider", "set spec.provider"))
	}
	return Resolve(ctx, fields.at(cloud), rules)
}

// at completes the fields of an object that has ProviderLater. It sets Provider to the given cloud,
// and removes the reference to the Secret.
func (f Fields) at(cloud string) Fields {
	f.Provider, f.SecretRef, f.decided = cloud, nil, true
	return f
}

// providerField returns the path of the field that an error about the provider names.
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
	// Kind, Namespace and Name are those of the object that the field names. Required.
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

// String returns kind and name of the object that the field names.
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

// place changes an error of [resolve], so that people find the refused field. If Path is set, it
// replaces "spec" at the start of the field's path. If Via is set, Via.Field becomes the refused
// field, and the message begins with the object that Via names and the field of that object.
func (f Fields) place(err error) error {
	typed, ok := errors.AsType[*auth.Error](err)
	refused, refusal := errors.AsType[*Refusal](err)
	switch {
	case f.Path == "" && f.Via == nil:
		return err
	case !ok || !refusal: // no field is refused
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
