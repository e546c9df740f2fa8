//go:build !concurrent

// These tests start no goroutine. The race detector would only slow them down, so dev/unit-tests
// runs them without it.

package chart_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/chart"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestApplyNeedsTenantNamespaces checks which values the chart refuses if apply.enabled is set. The
// right to impersonate ServiceAccounts must be only in namespaces of tenants.
func TestApplyNeedsTenantNamespaces(t *testing.T) {
	judge(t, map[string]judged{
		"off":           {`{}`, ""},
		"all":           {`{apply: {enabled: true}}`, "apply.enabled needs rbac.tenantNamespaces"},
		"none":          {`{apply: {enabled: true}, rbac: {tenantNamespaces: []}}`, "apply.enabled needs rbac.tenantNamespaces"},
		"tenants":       {`{apply: {enabled: true}, rbac: {tenantNamespaces: [tenant-a]}}`, ""},
		"the release's": {`{apply: {enabled: true}, rbac: {tenantNamespaces: [tenant-a, lanyard-system]}}`, "must not have lanyard-system"},
		"kube-system":   {`{apply: {enabled: true}, rbac: {tenantNamespaces: [kube-system]}}`, "must not have kube-system"},
		"identities":    {`{apply: {enabled: true}, rbac: {tenantNamespaces: [lanyard-identities]}}`, "must not have lanyard-identities"},
		"static keys":   {`{apply: {enabled: true}, identity: {secretNamespace: keys}, rbac: {tenantNamespaces: [keys]}}`, "must not have keys"},
		"little memory": {
			`{apply: {enabled: true, build: {concurrent: 4}}, rbac: {tenantNamespaces: [tenant-a]}}`, "applyController.resources.limits.memory (1Gi) must be at least 1152Mi",
		},
		"no memory limit": {
			`{apply: {enabled: true, build: {concurrent: 4}}, applyController: {resources: {limits: null}}, rbac: {tenantNamespaces: [tenant-a]}}`, "",
		},
	})
}

// TestOnlyTenantsAreImpersonated checks that the right to impersonate is bound only in the
// namespaces of tenants, to the apply controller, and that no rule is about users or groups.
func TestOnlyTenantsAreImpersonated(t *testing.T) {
	objects, err := chart.Objects(release(map[string]any{
		"apply": map[string]any{"enabled": true}, "rbac": map[string]any{"tenantNamespaces": []any{"tenant-a", "tenant-b"}},
	}))
	must.Succeed(t, err)
	var roles, bound []string
	for _, object := range objects {
		for _, rule := range rules(t, object) {
			if !slices.Contains(rule.Verbs, "impersonate") && !slices.Contains(rule.Verbs, "*") {
				continue
			}
			roles = append(roles, object.GetKind()+" "+object.GetName())
			if !slices.Equal(rule.Resources, []string{"serviceaccounts"}) || !slices.Equal(rule.Verbs, []string{"get", "impersonate"}) {
				t.Errorf("%s %s: %+v", object.GetKind(), object.GetName(), rule)
			}
		}
		if ref, ok := object.Object["roleRef"].(map[string]any); ok && ref["name"] == "lanyard-apply-controller-tenant" {
			bound = append(bound, object.GetKind()+" "+object.GetNamespace())
		}
	}
	if !slices.Equal(roles, []string{"ClusterRole lanyard-apply-controller-tenant"}) || !slices.Equal(bound, []string{"RoleBinding tenant-a", "RoleBinding tenant-b"}) {
		t.Errorf("roles %q, bound %q", roles, bound)
	}
}

// TestHostsOfOtherClusters checks that the apply controller gets the hosts that tenants may name.
func TestHostsOfOtherClusters(t *testing.T) {
	text, err := chart.Render(release(map[string]any{
		"apply": map[string]any{"enabled": true}, "rbac": map[string]any{"tenantNamespaces": []any{"tenant-a"}},
		"identity": map[string]any{"allowedEndpointHosts": []any{"api.corp.example.com:6443"}, "denyCIDRs": []any{"10.0.0.0/8"}},
	}))
	must.Succeed(t, err)
	// The controller, and the apply controller.
	for _, argument := range []string{"--allowed-endpoint-hosts=api.corp.example.com:6443", "--deny-cidrs=10.0.0.0/8"} {
		if n := strings.Count(string(text), argument); n != 2 {
			t.Errorf("%d programs have %s", n, argument)
		}
	}
}
