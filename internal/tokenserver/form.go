package tokenserver

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
)

// validateContext checks the form of a reference to an object. All parts except the UID become
// parts of a URL; the UID is only compared.
func validateContext(object *tokenv1.ContextObject) field.ErrorList {
	at := field.NewPath("spec", "contextObject")
	var errs field.ErrorList
	for _, part := range []struct {
		name, value string
		form        func(string) []string // returns an error message for each mistake
	}{
		{"apiVersion", object.APIVersion, isGroupVersion},
		{"kind", object.Kind, isKind},
		{"namespace", object.Namespace, validation.IsDNS1123Label},
		{"name", object.Name, isName},
		{"uid", string(object.UID), isAnything},
	} {
		at := at.Child(part.name)
		switch {
		case part.value != "":
			for _, wrong := range part.form(part.value) {
				errs = append(errs, field.Invalid(at, part.value, wrong))
			}
		case part.name != "namespace": // a cluster-scoped object has no namespace
			errs = append(errs, field.Required(at, "names the object that the token is used for"))
		}
	}
	return errs
}

func isGroupVersion(s string) []string {
	gv, err := schema.ParseGroupVersion(s)
	switch {
	case err != nil || gv.String() != s:
		return []string{"must be <group>/<version>, or <version> for the core group"}
	case gv.Group != "":
		return append(validation.IsDNS1123Subdomain(gv.Group), validation.IsDNS1035Label(gv.Version)...)
	}
	return validation.IsDNS1035Label(gv.Version)
}

// isKind applies the rule for the names of kinds in CustomResourceDefinitions. It returns an error
// message for each mistake.
func isKind(s string) []string { return validation.IsDNS1035Label(strings.ToLower(s)) }

func isName(s string) []string {
	if len(s) > validation.DNS1123SubdomainMaxLength {
		return []string{validation.MaxLenError(validation.DNS1123SubdomainMaxLength)}
	}
	return content.IsPathSegmentName(s)
}

func isAnything(string) []string { return nil }
