package plane_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/plane"
)

// TestRequest checks that headers that could turn a request into another one are removed, in every
// spelling. The client's own request must stay unchanged.
func TestRequest(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "https://a.example/b/c%20d?e=f", nil)
	r.Header = http.Header{
		"Authorization": {"x"}, "Proxy-Authorization": {"x"}, "Cookie": {"x"}, "Connection": {"x"}, "Forwarded": {"x"}, "X-Forwarded-Host": {"x"},
		"X-Forwarded-Prefix": {"x"}, "X-Forwarded-Proto": {"http"}, "X-Http-Method-Override": {"DELETE"}, "X-HTTP-METHOD": {"DELETE"}, "X_http_method_override": {"DELETE"},
		"X-Original-Url": {"/other"}, "X_original_url": {"/other"}, "X-Amz-Copy-Source": {"/b/c"}, "Content-Type": {"text/plain"}, "Range": {"bytes=0-1"}, "X-Amz-Meta-A_b": {"x"},
	}
	before := r.Header.Clone()
	out := plane.Request(r)
	want := http.Header{"Content-Type": {"text/plain"}, "Range": {"bytes=0-1"}, "X-Amz-Meta-A_b": {"x"}, "X-Forwarded-Proto": {"https"}}
	if diff := cmp.Diff(want, out.Header); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, r.Header); diff != "" {
		t.Errorf("the client's request was changed (-want +got):\n%s", diff)
	}
	if out.URL.String() != r.URL.String() || out.Host != r.Host || out.RequestURI != r.RequestURI || out.Method != r.Method {
		t.Errorf("got %s %s%s", out.Method, out.Host, out.RequestURI)
	}
}

func TestHas(t *testing.T) {
	for name, want := range map[string]bool{"X-Copy-Source": true, "x-copy-source": true, "X_Copy_Source": true, "X-Copy-Sources": false} {
		if got := plane.Has(http.Header{name: {""}}, "X-Copy-Source"); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestAsk checks that the cloud reads a data plane's answer as a client would. An answer without a
// status is a success.
func TestAsk(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example/", nil)
	for name, tt := range map[string]struct {
		write http.HandlerFunc
		want  plane.Answer
	}{
		"nothing":    {func(http.ResponseWriter, *http.Request) {}, plane.Answer{Status: 200}},
		"body":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a")) }, plane.Answer{Status: 200, Body: []byte("a")}},
		"status":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, plane.Answer{Status: 404}},
		"hints":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, plane.Answer{Status: 404}},
		"two status": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(200) }, plane.Answer{Status: 404}},
	} {
		if diff := cmp.Diff(tt.want, plane.Ask(tt.write, r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
