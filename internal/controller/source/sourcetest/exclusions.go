package sourcetest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// Exclusions holds that a kind judges each row of the truth table that is about it (auth/spec/testdata, which the schemas follow too) as
// the table says. fields are what the kind's View shows of an object of namespace tenant-a with the row's spec, or why it has no such
// field.
func Exclusions(t *testing.T, kind string, fields func(row json.RawMessage) (spec.Fields, error)) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	data, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../../../auth/spec/testdata/exclusions.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Rows []struct {
			Name     string          `json:"name"`
			Kinds    []string        `json:"kinds"`
			Spec     json.RawMessage `json:"spec"`
			Accepted bool            `json:"accepted"`
			Field    string          `json:"field"`
			Message  string          `json:"message"`
		} `json:"rows"`
	}
	if err := yaml.UnmarshalStrict(data, &table); err != nil {
		t.Fatal(err)
	}
	// In Go an empty string is an absent one; the schema tells them apart. Absent, both fields mean no wider identity.
	absent := []string{"account name empty", "empty provider"}
	everything := spec.Rules{Providers: []string{"aws", "azure", "gcp"}, ControllerNamespaces: grant.Namespaces{All: true}}
	judged := 0
	for _, row := range table.Rows {
		if row.Kinds != nil && !slices.Contains(row.Kinds, kind) || slices.Contains(absent, row.Name) {
			continue
		}
		judged++
		shown, err := fields(row.Spec)
		if err != nil {
			t.Errorf("%s: %v", row.Name, err)
			continue
		}
		identity, err := spec.Resolve(t.Context(), shown, everything)
		if row.Accepted {
			if err != nil || identity.Source == "" {
				t.Errorf("%s: %+v, %v", row.Name, identity, err)
			}
			continue
		}
		refused, ok := errors.AsType[*spec.Refusal](err)
		if !ok || refused.Field != row.Field || !strings.Contains(refused.Message, row.Message) || identity != (spec.Identity{}) {
			t.Errorf("%s: %+v, %v, want a refusal of %s with %q", row.Name, identity, err, row.Field, row.Message)
		}
	}
	if judged < 30 {
		t.Errorf("the table has %d rows for the kind", judged)
	}
}
