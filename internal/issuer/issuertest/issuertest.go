// Package issuertest has the truth table of WorkloadIdentities, by which tests judge the schema,
// the admission policy and the issuer. The package is linked into no program.
package issuertest

import (
	_ "embed"
	"maps"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

//go:embed identities.yaml
var table []byte

// Judges that refuse an identity, in the order in which the API server asks them; the issuer is the
// last.
const (
	Schema     = "schema"
	Kubernetes = "kubernetes"
	Policy     = "policy"
	Issuer     = "issuer"
)

// APIAudience is the audience of the API server in the table.
const APIAudience = "https://kubernetes.default.svc"

// UID is the UID of the identities.
const UID = "12b580fe-1f74-4195-852b-e1a74b03496a"

// Row is one line of the table, which says what the fields mean.
type Row struct {
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Identity  string         `json:"object"`
	Length    int            `json:"length"`
	Padding   int            `json:"padding"`
	Spec      map[string]any `json:"spec"`
	RefusedBy string         `json:"refusedBy"`
	Field     string         `json:"field"`
	Message   string         `json:"message"`
}

// Rows reads the table.
func Rows(tb testing.TB) []Row {
	tb.Helper()
	var rows struct {
		Rows []Row `json:"rows"`
	}
	if err := yaml.UnmarshalStrict(table, &rows); err != nil {
		tb.Fatal(err)
	}
	seen := map[string]bool{}
	for _, row := range rows.Rows {
		if seen[row.Name] || (row.RefusedBy != "") != (row.Field != "") {
			tb.Errorf("row %s: its name must be unique, and a refusal names a field", row.Name)
		}
		seen[row.Name] = true
	}
	return rows.Rows
}

// Object is the identity as a tenant writes it, with the UID that the API server adds.
func (r Row) Object() map[string]any {
	name, namespace := "banana", "garden"
	if r.Identity != "" {
		name = r.Identity
	}
	if r.Length > 0 {
		name = strings.Repeat("x", r.Length)
	}
	if r.Namespace != "" {
		namespace = r.Namespace
	}
	spec := map[string]any{"audiences": []any{"foo"}, "targetSystem": map[string]any{"type": "foo"}}
	if r.Padding > 0 {
		spec["targetSystem"] = map[string]any{"type": "foo", "providerConfig": map[string]any{"x": strings.Repeat("x", r.Padding)}}
	}
	maps.Copy(spec, r.Spec)
	return map[string]any{
		"apiVersion": identityv1.GroupVersion().String(), "kind": identityv1.WorkloadIdentityKind,
		"metadata": map[string]any{"name": name, "namespace": namespace, "uid": UID},
		"spec":     spec,
	}
}
