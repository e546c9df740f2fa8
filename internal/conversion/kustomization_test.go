package conversion_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/conversion"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

const kustomization = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: app, namespace: a}\nspec:\n"

func TestKustomizationErrors(t *testing.T) {
	const (
		patch  = "Lanyard has only spec.patches, like Flux's v1; write each patch as text in spec.patches[].patch"
		source = "  sourceRef: {kind: OCIRepository, name: app}\n"
	)
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"fields that Lanyard lacks": {
			kustomization + source + "  kubeConfig: {configMapRef: {name: a}}\n  paht: ./\n",
			[]string{
				"f.yaml:6: spec.kubeConfig.configMapRef: a cluster without a stored credential is not supported yet; use secretRef, or keep this Kustomization Flux's",
				"f.yaml:7: spec.paht: Lanyard's Kustomization does not have this field; remove it",
			},
		},
		"patches of v1beta2": {
			strings.Replace(kustomization, "/v1", "/v1beta2", 1) + source + "  patchesStrategicMerge: []\n  patchesJson6902: []\n",
			[]string{"f.yaml:6: spec.patchesStrategicMerge: " + patch, "f.yaml:7: spec.patchesJson6902: " + patch + ", with its target"},
		},
		"a kind that is no source": {
			kustomization + "  sourceRef:\n    kind: HelmRepository\n    name: app\n",
			[]string{"f.yaml:6: spec.sourceRef.kind: a Kustomization cannot name a HelmRepository, only " + strings.Join(kinds.All().Sources(), ", ") +
				"; publish the manifests as an OCI artifact (lanyard push artifact), and name an OCIRepository, or leave the Kustomization out of the input"},
		},
		"another group": {
			kustomization + "  sourceRef:\n    apiVersion: example.com/v1\n    kind: OCIRepository\n    name: app\n",
			[]string{"f.yaml:6: spec.sourceRef.apiVersion: a Kustomization's source must be one of Lanyard's; name such a source, and remove the field"},
		},
		"other namespaces": {
			kustomization + "  sourceRef:\n    kind: Bucket\n    name: app\n    namespace: b\n  dependsOn:\n  - name: b\n  - name: c\n    namespace: b\n",
			[]string{
				"f.yaml:8: spec.sourceRef.namespace: a Kustomization's source must be in its own namespace; move one of the two, and remove the field",
				"f.yaml:12: spec.dependsOn[1].namespace: a Kustomization depends only on Kustomizations of its own namespace; move one of the two, and remove the field",
			},
		},
		"own namespace unknown": {
			strings.Replace(kustomization, ", namespace: a", "", 1) + "  sourceRef: {kind: Bucket, name: app, namespace: b}\n",
			[]string{"f.yaml:5: spec.sourceRef.namespace: a Kustomization's source must be in its own namespace; write this namespace in metadata.namespace, or remove the field"},
		},
		"wrong types":        {kustomization + "  sourceRef: app\n", []string{"f.yaml:5: spec.sourceRef: must not be a JSON string; write an object"}},
		"dependency as text": {kustomization + "  dependsOn: [app]\n  healthChecks: app\n", []string{"f.yaml:5: spec.dependsOn: must not be a JSON string; write an object"}},
		"no spec":            {"apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nspec: [a]\n", []string{"f.yaml:3: spec: must not be a JSON array; write an object"}},
	} {
		t.Run(name, func(t *testing.T) {
			files, notes, err := conversion.Convert([]conversion.File{{Name: "f.yaml", Data: []byte(test.text)}}, conversion.Options{Kinds: kinds.All()})
			if err == nil || files != nil || notes != nil {
				t.Fatalf("%v, %v, %v", files, notes, err)
			}
			if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, test.want) {
				t.Errorf("says\n%s\nwant\n%s", err, strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestSourcesOfKustomizations checks that each kind of source is accepted.
func TestSourcesOfKustomizations(t *testing.T) {
	for _, kind := range kinds.All().Sources() {
		text := kustomization + "  sourceRef: {kind: " + kind + ", name: app}\n"
		files, _, err := conversion.Convert([]conversion.File{{Data: []byte(text)}}, conversion.Options{Kinds: kinds.All()})
		if err != nil || !files[0].Changed {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestOtherClusters checks that a Kustomization for another cluster is accepted. It needs no account.
func TestOtherClusters(t *testing.T) {
	text := kustomization + "  sourceRef: {kind: OCIRepository, name: app}\n  kubeConfig: {secretRef: {name: a, key: b}}\n"
	files, notes, err := conversion.Convert([]conversion.File{{Data: []byte(text)}}, conversion.Options{Kinds: kinds.All()})
	if err != nil || !files[0].Changed || !strings.Contains(string(files[0].Data), "kubeConfig: {secretRef: {name: a, key: b}}") {
		t.Errorf("%v, %v", files, err)
	}
	said := fmt.Sprint(notes)
	if !strings.Contains(said, "identity.allowedEndpointHosts") || strings.Contains(said, "serviceAccountName") {
		t.Errorf("the notes are %s", said)
	}
	_, notes, err = conversion.Convert([]conversion.File{{Data: []byte(text + "  postBuild: {substituteFrom: [{kind: Secret, name: a}]}\n")}}, conversion.Options{Kinds: kinds.All()})
	if said := fmt.Sprint(notes); err != nil || !strings.Contains(said, "serviceAccountName") {
		t.Errorf("variables are read in this cluster, but the notes are %s, %v", said, err)
	}
}
