package e2e

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/stage"
)

const (
	// kubeConfigName is the name of the Secrets with kubeconfig files.
	kubeConfigName = "remote"
	// remoteUser is the account of the kubeconfig files in the other cluster.
	remoteUser = "lanyard"
	// variableReader is the administrator's default account. It reads variables in this cluster.
	variableReader = "reader"
)

// otherCluster is a cluster that gets a tenant's manifests. It has no Lanyard.
type otherCluster struct {
	*local.Cluster

	objects   client.Client
	namespace string // the tenant's namespace in this cluster
	file      string // kubeconfig file of remoteUser
}

// startOther starts a cluster in which the tenant has a namespace and an account with rights in it.
func startOther(t *testing.T, namespace string) *otherCluster {
	t.Helper()
	c := &otherCluster{Cluster: startCluster(t, "elsewhere", "", nil), namespace: namespace}
	c.objects = c.Client()
	user := rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: remoteUser}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: remoteUser}},
	} {
		must(t, "create an object in the other cluster", c.objects.Create(t.Context(), o))
	}
	c.grant(t, "deploy", user, applierRules()...)
	typed, err := kubernetes.NewForConfig(c.Config())
	must(t, "make a client", err)
	token, err := typed.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), remoteUser, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, "get a token of the other cluster", err)
	c.file = stage.Kubeconfig(c.Config().Host, c.Config().CAData, "token: "+token.Status.Token)
	return c
}

// grant lets a user of the other cluster do what the rules say, in the tenant's namespace.
func (c *otherCluster) grant(t *testing.T, name string, user rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	named := metav1.ObjectMeta{Namespace: c.namespace, Name: name}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: named, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: named, Subjects: []rbacv1.Subject{user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}},
	} {
		must(t, "create an object in the other cluster", c.objects.Create(t.Context(), o))
	}
}

// has waits until the other cluster has a ConfigMap with a value. No value means no ConfigMap.
func (c *otherCluster) has(t *testing.T, name, value string) {
	t.Helper()
	eventually(t, "the other cluster has "+name+": "+value, func(ctx context.Context) error {
		o := &corev1.ConfigMap{}
		err := c.objects.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, o)
		if value == "" && apierrors.IsNotFound(err) {
			return nil
		}
		return wantf(err == nil && value != "" && o.Data["key"] == value, "%v, %v", o.Data, err)
	})
}

// store stores a kubeconfig file in a Secret of the tenant.
func (tn *applyTenant) store(t *testing.T, secret, file string) {
	t.Helper()
	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: secret}, Data: map[string][]byte{"value": []byte(file)}})
}

// elsewhere returns a Kustomization for the cluster of a Secret.
func (tn *applyTenant) elsewhere(name, secret string) *v1alpha1.Kustomization {
	o := tn.kustomization(name)
	o.Spec.ServiceAccountName = ""
	o.Spec.KubeConfig = &v1alpha1.KubeConfigReference{SecretRef: &v1alpha1.SecretKeyReference{LocalReference: meta.LocalReference{Name: secret}}}
	return o
}

// hangingServer is an API server that never answers. It remembers who has asked.
type hangingServer struct {
	*httptest.Server

	mu    sync.Mutex
	asked map[string]int // number of requests by the header Authorization
}

func startHanging(t *testing.T) *hangingServer {
	t.Helper()
	s := &hangingServer{asked: map[string]int{}}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked[r.Header.Get("Authorization")]++
		s.mu.Unlock()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s
}

// requests returns the number of requests by credential.
func (s *hangingServer) requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.asked)
}

