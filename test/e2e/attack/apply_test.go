package attack

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/stage"
)

const (
	// applyAccount is the apply controller's ServiceAccount.
	applyAccount = "lanyard-apply-controller"
	// applyNamespaces is the number of namespaces of a tenant with Kustomizations, and perApply is the
	// number of Kustomizations in each.
	applyNamespaces, perApply = 4, 5
)

// hostileServer is the API server of a hostile tenant's own cluster. The administrator has listed
// its address, because it is on loopback.
type hostileServer struct {
	*httptest.Server

	requests atomic.Int64
	answer   atomic.Pointer[http.HandlerFunc]
}

// startHostileServer starts the server. It runs until the test process ends.
func startHostileServer() *hostileServer {
	s := &hostileServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if answer := s.answer.Load(); answer != nil {
			(*answer)(w, r)
		}
	}))
	return s
}

// kubeconfig returns a kubeconfig file for the server. The fields are those of the user.
func (s *hostileServer) kubeconfig(user string) string {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return stage.Kubeconfig(s.URL, authority, user)
}

// publish serves an artifact with these files, and creates an OCIRepository in each namespace.
func (tn *tenant) publish(files map[string]string, namespaces ...*tenant) {
	t, host := tn.t, tn.host("manifests")
	layer := archiveOf(t, files)
	manifest := manifestOf(t, layer, "manifests")
	answers := &registry{manifest: func() []byte { return manifest }, blob: func(w http.ResponseWriter) { _, _ = w.Write(layer) }}
	tn.serve(t, host, answers.ServeHTTP)
	for _, in := range namespaces {
		o := in.repository("app", host+"/app")
		o.Spec.Interval.Duration = time.Hour
		create(t, o)
		await(t, o, "the artifact", func() error {
			return wantf(condition(o).Status == metav1.ConditionTrue, "%+v", condition(o))
		})
	}
}

// kustomization returns a Kustomization that applies the tenant's artifact.
func (tn *tenant) kustomization(name string) *v1alpha1.Kustomization {
	o := &v1alpha1.Kustomization{ObjectMeta: tn.meta(name)}
	o.Spec.SourceRef = v1alpha1.SourceReference{Kind: v1alpha1.OCIRepositoryKind, Name: "app"}
	o.Spec.ServiceAccountName, o.Spec.Prune = puller, true
	o.Spec.Interval.Duration, o.Spec.RetryInterval = time.Second, &metav1.Duration{Duration: time.Second}
	return o
}

// kubeConfig makes a Kustomization act in the cluster of a Secret.
func kubeConfig(o *v1alpha1.Kustomization, secret string) *v1alpha1.Kustomization {
	o.Spec.ServiceAccountName = ""
	o.Spec.KubeConfig = &v1alpha1.KubeConfigReference{SecretRef: &v1alpha1.SecretKeyReference{LocalReference: meta.LocalReference{Name: secret}}}
	return o
}

// applyElsewhere acts as a tenant that applies manifests to namespaces of others, as accounts of
// others, and with files of the program.
func applyElsewhere(tn *tenant) {
	t := tn.t
	const stolen = "stolen"
	tn.publish(map[string]string{"app.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + stolen + "}\n"}, tn)
	server := "https://kubernetes.default.svc"
	for name, file := range map[string]string{
		"token":   strings.Replace(hostile.kubeconfig("tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"), hostile.URL, server, 1),
		"program": hostile.kubeconfig("exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/cat}"),
		"admin":   hostile.kubeconfig("token: x, as: system:admin, as-groups: [system:masters]"),
		"inside":  strings.Replace(hostile.kubeconfig("token: x"), hostile.URL, world.Config().Host, 1),
	} {
		create(t, &corev1.Secret{ObjectMeta: tn.meta(name), StringData: map[string]string{"value": file}})
	}
	var refused, unknown, files []client.Object
	for _, namespace := range []string{honestNamespace, "kube-system", local.Namespace} {
		o := tn.kustomization("in-" + namespace)
		o.Spec.TargetNamespace = namespace
		refused = append(refused, o)
	}
	for _, account := range []string{honestName, applyAccount} {
		o := tn.kustomization("as-" + account)
		o.Spec.ServiceAccountName, o.Spec.TargetNamespace = account, tn.namespace
		unknown = append(unknown, o)
	}
	for _, secret := range []string{"token", "program", "admin", "missing"} {
		files = append(files, kubeConfig(tn.kustomization("with-"+secret), secret))
	}
	tn.refused(t, refused, nil, meta.ReasonApplyRefused)
	tn.refused(t, unknown, nil, "SubjectNotFound")
	tn.refused(t, files, nil, meta.ReasonKubeConfigRefused)
	tn.refused(t, []client.Object{kubeConfig(tn.kustomization("inside"), "inside")}, nil, "EndpointRefused")
	if n := hostile.requests.Load(); n > 0 {
		t.Errorf("the hostile API server gets %d requests", n)
	}
	for _, namespace := range []string{honestNamespace, "kube-system", tn.namespace} {
		err := objects.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: stolen}, &corev1.ConfigMap{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("an object in namespace %s: %v", namespace, err)
		}
	}
}

