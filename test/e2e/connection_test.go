package e2e

import (
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/dataplane"
)

// fetchers prepares content, and returns a function that makes the objects that fetch it. The
// function makes an OCIRepository, an ImageRepository and three Buckets, one at each cloud. The
// controller fetches each object with a different client. Each client may open connections in its
// own way.
func (tn *tenant) fetchers(t *testing.T) func(name string, proxy, ca *meta.LocalReference) []client.Object {
	t.Helper()
	tn.pushFile(t, "1.0.0", "app")

	s3 := "e2e-s3-" + tn.namespace
	plane, err := dataplane.S3(s3)
	must(t, "start a store", err)
	serveS3(t, plane, s3)
	must(t, "make a bucket", world.Cloud().AWS().PutBucket(local.Account, aws.Bucket{Region: local.Region, Name: s3}))
	putInto(t, plane, "/"+s3+"/app.yaml", "app", nil)
	// Create a second role for the bucket, because the tenant's first role is for ECR.
	const reader = "reader"
	tn.putAccount(t, reader, tn.bucketRole(t, tn.namespace+"-"+reader, reader, readS3(s3, "")...))

	storage := "e2e" + tn.azureRegistry()
	containers(t, storage, tn)

	lend(t, googlePrincipal(tn.namespace, puller))
	access, v := googleToken(t, token(t, tn.namespace, puller, googlePool))
	if !v.granted() {
		t.Fatalf("Google's STS says: %s", v)
	}
	google{access}.put(t, tn.namespace+"/app.yaml", "app")

	return func(name string, proxy, ca *meta.LocalReference) []client.Object {
		app, tags := tn.object(name), tn.image(name)
		app.Spec.ProxySecretRef, app.Spec.CertSecretRef = proxy, ca
		tags.Spec.ProxySecretRef, tags.Spec.CertSecretRef = proxy, ca
		atAWS := tn.bucket(name+"-s3", v1alpha1.ProviderAWS, s3)
		atAWS.Spec.ServiceAccountName = reader
		atAzure := tn.bucket(name+"-blob", v1alpha1.ProviderAzure, tn.namespace)
		atAzure.Spec.Endpoint = storage + ".blob.core.windows.net"
		atGoogle := tn.bucket(name+"-gcs", v1alpha1.ProviderGCP, e2eBucket)
		atGoogle.Spec.Prefix = tn.namespace + "/"
		all := []client.Object{app, tags}
		for _, b := range []*v1alpha1.Bucket{atAWS, atAzure, atGoogle} {
			b.Spec.ProxySecretRef, b.Spec.CertSecretRef = proxy, ca
			all = append(all, b)
		}
		return all
	}
}

// condition returns the condition Ready of an object of any kind.
func condition(t *testing.T, o client.Object) metav1.Condition {
	t.Helper()
	object, ok := o.(kinds.Object)
	if !ok {
		t.Fatalf("a %T has no conditions", o)
	}
	return ready(object)
}

// awaitReady waits until an object of any kind is Ready.
func awaitReady(t *testing.T, o client.Object) {
	t.Helper()
	await(t, o, "it is ready", func(o client.Object) error {
		c := condition(t, o)
		return wantf(c.Status == metav1.ConditionTrue, "a %T: Ready=%s %s: %s", o, c.Status, c.Reason, c.Message)
	})
}

// awaitRefusal waits until an object of any kind is not Ready, with this reason and a message that
// contains all words.
func awaitRefusal(t *testing.T, o client.Object, reason string, words ...string) {
	t.Helper()
	await(t, o, "the refusal", func(o client.Object) error { return failed(condition(t, o), reason, words...) })
}

// unreachable returns the reason that an object of o's kind reports if it cannot connect to its
// service.
func unreachable(o client.Object) string {
	if kind, _ := kinds.All().Of(o); kind.Server == kinds.Buckets {
		return meta.ReasonBucketUnreachable
	}
	return meta.ReasonRegistryUnreachable
}

