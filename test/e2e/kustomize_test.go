//go:build flux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// guests returns the user agents of programs that are not Lanyard's, and that these tests run as an
// administrator: Flux's kustomize-controller.
func guests() []string { return []string{"flux-kustomize-controller", "Go-http-client"} }

// TestKustomizeController makes Flux's own kustomize-controller apply Lanyard's artifacts. As
// docs/flux.md says, kustomize-controller has the feature gate ExternalArtifact, and allows no
// references across namespaces. `make e2e-flux` builds kustomize-controller and runs this test.
func TestKustomizeController(t *testing.T) {
	alone(t, "it installs Flux's kinds")
	// Install the CRDs of kustomize-controller. It watches the kinds of source-controller, so
	// install their CRDs too. The go.mod files in kustomize and bench/controller/flux set the
	// versions.
	installDefinitions(t, filepath.Join(fluxModule(t, "kustomize", "kustomize-controller"), "config/crd/bases"))
	installDefinitions(t, filepath.Join(fluxModule(t, "../../bench/controller/flux", "source-controller"), "config/crd/bases"))
	t.Run("without the feature gate", func(t *testing.T) {
		startKustomize(t)
		o := kustomization(metav1.NamespaceDefault, "app", metav1.NamespaceDefault)
		deploy(t, o)
		awaitCondition(t, o, metav1.ConditionFalse, "AccessDenied")
	})
	startKustomize(t, "--feature-gates=ExternalArtifact=true", "--no-cross-namespace-refs=true")
	tn, stranger := newTenant(t, "kustomize"), newTenant(t, "kustomize-stranger")
	tn.pushConfig(t, "1.0.0", "app", "first")
	o := tn.object("app")
	o.Spec.ExternalArtifact = true
	create(t, o)
	await(t, o, "the artifact", pulled)
	app := kustomization(tn.namespace, "app", tn.namespace)
	deploy(t, app)

	t.Run("apply", func(t *testing.T) {
		awaitApplied(t, app, o)
		wantConfig(t, tn, "app", "first")
	})
	t.Run("a new revision", func(t *testing.T) {
		await(t, o, "the artifact", revision(tn.pushConfig(t, "1.0.0", "app", "second")))
		awaitApplied(t, app, o)
		wantConfig(t, tn, "app", "second")
	})
	t.Run("prune", func(t *testing.T) {
		await(t, o, "the artifact", revision(tn.pushConfig(t, "1.0.0", "other", "third")))
		awaitApplied(t, app, o)
		wantConfig(t, tn, "other", "third")
		wantConfig(t, tn, "app", "")
	})
	t.Run("a suspended source", func(t *testing.T) {
		patch(t, o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true })
		awaitExternal(t, o, metav1.ConditionTrue, "Suspended")
		digest := tn.pushConfig(t, "1.0.0", "other", "fourth")
		reconcileAgain(t, app, "suspended")
		awaitApplied(t, app, o)
		wantConfig(t, tn, "other", "third")
		patch(t, o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = false })
		await(t, o, "the artifact", revision(digest))
		awaitApplied(t, app, o)
		wantConfig(t, tn, "other", "fourth")
	})
	t.Run("a failed source", func(t *testing.T) {
		patch(t, o, func(o *v1alpha1.OCIRepository) { o.Spec.Ref.Tag = "missing" })
		await(t, o, "the refusal", failing(meta.ReasonReferenceNotFound))
		awaitExternal(t, o, metav1.ConditionFalse, "FetchFailed")
		reconcileAgain(t, app, "failed")
		awaitApplied(t, app, o)
		wantConfig(t, tn, "other", "fourth")
		patch(t, o, func(o *v1alpha1.OCIRepository) { o.Spec.Ref.Tag = "1.0.0" })
		await(t, o, "the artifact", pulled)
	})
	t.Run("an ExternalArtifact that another made", func(t *testing.T) {
		tn.pushConfig(t, "2.0.0", "theirs", "theirs")
		content := tn.object("content")
		content.Spec.Ref.Tag = "2.0.0"
		create(t, content)
		await(t, content, "the artifact", pulled)
		theirs := tn.object("theirs")
		theirs.Spec.ExternalArtifact = true
		offer(t, externalArtifact(theirs), content.Status.Artifact)
		applied := kustomization(tn.namespace, "theirs", tn.namespace)
		deploy(t, applied)
		awaitApplied(t, applied, content)
		create(t, theirs)
		await(t, theirs, "the refusal", failing(meta.ReasonExternalArtifactRefused, "kustomize/theirs exists and was not made for this object"))
		reconcileAgain(t, applied, "refused")
		awaitApplied(t, applied, content)
		wantConfig(t, tn, "theirs", "theirs")
	})
	t.Run("another namespace's ExternalArtifact", func(t *testing.T) {
		foreign := kustomization(stranger.namespace, "app", tn.namespace)
		deploy(t, foreign)
		awaitCondition(t, foreign, metav1.ConditionFalse, "AccessDenied")
		wantConfig(t, stranger, "other", "")
	})
	t.Run("switched off", func(t *testing.T) {
		patch(t, o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
		wantWithdrawn(t, o)
		reconcileAgain(t, app, "withdrawn")
		awaitCondition(t, app, metav1.ConditionFalse, "ArtifactFailed")
		wantConfig(t, tn, "other", "fourth")
	})
}

