package token

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// TestKindsOnTheCommandLine asserts that a kind may be written by each name that kubectl knows from
// its CRD.
func TestKindsOnTheCommandLine(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "config", "crd", "*.yaml"))
	must.Succeed(t, err)
	known := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		must.Succeed(t, err)
		var crd apiextensionsv1.CustomResourceDefinition
		must.Succeed(t, yaml.Unmarshal(data, &crd))
		names := crd.Spec.Names
		for _, kind := range append(names.ShortNames, names.Kind, names.Plural, names.Singular, names.Singular+"."+crd.Spec.Group) {
			word := kind + "/app"
			switch {
			case slices.Contains(kinds.All().Where(report.Lists).Names(), names.Kind):
				if got, err := cluster.ParseTarget(kinds.All(), word); err != nil || got != (cluster.Target{Kind: names.Kind, Name: "app"}) {
					t.Errorf("%s is %v, %v", word, got, err)
				}
			case names.Kind == "WorkloadIdentity":
				if name, ok := parseIdentity(kinds.All(), []string{word}); !ok || name != "app" {
					t.Errorf("%s is %q, %v", word, name, ok)
				}
			default:
				continue // commands name a KeyRing by a flag, without its kind
			}
			known++
		}
	}
	if known < 4*5 {
		t.Errorf("%d names of kinds: this tests too little", known)
	}
}
