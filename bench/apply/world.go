package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
)

const (
	// objectsPerNamespace is the number of objects with an artifact in each namespace.
	objectsPerNamespace = 10
	// applier is the ServiceAccount that the program impersonates, one in each namespace.
	applier = "applier"
	// interval is so long that no object becomes due during a measurement.
	interval = 6 * time.Hour
)

// world is the cluster of one program.
type world struct {
	*stage.World
	program

	n        int // number of objects with an artifact
	progress io.Writer
}

func (w *world) say(format string, args ...any) {
	_, _ = fmt.Fprintf(w.progress, "  "+format+"\n", args...)
}

// namespaceOf returns the namespace of the i-th object.
func namespaceOf(i int) string { return fmt.Sprintf("tenant-%03d", i/objectsPerNamespace) }

// nameOf returns the name of the i-th object, of its source and of its application.
func nameOf(i int) string { return fmt.Sprintf("app-%04d", i) }

// furnish creates all objects that the program reads. Nothing is applied yet.
func (w *world) furnish(ctx context.Context, a *artifacts) error {
	folders := slices.Clone(w.folders)
	for _, m := range w.definitions {
		folder, err := m.crds(ctx)
		if err != nil {
			return err
		}
		folders = append(folders, folder)
	}
	for _, folder := range folders {
		if err := w.InstallCRDs(ctx, folder); err != nil {
			return err
		}
	}
	if err := w.createTenants(ctx); err != nil {
		return err
	}
	return fleet.Each(ctx, w.n, func(ctx context.Context, i int) error {
		source := object(w.sourceVersion, w.sourceKind, i)
		source.Object["spec"] = map[string]any{
			"url": "oci://registry.example.com/" + nameOf(i), "ref": map[string]any{"tag": "1.4.2"}, "interval": interval.String(),
		}
		if err := w.Client().Create(ctx, source); err != nil {
			return err
		}
		source.Object["status"] = a.status(i)
		if err := w.Client().Status().Update(ctx, source); err != nil {
			return err
		}
		apply := object(w.applyVersion, w.applyKind, i)
		apply.Object["spec"] = map[string]any{
			"sourceRef": map[string]any{"kind": w.sourceKind, "name": nameOf(i)}, "path": "./", "prune": true,
			"interval": interval.String(), "serviceAccountName": applier,
		}
		return w.Client().Create(ctx, apply)
	})
}

// createTenants creates the namespaces. Each namespace has a ServiceAccount that may do everything
// in the namespace.
func (w *world) createTenants(ctx context.Context) error {
	count := (w.n + objectsPerNamespace - 1) / objectsPerNamespace
	return fleet.Each(ctx, count, func(ctx context.Context, i int) error {
		namespace := namespaceOf(i * objectsPerNamespace)
		meta := metav1.ObjectMeta{Namespace: namespace, Name: applier}
		for _, o := range []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
			&corev1.ServiceAccount{ObjectMeta: meta},
			&rbacv1.RoleBinding{
				ObjectMeta: meta,
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: applier}},
			},
		} {
			if err := w.Client().Create(ctx, o); err != nil {
				return err
			}
		}
		return nil
	})
}

// object returns the i-th object of a kind, without its spec.
func object(version, kind string, i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version, "kind": kind,
		"metadata": map[string]any{"namespace": namespaceOf(i), "name": nameOf(i)},
	}}
}

// list returns an empty list of the objects with an artifact.
func (w *world) list() *unstructured.UnstructuredList {
	return &unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": w.applyVersion, "kind": w.applyKind + "List",
	}}
}
