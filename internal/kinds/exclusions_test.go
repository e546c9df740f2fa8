package kinds_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// registryOfRows is the registry in the address of every tested object. A row of the truth table
// has only identity fields, and no address. So the test gives each object an address in this
// registry.
const registryOfRows = "registry.example.com"

// TestExclusions checks every kind that fetches against the truth table in auth/spec/testdata. Each
// row of the table says whether a spec is accepted. Another test checks the schemas of the kinds
// against the same table.
func TestExclusions(t *testing.T) {
	for _, kind := range kinds.All().Where(kinds.Kind.Fetches) {
		t.Run(kind.Kind, func(t *testing.T) { testExclusions(t, kind) })
	}
}

func testExclusions(t *testing.T, kind kinds.Kind) {
	t.Helper()
	data, err := os.ReadFile("../../auth/spec/testdata/exclusions.yaml")
	must.Succeed(t, err)
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
	must.Succeed(t, yaml.UnmarshalStrict(data, &table))
	// Leave out rows about empty strings. The schema refuses empty strings, but Go code cannot
	// distinguish them from absent fields. This is safe: for Go code, an empty string gives the
	// same rights as an absent field.
	absent := []string{"account name empty", "identity name empty", "empty provider"}
	registry, err := endpoint.ParseAllowed(registryOfRows)
	must.Succeed(t, err)
	everything := spec.Rules{
		Providers: []string{"aws", "azure", "gcp"}, TokenServer: true, ControllerNamespaces: grant.Namespaces{All: true}, CredentialHosts: registry,
		AWSIdentities: func(context.Context, string, auth.Subject) error { return nil },
	}
	judged := 0
	for _, row := range table.Rows {
		if row.Kinds != nil && !slices.Contains(row.Kinds, kind.Kind) || slices.Contains(absent, row.Name) {
			continue
		}
		judged++
		object := kind.New()
		object.SetNamespace("tenant-a")
		if err := yaml.UnmarshalStrict(fmt.Appendf(nil, `{"spec": %s}`, row.Spec), object); err != nil {
			t.Errorf("%s: %v", row.Name, err)
			continue
		}
		shown := kind.Fields(object)
		shown.Name, shown.Address = "app", "oci://"+registryOfRows+"/app"
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
