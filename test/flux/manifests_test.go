package flux

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/config/crd/crdtest"
	"github.com/lanyard-dev/lanyard/internal/conversion"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// manifests returns the objects of a kind from the examples of a page. It removes the brackets of a
// placeholder: <bucket-name> becomes bucket-name. It adds required fields that an excerpt lacks.
func manifests(t *testing.T, page, kind string, required map[string]any) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(page)
	must.Succeed(t, err)
	text = bytes.ReplaceAll(text, []byte("<SHA-value>"), []byte(strings.Repeat("0", 64)))
	filled := regexp.MustCompile("<([a-z-]+)>").ReplaceAllString(string(text), "$1")
	var found []map[string]any
	for _, block := range regexp.MustCompile("(?ms)^```ya?ml\n(.*?)^```").FindAllStringSubmatch(filled, -1) {
		for document := range strings.SplitSeq(block[1], "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				continue // an excerpt with omissions is not valid YAML
			}
			group, _ := object["apiVersion"].(string)
			spec, _ := object["spec"].(map[string]any)
			if object["kind"] != kind || !strings.Contains(group, ".toolkit.fluxcd.io/") || spec == nil {
				continue
			}
			if kind == v1alpha1.ImageRepositoryKind { // two examples have a wrong group, that of source-controller
				object["apiVersion"] = "image.toolkit.fluxcd.io/v1"
			}
			object["spec"] = maps.Clone(required)
			maps.Copy(object["spec"].(map[string]any), spec)
			found = append(found, object)
		}
	}
	return found
}

// refusals returns the messages that docs/flux.md gives for refused manifests.
func refusals(t *testing.T, doc string) []string {
	t.Helper()
	var words []string
	for _, found := range regexp.MustCompile(`refused(?: with [^:|]*)?: (.+?)(?:\. | \||; |$)`).FindAllStringSubmatch(doc, -1) {
		words = append(words, strings.ReplaceAll(found[1], "`", ""))
	}
	if len(words) < 8 {
		t.Fatalf("docs/flux.md refuses only %q", words)
	}
	return words
}

// TestFluxManifestsAreAcceptedOrRefusedAloud converts each manifest of Flux's documentation as
// `lanyard convert` does. The manifest must be stored without loss, or be refused with a message
// from docs/flux.md. The counts in docs/flux.md must be right.
func TestFluxManifestsAreAcceptedOrRefusedAloud(t *testing.T) {
	text, err := os.ReadFile("../../docs/flux.md")
	must.Succeed(t, err)
	doc := string(text)
	rows := refusals(t, doc)
	kustomization := map[string]any{
		"sourceRef": map[string]any{"kind": v1alpha1.OCIRepositoryKind, "name": "app"}, "interval": "5m", "prune": true,
	}
	for _, kind := range []struct {
		name, module, page string
		required           map[string]any
		// fromRegistry replaces GitRepositories by OCIRepositories, as the refusal advises.
		fromRegistry bool
	}{
		{v1alpha1.OCIRepositoryKind, sourceController, "ocirepositories", map[string]any{"url": "oci://registry.example.com/app", "interval": "5m"}, false},
		{v1alpha1.BucketKind, sourceController, "buckets", map[string]any{"bucketName": "manifests", "endpoint": "minio.example.com", "interval": "5m"}, false},
		{v1alpha1.ImageRepositoryKind, imageReflector, "imagerepositories", map[string]any{"image": "registry.example.com/app", "interval": "5m"}, false},
		{v1alpha1.KustomizationKind, kustomizeController, "kustomizations", kustomization, false},
		{v1alpha1.KustomizationKind, kustomizeController, "kustomizations", kustomization, true},
	} {
		judge := crdtest.New(t, filepath.Join("../../config/crd", "toolkit.lanyard.dev_"+kind.page+".yaml"))
		found := manifests(t, filepath.Join(module(t, kind.module), "docs/spec/v1", kind.page+".md"), kind.name, kind.required)
		accepted, lent, label := 0, 0, kind.name
		if kind.fromRegistry {
			label += " from an OCIRepository"
		}
		for _, manifest := range found {
			if source, ok := manifest["spec"].(map[string]any)["sourceRef"].(map[string]any); ok && kind.fromRegistry {
				source["kind"] = v1alpha1.OCIRepositoryKind
			}
			object, errs := convert(t, manifest)
			written := clone(t, object)
			if len(errs) == 0 {
				for _, err := range judge.Admit(t.Context(), object) {
					errs = append(errs, err)
				}
			}
			if len(errs) == 0 {
				accepted++
				if !named(object) {
					lent++
				}
				if lost := lost(written["spec"], object["spec"]); lost != "" {
					t.Errorf("%s is accepted without spec%s:\n%v", kind.name, lost, written)
				}
				continue
			}
			t.Logf("refused: %v", errors.Join(errs...))
			for _, err := range errs {
				if !contains(rows, err.Error()) {
					t.Errorf("docs/flux.md has no row for %v:\n%v", err, manifest)
				}
			}
		}
		row := fmt.Sprintf("| %s | %d | %d | %d | %d |", label, len(found), accepted, lent, len(found)-accepted)
		if !strings.Contains(doc, row) {
			t.Errorf("docs/flux.md does not say %s", row)
		}
	}
}

// convert returns the manifest as Lanyard's kind, or the errors of the conversion. Only apiVersion may
// change, and references of a Kustomization to objects of its own namespace.
func convert(t *testing.T, object map[string]any) (converted map[string]any, errs []error) {
	t.Helper()
	text, err := yaml.Marshal(object)
	must.Succeed(t, err)
	files, _, err := conversion.Convert([]conversion.File{{Name: "manifest.yaml", Data: text}}, conversion.Options{Kinds: kinds.All()})
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return nil, joined.Unwrap()
	}
	must.Succeed(t, err)
	must.Succeed(t, yaml.Unmarshal(files[0].Data, &converted))
	if converted["apiVersion"] != v1alpha1.GroupVersion().String() {
		t.Errorf("is converted to %v", converted["apiVersion"])
	}
	want := clone(t, object)
	want["apiVersion"] = converted["apiVersion"]
	if source, ok := want["spec"].(map[string]any)["sourceRef"].(map[string]any); ok {
		delete(source, "namespace")
	}
	if !reflect.DeepEqual(clone(t, converted), want) {
		t.Errorf("the conversion changed more than apiVersion:\n%v\n%v", object, converted)
	}
	return converted, nil
}

// named reports whether a manifest has a serviceAccountName or its provider needs no account.
func named(object map[string]any) bool {
	spec, _ := object["spec"].(map[string]any)
	return spec["provider"] == v1alpha1.ProviderGeneric || spec["serviceAccountName"] != nil
}

func contains(rows []string, text string) bool {
	for _, row := range rows {
		if strings.Contains(text, row) {
			return true
		}
	}
	return false
}

func clone(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	must.Succeed(t, err)
	var again map[string]any
	must.Succeed(t, json.Unmarshal(text, &again))
	return again
}

// lost compares a value in a manifest with the same value in the stored object. It returns the path
// of a value that the stored object lacks, or stores differently. The path is empty if there is
// none.
func lost(written, stored any) string {
	fields, ok := written.(map[string]any)
	if !ok {
		if !reflect.DeepEqual(written, stored) {
			return " as it is written"
		}
		return ""
	}
	kept, _ := stored.(map[string]any)
	for name := range maps.Keys(fields) {
		if _, ok := kept[name]; !ok && fields[name] != nil {
			return "." + name
		}
		if below := lost(fields[name], kept[name]); fields[name] != nil && below != "" {
			return "." + name + below
		}
	}
	return ""
}
