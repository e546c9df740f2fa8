package identity_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestLive reads a chain and checks its current grants. Live must fail if a grant has a label
// selector and the namespace's labels cannot be read.
func TestLive(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Succeed(t, corev1.AddToScheme(scheme))
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	role := func(name, source string, grant *v1alpha1.AllowedNamespaces) *v1alpha1.AWSClusterRoleIdentity {
		o := &v1alpha1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}}
		o.Spec.RoleARN, o.Spec.AllowedNamespaces = "arn:aws:iam::111122223333:role/"+name, grant
		o.Spec.SourceIdentityRef = &v1alpha1.AWSClusterIdentityReference{Kind: v1alpha1.AWSClusterRoleIdentityKind, Name: source}
		return o
	}
	list := &v1alpha1.AllowedNamespaces{List: []string{"a"}}
	labelled := &v1alpha1.AllowedNamespaces{Selector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]string{"team": "a"}}}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"team": "a"}}},
		role("circle-1", "circle-2", list), role("circle-2", "circle-1", list),
		role("labelled", "default", labelled), role("headless", "nowhere", list),
	}
	objects[3].(*v1alpha1.AWSClusterRoleIdentity).Spec.SourceIdentityRef = nil
	own := &v1alpha1.AWSClusterControllerIdentity{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultControllerIdentity, UID: "uid"}}
	own.Spec.AllowedNamespaces = &v1alpha1.AllowedNamespaces{All: true}
	objects = append(objects, own)
	forbidden := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		if _, ok := o.(*metav1.PartialObjectMetadata); ok {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, key.Name, nil)
		}
		return c.Get(ctx, key, o, options...)
	}
	visible := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	blind := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{Get: forbidden}).Build()
	for name, tt := range map[string]struct {
		reader client.Reader
		reason string   // reason of the refusal; empty for no refusal
		chain  []string // identities that admit the namespace
	}{
		"labelled": {visible, "", []string{"AWSClusterRoleIdentity labelled", "AWSClusterControllerIdentity default"}},
		"circle-1": {visible, meta.ReasonSourceCycle, []string{"AWSClusterRoleIdentity circle-1", "AWSClusterRoleIdentity circle-2"}},
		"headless": {visible, string(auth.CodeSubjectNotFound), []string{"AWSClusterRoleIdentity headless"}},
		"nowhere":  {visible, string(auth.CodeSubjectNotFound), nil},
		"circle-2": {blind, meta.ReasonSourceCycle, []string{"AWSClusterRoleIdentity circle-2", "AWSClusterRoleIdentity circle-1"}},
	} {
		subject, err := auth.ClusterIdentity(v1alpha1.AWSClusterRoleIdentityKind, name)
		must.Succeed(t, err)
		known, err := identity.Live(t.Context(), tt.reader, kube.NewLive(tt.reader), "a", subject)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := known.Admits(t.Context(), "a", subject); identity.ReasonOf(err) != tt.reason {
			t.Errorf("%s: %v", name, err)
		}
		var chain []string
		for _, g := range known.Grants(t.Context(), "a", subject) {
			if g.Admits {
				chain = append(chain, g.Identity)
			}
		}
		if !slices.Equal(chain, tt.chain) {
			t.Errorf("%s: %q", name, chain)
		}
	}
	subject, err := auth.ClusterIdentity(v1alpha1.AWSClusterRoleIdentityKind, "labelled")
	must.Succeed(t, err)
	if _, err := identity.Live(t.Context(), blind, kube.NewLive(blind), "a", subject); !apierrors.IsForbidden(err) {
		t.Errorf("without the labels: %v", err)
	}
}
