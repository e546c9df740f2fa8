package oci_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// BenchmarkResolve measures the requests of a reconciliation that finds no change.
func BenchmarkResolve(b *testing.B) {
	f, _ := artifact("layer")
	for name, challenges := range map[string]*oci.Challenges{"remembered": {}, "asked": nil} {
		b.Run(name, func(b *testing.B) {
			n := serve(b, map[string]http.Handler{registryHost: basic(f)})
			opts := credentials()
			opts.Challenges = challenges
			repo := repository(b, appURL)
			b.ReportAllocs()
			for b.Loop() {
				must.Succeed(b, resolve(b.Context(), n.Transport, opts, repo))
			}
		})
	}
}

// BenchmarkList lists 50,000 versions. The registry sends them in one answer, in lexical order.
func BenchmarkList(b *testing.B) {
	tags := make([]string, 50_000)
	for i := range tags {
		tags[i] = fmt.Sprintf("1.%d.%d", i/100, i%100)
	}
	page, err := json.Marshal(map[string]any{"name": "team/app", "tags": tags})
	must.Succeed(b, err)
	n := serve(b, map[string]http.Handler{registryHost: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })})
	client, err := oci.Connect(b.Context(), repository(b, appURL), oci.Options{Transport: n})
	must.Succeed(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if list, err := client.List(b.Context(), oci.TagFilter{}); err != nil || len(list) != len(tags) {
			b.Fatal(len(list), err)
		}
	}
}