// TestKustomizationElsewhere applies manifests to a second cluster, with the kubeconfig file of a
// tenant.
func TestKustomizationElsewhere(t *testing.T) {
	alone(t, "the chart grants more for the apply controller")
	tn := newApplyTenant(t, "apply-remote", map[string]string{"one.yaml": configMapOf("one", "${word}"), "two.yaml": configMapOf("two", "second")})
	other := newApplyTenant(t, "apply-beside", map[string]string{"one.yaml": configMapOf("one", "local")})
	there, hanging := startOther(t, tn.namespace), startHanging(t)
	host := func(address string) string {
		u, err := url.Parse(address)
		must(t, "parse an address", err)
		return u.Host
	}
	startApplyingWith(t, map[string]any{"defaultServiceAccount": variableReader},
		map[string]any{"identity": map[string]any{"allowedEndpointHosts": []any{host(there.Config().Host), host(hanging.URL)}}}, tn, other)
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: variableReader}})
	grantRole(t, tn.namespace, variableReader, rbacv1.Subject{Kind: "ServiceAccount", Namespace: tn.namespace, Name: variableReader},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}})
	create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "words"}, Data: map[string]string{"word": "first"}})
	tn.store(t, kubeConfigName, there.file)
	o := tn.elsewhere("app", kubeConfigName)
	o.Spec.Wait = true
	o.Spec.PostBuild = &v1alpha1.PostBuild{SubstituteFrom: []v1alpha1.SubstituteReference{{Kind: "ConfigMap", Name: "words"}}}
	create(t, o)
	await(t, o, "it is applied", applied("apply-remote_one__ConfigMap", "apply-remote_two__ConfigMap"))
	there.has(t, "one", "first")
	if err := objects.Get(t.Context(), client.ObjectKey{Namespace: tn.namespace, Name: "one"}, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("this cluster has the object, too: %v", err)
	}

	t.Run("drift and prune", func(t *testing.T) {
		one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "one"}}
		must(t, "change an object by hand", there.objects.Patch(t.Context(), one, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"key":"by hand"}}`))))
		there.has(t, "one", "first")
		tn.release(t, map[string]string{"one.yaml": configMapOf("one", "next")})
		await(t, o, "it is applied", applied("apply-remote_one__ConfigMap"))
		there.has(t, "one", "next")
		there.has(t, "two", "")
	})
	t.Run("the cluster cannot change", func(t *testing.T) {
		changed := o.DeepCopy()
		must(t, "read the object", objects.Get(t.Context(), client.ObjectKeyFromObject(o), changed))
		changed.Spec.KubeConfig = nil
		if err := objects.Update(t.Context(), changed); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "create it anew") {
			t.Errorf("the field is removed: %v", err)
		}
	})
	t.Run("as an account of the other cluster", func(t *testing.T) {
		named := tn.elsewhere("named", kubeConfigName)
		named.Spec.NamePrefix, named.Spec.ServiceAccountName = "named-", deployer
		create(t, named)
		user := "system:serviceaccount:apply-remote:" + deployer
		await(t, named, "it is refused", unapplied(meta.ReasonApplyRefused, user+" in the cluster of Secret "+kubeConfigName, "cannot impersonate", "remove spec.serviceAccountName"))
		there.grant(t, "impersonate", rbacv1.Subject{Kind: "ServiceAccount", Namespace: there.namespace, Name: remoteUser},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{deployer}, Verbs: []string{"impersonate"}})
		await(t, named, "it is refused as the account", unapplied(meta.ReasonApplyRefused, user, "forbidden"))
		there.grant(t, "account", rbacv1.Subject{Kind: "ServiceAccount", Namespace: there.namespace, Name: deployer}, applierRules()...)
		await(t, named, "it is applied", applied("apply-remote_named-one__ConfigMap"))
		must(t, "delete the Kustomization", objects.Delete(t.Context(), named))
		there.has(t, "named-one", "")
	})
	t.Run("refused files", func(t *testing.T) { refusedFiles(t, tn, there) })
	t.Run("a server that hangs", func(t *testing.T) {
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hanging.Certificate().Raw})
		const count = 12
		const secret = kubeConfigName + "-hanging"
		tn.store(t, secret, stage.Kubeconfig(hanging.URL, authority, "token: hanging"))
		for i := range count {
			create(t, tn.elsewhere(fmt.Sprintf("slow-%d", i), secret))
		}
		eventually(t, "the server is asked", func(context.Context) error {
			n := hanging.requests()["Bearer hanging"]
			return wantf(n >= 4, "%d requests", n)
		})
		honest := other.kustomization("honest")
		create(t, honest)
		began := time.Now()
		await(t, honest, "another tenant's is applied", applied("apply-beside_one__ConfigMap"))
		if passed := time.Since(began); passed > 20*time.Second {
			t.Errorf("another tenant waits %s", passed)
		}
		if asked := hanging.requests(); len(asked) != 1 {
			t.Errorf("the server gets another credential than that of the file: %d", len(asked))
		}
		// The tenant's own Kustomizations wait for the tenant's share of the workers.
		for i := range count {
			must(t, "delete the Kustomization", objects.Delete(t.Context(), &v1alpha1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: fmt.Sprintf("slow-%d", i)}}))
		}
	})
	t.Run("deleted", func(t *testing.T) {
		last := tn.elsewhere("last", kubeConfigName)
		last.Spec.NamePrefix = "last-"
		create(t, last)
		await(t, last, "it is applied", applied("apply-remote_last-one__ConfigMap"))
		must(t, "delete the Kustomization", objects.Delete(t.Context(), o))
		there.has(t, "one", "")
		must(t, "delete the Secret", objects.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: kubeConfigName}}))
		await(t, last, "it is refused", unapplied(meta.ReasonKubeConfigRefused, "the Secret does not exist"))
		must(t, "delete the Kustomization", objects.Delete(t.Context(), last))
		awaitLeftover(t, last, "ConfigMap/apply-remote/last-one")
		there.has(t, "last-one", "next")
	})
	judgeOther(t, there)
	judgeImpersonation(t)
}

// refusedFiles checks which kubeconfig files are refused, and for what reasons.
func refusedFiles(t *testing.T, tn *applyTenant, there *otherCluster) {
	t.Helper()
	server, authority := there.Config().Host, there.Config().CAData
	file := func(user string) string { return stage.Kubeconfig(server, authority, user) }
	at := func(server string) string { return stage.Kubeconfig(server, authority, "token: x") }
	cases := []struct{ reason, says, file string }{
		{meta.ReasonKubeConfigRefused, `users["me"].user.exec`, file("exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true}")},
		{meta.ReasonKubeConfigRefused, `users["me"].user.tokenFile`, file("tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token")},
		{meta.ReasonKubeConfigRefused, `users["me"].user.as`, file("token: x, as: admin")},
		{meta.ReasonKubeConfigRefused, "insecure-skip-tls-verify", strings.Replace(there.file, "certificate-authority-data:", "insecure-skip-tls-verify: true, certificate-authority-data:", 1)},
		{meta.ReasonKubeConfigRefused, "no kubeconfig file", "a: b: c"},
		{"EndpointRefused", "in --deny-cidrs", at("https://10.0.0.1:6443")},
		{"EndpointRefused", "metadata service", at("https://169.254.169.254")},
		{"EndpointRefused", "loopback", at("https://127.0.0.1:1")},
		{meta.ReasonApplyRefused, "the user of the kubeconfig in Secret ", file("token: " + secretMark + "wrong")},
		{meta.ReasonApplyFailed, "certificate signed by unknown authority", strings.Replace(there.file, base64.StdEncoding.EncodeToString(authority), base64.StdEncoding.EncodeToString(otherAuthority(t)), 1)},
	}
	var tried []*v1alpha1.Kustomization
	for i, c := range cases {
		secret := fmt.Sprint(kubeConfigName, "-", i)
		tn.store(t, secret, c.file)
		o := tn.elsewhere(fmt.Sprint("refused-", i), secret)
		create(t, o)
		tried = append(tried, o)
	}
	for i, o := range tried {
		await(t, o, "it is refused", unapplied(cases[i].reason, cases[i].says))
	}
}

// otherAuthority returns the certificate of another server.
func otherAuthority(t *testing.T) []byte {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// judgeOther asserts who acted in the other cluster: the file's user, itself or as the named
// account. The program's own credential and its default account never arrive there.
func judgeOther(t *testing.T, c *otherCluster) {
	t.Helper()
	user := "system:serviceaccount:" + c.namespace + ":" + remoteUser
	own, named := 0, 0
	for _, e := range auditLogOf(t, c.Cluster) {
		if !strings.HasPrefix(e.UserAgent, applyController) {
			continue
		}
		switch {
		case e.User.Username == "" && e.ResponseStatus.Code == http.StatusUnauthorized: // the wrong token
		case e.User.Username != user:
			t.Errorf("%s acts in the other cluster: %s %s", e.User.Username, e.Verb, e.RequestURI)
		case e.ImpersonatedUser == nil:
			own++
		case e.ImpersonatedUser.Username == "system:serviceaccount:"+c.namespace+":"+deployer:
			named++
		default:
			t.Errorf("impersonates %s: %s %s", e.ImpersonatedUser.Username, e.Verb, e.RequestURI)
		}
	}
	if own == 0 || named == 0 {
		t.Errorf("%d requests of the user, %d as the account: the log is not read right", own, named)
	}
}
