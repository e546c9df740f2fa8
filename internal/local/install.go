package local

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/chart"
)

// customResourceDefinition is a kind.
const customResourceDefinition = "CustomResourceDefinition"

// Release is the name of the chart's release.
const Release = "lanyard"

// InstallChart renders the chart and installs it as the administrator would with Helm, with the
// cloud's environment and region as values. Values are put over these, key by key; nil adds none.
// See [Cluster.Install].
func (c *Cluster) InstallChart(ctx context.Context, values map[string]any) error {
	objects, err := c.render(values)
	if err != nil {
		return err
	}
	return c.Install(ctx, objects)
}

// render renders the chart with the cloud's environment and region as values. Values are put over
// these.
func (c *Cluster) render(values map[string]any) ([]*unstructured.Unstructured, error) {
	return render(c.cloud.Env(), c.cloud.identityEnv(), values)
}

// Install applies the objects of a chart as the administrator, and waits until its CRDs are
// established. [Cluster.StartProgram] starts the chart's programs, and applies the aggregated APIs
// that a program serves. Install may be called again with other objects; programs that run keep
// what they were started with.
func (c *Cluster) Install(ctx context.Context, objects []*unstructured.Unstructured) error {
	latest, err := readChart(objects)
	if err != nil {
		return err
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": Namespace},
	}}
	if err := c.apply(ctx, append([]*unstructured.Unstructured{namespace}, reachable(objects, latest.apis)...)); err != nil {
		return err
	}
	for _, o := range objects {
		if o.GetKind() != customResourceDefinition {
			continue
		}
		if err := c.awaitCRD(ctx, o.GetName()); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chart = latest
	return nil
}

// WithIssuer puts values over those of a chart with Lanyard's own issuer [TokenIssuer], whose keys
// sign as soon as they are published. The controller may request tokens in the namespaces, and
// nowhere else: the chart wants to know them.
func WithIssuer(namespaces []string, values map[string]any) map[string]any {
	tenants := []any{}
	for _, n := range namespaces {
		tenants = append(tenants, n)
	}
	return merge(map[string]any{
		"issuer": map[string]any{
			"url": TokenIssuer, "clusterID": "demo",
			"keys": map[string]any{"publishDelay": "1m"}, // nobody else has a cache of a cloud that was just made
		},
		"rbac": map[string]any{"tenantNamespaces": tenants},
	}, values)
}

// Demonstration puts values over those of the demonstration's chart: that of [WithIssuer], with AWS
// identities.
func Demonstration(namespaces []string, values map[string]any) map[string]any {
	return WithIssuer(namespaces, merge(map[string]any{"identity": map[string]any{"awsIdentities": true}}, values))
}

// ChartWorkloads returns the workloads that the chart has with these values. An error says that the
// chart does not accept the values.
func ChartWorkloads(values map[string]any) ([]Workload, error) {
	objects, err := render(nil, nil, values)
	if err != nil {
		return nil, err
	}
	all, err := readChart(objects)
	if err != nil {
		return nil, err
	}
	return all.names(), nil
}

// render renders the chart for this machine. The values stand over those that a cluster would have
// behind a proxy with a CA of its own, which env names. Own is for the programs that use AWS
// identities: who they are at AWS.
func render(env, own []string, values map[string]any) ([]*unstructured.Unstructured, error) {
	cloud := variables(env) // the token server reads the public documents in the cloud
	machine := map[string]any{
		"image":    map[string]any{"repository": "localhost/lanyard-controller"}, // never pulled: the program runs on this machine
		"extraEnv": variables([]string{"AZURE_TENANT_ID=" + AzureTenant}, env, own),
		"identity": map[string]any{"awsRegion": Region},
		// These have an effect only with issuer.url or identity.awsIdentities.
		"tokenServer":        map[string]any{"extraEnv": cloud},
		"identityController": map[string]any{"extraEnv": variables(env, own)},
		"discovery":          map[string]any{"ingress": map[string]any{"enabled": true}},
	}
	return chart.Objects(chart.Release{Name: Release, Namespace: Namespace, Values: merge(machine, values)})
}

// variables is a value extraEnv of the chart.
func variables(lists ...[]string) []any {
	made := []any{}
	for _, variable := range slices.Concat(lists...) {
		name, value, _ := strings.Cut(variable, "=")
		made = append(made, map[string]any{"name": name, "value": value})
	}
	return made
}

// merge puts over upon base, maps key by key, as Helm does.
func merge(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	for k, v := range over {
		inner, isMap := v.(map[string]any)
		former, wasMap := out[k].(map[string]any)
		if isMap && wasMap {
			v = merge(former, inner)
		}
		out[k] = v
	}
	return out
}

// establishTimeout bounds the API server's work on a new CRD or a new aggregated API.
const establishTimeout = 30 * time.Second

func (c *Cluster) awaitCRD(ctx context.Context, name string) error {
	return c.await(ctx, customResourceDefinition+" "+name, func(ctx context.Context) (bool, error) {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind(customResourceDefinition)
		if err := c.client.Get(ctx, keyOf("", name), crd); err != nil {
			return false, err
		}
		conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
		if err != nil {
			return false, err
		}
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return true, nil
			}
		}
		return false, nil
	})
}
