package e2e

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/stage"
)

// TestKubectl runs kubectl's usual verbs for every kind, with the kind's plural and short name.
// Like most people, the test writes neither the API group nor the version. Another API group may
// have a resource with the same plural. The plural must still select Lanyard's kind. The test sets
// every chart value that adds a kind, an admission policy or an aggregated API.
func TestKubectl(t *testing.T) {
	beside(t, lane2)
	const namespace = "kubectl"
	w := &issuerWorld{Cluster: startCluster(t, "kubectl", "", nil)}
	w.people = w.Client()
	w.putNamespace(t, namespace)
	values := loudest()
	maps.Copy(values, map[string]any{
		"issuer": map[string]any{
			"url": "https://issuer.kubectl.example.com", "clusterID": "prod",
			"spokeUserPrefix": "system:serviceaccount:spokes:", "claimsConfig": claimsConfig(t),
		},
		"spiffe":   map[string]any{"trustDomain": "kubectl.example.com", "issuer": "https://spiffe.kubectl.example.com"},
		"identity": map[string]any{"awsIdentities": true, "bindings": true},
		"flux":     map[string]any{"externalArtifacts": true},
		"rbac":     map[string]any{"tenantNamespaces": []any{namespace}},
		"apply":    map[string]any{"enabled": true},
	})
	must(t, "install the chart", w.InstallChart(t.Context(), values))
	// Start only the token server. The other programs would only add finalizers to the objects.
	_, err := w.StartProgram(t.Context(), local.ProgramOptions{Workload: tokenServer, Binary: daemon(tokenServer)})
	must(t, "start the token server", err)
	eventually(t, "kubectl sees the token API", func(ctx context.Context) error {
		out, err := w.Kubectl(ctx, "api-versions").CombinedOutput()
		return errors.Join(err, wantf(bytes.Contains(out, []byte(tokenv1.Group+"/")), "%s", out))
	})
	for _, kind := range kinds.All() {
		for _, word := range []string{kind.Plural, kind.Short} {
			t.Run(word, func(t *testing.T) { kubectlVerbs(t, w, kind, word, namespace) })
		}
	}
}

// kubectlVerbs creates an object of a kind, and runs kubectl's verbs for the object. The word is
// the kind's plural or short name.
func kubectlVerbs(t *testing.T, w *issuerWorld, kind kinds.Kind, word, namespace string) {
	t.Helper()
	o := stage.Sample(t, kind, namespace)
	must(t, "create the object", w.people.Create(t.Context(), o))
	t.Cleanup(func() { _ = w.people.Delete(context.WithoutCancel(t.Context()), o) })
	for _, c := range []struct {
		args []string
		want string // text in kubectl's output
	}{
		{[]string{"explain", word}, "GROUP:      " + kind.Group},
		{[]string{"get", word}, o.GetName()},
		{[]string{"get", word, o.GetName()}, o.GetName()},
		{[]string{"describe", word, o.GetName()}, "API Version:  " + kind.GroupVersion().String()},
		{[]string{"annotate", word, o.GetName(), "example.com/word=" + word}, "annotated"},
		{[]string{"delete", word, o.GetName()}, "deleted"},
	} {
		out, err := w.Kubectl(t.Context(), append(c.args, "--namespace="+namespace)...).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte(c.want)) {
			t.Errorf("kubectl %s: %v; want %q in:\n%s", strings.Join(c.args, " "), err, c.want, out)
		}
	}
}