// TestTenantsProxy fetches through a tenant's proxy. A proxy on the controller's own machine is
// refused unless the administrator allows it.
func TestTenantsProxy(t *testing.T) {
	beside(t)
	proxy, used := newForwarder(t)
	// No server listens at the address of the controller's own proxy. So all connections that
	// bypass the tenant's proxy fail.
	nowhere := "http://" + freeAddress(t)
	s := takeShard(t)
	s.start(t, "proxy", map[string]any{
		"extraEnv": environment("HTTPS_PROXY="+nowhere, "https_proxy="+nowhere, "ALL_PROXY="+nowhere, "all_proxy="+nowhere, "AZURE_TENANT_ID="+local.AzureTenant),
		"identity": map[string]any{"allowedEndpointHosts": []any{proxy}},
	})
	tn := newTenant(t, "proxy")
	defer tn.clear(t) // needs a running controller, to remove finalizers
	fetchers := tn.fetchers(t)
	secret := tn.secret(t, "proxy", map[string]string{"address": "http://" + proxy, "username": "tenant", "password": secretMark + "of-the-proxy"})
	refused := fetchers("refused", secret, nil)
	for _, o := range refused {
		create(t, o)
	}
	for _, o := range refused {
		awaitRefusal(t, o, "EndpointRefused", "127.0.0.1")
	}
	if n := used.Load(); n != 0 {
		t.Fatalf("the proxy was connected to %d times although it is refused", n)
	}
	tn.shard = s
	through := fetchers("through", secret, nil)
	for _, o := range through {
		create(t, o)
	}
	for _, o := range through {
		awaitReady(t, o)
	}
	if used.Load() == 0 {
		t.Error("nothing was fetched through the tenant's proxy")
	}
	// The credentials are cached, so these objects need no exchange. Without the tenant's proxy,
	// they cannot reach the services.
	direct := fetchers("direct", nil, nil)
	for _, o := range direct {
		create(t, o)
	}
	for _, o := range direct {
		awaitRefusal(t, o, unreachable(o))
	}
}

// TestTenantsCA fetches with certificate authorities that the tenant configures. These authorities
// apply to the connection to the service. They never apply to the exchange, in which the controller
// gets the credential. If the service's authority is missing, an object gets its credential, but
// then fails at the service.
func TestTenantsCA(t *testing.T) {
	beside(t)
	tn := newTenant(t, "authority")
	wrong, err := os.ReadFile(world.ControlPlane().CAFile())
	must(t, "read another CA", err)
	cas := map[string]*meta.LocalReference{}
	for name, pem := range map[string][]byte{"right": world.Cloud().CAPEM(), "wrong": wrong, "none": []byte("no certificate")} {
		create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: name}, Data: map[string][]byte{"ca.crt": pem}})
		cas[name] = &meta.LocalReference{Name: name}
	}
	t.Run("at a registry of one's own", func(t *testing.T) {
		r := newRegistry(t, "tls.registry.example.com")
		manifest, _ := r.push(t, "app", "1.0.0", layer(t, file("app.yaml", "app")))
		for name, ca := range cas {
			o := tn.generic("own-"+name, r.url("app"))
			o.Spec.CertSecretRef = ca
			create(t, o)
		}
		await(t, tn.generic("own-right", ""), "the artifact", revision(manifest))
		await(t, tn.generic("own-wrong", ""), "the refusal", failing("RegistryUnreachable", r.host, "certificate"))
		await(t, tn.generic("own-none", ""), "the refusal", failing("SecretRefused", "spec.certSecretRef", "ca.crt"))
	})
	fetchers := tn.fetchers(t)
	for name, ca := range cas {
		t.Run(name, func(t *testing.T) {
			objects := fetchers(name, nil, ca)
			for _, o := range objects {
				create(t, o)
			}
			for _, o := range objects {
				switch name {
				case "right":
					awaitReady(t, o)
				case "wrong":
					awaitRefusal(t, o, unreachable(o), "certificate")
				default:
					awaitRefusal(t, o, "SecretRefused", "spec.certSecretRef", "ca.crt")
				}
			}
		})
	}
}

// newForwarder starts a proxy that forwards its connections to the cloud's proxy, and counts them.
func newForwarder(t *testing.T) (address string, used *atomic.Int64) {
	t.Helper()
	upstream, err := url.Parse(world.Cloud().ProxyURL())
	must(t, "read the proxy's URL", err)
	used = &atomic.Int64{}
	address = forward(t, upstream.Host, func() { used.Add(1) })
	return address, used
}
