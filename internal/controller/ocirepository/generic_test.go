package ocirepository

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// runner makes the ServiceAccount tenant-a/runner.
func (w *world) runner(pullSecrets ...string) {
	w.T.Helper()
	controllertest.CreateAccount(w.T, w.Kube, "tenant-a", "runner", pullSecrets...)
}

// generic returns a function that makes an object use provider generic and this registry host.
func generic(host string) func(*v1alpha1.OCIRepository) {
	return func(o *v1alpha1.OCIRepository) {
		o.Spec.URL = "oci://" + host + "/tenant-a/app"
		o.Spec.Provider, o.Spec.ServiceAccountName = v1alpha1.ProviderGeneric, ""
	}
}

const (
	dockerEntries = `{"https://` + passHost + `/v2/":{"username":"robot","password":"hunter2"}}`
	dockerConfig  = `{"auths":` + dockerEntries + `}`
)

func TestGenericCredentials(t *testing.T) {
	for name, c := range map[string]struct {
		setup   func(*world)
		edit    func(*v1alpha1.OCIRepository)
		subject string // subject in status.identity; empty for no identity
		reason  string
		says    string
	}{
		"nobody, at a public registry": {edit: generic(publicHost), reason: meta.ReasonSucceeded},
		"nobody, at one that asks":     {edit: generic(passHost), reason: meta.ReasonRegistryRefused, says: ": no credential was sent; name a Secret"},
		"secret": {
			setup: func(w *world) {
				w.Secret("tenant-a", "pull", corev1.SecretTypeDockerConfigJson, map[string]string{corev1.DockerConfigJsonKey: dockerConfig})
			},
			edit: func(o *v1alpha1.OCIRepository) {
				generic(passHost)(o)
				o.Spec.SecretRef = &meta.LocalReference{Name: "pull"}
			},
			subject: "secret:tenant-a:pull", reason: meta.ReasonSucceeded,
		},
		"secret of another namespace": {
			setup: func(w *world) {
				w.Secret("tenant-b", "pull", corev1.SecretTypeDockerConfigJson, map[string]string{corev1.DockerConfigJsonKey: dockerConfig})
			},
			edit: func(o *v1alpha1.OCIRepository) {
				generic(passHost)(o)
				o.Spec.SecretRef = &meta.LocalReference{Name: "pull"}
			},
			reason: meta.ReasonSecretRefused, says: "create it in namespace tenant-a",
		},
		"secret for another registry": {
			setup: func(w *world) {
				w.Secret("tenant-a", "pull", corev1.SecretTypeDockerConfigJson, map[string]string{corev1.DockerConfigJsonKey: `{"auths":{"other.example.com":{"username":"robot","password":"hunter2"}}}`})
			},
			edit: func(o *v1alpha1.OCIRepository) {
				generic(passHost)(o)
				o.Spec.SecretRef = &meta.LocalReference{Name: "pull"}
			},
			reason: meta.ReasonSecretRefused, says: "has no entry for " + passHost,
		},
		"secret of another type": {
			setup: func(w *world) {
				w.Secret("tenant-a", "pull", corev1.SecretTypeOpaque, map[string]string{corev1.DockerConfigJsonKey: dockerConfig})
			},
			edit: func(o *v1alpha1.OCIRepository) {
				generic(passHost)(o)
				o.Spec.SecretRef = &meta.LocalReference{Name: "pull"}
			},
			reason: meta.ReasonSecretRefused, says: "it is of type",
		},
		"secret that cannot be read": {
			setup: func(w *world) {
				w.Secret("tenant-a", "pull", corev1.SecretTypeDockerConfigJson, map[string]string{corev1.DockerConfigJsonKey: `{"auths":"hunter2"}`})
			},
			edit: func(o *v1alpha1.OCIRepository) {
				generic(passHost)(o)
				o.Spec.SecretRef = &meta.LocalReference{Name: "pull"}
			},
			reason: meta.ReasonSecretRefused, says: "not a Docker configuration",
		},
		"pull secrets of an account": {
			setup: func(w *world) {
				w.Secret("tenant-a", "other", corev1.SecretTypeDockerConfigJson, map[string]string{corev1.DockerConfigJsonKey: `{"auths":{}}`})
				w.Secret("tenant-a", "pull", corev1.SecretTypeDockerConfigJson, map[string]string{corev1.DockerConfigJsonKey: dockerConfig})
				w.runner("other", "pull")
			},
			edit:    func(o *v1alpha1.OCIRepository) { generic(passHost)(o); o.Spec.ServiceAccountName = "runner" },
			subject: "system:serviceaccount:tenant-a:runner", reason: meta.ReasonSucceeded,
		},
		"pull secrets of an account, one of them missing": {
			setup: func(w *world) {
				w.Secret("tenant-a", "pull", corev1.SecretTypeDockerConfigJson, map[string]string{corev1.DockerConfigJsonKey: dockerConfig})
				w.runner("gone", "pull")
			},
			edit:    func(o *v1alpha1.OCIRepository) { generic(passHost)(o); o.Spec.ServiceAccountName = "runner" },
			subject: "system:serviceaccount:tenant-a:runner", reason: meta.ReasonSucceeded,
		},
		"pull secrets of the older type": {
			setup: func(w *world) {
				w.Secret("tenant-a", "pull", corev1.SecretTypeDockercfg, map[string]string{corev1.DockerConfigKey: dockerEntries})
				w.runner("pull")
			},
			edit:    func(o *v1alpha1.OCIRepository) { generic(passHost)(o); o.Spec.ServiceAccountName = "runner" },
			subject: "system:serviceaccount:tenant-a:runner", reason: meta.ReasonSucceeded,
		},
		"the same pull secret many times": {
			setup: func(w *world) {
				w.Secret("tenant-a", "pull", corev1.SecretTypeDockerConfigJson, map[string]string{corev1.DockerConfigJsonKey: dockerConfig})
				w.runner(slices.Repeat([]string{"pull"}, 17)...)
			},
			edit:    func(o *v1alpha1.OCIRepository) { generic(passHost)(o); o.Spec.ServiceAccountName = "runner" },
			subject: "system:serviceaccount:tenant-a:runner", reason: meta.ReasonSucceeded,
		},
		"too many pull secrets": {
			setup:  func(w *world) { w.runner(strings.Split("abcdefghijklmnopq", "")...) },
			edit:   func(o *v1alpha1.OCIRepository) { generic(passHost)(o); o.Spec.ServiceAccountName = "runner" },
			reason: meta.ReasonSecretRefused, says: "imagePullSecrets of ServiceAccount tenant-a/runner: there are more than 16",
		},
		"an account without pull secrets": {
			setup:  func(w *world) { w.runner() },
			edit:   func(o *v1alpha1.OCIRepository) { generic(publicHost)(o); o.Spec.ServiceAccountName = "runner" },
			reason: meta.ReasonSucceeded,
		},
		"an account that does not exist": {
			edit:   func(o *v1alpha1.OCIRepository) { generic(publicHost)(o); o.Spec.ServiceAccountName = "runner" },
			reason: string(auth.CodeSubjectNotFound), says: "create ServiceAccount tenant-a/runner",
		},
		"a pull secret that does not exist": {
			setup:  func(w *world) { w.runner("gone") },
			edit:   func(o *v1alpha1.OCIRepository) { generic(publicHost)(o); o.Spec.ServiceAccountName = "runner" },
			reason: meta.ReasonSecretRefused, says: `imagePullSecrets of ServiceAccount tenant-a/runner: none has an entry for public.example.com, and some cannot be used: "gone" (does not exist)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.tenant("tenant-a", roleA)
			if c.setup != nil {
				c.setup(w)
			}
			o, _ := w.Reconcile(w.create("tenant-a", "app", c.edit))
			if got := controllertest.Ready(o); got.Reason != c.reason || !strings.Contains(got.Message, c.says) || strings.Contains(got.Message, "hunter2") {
				t.Errorf("Ready is %s %q, want %s and %q", got.Reason, got.Message, c.reason, c.says)
			}
			subject := ""
			if o.Status.Identity != nil {
				subject = o.Status.Identity.Subject
			}
			if subject != c.subject {
				t.Errorf("subject %q, want %q", subject, c.subject)
			}
			if len(w.Cloud.Exchanges()) != 0 {
				t.Error("the cloud was asked")
			}
		})
	}
}

// TestCertificatesOfTheTenant checks that a tenant's certificate authorities are trusted for the
// registry only. For storage to which the registry redirects, the system's authorities must be
// trusted. The storage must get neither a credential nor a client certificate.
func TestCertificatesOfTheTenant(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", roleA)
	public, publicKey := controllertest.Pair(t, storageHost, cloudHost)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(public))
	w.Access.Transports = w.registry.network.Pool(t, roots)
	certificate, err := tls.X509KeyPair([]byte(public), []byte(publicKey))
	must.Succeed(t, err)
	shown := 0
	elsewhere := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		shown += len(r.TLS.PeerCertificates)
		w.registry.storage(out, r)
	}))
	elsewhere.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	elsewhere.StartTLS()
	t.Cleanup(elsewhere.Close)
	w.registry.network.Addresses[storageHost+":443"] = elsewhere.Listener.Addr().String()

	mine, key := controllertest.Pair(t)
	w.Secret("tenant-a", "right", corev1.SecretTypeOpaque, map[string]string{"ca.crt": w.registry.network.CA, "tls.crt": mine, "tls.key": key})
	w.Secret("tenant-a", "wrong", corev1.SecretTypeOpaque, map[string]string{"ca.crt": mine})
	named := func(name string) func(*v1alpha1.OCIRepository) {
		return func(o *v1alpha1.OCIRepository) { o.Spec.CertSecretRef = &meta.LocalReference{Name: name} }
	}
	for name, c := range map[string]struct{ reason, says string }{
		"right":   {meta.ReasonSucceeded, ""},
		"wrong":   {meta.ReasonRegistryUnreachable, "spec.certSecretRef"},
		"missing": {meta.ReasonSecretRefused, "does not exist"},
	} {
		o, _ := w.Reconcile(w.create("tenant-a", name, named(name)))
		if got := controllertest.Ready(o); got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %s %q, want %s and %q", name, got.Reason, got.Message, c.reason, c.says)
		}
	}

	redirected := 0
	w.registry.tamper(func(out http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			redirected++
			http.Redirect(out, r, "https://"+storageHost+r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	if o, _ := w.Reconcile(w.create("tenant-a", "redirected", named("right"))); controllertest.Ready(o).Status != metav1.ConditionTrue || redirected == 0 || shown != 0 {
		t.Errorf("redirected %d times, %d certificates shown: %+v", redirected, shown, controllertest.Ready(o))
	}

	// If the tenant has set certificate authorities, the system's authorities are not trusted for
	// the registry.
	w.registry.network.Addresses[cloudHost+":443"] = elsewhere.Listener.Addr().String()
	if o, _ := w.Reconcile(w.create("tenant-a", "posing", named("right"))); controllertest.Ready(o).Reason != meta.ReasonRegistryUnreachable {
		t.Errorf("another server poses as the registry: %+v", controllertest.Ready(o))
	}
}

// TestProxyOfTheTenant checks an object with a tenant's own identity and proxy. The exchange and
// the requests to the registry must use the proxy.
func TestProxyOfTheTenant(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", roleA)
	proxy := w.registry.network.ServeProxy(t, "proxy.example.com:3128")
	w.registry.network.Dialed()
	w.Secret("tenant-a", "proxy", corev1.SecretTypeOpaque, map[string]string{"address": "http://proxy.example.com:3128", "username": "u", "password": "s3cret"})
	address := w.registry.network.Addresses[cloudHost+":443"]
	delete(w.registry.network.Addresses, cloudHost+":443")
	o, _ := w.Reconcile(w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.ProxySecretRef = &meta.LocalReference{Name: "proxy"} }))
	if got := controllertest.Ready(o); got.Reason != meta.ReasonRegistryUnreachable || strings.Contains(got.Message, "s3cret") {
		t.Errorf("through a proxy that does not reach the registry: %+v", got)
	}
	w.registry.network.Addresses[cloudHost+":443"] = address
	if o, _ = w.Reconcile(o); controllertest.Ready(o).Reason != meta.ReasonSucceeded {
		t.Errorf("through one that does: %+v", controllertest.Ready(o))
	}
	if got := proxy.Tunnels(); !slices.Equal(got, []string{cloudHost + ":443"}) {
		t.Errorf("the proxy was asked for %q", got)
	}
	if got := w.registry.network.Dialed(); !slices.Equal(got, []string{"proxy.example.com:3128"}) {
		t.Errorf("%q were called", got)
	}
	if got := w.Cloud.Exchanges(); len(got) != 1 || got[0].Proxy != "proxy.example.com:3128" {
		t.Errorf("exchanges %+v", got)
	}
	// The controller's identity must not be used with a proxy that a tenant chose.
	w.Shared.Rules.ControllerNamespaces = grant.Namespaces{All: true}
	o, _ = w.Reconcile(w.create("tenant-a", "lent", func(o *v1alpha1.OCIRepository) {
		o.Spec.ServiceAccountName = ""
		o.Spec.ProxySecretRef = &meta.LocalReference{Name: "proxy"}
	}))
	if got := controllertest.Ready(o); got.Reason != meta.ReasonInvalidSpec || !strings.Contains(got.Message, "remove spec.proxySecretRef") || len(w.Cloud.Exchanges()) != 1 {
		t.Errorf("the controller's identity: %+v, exchanges %+v", got, w.Cloud.Exchanges())
	}
}

// TestGuardedHosts checks that a tenant cannot name hosts at internal addresses.
func TestGuardedHosts(t *testing.T) {
	w := newWorld(t)
	var guard endpoint.Guard
	pool, err := transport.NewPool(transport.Options{Base: w.registry.network.Transport(), Dial: guard.DialContext(transport.Dialer()), CheckTarget: guard.CheckTarget})
	must.Succeed(t, err)
	t.Cleanup(pool.Close)
	w.Access.Transports = pool
	for _, host := range []string{"127.0.0.1:5000", "[::1]:5000", "169.254.169.254"} {
		o, result := w.Reconcile(w.create("tenant-a", "app-"+strings.NewReplacer(".", "-", ":", "-", "[", "", "]", "").Replace(host)+"x", generic(host)))
		if got := controllertest.Ready(o); got.Reason != string(auth.CodeEndpointRefused) || !strings.Contains(got.Message, "--allowed-endpoint-hosts") {
			t.Errorf("%s: %+v", host, got)
		}
		if result.RequeueAfter == 0 {
			t.Errorf("%s: a name may lead elsewhere later", host)
		}
	}
}
