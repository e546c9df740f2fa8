// Package rig is what the tests of the local cloud share: requests, golden files, and a cloud that is AWS with two tenants.
package rig

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// NewRequest makes a request, of a content type if it is not empty.
func NewRequest(t *testing.T, method, target, contentType, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

// ReadAll reads an answer's body to its end and closes it.
func ReadAll(t *testing.T, res *http.Response) string {
	t.Helper()
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
