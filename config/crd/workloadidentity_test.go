//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package crd_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/config/admission/admissiontest"
	"github.com/lanyard-dev/lanyard/config/crd/crdtest"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	identityFile   = "identity.lanyard.dev_workloadidentities.yaml"
	identityPolicy = "../admission/workloadidentities.yaml"
)

// TestIdentityTable checks each WorkloadIdentity in package issuertest's table. It must be
// accepted, or refused as the table says: by the schema, Kubernetes' rules, the policy or the
// issuer.
func TestIdentityTable(t *testing.T) {
	schema := crdtest.New(t, identityFile)
	policy := admissiontest.New(t, identityPolicy, v1alpha1.Version)
	made := &issuer.Issuer{
		URL: "https://issuer.example.com", APIAudiences: []string{issuertest.APIAudience},
		Limits: issuer.Limits{Min: 10 * time.Minute, Default: time.Hour, Max: 48 * time.Hour},
	}
	for _, row := range issuertest.Rows(t) {
		t.Run(row.Name, func(t *testing.T) {
			object := row.Object()
			found := map[string][]string{}
			for _, err := range schema.Admit(t.Context(), object) {
				found[issuertest.Schema] = append(found[issuertest.Schema], err.Error())
			}
			name, _ := object["metadata"].(map[string]any)["name"].(string)
			for _, problem := range validation.NameIsDNSSubdomain(name, false) {
				found[issuertest.Kubernetes] = append(found[issuertest.Kubernetes], "metadata.name: "+problem)
			}
			// The API server evaluates the policy only if the schema accepts the identity.
			if found[issuertest.Schema] == nil {
				found[issuertest.Policy] = policy.Admit(t, object, nil)
			}
			found[issuertest.Issuer] = asked(made, object)

			for _, judge := range []string{issuertest.Schema, issuertest.Kubernetes, issuertest.Policy} {
				if refused := len(found[judge]) > 0; refused != (row.RefusedBy == judge) && (judge != issuertest.Policy || row.RefusedBy != issuertest.Kubernetes) {
					t.Errorf("%s finds %q", judge, found[judge])
				}
			}
			if (len(found[issuertest.Issuer]) > 0) != (row.RefusedBy != "") {
				t.Errorf("the issuer finds %q", found[issuertest.Issuer])
			}
			if row.RefusedBy != "" && !slices.ContainsFunc(found[row.RefusedBy], func(text string) bool {
				return strings.HasPrefix(text, row.Field) && strings.Contains(text, row.Message) || row.RefusedBy == issuertest.Policy && strings.Contains(text, row.Message)
			}) {
				t.Errorf("%s refuses otherwise: %q", row.RefusedBy, found[row.RefusedBy])
			}
			if row.RefusedBy == issuertest.Policy && !slices.ContainsFunc(found[issuertest.Issuer], func(text string) bool { return strings.HasPrefix(text, row.Field) }) {
				t.Errorf("the issuer names other fields: %q", found[issuertest.Issuer])
			}
		})
	}
}

