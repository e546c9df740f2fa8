package kustomization

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/kubeconfig"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// remoteKustomization returns a Kustomization whose manifests are for the cluster of a Secret.
func remoteKustomization() *v1alpha1.Kustomization {
	o := kustomization()
	o.Spec.ServiceAccountName = ""
	o.Spec.KubeConfig = &v1alpha1.KubeConfigReference{SecretRef: &v1alpha1.SecretKeyReference{LocalReference: meta.LocalReference{Name: "remote"}}}
	return o
}

// kubeConfigSecret returns the Secret of remoteKustomization.
func kubeConfigSecret(key, content string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "remote"}, Data: map[string][]byte{key: []byte(content)}}
}

// TestReadKubeConfig checks which key of the Secret is read, and what the errors say.
func TestReadKubeConfig(t *testing.T) {
	for name, c := range map[string]struct {
		key, stored string
		says        string // of the error; empty if the file is read
		lost        bool
	}{
		"value":          {"", "value", "", false},
		"value.yaml":     {"", "value.yaml", "", false},
		"another key":    {"config", "config", "", false},
		"no default key": {"", "config", `no key "value"`, false},
		"a missing key":  {"config", "value", `no key "config"`, false},
		"no Secret":      {"", "", "the Secret does not exist", true},
	} {
		o := remoteKustomization()
		o.Spec.KubeConfig.SecretRef.Key = c.key
		k := newKind(t)
		if c.stored != "" {
			k = newKind(t, kubeConfigSecret(c.stored, "file"))
		}
		file, err := k.readKubeConfig(t.Context(), o)
		if (err == nil) != (c.says == "") || err == nil && string(file) != "file" {
			t.Errorf("%s: %q, %v", name, file, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "spec.kubeConfig.secretRef: Secret remote: ") || userIsGone(err) != c.lost) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUserElsewhere checks who acts in another cluster: the file's user. Only an account that the
// Kustomization names is impersonated, and never the administrator's default.
func TestUserElsewhere(t *testing.T) {
	var got http.Header
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	allowed, err := endpoint.ParseAllowed(strings.TrimPrefix(server.URL, "https://"))
	must.Succeed(t, err)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	secret := kubeConfigSecret("value", fmt.Sprintf(`{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"p","user":"u"}}],
		"clusters":[{"name":"p","cluster":{"server":%q,"certificate-authority-data":%q}}],"users":[{"name":"u","user":{"token":"s3cret"}}]}`,
		server.URL, base64.StdEncoding.EncodeToString(authority)))
	k := newKind(t, source(), secret)
	k.DefaultServiceAccount = "standard"
	k.Clusters = &kubeconfig.Clusters{Guard: endpoint.Guard{AllowHosts: allowed}, Scheme: runtime.NewScheme()}
	for name, want := range map[string]string{"": "", "deployer": "system:serviceaccount:team-a:deployer"} {
		o := remoteKustomization()
		o.Spec.ServiceAccountName = name
		p, err := k.Decide(t.Context(), o)
		must.Succeed(t, err)
		to, err := k.destination(t.Context(), o, p.account)
		must.Succeed(t, err)
		defer to.close()
		if _, err := to.RESTMapper().RESTMapping(schema.GroupKind{Kind: "ConfigMap"}, "v1"); !apimeta.IsNoMatchError(err) {
			t.Errorf("the server has no kinds: %v", err)
		}
		if got.Get("Authorization") != "Bearer s3cret" || got.Get("Impersonate-User") != want {
			t.Errorf("with account %q, the server gets %v", name, got)
		}
		if !strings.Contains(to.user.Name, "Secret remote") || !strings.HasPrefix(to.user.Name, want) || to.user.Permit == "" {
			t.Errorf("the user is %+v", to.user)
		}
		must.Succeed(t, to.verify(t.Context()))
		if name == "" {
			continue
		}
		changed := secret.DeepCopy()
		changed.Data["value"] = append(changed.Data["value"], ' ')
		must.Succeed(t, k.Live.(client.Client).Update(t.Context(), changed))
		if err := to.verify(t.Context()); err == nil || userIsGone(err) {
			t.Errorf("a changed file: %v", err)
		}
		must.Succeed(t, k.Live.(client.Client).Delete(t.Context(), changed))
		if err := to.verify(t.Context()); !userIsGone(err) {
			t.Errorf("a deleted file: %v", err)
		}
		again := secret.DeepCopy()
		again.ResourceVersion = ""
		must.Succeed(t, k.Live.(client.Client).Create(t.Context(), again))
	}
	empty := remoteKustomization()
	empty.Spec.KubeConfig.SecretRef = nil
	if _, err := k.destination(t.Context(), empty, auth.Subject{}); err == nil || !strings.Contains(err.Error(), "spec.kubeConfig.secretRef") {
		t.Errorf("no Secret: %v", err)
	}
	wrong := remoteKustomization()
	wrong.Spec.ServiceAccountName = "team-b:admin"
	if _, err := k.destination(t.Context(), wrong, auth.Subject{}); err == nil || !strings.Contains(err.Error(), "spec.serviceAccountName") {
		t.Errorf("a wrong account: %v", err)
	}
}

// TestFinalizeElsewhere checks when the objects of another cluster are given up.
func TestFinalizeElsewhere(t *testing.T) {
	forbidden := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, name client.ObjectKey, o client.Object, options ...client.GetOption) error {
		if _, ok := o.(*corev1.Secret); ok {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, name.Name, errors.New("no right"))
		}
		return c.Get(ctx, name, o, options...)
	}}
	for name, c := range map[string]struct {
		stored   *corev1.Secret
		requests interceptor.Funcs
		leftover bool
	}{
		"no Secret":           {nil, interceptor.Funcs{}, true},
		"no right":            {kubeConfigSecret("value", "a: b"), forbidden, true},
		"a file with mistake": {kubeConfigSecret("value", "a: b"), interceptor.Funcs{}, false},
	} {
		o := remoteKustomization()
		o.Spec.PostBuild = &v1alpha1.PostBuild{SubstituteFrom: []v1alpha1.SubstituteReference{{Kind: "Secret", Name: "s"}}} // needs no account any more
		o.Status.Inventory = &v1alpha1.Inventory{Entries: []v1alpha1.InventoryEntry{{ID: "apps_a__ConfigMap", Version: "v1"}}}
		all := []client.Object{o}
		if c.stored != nil {
			all = append(all, c.stored)
		}
		k := newKind(t)
		k.Clusters = &kubeconfig.Clusters{Scheme: runtime.NewScheme()}
		k.Live = interceptor.NewClient(kube(t, all...).(client.WithWatch), c.requests)
		err := k.Finalize(t.Context(), o)
		left, ok := errors.AsType[*object.LeftoverError](err)
		if err == nil || ok != c.leftover || ok && !strings.Contains(left.Message, "ConfigMap/apps/a") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAccountElsewhere checks that manifests for another cluster need an account only for variables of
// ConfigMaps and Secrets.
func TestAccountElsewhere(t *testing.T) {
	k := newKind(t, source())
	o := remoteKustomization()
	o.Spec.PostBuild = &v1alpha1.PostBuild{Substitute: map[string]string{"a": "b"}}
	_, err := k.Decide(t.Context(), o)
	must.Succeed(t, err)
	o.Spec.PostBuild.SubstituteFrom = []v1alpha1.SubstituteReference{{Kind: "Secret", Name: "s"}}
	if _, err := k.Decide(t.Context(), o); err == nil || !strings.Contains(err.Error(), "spec.serviceAccountName") {
		t.Errorf("variables without an account: %v", err)
	}
	k.DefaultServiceAccount = "standard"
	p, err := k.Decide(t.Context(), o)
	must.Succeed(t, err)
	if p.account.Name() != "standard" {
		t.Errorf("the variables are read as %s", p.account)
	}
}