// buildSlowly acts as a tenant whose manifests take seconds to build: each Deployment names a
// ConfigMap, and all names get a prefix. The tenant's account may write nothing.
func buildSlowly(tn *tenant) {
	const pairs = 1000
	var manifests strings.Builder
	for i := range pairs {
		fmt.Fprintf(&manifests, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c-%d}\n---\n", i)
		fmt.Fprintf(&manifests, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: c-%d}\nspec: {template: {spec: {containers: [{name: a, envFrom: [{configMapRef: {name: c-%d}}]}]}}}\n---\n", i, i)
	}
	tn.applyEverywhere(manifests.String(), func(o *v1alpha1.Kustomization) { o.Spec.NamePrefix = o.Name + "-" })
}

// applyEverywhere creates Kustomizations in many namespaces, and lets them be reconciled for a
// while.
func (tn *tenant) applyEverywhere(manifests string, change func(o *v1alpha1.Kustomization)) {
	all := tn.in(applyNamespaces)
	tn.publish(map[string]string{"app.yaml": manifests}, all...)
	for _, in := range all {
		for i := range perApply {
			in.tried++
			o := in.kustomization(fmt.Sprint("slow-", i))
			o.Spec.TargetNamespace = in.namespace
			change(o)
			create(tn.t, o)
		}
	}
	pause(tn.t, lasting(10*time.Second, time.Minute))
}

// actElsewhere acts as a tenant whose API server answers as the handler does.
func (tn *tenant) actElsewhere(answer http.HandlerFunc) {
	t := tn.t
	hostile.answer.Store(&answer)
	t.Cleanup(func() { hostile.answer.Store(nil) })
	before := hostile.requests.Load()
	const secret = "cluster"
	for _, in := range tn.in(applyNamespaces) {
		create(t, &corev1.Secret{ObjectMeta: in.meta(secret), StringData: map[string]string{"value": hostile.kubeconfig("token: own")}})
	}
	tn.applyEverywhere("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", func(o *v1alpha1.Kustomization) {
		kubeConfig(o, secret)
		o.Spec.Timeout = &metav1.Duration{Duration: time.Minute}
	})
	if hostile.requests.Load() == before {
		t.Error("the API server is not asked: this tests nothing")
	}
}

// hangCluster acts as a tenant whose API server never answers.
func hangCluster(tn *tenant) {
	tn.actElsewhere(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
}

// growAnswers acts as a tenant whose API server sends large answers, which need much more memory
// when they are decoded. Some need more memory than the program has for all tenants, and some just
// fit.
func growAnswers(tn *tenant) {
	var rests []string
	for _, values := range []int{2 << 20, 150_000} {
		rests = append(rests, `,"x":[`+strings.Repeat(`{},`, values)+`{}]}`)
	}
	tn.actElsewhere(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api/v1":
			_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true}]}`)
		default:
			_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"a","uid":"u"}`+rests[hostile.requests.Load()%2], strings.Split(r.URL.Path, "/")[4])
		}
	})
}

// createHonestKustomization creates the honest tenant's Kustomization, and waits until it is Ready.
func createHonestKustomization(t *testing.T) {
	t.Helper()
	o := &v1alpha1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: honestNamespace, Name: honestName}}
	o.Spec.SourceRef = v1alpha1.SourceReference{Kind: v1alpha1.OCIRepositoryKind, Name: "tenant-a-repo"}
	o.Spec.ServiceAccountName, o.Spec.Prune, o.Spec.Interval.Duration = honestName, true, 10*time.Second
	create(t, o)
	t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), o) })
	await(t, o, "the manifests are applied", func() error {
		return wantf(condition(o).Status == metav1.ConditionTrue, "%+v", condition(o))
	})
}