// startKustomize runs kustomize-controller with further flags until the test ends.
func startKustomize(t *testing.T, flags ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kustomize-controller.log")
	log, err := os.Create(path)
	must(t, "open a log", err)
	health := freeAddress(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, binary("flux-kustomize-controller"),
		append(flags, "--requeue-dependency=1s", "--health-addr="+health, "--metrics-addr=0")...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+world.Kubeconfig(), "RUNTIME_NAMESPACE=default")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, "start kustomize-controller; `make e2e-flux` builds it", cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			text, _ := os.ReadFile(path)
			t.Logf("the log of kustomize-controller:\n%s", text)
		}
		_ = log.Close()
	})
	probe := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	eventually(t, "the start of kustomize-controller", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		res, err := probe.Do(req)
		if err != nil {
			return err
		}
		return errors.Join(wantf(res.StatusCode == http.StatusOK, "HTTP %d", res.StatusCode), res.Body.Close())
	})
}

// fluxModule returns the folder of a Flux module, in the version that the module in dir uses.
func fluxModule(t *testing.T, dir, name string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fluxcd/"+name)
	cmd.Dir = dir
	out, err := cmd.Output()
	must(t, "find Flux's "+name, err)
	return strings.TrimSpace(string(out))
}

// installDefinitions installs the CRDs in a folder, and waits until the API server serves their
// kinds.
func installDefinitions(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	must(t, "list definitions", err)
	if len(files) == 0 {
		t.Fatalf("%s has no definitions", dir)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		must(t, "read a definition", err)
		definition := &unstructured.Unstructured{}
		must(t, "read a definition", yaml.Unmarshal(data, &definition.Object))
		if err := objects.Create(t.Context(), definition); !apierrors.IsAlreadyExists(err) {
			must(t, "install a definition", err)
		}
		await(t, definition, "the kind is served", func(o *unstructured.Unstructured) error {
			return conditionOf(o, "Established", metav1.ConditionTrue, "InitialNamesAccepted")
		})
	}
}

// pushConfig publishes a file with a ConfigMap that has one value. It returns the digest of the OCI
// manifest.
func (tn *tenant) pushConfig(t *testing.T, tag, name, value string) string {
	t.Helper()
	return tn.pushFile(t, tag, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %s}\n", name, value))
}

// kustomization returns a Kustomization that creates objects in its own namespace. Its source is
// the ExternalArtifact of the same name. The last parameter is the ExternalArtifact's namespace.
func kustomization(namespace, name, of string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"sourceRef": map[string]any{"kind": "ExternalArtifact", "name": name, "namespace": of},
		"path":      "./", "prune": true, "interval": "10m", "retryInterval": "1s", "targetNamespace": namespace,
	}}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"})
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// deploy creates a Kustomization. At the end of the test, it deletes the object and waits until
// Flux removes the finalizer.
func deploy(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	create(t, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		err := objects.Delete(ctx, o)
		for err == nil {
			select {
			case <-ctx.Done():
				err = errors.New("its finalizer is still there")
			case <-time.After(pollEvery):
				err = objects.Get(ctx, client.ObjectKeyFromObject(o), o)
			}
		}
		if !apierrors.IsNotFound(err) {
			t.Errorf("delete Kustomization %s/%s: %v", o.GetNamespace(), o.GetName(), err)
		}
	})
}

