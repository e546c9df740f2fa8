//go:build !concurrent

// These tests start no goroutine. The race detector would only slow them down, so dev/unit-tests
// runs them without it.

package chart_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/chart"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestAWSIdentitiesNeedTenantNamespaces checks which values the chart refuses if
// identity.awsIdentities is set:
//   - The list rbac.tenantNamespaces has kube-system, the release's namespace or the namespace of
//     the static keys. With rights there, lanyard-controller could read the keys, or act as the
//     identity controller's account.
//   - The list is absent, so lanyard-controller has rights in all namespaces. The chart accepts
//     this only if identity.acceptControllerReadsAllSecrets is true.
//   - The static keys are in the release's namespace.
func TestAWSIdentitiesNeedTenantNamespaces(t *testing.T) {
	judge(t, map[string]judged{
		"all namespaces":                 {`{identity: {awsIdentities: true}}`, "set rbac.tenantNamespaces"},
		"all, and sources read the keys": {`{identity: {awsIdentities: true, sourcesReadStaticKeys: true}}`, "set rbac.tenantNamespaces"},
		"all, accepted":                  {`{identity: {awsIdentities: true, acceptControllerReadsAllSecrets: true}}`, ""},
		"all, without AWS identities":    {`{}`, ""},
		"none":                           {`{identity: {awsIdentities: true}, rbac: {tenantNamespaces: []}}`, ""},
		"tenants":                        {`{identity: {awsIdentities: true}, rbac: {tenantNamespaces: [tenant-a]}}`, ""},
		"the release's":                  {`{identity: {awsIdentities: true}, rbac: {tenantNamespaces: [lanyard-system]}}`, "must not have lanyard-system"},
		"kube-system":                    {`{identity: {awsIdentities: true}, rbac: {tenantNamespaces: [kube-system]}}`, "must not have kube-system"},
		"the keys'":                      {`{identity: {awsIdentities: true}, rbac: {tenantNamespaces: [lanyard-identities]}}`, "must not have lanyard-identities"},
		"keys in the release's":          {`{identity: {awsIdentities: true, secretNamespace: lanyard-system}, rbac: {tenantNamespaces: []}}`, "must not be lanyard-system"},
	})
}

// TestSourcesReadStaticKeysOnlyIfAsked checks that lanyard-controller may read static keys only if
// the value identity.sourcesReadStaticKeys is set.
func TestSourcesReadStaticKeysOnlyIfAsked(t *testing.T) {
	for _, asked := range []bool{false, true} {
		objects, err := chart.Objects(release(map[string]any{
			"identity": map[string]any{"awsIdentities": true, "sourcesReadStaticKeys": asked}, "rbac": map[string]any{"tenantNamespaces": []any{"tenant-a"}},
		}))
		must.Succeed(t, err)
		var readers []string
		for _, object := range objects {
			if object.GetKind() != "RoleBinding" || object.GetNamespace() != "lanyard-identities" {
				continue
			}
			subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
			must.Succeed(t, err)
			for _, subject := range subjects {
				name, _, _ := unstructured.NestedString(subject.(map[string]any), "name") // every subject has a name
				readers = append(readers, name)
			}
		}
		want := []string{"lanyard-identity-controller"}
		if asked {
			want = []string{"lanyard-controller", "lanyard-identity-controller"}
		}
		if slices.Sort(readers); !slices.Equal(readers, want) {
			t.Errorf("asked %t: %q may read the keys", asked, readers)
		}
	}
}

// TestManagementOperatorWritesBindings checks the roles that the chart has for persons. Only the
// role for operators of the management cluster may write Lanyard's bindings.
func TestManagementOperatorWritesBindings(t *testing.T) {
	objects, err := chart.Objects(release(withIssuer(map[string]any{"identity": map[string]any{"awsIdentities": true, "bindings": true}})))
	must.Succeed(t, err)
	roles := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		if object.GetKind() == "ClusterRole" {
			roles[object.GetName()] = object
		}
	}
	for person, want := range map[string]bool{"infrastructure-provider": false, "management-operator": true, "workload-operator": false} {
		selector := "lanyard.dev/aggregate-to-" + person
		selectors, _, err := unstructured.NestedSlice(roles["lanyard-"+person].Object, "aggregationRule", "clusterRoleSelectors")
		if err != nil || len(selectors) != 1 {
			t.Fatalf("%s: %v, %v", person, selectors, err)
		}
		labels, _, _ := unstructured.NestedStringMap(selectors[0].(map[string]any), "matchLabels") // every selector has matchLabels
		_, has := roles["lanyard-bindings"].GetLabels()[selector]
		if labels[selector] != "true" || has != want {
			t.Errorf("%s may write bindings: %t, want %t; the role selects %v", person, has, want, labels)
		}
	}
}
