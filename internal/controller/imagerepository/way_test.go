package imagerepository

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// TestScanTakesTheWayOfTheTenant checks that a scan uses only the proxy and the certificate
// authorities that the tenant named. The token exchange must use the proxy too.
func TestScanTakesTheWayOfTheTenant(t *testing.T) {
	const proxyHost = "proxy.example.com:3128"
	w := newWorld(t)
	w.tenant("tenant-a", "1.0.0")
	network := w.registry.network
	proxy := network.ServeProxy(t, proxyHost)
	w.Access.Transports = network.Pool(t, x509.NewCertPool()) // trust only the tenant's authorities
	w.Secret("tenant-a", "authority", corev1.SecretTypeOpaque, map[string]string{"ca.crt": network.CA})
	w.Secret("tenant-a", "proxy", corev1.SecretTypeOpaque, map[string]string{"address": "http://" + proxyHost})

	o, _ := w.Reconcile(w.create("tenant-a", "app", func(o *v1alpha1.ImageRepository) { o.Spec.ProxySecretRef = &meta.LocalReference{Name: "proxy"} }))
	w.wants(o, metav1.ConditionFalse, meta.ReasonRegistryUnreachable, "spec.certSecretRef", false)
	w.Edit(o, func(o *v1alpha1.ImageRepository) { o.Spec.CertSecretRef = &meta.LocalReference{Name: "authority"} })
	o, _ = w.Reconcile(o)
	w.wants(o, metav1.ConditionTrue, meta.ReasonSucceeded, ": 1", false)
	if got := network.Dialed(); !slices.Equal(got, []string{proxyHost}) {
		t.Errorf("%q were called", got)
	}
	if got := proxy.Tunnels(); !slices.Equal(got, []string{cloudHost + ":443"}) {
		t.Errorf("the proxy was asked for %q", got)
	}
	if got := w.Cloud.Exchanges(); len(got) != 1 || got[0].Proxy != proxyHost {
		t.Errorf("exchanges %+v", got)
	}
}

// TestRefusalsSayHowTheRegistryWasAsked checks the messages of refused requests. If the registry
// refuses a request without a credential, the message must say that no credential was sent. If the
// proxy refuses, the message must contain the proxy's answer.
func TestRefusalsSayHowTheRegistryWasAsked(t *testing.T) {
	const proxyHost = "proxy.example.com:3128"
	w := newWorld(t)
	w.tenant("tenant-a", "1.0.0")
	w.registry.network.ServeProxy(t, proxyHost).Refuses = http.StatusProxyAuthRequired
	w.Secret("tenant-a", "proxy", corev1.SecretTypeOpaque, map[string]string{"address": "http://" + proxyHost})
	o, _ := w.Reconcile(w.create("tenant-a", "app", func(o *v1alpha1.ImageRepository) {
		o.Spec.Provider, o.Spec.ServiceAccountName = v1alpha1.ProviderGeneric, ""
	}))
	w.wants(o, metav1.ConditionFalse, meta.ReasonRegistryRefused, "no credential was sent; name a Secret with a credential in spec.secretRef", false)
	w.registry.answer(func(rw http.ResponseWriter, _ *http.Request) bool {
		refuse(rw, http.StatusForbidden, "DENIED", "denied")
		return true
	})
	w.Edit(o, func(o *v1alpha1.ImageRepository) { o.Spec.Image = publicHost + "/tenant-a/app" })
	o, _ = w.Reconcile(o)
	w.wants(o, metav1.ConditionFalse, meta.ReasonRegistryRefused, "HTTP 403 Forbidden: DENIED: denied: no credential was sent; name a Secret", false)
	w.Edit(o, func(o *v1alpha1.ImageRepository) { o.Spec.ProxySecretRef = &meta.LocalReference{Name: "proxy"} })
	o, _ = w.Reconcile(o)
	w.wants(o, metav1.ConditionFalse, meta.ReasonRegistryUnreachable,
		"no answer: the proxy answered HTTP 407 Proxy Authentication Required; correct the user and password of the proxy in spec.proxySecretRef", false)
}

// TestRegistryWithoutTLS checks that plain HTTP is used only if spec.insecure allows it.
func TestRegistryWithoutTLS(t *testing.T) {
	const host = "plain.example.com:5000"
	w := newWorld(t)
	w.registry.tags["tenant-a/app"] = []string{"1.0.0"}
	server := httptest.NewServer(http.HandlerFunc(w.registry.list))
	t.Cleanup(server.Close)
	w.registry.network.Addresses[host] = server.Listener.Addr().String()
	o, _ := w.Reconcile(w.create("tenant-a", "app", func(o *v1alpha1.ImageRepository) {
		o.Spec.Image, o.Spec.Provider, o.Spec.ServiceAccountName = host+"/tenant-a/app", v1alpha1.ProviderGeneric, ""
	}))
	w.wants(o, metav1.ConditionFalse, meta.ReasonRegistryUnreachable, host, false)
	w.Edit(o, func(o *v1alpha1.ImageRepository) { o.Spec.Insecure = true })
	o, _ = w.Reconcile(o)
	w.wants(o, metav1.ConditionTrue, meta.ReasonSucceeded, ": 1", false)
}
