package ocirepository

import (
	"errors"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

func TestDecide(t *testing.T) {
	text := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		edit    func(*v1alpha1.OCIRepository)
		lost    bool // the artifact is not in the store
		refused bool
		anew    bool
	}{
		"nothing changed": {edit: func(*v1alpha1.OCIRepository) {}},
		"artifact lost":   {edit: func(*v1alpha1.OCIRepository) {}, lost: true, anew: true},
		"other ignore":    {edit: func(o *v1alpha1.OCIRepository) { o.Spec.Ignore = text("*.md") }, anew: true},
		"ignore emptied":  {edit: func(o *v1alpha1.OCIRepository) { o.Spec.Ignore = text(""); o.Status.ObservedIgnore = text("x") }, anew: true},
		"other layer":     {edit: func(o *v1alpha1.OCIRepository) { o.Spec.LayerSelector = &v1alpha1.OCILayerSelector{Operation: "copy"} }, anew: true},
		"URL":             {edit: func(o *v1alpha1.OCIRepository) { o.Spec.URL = "https://x/y" }, refused: true},
		"reference":       {edit: func(o *v1alpha1.OCIRepository) { o.Spec.Ref = &v1alpha1.OCIRepositoryRef{Digest: "md5:1"} }, refused: true},
		"operation":       {edit: func(o *v1alpha1.OCIRepository) { o.Spec.LayerSelector = &v1alpha1.OCILayerSelector{Operation: "run"} }, refused: true},
		"verify":          {edit: func(o *v1alpha1.OCIRepository) { o.Spec.Verify = &v1alpha1.Unsupported{} }, refused: true},
		"ignore":          {edit: func(o *v1alpha1.OCIRepository) { o.Spec.Ignore = text("[") }, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &v1alpha1.OCIRepository{
				Spec:   v1alpha1.OCIRepositorySpec{URL: "oci://registry.example.com/app"},
				Status: v1alpha1.OCIRepositoryStatus{ArtifactStatus: v1alpha1.ArtifactStatus{Artifact: &v1alpha1.Artifact{Revision: "v1@sha256:1"}}},
			}
			c.edit(o)
			got, err := kind{}.Decide(o, source.Call{Stored: !c.lost})
			if got.anew != c.anew || (err != nil) != c.refused {
				t.Errorf("%+v, %v, want %+v", got, err, c)
			}
		})
	}
}

// TestDecideReadsTagsOfCharts checks that tags are read as chart versions if the selected layer is
// a chart.
func TestDecideReadsTagsOfCharts(t *testing.T) {
	for mediaType, want := range map[string]bool{
		"": false, "application/vnd.cncf.flux.content.v1.tar+gzip": false, "application/vnd.cncf.helm.chart.content.v1.tar+gzip": true,
	} {
		o := &v1alpha1.OCIRepository{Spec: v1alpha1.OCIRepositorySpec{
			URL: "oci://registry.example.com/chart", LayerSelector: &v1alpha1.OCILayerSelector{MediaType: mediaType},
		}}
		if p, err := (kind{}).Decide(o, source.Call{}); err != nil || p.reference.Chart != want {
			t.Errorf("%q: %+v, %v", mediaType, p.reference, err)
		}
	}
}

func TestUpToDate(t *testing.T) {
	o := &v1alpha1.OCIRepository{}
	if upToDate(o, plan{}, "") {
		t.Error("without an artifact")
	}
	o.Status.Artifact = &v1alpha1.Artifact{Revision: "v1@sha256:1"}
	if !upToDate(o, plan{}, "v1@sha256:1") || upToDate(o, plan{}, "v1@sha256:2") || upToDate(o, plan{anew: true}, "v1@sha256:1") {
		t.Error("with an artifact")
	}
}

func TestNameLimit(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		named bool
	}{
		"nothing":        {nil, false},
		"unpacked size":  {&archive.Error{Reason: archive.ReasonTooLarge, Err: errors.New("x")}, true},
		"packed size":    {&origin.Error{Code: origin.CodeTooLarge, Err: errors.New("x")}, true},
		"files":          {&archive.Error{Reason: archive.ReasonTooMany, Err: errors.New("x")}, false},
		"anything else":  {&origin.Error{Code: origin.CodeTruncated, Err: errors.New("x")}, false},
		"another reason": {errors.New("x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			got := nameLimit(c.err)
			if !errors.Is(got, c.err) {
				t.Errorf("%v does not wrap %v", got, c.err)
			}
			if named := got != nil && strings.Contains(got.Error(), "--artifact-max-decompressed-size"); named != c.named {
				t.Errorf("%v; the flag is to be named: %v", got, c.named)
			}
		})
	}
}
