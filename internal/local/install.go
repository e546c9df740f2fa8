package local

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lanyard-dev/lanyard/internal/chart"
)

// container is what the chart says of a controller's container.
type container struct {
	args   []string
	env    []corev1.EnvVar
	limits corev1.ResourceList
	// account is the ServiceAccount that the container runs as.
	account string
}

// Release is the name of the chart's release.
const Release = "lanyard"

// InstallChart renders the chart and applies it as the administrator would with Helm, with the cloud's environment and region
// as values. Values are put over these, key by key; nil adds none. It may be called again with others; controllers that run
// keep what they were started with.
func (w *World) InstallChart(ctx context.Context, values map[string]any) error {
	objects, err := chart.Objects(chart.Release{Name: Release, Namespace: Namespace, Values: merge(w.values(), values)})
	if err != nil {
		return err
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": Namespace},
	}}
	if err := w.apply(ctx, append([]*unstructured.Unstructured{namespace}, objects...)); err != nil {
		return err
	}
	for _, o := range objects {
		switch o.GetKind() {
		case "CustomResourceDefinition":
			if err := w.awaitCRD(ctx, o.GetName()); err != nil {
				return err
			}
		case "StatefulSet":
			c, err := controllerOf(o)
			if err != nil {
				return err
			}
			w.mu.Lock()
			w.statefulset[o.GetName()] = c
			w.mu.Unlock()
		}
	}
	return nil
}

// values are the chart's for this machine: what a cluster behind a proxy with a CA of its own would have.
func (w *World) values() map[string]any {
	var env []any
	for _, variable := range w.Env() {
		name, value, _ := strings.Cut(variable, "=")
		env = append(env, map[string]any{"name": name, "value": value})
	}
	env = append(env, map[string]any{"name": "AZURE_TENANT_ID", "value": AzureTenant})
	return map[string]any{
		"image":    map[string]any{"repository": "localhost/lanyard-controller"}, // which nobody pulls: the program runs on this machine
		"env":      env,
		"identity": map[string]any{"awsRegion": Region},
	}
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

func controllerOf(o *unstructured.Unstructured) (container, error) {
	var set appsv1.StatefulSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &set); err != nil {
		return container{}, fmt.Errorf("read StatefulSet %s of the chart: %w", o.GetName(), err)
	}
	pod := set.Spec.Template.Spec
	for _, c := range pod.Containers {
		if c.Name == "controller" {
			return container{args: c.Args, env: c.Env, limits: c.Resources.Limits, account: pod.ServiceAccountName}, nil
		}
	}
	return container{}, fmt.Errorf("StatefulSet %s of the chart has no container controller", o.GetName())
}

// establishTimeout bounds the API server's work on a new CRD.
const establishTimeout = 30 * time.Second

func (w *World) awaitCRD(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	return w.await(ctx, "CustomResourceDefinition "+name, func(ctx context.Context) (bool, error) {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		if err := w.client.Get(ctx, keyOf("", name), crd); err != nil {
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
