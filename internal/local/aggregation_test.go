package local

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/must"
)

const aggregated = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.test.example.com}
spec: {group: test.example.com, version: v1, service: {name: server, namespace: lanyard-system, port: 8443}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v2.test.example.com}
spec: {group: test.example.com, version: v2, service: {name: server, namespace: lanyard-system}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.}
spec: {version: v1}
---
apiVersion: v1
kind: Service
metadata: {name: server, namespace: lanyard-system}
spec: {clusterIP: 10.0.0.7, selector: {app: server}, ports: [{port: 443}, {port: 8443}]}
---
apiVersion: v1
kind: Service
metadata: {name: server, namespace: another}
spec: {clusterIP: 10.0.0.8, ports: [{port: 443}]}
`

// TestAggregated asserts that the Service of an aggregated API leads to this machine. In a copy of
// the APIService, the program's port on this machine must replace the chart's port. The chart's own
// objects must stay unchanged.
func TestAggregated(t *testing.T) {
	manifests, err := parseManifest("chart.yaml", []byte(aggregated))
	must.Succeed(t, err)
	var chart rendered
	var objects []*unstructured.Unstructured
	for _, m := range manifests {
		objects = append(objects, m.Unstructured)
		must.Succeed(t, chart.add(m.Unstructured))
	}
	if len(chart.apis) != 2 || chart.apis[0].host() != "server.lanyard-system.svc:8443" || chart.apis[1].host() != "server.lanyard-system.svc:443" {
		t.Fatalf("the aggregated APIs are %+v", chart.apis)
	}
	applied := reachable(objects, chart.apis)
	if len(applied) != 3 || applied[0].GetName() != "v1." {
		t.Fatalf("applied are %v", applied)
	}
	for at, want := range map[int]struct{ kind, name, address string }{
		1: {"ExternalName", "127.0.0.1", ""}, 2: {"", "", "10.0.0.8"},
	} {
		text := func(field string) string {
			value, _, _ := unstructured.NestedString(applied[at].Object, "spec", field)
			return value
		}
		if text("type") != want.kind || text("externalName") != want.name || text("clusterIP") != want.address {
			t.Errorf("Service %s/%s is %v", applied[at].GetNamespace(), applied[at].GetName(), applied[at].Object["spec"])
		}
	}
	if address, _, _ := unstructured.NestedString(objects[3].Object, "spec", "clusterIP"); address != "10.0.0.7" {
		t.Error("the chart's own Service was changed")
	}
	for from, api := range chart.apis {
		moved, ok, err := readAPIService(api.at(4711))
		if !ok || err != nil || moved.host() != "server.lanyard-system.svc:4711" || api.host() == moved.host() {
			t.Errorf("API %d moved to %+v: %v", from, moved, err)
		}
	}
}
