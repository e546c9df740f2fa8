package identity_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/config/crd/crdtest"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestTruthTable checks the schema and the API type against each row of the truth table of package
// auth/grant. Then it decodes and encodes the stored object several times with the Go type. The
// decision must stay the same.
func TestTruthTable(t *testing.T) {
	data, err := os.ReadFile("../../auth/grant/testdata/table.yaml")
	must.Succeed(t, err)
	var rows []struct {
		Block   string
		Allowed bool
		Link    string
		Schema  string
	}
	if err := yaml.UnmarshalStrict(data, &rows); err != nil || len(rows) < 30 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for kind, spec := range map[string]string{
		"awsclustercontrolleridentities": "",
		"awsclusterroleidentities":       `"roleARN":"arn:aws:iam::111122223333:role/a"`,
		"awsclusterstaticidentities":     `"secretRef":{"name":"keys"}`,
	} {
		schema := crdtest.New(t, "../../config/crd/identity.lanyard.dev_"+kind+".yaml")
		for _, row := range rows {
			t.Run(kind+" "+row.Block, func(t *testing.T) {
				fields := spec
				if row.Block != "" {
					if fields != "" {
						fields += ","
					}
					fields += `"allowedNamespaces":` + row.Block
				}
				var object map[string]any
				must.Succeed(t, json.Unmarshal([]byte(`{"metadata":{"name":"default"},"spec":{`+fields+`}}`), &object))
				refused := schema.Admit(t.Context(), object).ToAggregate()
				if (refused != nil) != (row.Schema != "") || refused != nil && !strings.Contains(refused.Error(), row.Schema) {
					t.Errorf("the schema says %v", refused)
				}
				// An object that the schema refuses may have been stored before the rule existed,
				// so it is decoded too.
				stored, err := json.Marshal(object["spec"])
				must.Succeed(t, err)
				for round := range 3 {
					var read v1alpha1.AWSClusterIdentitySpec
					must.Succeed(t, json.Unmarshal(stored, &read))
					got := identity.GrantOf(read.AllowedNamespaces).Decide("team-a", map[string]string{"t": "a"})
					if got.Allowed != row.Allowed {
						t.Errorf("round %d: %s: %+v", round, stored, got)
					}
					if stored, err = json.Marshal(read); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// TestUnknownFieldsAdmitNobody asserts that a grant with a misspelt field admits nobody. If the
// schema pruned the field, the grant would admit more namespaces than its author wanted. An empty
// grant {} even admits every namespace.
func TestUnknownFieldsAdmitNobody(t *testing.T) {
	schema := crdtest.New(t, "../../config/crd/identity.lanyard.dev_awsclustercontrolleridentities.yaml")
	for _, block := range []string{
		`{"lst":["team-a"]}`, `{"List":["team-a"]}`, `{"list":["team-a"],"selectors":{}}`, `{"all":true}`,
		`{"selector":{"matchLabels":{"t":"a"},"matchExpresions":[{"key":"u","operator":"Exists"}]}}`,
		`{"selector":{"matchLabels":{"t":"a"},"MatchExpressions":[{"key":"t","operator":"Exists"}]}}`,
		`{"selector":{"matchlabels":{"u":"a"},"matchExpressions":[{"key":"t","operator":"Exists"}]}}`,
		`{"list":["team-a"],"selector":{"matchLabels":{"t":"a"},"matchExpresions":[]}}`,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"Exists","value":["b"]}]}}`,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"Exists","Key":"t"}]}}`,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"Exists"},{"key":"t","operator":"Exists","operater":"DoesNotExist"}]}}`,
	} {
		var object map[string]any
		must.Succeed(t, json.Unmarshal([]byte(`{"metadata":{"name":"default"},"spec":{"allowedNamespaces":`+block+`}}`), &object))
		_ = schema.Admit(t.Context(), object) // Admit prunes unknown fields from object
		stored, err := json.Marshal(object["spec"])
		must.Succeed(t, err)
		var read v1alpha1.AWSClusterControllerIdentitySpec
		must.Succeed(t, json.Unmarshal(stored, &read))
		if got := identity.GrantOf(read.AllowedNamespaces).Decide("team-a", map[string]string{"t": "a"}); got.Allowed {
			t.Errorf("%s is stored as %s: %+v", block, stored, got)
		}
	}
}

// TestUnknownFieldsOfSpecsLendToNobody asserts that a stored spec with a misspelt field admits
// nobody: its author wanted to limit the use of the identity.
func TestUnknownFieldsOfSpecsLendToNobody(t *testing.T) {
	for into, lent := range map[any]func(any) *v1alpha1.AllowedNamespaces{
		&v1alpha1.AWSClusterControllerIdentitySpec{}: func(o any) *v1alpha1.AllowedNamespaces {
			return o.(*v1alpha1.AWSClusterControllerIdentitySpec).AllowedNamespaces
		},
		&v1alpha1.AWSClusterRoleIdentitySpec{}: func(o any) *v1alpha1.AllowedNamespaces {
			return o.(*v1alpha1.AWSClusterRoleIdentitySpec).AllowedNamespaces
		},
		&v1alpha1.AWSClusterStaticIdentitySpec{}: func(o any) *v1alpha1.AllowedNamespaces {
			return o.(*v1alpha1.AWSClusterStaticIdentitySpec).AllowedNamespaces
		},
	} {
		for fields, admitted := range map[string]bool{
			`"allowedNamespaces":{},"sourceOnly":false`: true,
			`"allowedNamespaces":{},"sourceonly":true`:  false,
			`"SourceOnly":true,"allowedNamespaces":{}`:  false,
		} {
			must.Succeed(t, json.Unmarshal([]byte("{"+fields+"}"), into))
			if got := identity.GrantOf(lent(into)).Decide("team-a", nil); got.Allowed != admitted {
				t.Errorf("%T {%s}: %+v", into, fields, got)
			}
		}
	}
}

// FuzzAllowedNamespaces checks these rules:
//   - A grant with an unknown field admits nobody, even if the field is in the selector.
//   - Decoding and encoding a grant does not change the decision.
//   - Package auth/grant makes the same decision.
//   - If somebody removes a grant's list of namespaces, the selector alone decides.
func FuzzAllowedNamespaces(f *testing.F) {
	for _, block := range []string{
		"null", "{}", `{"list":["team-a"]}`, `{"list":null}`, `{"selector":{}}`, `{"selector":{"matchLabels":{"t":"a"}}}`, `{"lst":[]}`, `[]`, `{"list":"team-a"}`,
		`{"list":["team-b"],"selector":{"matchExpressions":[{"key":"t","operator":"NotIn","values":["b"]}]}}`,
		`{"list":["\ufffd"],"selector":{"matchExpressions":[{"key":"t","operator":"NotIn","values":[""]}]}}`,
		`{"list":["team-a"],"selector":{}}`, `{"list":["team-a"],"selector":{"matchLabels":{}}}`, `{"list":["team-a"],"selector":null}`, `{"list":["team-a"],"selector":{"":{}}}`,
		`{"list":["team-a"],"selector":{"matchLabels":{"t":"a"},"matchExpresions":[]}}`, `{"selector":{"matchExpressions":[{"key":"t","operator":"Exists","Key":"t"}]}}`,
	} {
		f.Add(block)
	}
	labels := map[string]string{"t": "a"}
	f.Fuzz(func(t *testing.T, block string) {
		var read *v1alpha1.AllowedNamespaces
		if json.Unmarshal([]byte(block), &read) != nil {
			return
		}
		first := identity.GrantOf(read).Decide("team-a", labels).Allowed
		if first && hasUnknownField([]byte(block)) {
			t.Errorf("%s admits, and has an unknown field", block)
		}
		data, err := json.Marshal(read)
		must.Succeed(t, err)
		var again *v1alpha1.AllowedNamespaces
		if err := json.Unmarshal(data, &again); err != nil || identity.GrantOf(again).Decide("team-a", labels).Allowed != first {
			t.Errorf("%s became %s, %v", block, data, err)
		}
		var library grant.Namespaces
		if decided := library.UnmarshalJSON(data) == nil && library.Decide("team-a", labels).Allowed; decided != first {
			t.Errorf("%s admits: %t by the API type, %t by the library", data, first, decided)
		}
		if read == nil || read.All {
			return
		}
		read.List = []string{"another"}
		selected := identity.GrantOf(read).Decide("team-a", labels).Allowed
		read.List = nil // as if somebody removed the last namespace of the list
		if data, err = json.Marshal(read); err != nil {
			t.Fatal(err)
		}
		var edited *v1alpha1.AllowedNamespaces
		if err := json.Unmarshal(data, &edited); err != nil || identity.GrantOf(edited).Decide("team-a", labels).Allowed != selected {
			t.Errorf("%s without its list is %s, %v; the selector admits: %t", block, data, err, selected)
		}
	})
}

// hasUnknownField reports whether a grant, its selector or one of its conditions has a field that
// does not exist.
func hasUnknownField(block []byte) bool {
	unknown := func(fields map[string]json.RawMessage, known ...string) bool {
		for field := range fields {
			if !slices.Contains(known, field) {
				return true
			}
		}
		return false
	}
	var fields, selector map[string]json.RawMessage
	var conditions []map[string]json.RawMessage
	_ = json.Unmarshal(block, &fields) // an absent value or a value of another type has no fields
	_ = json.Unmarshal(fields["selector"], &selector)
	_ = json.Unmarshal(selector["matchExpressions"], &conditions)
	return unknown(fields, "list", "selector") || unknown(selector, "matchLabels", "matchExpressions") ||
		slices.ContainsFunc(conditions, func(c map[string]json.RawMessage) bool { return unknown(c, "key", "operator", "values") })
}
