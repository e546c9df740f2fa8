package local

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/chart"
)

// customResourceDefinition is the value of the field kind in a CRD.
const customResourceDefinition = "CustomResourceDefinition"

// Release is the name of the chart's release.
const Release = "lanyard"

// InstallChart renders the chart and installs it as the administrator, like Helm; see
// [Cluster.Install]. The chart gets the cloud's environment and region as values. The given values,
// which may be nil, override them key by key.
func (c *Cluster) InstallChart(ctx context.Context, values map[string]any) error {
	objects, err := c.render(values)
	if err != nil {
		return err
	}
	return c.Install(ctx, objects)
}

// render renders the chart with the cloud's environment and region as values. The given values
// override them key by key.
func (c *Cluster) render(values map[string]any) ([]*unstructured.Unstructured, error) {
	return render(c.cloud.Env(), c.cloud.identityEnv(), values)
}

// Install applies the objects of a chart as the administrator, and waits until its CRDs are
// established. It leaves the APIServices of the chart's programs to [Cluster.StartProgram]. Install
// may be called again with other objects. A later call does not change running programs.
func (c *Cluster) Install(ctx context.Context, objects []*unstructured.Unstructured) error {
	latest, err := readChart(objects)
	if err != nil {
		return err
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": Namespace},
	}}
	for _, o := range append([]*unstructured.Unstructured{namespace}, reachable(objects, latest.apis)...) {
		if err := c.applyObject(ctx, o); err != nil {
			return err
		}
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

// WithIssuer returns chart values that enable Lanyard's own issuer [TokenIssuer]. The given values
// override them key by key. The issuer's keys sign soon after they are published. The chart's RBAC
// rules let the controller request tokens only in the given namespaces.
func WithIssuer(namespaces []string, values map[string]any) map[string]any {
	tenants := []any{}
	for _, n := range namespaces {
		tenants = append(tenants, n)
	}
	return merge(map[string]any{
		"issuer": map[string]any{
			"url": TokenIssuer, "clusterID": "demo",
			// short, because no client has cached the keys of a new cloud
			"keys": map[string]any{"publishDelay": "1m"},
		},
		"rbac": map[string]any{"tenantNamespaces": tenants},
	}, values)
}

// Demonstration returns the chart values of the demonstration: those of [WithIssuer], and values
// that enable AWS identities. If there are namespaces, the values also enable Kustomizations. The
// given values override all these, key by key.
func Demonstration(namespaces []string, values map[string]any) map[string]any {
	return WithIssuer(namespaces, merge(map[string]any{
		"identity": map[string]any{"awsIdentities": true}, "apply": map[string]any{"enabled": len(namespaces) > 0},
	}, values))
}

// ChartWorkloads returns the workloads of the chart with these values. It returns an error if the
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

// render renders the chart for this machine. The lists env and own have environment variables, as
// NAME=VALUE. Programs that use the cloud get env, with the cloud's proxy and CA. Programs that use
// AWS identities also get own, with an AWS credential. The given values override the values for
// this machine, key by key.
func render(env, own []string, values map[string]any) ([]*unstructured.Unstructured, error) {
	// The token server needs env to read its own public documents through the cloud's proxy.
	cloud := Variables(env)
	machine := map[string]any{
		"image":    map[string]any{"repository": "localhost/lanyard-controller"}, // never pulled: the program runs on this machine
		"extraEnv": Variables([]string{"AZURE_TENANT_ID=" + AzureTenant}, env, own),
		"identity": map[string]any{"awsRegion": Region},
		// These values have an effect only with issuer.url or identity.awsIdentities.
		"tokenServer":        map[string]any{"extraEnv": cloud},
		"identityController": map[string]any{"extraEnv": Variables(env, own)},
		"applyController":    map[string]any{"extraEnv": Variables([]string{"AZURE_TENANT_ID=" + AzureTenant}, env)},
		"discovery":          map[string]any{"ingress": map[string]any{"enabled": true}},
	}
	return chart.Objects(chart.Release{Name: Release, Namespace: Namespace, Values: merge(machine, values)})
}

// Variables converts lists of NAME=VALUE to a list for an extraEnv value of the chart.
func Variables(lists ...[]string) []any {
	made := []any{}
	for _, variable := range slices.Concat(lists...) {
		name, value, _ := strings.Cut(variable, "=")
		made = append(made, map[string]any{"name": name, "value": value})
	}
	return made
}

// merge returns a copy of base. The argument over adds and replaces values, key by key. If both
// arguments have a map at a key, merge also merges these maps, like Helm.
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

// establishTimeout is the maximum wait for the API server to establish a CRD or an aggregated API.
const establishTimeout = 30 * time.Second

func (c *Cluster) awaitCRD(ctx context.Context, name string) error {
	return c.await(ctx, customResourceDefinition+" "+name, func(ctx context.Context) (bool, error) {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind(customResourceDefinition)
		if err := c.client.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return false, err
		}
		return established(crd)
	})
}

// established reports whether the API server serves the kind of a CRD.
func established(crd *unstructured.Unstructured) (bool, error) {
	field, _, err := unstructured.NestedFieldNoCopy(crd.Object, "status", "conditions")
	if err != nil {
		return false, err
	}
	conditions, _ := field.([]any) // null until the API server has written the first condition
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true, nil
		}
	}
	return false, nil
}
