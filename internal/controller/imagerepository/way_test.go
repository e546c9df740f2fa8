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

// The registry is asked through the proxy and by the authorities that the tenant named, and on no other way. The exchange takes the
// proxy too.
func TestScanTakesTheWayOfTheTenant(t *testing.T) {
	const proxyHost = "proxy.example.com:3128"
	w := newWorld(t)
	w.tenant("tenant-a", "1.0.0")
	network := w.registry.network
	proxy := network.ServeProxy(t, proxyHost)
	w.access.Transports = network.Pool(t, x509.NewCertPool()) // the system trusts nobody
	w.secret("authority", corev1.SecretTypeOpaque, map[string]string{"ca.crt": network.CA})
	w.secret("proxy", corev1.SecretTypeOpaque, map[string]string{"address": "http://" + proxyHost})

	o, _ := w.reconcile(w.create("tenant-a", "app", func(o *v1alpha1.ImageRepository) { o.Spec.ProxySecretRef = &meta.LocalReference{Name: "proxy"} }))
	w.wants(o, metav1.ConditionFalse, meta.ReasonRegistryUnreachable, "spec.certSecretRef", false)
	w.edit(o, func(o *v1alpha1.ImageRepository) { o.Spec.CertSecretRef = &meta.LocalReference{Name: "authority"} })
	o, _ = w.reconcile(o)
	w.wants(o, metav1.ConditionTrue, meta.ReasonSucceeded, ": 1", false)
	if got := network.Dialed(); !slices.Equal(got, []string{proxyHost}) {
		t.Errorf("%q were called", got)
	}
	if got := proxy.Tunnels(); !slices.Equal(got, []string{cloudHost + ":443"}) {
		t.Errorf("the proxy was asked for %q", got)
	}
	if got := w.cloud.Exchanges(); len(got) != 1 || got[0].Proxy != proxyHost {
		t.Errorf("exchanges %+v", got)
	}
}

// Plain HTTP is spoken where the spec allows it, and nowhere else.
func TestRegistryWithoutTLS(t *testing.T) {
	const host = "plain.example.com:5000"
	w := newWorld(t)
	w.registry.tags["tenant-a/app"] = []string{"1.0.0"}
	server := httptest.NewServer(http.HandlerFunc(w.registry.list))
	t.Cleanup(server.Close)
	w.registry.network.Addresses[host] = server.Listener.Addr().String()
	o, _ := w.reconcile(w.create("tenant-a", "app", func(o *v1alpha1.ImageRepository) {
		o.Spec.Image, o.Spec.Provider, o.Spec.ServiceAccountName = host+"/tenant-a/app", v1alpha1.ProviderGeneric, ""
	}))
	w.wants(o, metav1.ConditionFalse, meta.ReasonRegistryUnreachable, host, false)
	w.edit(o, func(o *v1alpha1.ImageRepository) { o.Spec.Insecure = true })
	o, _ = w.reconcile(o)
	w.wants(o, metav1.ConditionTrue, meta.ReasonSucceeded, ": 1", false)
}
