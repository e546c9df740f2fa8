//go:build flux

package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// names returns pairs of texts: a name in Flux's API, and the same in Lanyard's.
func names() [][2]string {
	return [][2]string{
		{`kustomize.toolkit.fluxcd.io/v1`, `toolkit.lanyard.dev/v1alpha1`},
		{`"kustomize.toolkit.fluxcd.io/name"`, `"kustomize.toolkit.lanyard.dev/name"`},
		{`"kustomize.toolkit.fluxcd.io/namespace"`, `"kustomize.toolkit.lanyard.dev/namespace"`},
		{`"finalizers.fluxcd.io"`, `"lanyard.dev/finalizer"`},
		{`"sourceRef":{"kind":"GitRepository"`, `"sourceRef":{"kind":"ExternalArtifact"`},
	}
}

// messages returns pairs of texts: a part of a message that Flux's tests expect, and the part that
// Lanyard's message has instead. A text comes before its parts.
func messages() [][2]string {
	return [][2]string{
		{`Applied revision: `, `applied revision `},
		{`Running health checks`, `waiting until these objects are healthy`},
		{`Health check passed`, `objects are healthy`},
		{`timeout waiting for: [`, `these objects are not healthy: `},
		{`failed to evaluate the CEL expression 'has(data.foo.bar)': `, `the expression inProgress: `},
		{`not ready according to readyExpr`, `is not ready: readyExpr is false`},
		{`Secret \"user-defined-name\" not found`, `Secret user-defined-name: the Secret does not exist`},
		{`variable not set`, `the variable \"missing\" has no value`},
		{`*****`, `its answer is not shown, since it may have values of Secrets`},
	}
}

// reasons returns Lanyard's reasons of the condition Ready, each with Flux's reason for the same case.
func reasons() map[string]string {
	return map[string]string{
		"Succeeded":         "ReconciliationSucceeded",
		"SourceNotReady":    "ArtifactFailed",
		"KubeConfigRefused": "ReconciliationFailed",
		"ApplyRefused":      "ReconciliationFailed",
		"ApplyFailed":       "ReconciliationFailed",
	}
}

// translator sends requests with Lanyard's names. It returns answers with Flux's names, messages and
// reasons.
type translator struct{ next http.RoundTripper }

func (t translator) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.Contains(req.URL.Path, "/namespaces/") {
		return t.next.RoundTrip(req) // such as the kinds of the API server
	}
	req = req.Clone(req.Context())
	for _, n := range names() {
		req.URL.Path = strings.ReplaceAll(req.URL.Path, n[0], n[1])
	}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		for _, n := range names() {
			body = bytes.ReplaceAll(body, []byte(n[0]), []byte(n[1]))
		}
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if err := res.Body.Close(); err != nil {
		return nil, err
	}
	for _, n := range append(names(), messages()...) {
		body = bytes.ReplaceAll(body, []byte(n[1]), []byte(n[0]))
	}
	if res.StatusCode == http.StatusOK && strings.Contains(req.URL.Path, "/kustomizations/") {
		if body, err = translateReasons(body); err != nil {
			return nil, err
		}
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return res, nil
}

// translateReasons replaces the reasons in the condition Ready and in the history of a Kustomization.
func translateReasons(body []byte) ([]byte, error) {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &o.Object); err != nil {
		return nil, err
	}
	for list, field := range map[string]string{"conditions": "reason", "history": "lastReconciledStatus"} {
		entries, found, err := unstructured.NestedSlice(o.Object, "status", list)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		for _, e := range entries {
			e, ok := e.(map[string]any)
			if !ok || list == "conditions" && e["type"] != "Ready" {
				continue
			}
			if flux, ok := reasons()[fmt.Sprint(e[field])]; ok {
				e[field] = flux
			}
		}
		if err := unstructured.SetNestedSlice(o.Object, entries, "status", list); err != nil {
			return nil, err
		}
	}
	return json.Marshal(o.Object)
}