// conditionOf asserts that an object has this condition.
func conditionOf(o *unstructured.Unstructured, kind string, status metav1.ConditionStatus, reason string) error {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			return wantf(c["status"] == string(status) && c["reason"] == reason, "%s is %v", kind, c)
		}
	}
	return fmt.Errorf("it has no condition %s: %v", kind, conditions)
}

func awaitCondition(t *testing.T, o *unstructured.Unstructured, status metav1.ConditionStatus, reason string) {
	t.Helper()
	await(t, o, reason, func(o *unstructured.Unstructured) error { return conditionOf(o, "Ready", status, reason) })
}

// awaitExternal waits until the object's ExternalArtifact has a condition with this status and
// reason. The ExternalArtifact must then have the object's artifact.
func awaitExternal(t *testing.T, o *v1alpha1.OCIRepository, status metav1.ConditionStatus, reason string) {
	t.Helper()
	awaitCondition(t, externalArtifact(o), status, reason)
	wantOffered(t, o)
}

// awaitApplied waits until a Kustomization has applied the current artifact of its source.
func awaitApplied(t *testing.T, o *unstructured.Unstructured, of *v1alpha1.OCIRepository) {
	t.Helper()
	must(t, "read the source", objects.Get(t.Context(), client.ObjectKeyFromObject(of), of))
	await(t, o, "applied", func(o *unstructured.Unstructured) error {
		status, _, _ := unstructured.NestedMap(o.Object, "status")
		asked := o.GetAnnotations()[reconcileRequest]
		handled, _ := status["lastHandledReconcileAt"].(string)
		return errors.Join(
			conditionOf(o, "Ready", metav1.ConditionTrue, "ReconciliationSucceeded"),
			wantf(status["lastAppliedRevision"] == of.Status.Artifact.Revision, "revision %v, want %s", status["lastAppliedRevision"], of.Status.Artifact.Revision),
			wantf(handled == asked, "the last request that was handled is %q, not %q", handled, asked),
		)
	})
}

// reconcileRequest is Flux's annotation to request a reconciliation.
const reconcileRequest = "reconcile.fluxcd.io/requestedAt"

// reconcileAgain asks Flux to reconcile a Kustomization.
func reconcileAgain(t *testing.T, o *unstructured.Unstructured, request string) {
	t.Helper()
	patch(t, o, func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{reconcileRequest: request}) })
}

// offer creates an ExternalArtifact as another controller would, with an artifact that is served.
func offer(t *testing.T, external *unstructured.Unstructured, artifact *v1alpha1.Artifact) {
	t.Helper()
	must(t, "change it", unstructured.SetNestedStringMap(external.Object, map[string]string{
		"apiVersion": "example.com/v1", "kind": "Builder", "name": "theirs",
	}, "spec", "sourceRef"))
	create(t, external)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(artifact)
	must(t, "write an artifact", err)
	must(t, "offer an artifact", unstructured.SetNestedMap(external.Object, fields, "status", "artifact"))
	must(t, "offer an artifact", objects.Status().Update(t.Context(), external))
}

// wantConfig asserts that a ConfigMap in the tenant's namespace has this value. If the value is
// empty, the ConfigMap must not exist.
func wantConfig(t *testing.T, tn *tenant, name, value string) {
	t.Helper()
	found := &corev1.ConfigMap{}
	err := objects.Get(t.Context(), client.ObjectKey{Namespace: tn.namespace, Name: name}, found)
	if client.IgnoreNotFound(err) != nil || apierrors.IsNotFound(err) != (value == "") || found.Data["value"] != value {
		t.Errorf("ConfigMap %s/%s has %v, %v; want %q", tn.namespace, name, found.Data, err, value)
	}
}
