//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package crd_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/config/crd/crdtest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const bindingFile = "identity.lanyard.dev_workloadidentitybindings.yaml"

// binding returns a binding with this spec, which is JSON without the outer braces.
func binding(t *testing.T, spec string) map[string]any {
	t.Helper()
	var object map[string]any
	must.Succeed(t, json.Unmarshal([]byte(`{"metadata":{"name":"cloudidentity","namespace":"tenant-a"},"spec":{`+spec+`}}`), &object))
	return object
}

// TestBindingFormats checks which specs the schema of bindings accepts.
func TestBindingFormats(t *testing.T) {
	const (
		wi     = `"workloadIdentity":{"name":"banana-testing"}`
		role   = `"identityRef":{"kind":"AWSClusterRoleIdentity","name":"test"}`
		store  = `"store":{"secretRef":{"name":"cloudprovider"}}`
		images = `"format":"dockerconfigjson","images":["123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app"]`
	)
	storeOf := func(fields string) string { return `"store":{"secretRef":{"name":"cloudprovider"},` + fields + `}` }
	object := func(fields string) string { return `"contextObject":{` + fields + `},` + wi + `,` + store }
	for _, row := range []struct {
		spec string
		says string // part of the refusal; empty if the binding is accepted
	}{
		// This is the sample from Gardener proposal GEP-26, with Lanyard's API group and
		// without the identity's namespace.
		{`"type":"aws","providerConfig":{"apiVersion":"aws.authentication.gardener.cloud/v1alpha1","kind":"Config","iamRoleARN":"arn:aws:iam::112233445566:role/gardener-dev"},
			"contextObject":{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","name":"foo","namespace":"garden-local","uid":"54d09554-6a68-4f46-a23a-e3592385d820"},` + wi + `,` + store, ""},

		{wi + `,` + store, ""},
		{`"identityRef":{"kind":"AWSServiceAccountIdentity","name":"test"},` + storeOf(`"format":"aws-session-keys"`), ""},
		{role + `,` + storeOf(images), ""},
		{role + `,"type":"aws",` + storeOf(images), ""},
		{store, "name exactly one of workloadIdentity and identityRef"},
		{wi + `,` + role + `,` + storeOf(`"format":"aws-session-keys"`), "name exactly one of workloadIdentity and identityRef"},
		{role + `,` + store, "an AWS identity has no token"},
		{role + `,` + storeOf(`"format":"token"`), "an AWS identity has no token"},
		{role + `,"providerConfig":{},` + storeOf(images), "providerConfig is for workloadIdentity alone"},
		{role + `,"type":"gcp",` + storeOf(images), "type must be aws"},
		{role + `,"contextObject":{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1"},` + storeOf(images), "contextObject is for workloadIdentity alone"},
		{`"identityRef":{"kind":"AWSClusterControllerIdentity","name":"default"},` + storeOf(images), "Unsupported value"},
		{`"identityRef":{"kind":"AWSClusterStaticIdentity","name":"keys"},` + storeOf(images), "Unsupported value"},
		{`"identityRef":{"kind":"AWSClusterRoleIdentity","name":"A"},` + storeOf(images), "DNS-1123"},
		{`"workloadIdentity":{"name":"a/b"},` + store, "DNS-1123"},
		{`"workloadIdentity":{},` + store, "Required value"},
		{`"type":"AWS",` + wi + `,` + store, "only lower-case letters"},
		{`"type":"",` + wi + `,` + store, "at least 1 chars"},
		{`"providerConfig":"iamRoleARN",` + wi + `,` + store, "must be of type object"},

		{wi, "spec.store: Required value"},
		{wi + `,"store":{}`, "spec.store.secretRef: Required value"},
		{wi + `,"store":{"secretRef":{"name":"../cloudprovider"}}`, "DNS-1123"},
		{wi + `,` + storeOf(`"format":"env"`), "Unsupported value"},
		{wi + `,` + storeOf(`"format":"dockerconfigjson"`), "images lists the repositories"},
		{wi + `,` + storeOf(`"images":["a.example.com/b"]`), "images lists the repositories"},
		{wi + `,` + storeOf(`"format":"dockerconfigjson","images":[]`), "at least 1"},
		{wi + `,` + storeOf(`"format":"dockerconfigjson","images":["a.example.com/b","a.example.com/b"]`), "Duplicate value"},
		{wi + `,` + storeOf(`"format":"dockerconfigjson","images":["localhost:5000/a/b_c/d--e"]`), ""},
		{wi + `,` + storeOf(`"format":"dockerconfigjson","images":["https://a.example.com/b"]`), "without tag and digest"},
		{wi + `,` + storeOf(`"format":"dockerconfigjson","images":["a.example.com/b:1"]`), "without tag and digest"},
		{wi + `,` + storeOf(`"format":"dockerconfigjson","images":["a.example.com"]`), "without tag and digest"},
		{wi + `,` + storeOf(`"format":"dockerconfigjson","images":["me@a.example.com/b"]`), "without tag and digest"},
		{wi + `,` + storeOf(`"mountPath":"/var/run/secrets/cloud"`), ""},
		{wi + `,` + storeOf(`"mountPath":"secrets"`), "must be an absolute path"},
		{wi + `,` + storeOf(`"mountPath":"/secrets/"`), "must be an absolute path"},
		{wi + `,` + storeOf(`"mountPath":"/secrets/../etc"`), "must be an absolute path"},
		{wi + `,` + storeOf(`"mountPath":"/a\nrole_arn=b"`), "must be an absolute path"},
		{wi + `,` + storeOf(`"mountPath":"/a\n"`), "must be an absolute path"},

		{object(`"apiVersion":"v1","kind":"Pod","name":"a"`), "spec.contextObject.uid: Required value"},
		{object(`"apiVersion":"v1","kind":"Pod","uid":"1"`), "spec.contextObject.name: Required value"},
		{object(`"kind":"Pod","name":"a","uid":"1"`), "spec.contextObject.apiVersion: Required value"},
		{object(`"apiVersion":"v1","name":"a","uid":"1"`), "spec.contextObject.kind: Required value"},
	} {
		t.Run(row.spec, func(t *testing.T) {
			err := crdtest.New(t, bindingFile).Admit(t.Context(), binding(t, row.spec)).ToAggregate()
			if (err != nil) != (row.says != "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestBindingUpdates checks which changes of a binding are accepted.
func TestBindingUpdates(t *testing.T) {
	const (
		wi     = `"workloadIdentity":{"name":"a"},`
		store  = `"store":{"secretRef":{"name":"cloudprovider"}}`
		docker = `"store":{"secretRef":{"name":"cloudprovider"},"format":"dockerconfigjson","images":["a.example.com/b"]}`
	)
	for _, tt := range []struct{ name, old, object, want string }{
		{"another identity", wi + store, `"workloadIdentity":{"name":"b"},` + store, ""},
		{"another format", wi + store, wi + `"store":{"secretRef":{"name":"cloudprovider"},"format":"token"}`, ""},
		{"other images", wi + docker, wi + `"store":{"secretRef":{"name":"cloudprovider"},"format":"dockerconfigjson","images":["a.example.com/c"]}`, ""},
		{"another Secret", wi + store, wi + `"store":{"secretRef":{"name":"other"}}`, "secretRef is immutable"},
		{"to another type of Secret", wi + store, wi + docker, "format cannot change"},
		{"from another type of Secret", wi + docker, wi + store, "format cannot change"},
	} {
		schema := crdtest.New(t, bindingFile)
		old := binding(t, tt.old)
		if errs := schema.Admit(t.Context(), old); len(errs) > 0 {
			t.Errorf("%s: the binding before: %v", tt.name, errs)
		}
		judge(t, tt.name, schema.AdmitUpdate(t.Context(), binding(t, tt.object), old).ToAggregate(), tt.want)
	}
}

// TestBindingDefaults asserts the defaults that the API server adds, and that the scheme has a Go
// type for the kind.
func TestBindingDefaults(t *testing.T) {
	object := binding(t, `"workloadIdentity":{"name":"a"},"store":{"secretRef":{"name":"cloudprovider"}}`)
	if errs := crdtest.New(t, bindingFile).Admit(t.Context(), object); len(errs) > 0 {
		t.Fatal(errs)
	}
	got := decode[v1alpha1.WorkloadIdentityBinding](t, object)
	if got.Spec.Store.Format != v1alpha1.StoreSDK || got.Spec.Store.MountPath != "/var/run/secrets/lanyard.dev/workload-identity" || got.Status.ObservedGeneration != -1 {
		t.Errorf("the API server makes it %+v", got)
	}
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	for _, kind := range []string{v1alpha1.WorkloadIdentityBindingKind, v1alpha1.WorkloadIdentityBindingKind + "List"} {
		if !scheme.Recognizes(v1alpha1.GroupVersion().WithKind(kind)) {
			t.Errorf("the scheme does not know %s", kind)
		}
	}
}

// TestBindingColumns asserts the columns that kubectl get shows. A column with a star is shown only
// with -o wide.
func TestBindingColumns(t *testing.T) {
	crd := crdtest.Read(t, bindingFile)
	want := []string{
		"Secret .spec.store.secretRef.name",
		"Type .status.type",
		`Ready .status.conditions[?(@.type=="Ready")].status`,
		`Reason .status.conditions[?(@.type=="Ready")].reason`,
		"Expires .status.expiresAt",
		"Age .metadata.creationTimestamp",
		"Format* .spec.store.format",
		"Renews* .status.renewAt",
		`Status .status.conditions[?(@.type=="Ready")].message`,
	}
	if columns := columnsOf(t, crd); !slices.Equal(columns, want) {
		t.Errorf("the columns are\n%s", strings.Join(columns, "\n"))
	}
	schema, err := apiextensions.GetSchemaForVersion(crd, v1alpha1.Version)
	must.Succeed(t, err)
	status := slices.Sorted(maps.Keys(schema.OpenAPIV3Schema.Properties["status"].Properties))
	if want := []string{"account", "conditions", "digest", "expiresAt", "issuedAt", "keys", "kid", "lastHandledReconcileAt", "observedGeneration", "renewAt", "type"}; !slices.Equal(status, want) {
		t.Errorf("the fields of the status are %q", status)
	}
}
