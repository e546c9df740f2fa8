package e2e

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/issuer/issuertest"
)

// TestIdentityAdmission sends every row of package issuertest's table of WorkloadIdentities to the
// real API server. The API server applies the CRD's schema and rules, and the admission policy.
func TestIdentityAdmission(t *testing.T) {
	beside(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "garden"}}
	must(t, "make a namespace", client.IgnoreAlreadyExists(objects.Create(t.Context(), namespace)))
	t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), namespace) })
	installPolicy(t, "../../config/admission/workloadidentities.yaml")
	create := func(ctx context.Context, row issuertest.Row) error {
		o := &unstructured.Unstructured{Object: row.Object()}
		o.SetUID("")
		return objects.Create(ctx, o, client.DryRunAll)
	}
	eventually(t, "the policy holds", func(ctx context.Context) error {
		if create(ctx, issuertest.Row{Length: 183}) == nil {
			return errors.New("a long name is accepted")
		}
		return nil
	})
	for _, row := range issuertest.Rows(t) {
		t.Run(row.Name, func(t *testing.T) {
			err := create(t.Context(), row)
			switch row.RefusedBy {
			case "", issuertest.Issuer:
				must(t, "an accepted row", err)
			default:
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), row.Message) {
					t.Errorf("the API server says %v; want %s: %s", err, row.Field, row.Message)
				}
			}
		})
	}
}

// installPolicy creates the objects of a file, unless the chart has created them.
func installPolicy(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, "read a policy", err)
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		o := &unstructured.Unstructured{}
		must(t, "read a policy", yaml.Unmarshal([]byte(document), &o.Object))
		err := objects.Create(t.Context(), o)
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		must(t, "make a policy", err)
		t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), o) })
	}
}
