package kustomize_test

import (
	"fmt"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// BenchmarkBuild compares builds of twenty objects: by Flux's library in this process, and in a
// child that is new or has served before. The benchmark counts wall time; a child's processor time
// is about the same.
func BenchmarkBuild(b *testing.B) {
	files := map[string]string{}
	for i := range 10 {
		files[fmt.Sprintf("m%d.yaml", i)] = configMap(fmt.Sprint("m", i))
		files[fmt.Sprintf("d%d.yaml", i)] = fmt.Sprintf("# %d\n", i) + deploymentNamed(fmt.Sprint("d", i))
	}
	b.Run("flux", func(b *testing.B) {
		for b.Loop() {
			_, err := fluxBuild(b, files, "{}", kustomize.Spec{})
			must.Succeed(b, err)
		}
	})
	archive := pack(b, files)
	for name, secret := range map[string]bool{"new child": true, "used child": false} {
		b.Run(name, func(b *testing.B) {
			builder := newBuilder(b)
			for b.Loop() {
				built, err := builder.Build(b.Context(), kustomize.Request{Tenant: "a", Archive: archive, Secret: secret})
				must.Succeed(b, err)
				if len(built.Objects) != 20 {
					b.Fatalf("%d objects", len(built.Objects))
				}
			}
		})
	}
}

func deploymentNamed(name string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + "}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: " + name + "}}\n  template:\n" +
		"    metadata: {labels: {app: " + name + "}}\n    spec:\n      containers:\n      - name: web\n        image: nginx:1.29\n        ports: [{containerPort: 80}]\n"
}
