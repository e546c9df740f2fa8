package e2e

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// foreignRegistry is a registry that belongs to no cloud. A test can change the registry's
// behaviour.
type foreignRegistry struct {
	host string

	mu        sync.Mutex
	behaviour func(w http.ResponseWriter, r *http.Request, well http.Handler)
	// user is the only user with access. If user is empty, everybody has access.
	user     string
	password string
}

// newRegistry starts a registry that behaves correctly.
func newRegistry(t *testing.T, host string) *foreignRegistry {
	t.Helper()
	r := &foreignRegistry{host: host}
	well := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	must(t, "start a registry", world.Cloud().Handle(host, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		behaviour, wantUser, wantPassword := r.behaviour, r.user, r.password
		r.mu.Unlock()
		if user, password, _ := req.BasicAuth(); wantUser != "" && (user != wantUser || password != wantPassword) {
			w.Header().Set("WWW-Authenticate", `Basic realm="e2e"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		if behaviour != nil {
			behaviour(w, req, well)
			return
		}
		well.ServeHTTP(w, req)
	})))
	t.Cleanup(func() { _ = world.Cloud().Handle(host, nil) })
	return r
}

// behave changes the registry's behaviour; nil restores the correct one.
func (r *foreignRegistry) behave(how func(w http.ResponseWriter, r *http.Request, well http.Handler)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behaviour = how
}

// protect restricts access to one user.
func (r *foreignRegistry) protect(user, password string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user, r.password = user, password
}

func (r *foreignRegistry) url(repository string) string { return "oci://" + r.host + "/" + repository }

// push publishes a layer, and returns the digests of the manifest and the layer.
func (r *foreignRegistry) push(t *testing.T, repository, tag string, content []byte) (manifest, blob string) {
	t.Helper()
	reference, err := name.ParseReference(r.host + "/" + repository + ":" + tag)
	must(t, "name a reference", err)
	r.mu.Lock()
	login := authn.FromConfig(authn.AuthConfig{Username: r.user, Password: r.password})
	r.mu.Unlock()
	made := image(t, content)
	must(t, "push", remote.Write(reference, made, remote.WithContext(t.Context()), remote.WithAuth(login), remote.WithTransport(world.Cloud().Transport())))
	return digestOf(t, made), layerDigest(t, made)
}

func layerDigest(t *testing.T, i v1.Image) string {
	t.Helper()
	layers, err := i.Layers()
	must(t, "read an image", err)
	digest, err := layers[0].Digest()
	must(t, "digest a layer", err)
	return digest.String()
}

// putLogin creates a Secret with the registry's user and password.
func (r *foreignRegistry) putLogin(t *testing.T, namespace, name string) {
	t.Helper()
	create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{
			corev1.DockerConfigJsonKey: fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, r.host, r.user, r.password),
		},
	})
}

// TestStaticSecret pulls with a stored password. The Secret is read when it is needed, and
// conditions report what is wrong with it.
func TestStaticSecret(t *testing.T) {
	beside(t)
	tn := newTenant(t, "static")
	private := newRegistry(t, "private.registry.example.com")
	private.protect("reader", secretMark+"of-the-reader")
	manifest, _ := private.push(t, "team/app", "1.0.0", layer(t, file("app.yaml", "app")))
	o := tn.generic("app", private.url("team/app"))
	o.Spec.SecretRef = &meta.LocalReference{Name: "login"}
	create(t, o)
	await(t, o, "the refusal", failing("SecretRefused", "spec.secretRef", "login"))
	private.putLogin(t, tn.namespace, "login")
	await(t, o, "the artifact", revision(manifest))
	if id := o.Status.Identity; id == nil || id.Provider != v1alpha1.ProviderGeneric || !strings.Contains(id.Subject, "login") {
		t.Errorf("status.identity is %+v; want the Secret", id)
	}
	private.protect("reader", secretMark+"another")
	at := request(t, o)
	await(t, o, "the request is handled", handled(at))
	must(t, "the password is refused", failing("RegistryRefused", private.host)(o))
}
