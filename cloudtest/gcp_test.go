package cloudtest_test

import (
	"net/http"
	"testing"
)

// TestGCPFederation: a tenant's token becomes its service account's, and nobody else's.
func TestGCPFederation(t *testing.T) {
	w := newGCPWorld(t)
	if token := w.accountToken(t, ksaA, accountA); token == "" {
		t.Error("no token")
	}
	if a := w.impersonate(t, w.federated(t, ksaA), accountB, `{"scope":["`+scopeAll+`"]}`); a.status != http.StatusForbidden {
		t.Errorf("HTTP %d %s", a.status, a.body)
	}
	r := newRequest(t, http.MethodGet, "http://metadata.google.internal/computeMetadata/v1/instance/attributes/cluster-name", "", "")
	r.Header.Set("Metadata-Flavor", "Google")
	if a := w.do(t, r); a.status != http.StatusOK || a.body != "tenants" {
		t.Errorf("HTTP %d %s", a.status, a.body)
	}
}
