package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd" // authentication of the registry's users
	"github.com/distribution/distribution/v3/registry/handlers"
	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// newDistribution starts the registry CNCF Distribution at a host. The registry has one user, with
// a password.
func newDistribution(t *testing.T, host, user, password string) {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	must(t, "hash a password", err)
	users := filepath.Join(t.TempDir(), "htpasswd")
	must(t, "write the users", os.WriteFile(users, []byte(user+":"+string(hash)+"\n"), 0o600))
	config := &configuration.Configuration{
		Storage: configuration.Storage{
			"inmemory":    configuration.Parameters{},
			"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
		},
		Auth: configuration.Auth{"htpasswd": configuration.Parameters{"realm": "e2e", "path": users}},
	}
	config.HTTP.RelativeURLs = true
	config.Log.AccessLog.Disabled = true
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	must(t, "start a registry", world.Cloud().Handle(host, http.Handler(handlers.NewApp(ctx, config))))
	t.Cleanup(func() {
		_ = world.Cloud().Handle(host, nil)
		cancel()
	})
}

// TestPullSecrets pulls from a registry with its own users. Like a Pod, an object may use only the
// Secret in its spec, and the Secrets of its ServiceAccount.
func TestPullSecrets(t *testing.T) {
	beside(t)
	const user, password = "robot", secretMark + "of-the-robot"
	private := &foreignRegistry{host: "goharbor.registry.example.com", user: user, password: password}
	newDistribution(t, private.host, user, password)
	url := private.url("team/app")
	manifest := publish(t, url, "1.0.0", layer(t, file("app.yaml", "app")), &authn.Basic{Username: user, Password: password})
	publish(t, url, "1.1.0", layer(t, file("app.yaml", "newer")), &authn.Basic{Username: user, Password: password})

	tn, other := newTenant(t, "pull-secrets"), newTenant(t, "pull-secrets-other")
	private.putLogin(t, tn.namespace, "login")
	(&foreignRegistry{host: private.host, user: user, password: secretMark + "wrong"}).putLogin(t, tn.namespace, "wrong")
	(&foreignRegistry{host: "elsewhere.registry.example.com", user: user, password: password}).putLogin(t, tn.namespace, "elsewhere")
	account := func(name string, secrets ...string) {
		a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: name}}
		for _, secret := range secrets {
			a.ImagePullSecrets = append(a.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
		}
		create(t, a)
	}
	account("with", "elsewhere", "login")
	account("without")
	account("elsewhere", "elsewhere")
	account("missing", "nowhere")

	for name, tt := range map[string]struct {
		namespace, account, secret string
		reason                     string // reason of the refusal; empty if the object gets its artifact
		words                      []string
		subject                    string
	}{
		"secret":            {secret: "login", subject: "secret:pull-secrets:login"},
		"account":           {account: "with"},
		"nobody":            {reason: "RegistryRefused"},
		"wrong-secret":      {secret: "wrong", reason: "RegistryRefused"},
		"other-registry":    {secret: "elsewhere", reason: "SecretRefused", words: []string{"spec.secretRef", private.host}},
		"account-without":   {account: "without", reason: "RegistryRefused"},
		"account-elsewhere": {account: "elsewhere", reason: "RegistryRefused"},
		"account-missing":   {account: "missing", reason: "SecretRefused", words: []string{"nowhere"}},
		"neighbour":         {namespace: other.namespace, secret: "login", reason: "SecretRefused", words: []string{"spec.secretRef", "login"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, i := tn.generic(name, url), tn.image(name)
			i.Spec.Image, i.Spec.Provider = private.host+"/team/app", v1alpha1.ProviderGeneric
			o.Spec.ServiceAccountName, i.Spec.ServiceAccountName = tt.account, tt.account
			if tt.secret != "" {
				o.Spec.SecretRef, i.Spec.SecretRef = &meta.LocalReference{Name: tt.secret}, &meta.LocalReference{Name: tt.secret}
			}
			if tt.namespace != "" {
				o.Namespace, i.Namespace = tt.namespace, tt.namespace
			}
			create(t, o)
			create(t, i)
			if tt.reason != "" {
				await(t, o, "the refusal", failing(tt.reason, tt.words...))
				await(t, i, "the refusal", func(i *v1alpha1.ImageRepository) error {
					return failed(ready(i), tt.reason, tt.words...)
				})
				return
			}
			await(t, o, "the artifact", revision(manifest))
			await(t, i, "the tags", func(i *v1alpha1.ImageRepository) error {
				c, scan := ready(i), i.Status.LastScanResult
				return wantf(scan != nil && slices.Equal(scan.LatestTags, []string{"1.1.0", "1.0.0"}), "found %+v: %s %s", scan, c.Reason, c.Message)
			})
			for _, id := range []*meta.Identity{o.Status.Identity, i.Status.Identity} {
				if tt.subject != "" && (id == nil || id.Subject != tt.subject) {
					t.Errorf("status.identity is %+v; want %s", id, tt.subject)
				}
			}
		})
	}
}
