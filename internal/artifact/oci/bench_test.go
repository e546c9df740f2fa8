package oci_test

import (
	"net/http"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// BenchmarkResolve is what a reconciliation at rest does at a registry.
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
				if err := resolve(b.Context(), n.Transport, opts, repo); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
