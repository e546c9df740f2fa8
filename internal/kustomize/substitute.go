package kustomize

import (
	"regexp"
	"strings"

	"github.com/fluxcd/pkg/envsubst"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/yaml"
)

// Substitute replaces variables, such as ${name}, in all objects. An object with the label or the
// annotation kustomize.toolkit.fluxcd.io/substitute or kustomize.toolkit.lanyard.dev/substitute and
// the value "disabled" stays as it is.
type Substitute struct {
	// Values has the value of each variable. The values may be secret. Line breaks in values are
	// left out, as Flux does.
	Values map[string]string `json:"values,omitempty"`
	// Strict refuses variables that have neither a value nor a default.
	Strict bool `json:"strict,omitempty"`
	// Always replaces variables by their defaults even if Values is empty.
	Always bool `json:"always,omitempty"`
}

// An object keeps its variables if a label or an annotation has one of these names, Lanyard's or
// Flux's, and the value disabled.
const (
	ownAnnotation  = "kustomize.toolkit.lanyard.dev/substitute"
	fluxAnnotation = "kustomize.toolkit.fluxcd.io/substitute"
	disabled       = "disabled"
)

// variableName matches the name of a variable.
var variableName = regexp.MustCompile(`^[_[:alpha:]][_[:alpha:][:digit:]]*$`)

// unset matches the library's error for a variable without value.
var unset = regexp.MustCompile(`variable not set \(strict mode\): "([^"]*)"`)

// check checks the names of the variables.
func (s *Substitute) check() error {
	if s == nil {
		return nil
	}
	for name := range s.Values {
		if !variableName.MatchString(name) {
			return &Error{
				Reason: ReasonSubstitution, Place: "spec.postBuild", Message: quote(name) + " is no name of a variable",
				Fix: "use letters, digits and underscores, and begin with no digit",
			}
		}
	}
	return nil
}

// apply replaces the variables of one object. Its errors contain no value: the object may contain
// secret values after the substitution, and the libraries repeat their input in errors.
func (s *Substitute) apply(place string, object *resource.Resource) error {
	if !s.applies(object) {
		return nil
	}
	text, err := object.AsYAML()
	if err != nil {
		return invalid(place, "the object cannot be written as YAML", "check the manifest with kustomize build")
	}
	replaced, err := envsubst.Eval(string(text), s.lookup)
	if err != nil {
		return substitutionError(place, err)
	}
	message := ""
	if !s.decode(replaced, object) {
		message = "the object is no valid YAML after its variables were replaced"
	} else if err := complete(object); err != nil {
		message = "after its variables were replaced: " + err.Error()
	}
	if message != "" {
		return &Error{Reason: ReasonSubstitution, Place: place, Message: message, Fix: "put the variable in quotation marks, or correct its value"}
	}
	return nil
}

// text replaces the variables in a decrypted text. Its errors contain nothing of the text.
func (s *Substitute) text(text string) (string, *Error) {
	replaced, err := envsubst.Eval(text, s.lookup)
	if err == nil {
		return replaced, nil
	}
	message := "the decrypted value has a variable that is not written correctly"
	if unset.MatchString(err.Error()) {
		message = "the decrypted value has a variable that has no value"
	}
	return "", &Error{
		Reason: ReasonSubstitution, Message: message,
		Fix: "write $${…} for a text that is no variable, or give the object the annotation " + ownAnnotation + ": " + disabled,
	}
}

// applies reports whether the variables of an object are replaced.
func (s *Substitute) applies(object *resource.Resource) bool {
	return s != nil && (len(s.Values) > 0 || s.Always) && !isDisabled(object)
}

// lookup returns the value of a variable, and whether the variable may be used.
func (s *Substitute) lookup(name string) (value string, found bool) {
	value, found = s.Values[name]
	return strings.ReplaceAll(value, "\n", ""), found || !s.Strict
}

// decode reads the object's new text, and reports whether it is an object.
func (s *Substitute) decode(text string, object *resource.Resource) (ok bool) {
	defer func() {
		if recover() != nil { // the library panics for some texts
			ok = false
		}
	}()
	content, err := yaml.YAMLToJSON([]byte(text))
	return err == nil && object.UnmarshalJSON(content) == nil
}

// substitutionError converts an error of the library. The library reads the object before it is
// substituted, so the error has no value, but it may have other content of the object.
func substitutionError(place string, err error) *Error {
	if found := unset.FindStringSubmatch(err.Error()); found != nil {
		return &Error{
			Reason: ReasonSubstitution, Place: place, Message: "the variable " + quote(found[1]) + " has no value",
			Fix: "set it in spec.postBuild, give it a default, or write $${…} for a text that is no variable",
		}
	}
	return &Error{
		Reason: ReasonSubstitution, Place: place, Message: "the object has a variable that is not written correctly",
		Fix: "write ${name} or ${name:=default}, or $${…} for a text that is no variable",
	}
}

// isDisabled reports whether an object keeps its variables.
func isDisabled(object *resource.Resource) bool {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	for _, key := range []string{ownAnnotation, fluxAnnotation} {
		if labels[key] == disabled || annotations[key] == disabled {
			return true
		}
	}
	return false
}