// FuzzPolicyAgreesWithIssuer checks that the policy's regular expressions and the issuer's parsers
// accept the same values. In two cases, the policy accepts more. It does not distinguish all forms
// of service accounts' addresses, and it does not read certificates.
func FuzzPolicyAgreesWithIssuer(f *testing.F) {
	valid := map[string]map[string]any{
		"aws":   {"iamRoleARN": "arn:aws:iam::112233445566:role/a"},
		"azure": {"clientID": issuertest.UID, "tenantID": issuertest.UID},
		"gcp":   {"workloadIdentityProvider": "projects/1/locations/global/workloadIdentityPools/pool/providers/lanyard"},

		"alibaba":    {"roleARN": "acs:ram::1234567890123456:role/a", "oidcProviderARN": "acs:ram::1234567890123456:oidc-provider/a"},
		"vault":      {"address": "https://vault.example.com:8200", "mount": "jwt", "role": "a"},
		"kubernetes": {"server": "https://[::1]:6443/a"},
	}
	for target, config := range valid {
		for name, value := range config {
			f.Add(target, name, value.(string))
		}
	}
	for _, p := range endpoint.AWSPartitions() {
		f.Add("aws", "iamRoleARN", "arn:"+p.ID+":iam::000000000001:role/team/"+strings.Repeat("n", 64))
	}
	for _, address := range []string{
		"puller@tenant-a.iam.gserviceaccount.com", "puller@tenant-a.example.com.iam.gserviceaccount.com", "123456-compute@developer.gserviceaccount.com",
		"tenant-a@appspot.gserviceaccount.com", "tenant-a.example.com@appspot.gserviceaccount.com", "puller@tenant-a.s3ns.iam.gserviceaccount.com",
	} {
		f.Add("gcp", "serviceAccountEmail", address)
	}
	f.Add("aws", "iamRoleARN", "arn:aws:iam::112233445566:role/"+strings.Repeat("p", 510)+"/r")
	f.Add("aws", "iamRoleARN", "arn:aws:iam::112233445566:role/"+strings.Repeat("p", 511)+"/r")
	f.Add("aws", "kind", strings.Repeat("k", 256))
	f.Add("gcp", "projectID", "example.com:tenant-a")
	f.Add("aws", "region", "us-isob-east-1")
	f.Add("aws", "region", "us-"+strings.Repeat("w", 58)+"-1")
	f.Add("aws", "region", "us-"+strings.Repeat("w", 59)+"-1")
	f.Add("kubernetes", "certificateAuthorityData", "QUJDRA==")
	policy := admissiontest.New(f, identityPolicy, v1alpha1.Version)
	made := &issuer.Issuer{Limits: issuer.Limits{Default: time.Hour, Max: time.Hour}}
	f.Fuzz(func(t *testing.T, target, field, value string) {
		if valid[target] == nil || !utf8.ValidString(value) {
			return
		}
		config := maps.Clone(valid[target])
		config[field] = value
		object := issuertest.Row{Spec: map[string]any{
			"subjectFormat": "UID", "signingAlgorithm": "RS256", "targetSystem": map[string]any{"type": target, "providerConfig": config},
		}}.Object()
		refusals, errs := policy.Admit(t, object, nil), asked(made, object)
		looser := (field == "serviceAccountEmail" || field == "certificateAuthorityData") && len(refusals) == 0
		if (len(refusals) > 0) != (len(errs) > 0) && !looser {
			t.Errorf("%s %s %q: the policy finds %q, the issuer %q", target, field, value, refusals, errs)
		}
	})
}

// asked returns the issuer's reasons to refuse tokens to an identity. If the object cannot be
// decoded, the decoding error is the only reason.
func asked(made *issuer.Issuer, object map[string]any) []string {
	var identity v1alpha1.WorkloadIdentity
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &identity); err != nil {
		return []string{err.Error()}
	}
	var found []string
	for _, err := range made.Validate(&identity) {
		found = append(found, err.Error())
	}
	return found
}

// TestIdentityUpdates checks which changes of an identity are accepted.
func TestIdentityUpdates(t *testing.T) {
	schema := crdtest.New(t, identityFile)
	policy := admissiontest.New(t, identityPolicy, v1alpha1.Version)
	identity := func(change ...func(map[string]any)) map[string]any {
		object := issuertest.Row{}.Object()
		for _, c := range change {
			c(object)
		}
		return object
	}
	long := func(object map[string]any) { set(strings.Repeat("x", 200), "metadata", "name")(object) }
	for _, tt := range []struct {
		name        string
		old, object map[string]any
		want        string
	}{
		{"another audience", identity(), identity(set([]any{"bar"}, "spec", "audiences")), ""},
		{"another duration", identity(), identity(set("2h", "spec", "duration")), ""},
		{"another algorithm", identity(), identity(set("ES256", "spec", "signingAlgorithm")), ""},
		{"another target", identity(), identity(set("bar", "spec", "targetSystem", "type")), "type is immutable"},
		{"another subject", identity(), identity(set("Name", "spec", "subjectFormat")), "subjectFormat is immutable"},
		{"a role that is wrong", identity(set("aws", "spec", "targetSystem", "type")), identity(set("aws", "spec", "targetSystem", "type"), set("x", "spec", "targetSystem", "providerConfig", "iamRoleARN")), "write arn:aws:iam"},
		{"an old identity gets a label", identity(long), identity(long, set("b", "metadata", "labels", "a")), ""},
		{"an old identity gets an audience", identity(long), identity(long, set([]any{"bar"}, "spec", "audiences")), "shorten the name"},
	} {
		if errs := schema.Admit(t.Context(), tt.old); len(errs) > 0 {
			t.Errorf("%s: the identity before: %v", tt.name, errs)
		}
		var refusals []string
		// AdmitUpdate also adds the defaults to the object, so that the policy below judges the
		// object with its defaults.
		for _, err := range schema.AdmitUpdate(t.Context(), tt.object, tt.old) {
			refusals = append(refusals, err.Error())
		}
		var err error
		if refusals = append(refusals, policy.Admit(t, tt.object, tt.old)...); len(refusals) > 0 {
			err = errors.New(strings.Join(refusals, "; "))
		}
		judge(t, tt.name, err, tt.want)
	}
}

