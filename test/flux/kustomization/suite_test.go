//go:build flux

// Package controller runs the tests of Flux's kustomize-controller against lanyard-apply-controller.
// TestKustomizationsOfFlux, in the folder above, adds Flux's test files when it compiles the package.
// These files determine the name of the package and many names below.
package controller

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	kcheck "github.com/fluxcd/pkg/runtime/conditions/check"
	"github.com/fluxcd/pkg/testserver"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/go-logr/logr"
	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	// Flux's test files import these packages, too.
	_ "github.com/fluxcd/cli-utils/pkg/object"
	_ "github.com/fluxcd/pkg/apis/acl"
	_ "github.com/fluxcd/pkg/apis/event/v1beta1"
	_ "github.com/fluxcd/pkg/apis/kustomize"
	_ "github.com/fluxcd/pkg/runtime/conditions"
	_ "github.com/fluxcd/pkg/runtime/controller"
	_ "github.com/fluxcd/pkg/runtime/testenv"
	_ "github.com/onsi/gomega"
	_ "sigs.k8s.io/yaml"
)

// OCIArtifactOriginRevisionAnnotation is a key of an artifact's metadata: the revision of the content
// at its origin.
const OCIArtifactOriginRevisionAnnotation = "org.opencontainers.image.revision"

// KustomizationReconciler has the settings that Flux's tests change. A change has no effect. Lanyard
// always is as if StrictSubstitutions were set, and as if Role were among CustomStageKinds. The
// parent's test leaves out the tests that need other changes.
type KustomizationReconciler struct {
	AllowExternalArtifact bool
	Client                client.Client
	CustomStageKinds      map[schema.GroupKind]struct{}
	DefaultServiceAccount string
	StrictSubstitutions   bool
}

// Reconcile asks lanyard-apply-controller to reconcile an object.
func (r *KustomizationReconciler) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	o := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: q.Name}}
	change := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, time.Now().Format(time.RFC3339Nano))
	return ctrl.Result{}, k8sClient.Patch(ctx, o, client.RawPatch(types.MergePatchType, change))
}

// TestMain connects to the cluster of the file in KUBECONFIG. In this cluster,
// lanyard-apply-controller runs. ARTIFACTS is the folder of the artifact server.
func TestMain(m *testing.M) {
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// connect sets the variables of Flux's tests.
func connect() (err error) {
	ctrl.SetLogger(logr.Discard())
	if kubeConfig, err = os.ReadFile(os.Getenv("KUBECONFIG")); err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeConfig)
	if err != nil {
		return err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return translator{next} })
	config.QPS = -1
	config.ContentType = runtime.ContentTypeJSON // a translator replaces texts
	for _, add := range []func(*runtime.Scheme) error{kustomizev1.AddToScheme, sourcev1.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			return err
		}
	}
	if k8sClient, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return err
	}
	reconciler = &KustomizationReconciler{Client: k8sClient}
	testServer = &testserver.ArtifactServer{HTTPServer: testserver.NewHTTPServer(os.Getenv("ARTIFACTS"))}
	kstatusCheck = kcheck.NewChecker(k8sClient, &kcheck.Conditions{NegativePolarity: []string{meta.StalledCondition, meta.ReconcilingCondition}})
	kstatusInProgressCheck = kcheck.NewInProgressChecker(k8sClient)
	kstatusInProgressCheck.DisableFetch = true
	return nil
}

// createNamespace creates a namespace and its ServiceAccount default, which may do everything there.
// This account acts for Kustomizations that name none.
func createNamespace(name string) error {
	if err := k8sClient.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
	if err := k8sClient.Create(ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return k8sClient.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: name, Name: "default"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	})
}

// applyGitRepository writes an ExternalArtifact instead of a GitRepository, which Lanyard does not
// have yet.
func applyGitRepository(key client.ObjectKey, artifact, revision string, options ...gitRepoOption) error {
	var o gitRepoOptions
	for _, set := range options {
		set(&o)
	}
	return publish(key, artifact, revision, o.artifactMetadata)
}

// applyExternalArtifact writes an ExternalArtifact.
func applyExternalArtifact(key client.ObjectKey, artifact, revision string) error {
	return publish(key, artifact, revision, nil)
}

// publish writes an ExternalArtifact as Lanyard requires it: the URL has the name of the object, and
// the status has the size.
func publish(key client.ObjectKey, artifact, revision string, metadata map[string]string) error {
	content, err := os.ReadFile(filepath.Join(testServer.Root(), artifact))
	if err != nil {
		return err
	}
	place := path.Join("externalartifact", key.Namespace, key.Name, artifact)
	file := filepath.Join(testServer.Root(), place)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	o := &sourcev1.ExternalArtifact{
		TypeMeta:   metav1.TypeMeta{APIVersion: sourcev1.GroupVersion.String(), Kind: sourcev1.ExternalArtifactKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
	}
	if err := k8sClient.Patch(ctx, o, client.Apply, client.ForceOwnership, client.FieldOwner("test")); err != nil { //nolint:staticcheck // Flux has no types for Apply
		return err
	}
	o.ManagedFields = nil
	o.Status = sourcev1.ExternalArtifactStatus{
		Conditions: []metav1.Condition{{
			Type: meta.ReadyCondition, Status: metav1.ConditionTrue, Reason: meta.SucceededReason, LastTransitionTime: metav1.Now(),
		}},
		Artifact: &meta.Artifact{
			Path: place, URL: os.Getenv("ARTIFACTS_URL") + "/" + place, Revision: revision, Metadata: metadata,
			Digest: digest.FromBytes(content).String(), Size: new(int64(len(content))), LastUpdateTime: metav1.Now(),
		},
	}
	return k8sClient.Status().Patch(ctx, o, client.Apply, client.ForceOwnership, client.FieldOwner("test")) //nolint:staticcheck // as above
}

// notCompared does not call its argument: assertions that differ between Flux and Lanyard.
func notCompared(func()) {}
