package desired

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/fluxcd/pkg/ssa/jsondiff"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
)

// FieldError says that a field of a Kustomization has a value that cannot be used.
type FieldError struct {
	// Field is the field, such as "spec.ignore".
	Field string
	// Fix is the next step for the user, as a sentence without a full stop.
	Fix string
	// Err says what is wrong.
	Err error
}

// Error implements error.
func (e *FieldError) Error() string { return fmt.Sprintf("%s: %v; %s", e.Field, e.Err, e.Fix) }

// Unwrap returns what is wrong.
func (e *FieldError) Unwrap() error { return e.Err }

// Build returns what to build, without the values of variables. If strict is true, a variable with
// neither a value nor a default is refused.
func Build(s v1alpha1.KustomizationSpec, strict bool) kustomize.Spec {
	built := kustomize.Spec{
		Path: s.Path, NamePrefix: s.NamePrefix, NameSuffix: s.NameSuffix, TargetNamespace: s.TargetNamespace,
		Components: s.Components, IgnoreMissingComponents: s.IgnoreMissingComponents, BuildMetadata: s.BuildMetadata,
	}
	for _, p := range s.Patches {
		patch := kustomize.Patch{Patch: p.Patch}
		if p.Target != nil {
			patch.Target = new(kustomize.Target(*p.Target))
		}
		built.Patches = append(built.Patches, patch)
	}
	for _, i := range s.Images {
		built.Images = append(built.Images, kustomize.Image(i))
	}
	if post := s.PostBuild; post != nil {
		built.Substitute = &kustomize.Substitute{Strict: strict, Always: post.SubstituteStrategy == v1alpha1.SubstituteAlways}
	}
	return built
}

// Ignored returns the fields that other programs manage. The error is a [*FieldError].
func Ignored(rules []v1alpha1.IgnoreRule) (ignored []jsondiff.IgnoreRule, err error) {
	for i, rule := range rules {
		if err := checkPointers(rule.Paths); err != nil {
			return nil, &FieldError{Field: fmt.Sprintf("spec.ignore[%d].paths", i), Fix: "write JSON pointers such as /spec/replicas", Err: err}
		}
		next := jsondiff.IgnoreRule{Paths: rule.Paths}
		if t := rule.Target; t != nil {
			next.Selector = &jsondiff.Selector{
				Group: t.Group, Version: t.Version, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name,
				LabelSelector: t.LabelSelector, AnnotationSelector: t.AnnotationSelector,
			}
		}
		ignored = append(ignored, next)
	}
	if _, err := jsondiff.CompileIgnoreRules(ignored); err != nil {
		return nil, &FieldError{Field: "spec.ignore", Fix: "correct the selector or the path", Err: err}
	}
	return ignored, nil
}

// identifying matches JSON pointers to fields that identify an object.
var identifying = regexp.MustCompile(`^/(apiVersion|kind|metadata(/(name|namespace|uid|resourceVersion))?)$`)

// checkPointers refuses texts that are no JSON pointers (RFC 6901). It also refuses negative indexes
// and fields that identify an object, with which package ssa cannot work.
func checkPointers(paths []string) error {
	for _, path := range paths {
		if !strings.HasPrefix(path, "/") {
			return fmt.Errorf("%.100q is no JSON pointer", path)
		}
		if identifying.MatchString(path) {
			return fmt.Errorf("%.100q identifies an object", path)
		}
		for token := range strings.SplitSeq(path[1:], "/") {
			if index, err := strconv.Atoi(token); err == nil && (index < 0 || strconv.Itoa(index) != token) {
				return fmt.Errorf("%.100q has the index %s", path, token)
			}
		}
	}
	return nil
}