// TestIdentityDefaults asserts the defaults that the API server adds.
func TestIdentityDefaults(t *testing.T) {
	object := issuertest.Row{}.Object()
	if errs := crdtest.New(t, identityFile).Admit(t.Context(), object); len(errs) > 0 {
		t.Fatal(errs)
	}
	got := decode[v1alpha1.WorkloadIdentity](t, object)
	if got.Spec.SubjectFormat != v1alpha1.SubjectFormatUID || got.Spec.SigningAlgorithm != v1alpha1.RS256 || got.Spec.Duration != nil || got.Status.ObservedGeneration != -1 {
		t.Errorf("the API server makes it %+v", got)
	}
}

// columnsOf returns the columns that kubectl get shows for a kind, each with its name and path. A
// column with a star is shown only with -o wide.
func columnsOf(t *testing.T, crd *apiextensions.CustomResourceDefinition) []string {
	t.Helper()
	shown, err := apiextensions.GetColumnsForVersion(crd, v1alpha1.Version)
	must.Succeed(t, err)
	var columns []string
	for _, c := range shown {
		columns = append(columns, c.Name+strings.Repeat("*", int(c.Priority))+" "+c.JSONPath)
	}
	return columns
}

// TestIdentityColumns asserts the columns that kubectl get shows. A column with a star is shown
// only with -o wide.
func TestIdentityColumns(t *testing.T) {
	crd := crdtest.Read(t, identityFile)
	want := []string{
		"Type .spec.targetSystem.type",
		`Ready .status.conditions[?(@.type=="Ready")].status`,
		`Reason .status.conditions[?(@.type=="Ready")].reason`,
		"Subject .status.sub",
		"Age .metadata.creationTimestamp",
		"Issuer* .status.issuer",
		"Audiences* .spec.audiences",
		`Status .status.conditions[?(@.type=="Ready")].message`,
	}
	if columns := columnsOf(t, crd); !slices.Equal(columns, want) {
		t.Errorf("the columns are\n%s", strings.Join(columns, "\n"))
	}
	if names := crd.Spec.Names; !slices.Equal(names.ShortNames, []string{"lwi"}) || !slices.Equal(names.Categories, []string{"lanyard"}) {
		t.Errorf("the names are %+v", names)
	}
}

// TestIdentityStatusIsSet checks that the status has only the fields that Lanyard sets.
func TestIdentityStatusIsSet(t *testing.T) {
	schema, err := apiextensions.GetSchemaForVersion(crdtest.Read(t, identityFile), v1alpha1.Version)
	must.Succeed(t, err)
	status := schema.OpenAPIV3Schema.Properties["status"]
	got := slices.Sorted(maps.Keys(status.Properties))
	if want := []string{"conditions", "issuer", "keyRing", "lastHandledReconcileAt", "observedGeneration", "sub"}; !slices.Equal(got, want) {
		t.Errorf("the fields of the status are %q", got)
	}
}
