// Package issuertest has a table of valid and invalid WorkloadIdentities. Tests of the schema, the
// admission policy and the issuer use the table. Only tests import this package.
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

// Values of [Row].RefusedBy: the checks that can refuse an identity, in the order in which they
// run. The API server runs all of them except the issuer's.
const (
	Schema     = "schema"
	Kubernetes = "kubernetes"
	Policy     = "policy"
	Issuer     = "issuer"
)

// APIAudience is the audience of the API server for all rows of identities.yaml.
const APIAudience = "https://kubernetes.default.svc"

// UID is the UID of all identities in identities.yaml.
const UID = "12b580fe-1f74-4195-852b-e1a74b03496a"

// Row is one row of the table. The file identities.yaml explains the fields.
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

// Object returns the identity as a tenant writes it, with the UID that the API server adds.
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
