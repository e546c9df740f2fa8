package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// pullSecrets returns Secrets of tenant-a. All have the same password, which no error may contain.
func pullSecrets() []client.Object {
	secret := func(name string, kind corev1.SecretType, key, data string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: name}, Type: kind, Data: map[string][]byte{key: []byte(data)},
		}
	}
	entry := func(host, user string) string {
		return fmt.Sprintf(`{%q:{"username":%q,"password":"hunter2"}}`, host, user)
	}
	const wrapped = `{"auths":%s}`
	return []client.Object{
		secret("good", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, fmt.Sprintf(wrapped, entry("reg.example.com", "good"))),
		secret("better", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, fmt.Sprintf(wrapped, entry("reg.example.com/team/app", "better"))),
		secret("old", corev1.SecretTypeDockercfg, corev1.DockerConfigKey, entry("https://reg.example.com", "old")),
		secret("other", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, fmt.Sprintf(wrapped, entry("other.example.com", "other"))),
		secret("opaque", corev1.SecretTypeOpaque, corev1.DockerConfigJsonKey, fmt.Sprintf(wrapped, entry("reg.example.com", "opaque"))),
		secret("broken", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":"hunter2"}`),
		secret("broken-old", corev1.SecretTypeDockercfg, corev1.DockerConfigKey, fmt.Sprintf(wrapped, `"hunter2"`)),
		secret("without-key", corev1.SecretTypeDockercfg, corev1.DockerConfigJsonKey, "{}"),
	}
}

func TestPullSecretsOfAnAccount(t *testing.T) {
	numbered := func(n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("none-%02d", i))
		}
		return names
	}
	for name, c := range map[string]struct {
		names []string
		user  string   // user of the login; empty for none
		says  []string // texts in the refusal
		reads int      // number of Secrets that are read
	}{
		"none":                             {},
		"one":                              {names: []string{"good"}, user: "good", reads: 1},
		"the first that has an entry":      {names: []string{"other", "good", "better"}, user: "good", reads: 2},
		"entries for other hosts alone":    {names: []string{"other"}, reads: 1},
		"the older type":                   {names: []string{"old"}, user: "old", reads: 1},
		"one is missing":                   {names: []string{"gone", "good"}, user: "good", reads: 2},
		"some are of no use":               {names: []string{"opaque", "broken", "broken-old", "without-key", "../good", "old"}, user: "old", reads: 5},
		"the same one again and again":     {names: slices.Repeat([]string{"gone", "other", ""}, 1000), says: []string{`"gone" (does not exist)`}, reads: 2},
		"a missing one and no entry":       {names: []string{"gone", "other"}, says: []string{"none has an entry for reg.example.com", `"gone" (does not exist)`}, reads: 2},
		"of another type and no entry":     {names: []string{"opaque"}, says: []string{`"opaque" (it is of type "Opaque", neither`}, reads: 1},
		"one that cannot be read":          {names: []string{"broken"}, says: []string{`"broken" (its key .dockerconfigjson is not a Docker configuration)`}, reads: 1},
		"one of the older type that is so": {names: []string{"without-key"}, says: []string{`"without-key" (its key .dockercfg is not a Docker configuration)`}, reads: 1},
		"no name":                          {names: []string{"../good"}, says: []string{`"../good" (this is not a valid name of a Secret)`}},
		"as many as are read":              {names: append(numbered(15), "good"), user: "good", reads: 16},
		"one more":                         {names: append(numbered(16), "good"), says: []string{"there are more than 16", "spec.secretRef"}},
		"as many as an account has room":   {names: numbered(50000), says: []string{"there are more than 16"}},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			r := registriesOf(t, c.names, interceptor.Funcs{
				Get: func(ctx context.Context, kube client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, ok := o.(*corev1.Secret); ok {
						reads++
					}
					return kube.Get(ctx, key, o, opts...)
				},
			})
			got, err := r.fromPullSecrets(t.Context(), pullSecretsCall("runner"), repositoryOf(t))
			if reads != c.reads {
				t.Errorf("%d Secrets were read, want %d", reads, c.reads)
			}
			if c.says != nil {
				refused, ok := errors.AsType[*PullSecretsError](err)
				if !ok || refused.Account != "tenant-a/runner" || !strings.Contains(err.Error(), "ServiceAccount tenant-a/runner") || strings.Contains(err.Error(), "hunter2") {
					t.Fatalf("%v", err)
				}
				for _, text := range c.says {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%v\nlacks %q", err, text)
					}
				}
				if f, known := Explain(err); !known || f.Reason != meta.ReasonSecretRefused || f.Stalled {
					t.Errorf("%+v: nobody tells us when a Secret is mended", f)
				}
				return
			}
			must.Succeed(t, err)
			if c.user == "" {
				if authenticator(got) != nil || got.Identity != nil {
					t.Errorf("%+v", got)
				}
				return
			}
			config, err := authenticator(got).Authorization()
			if err != nil || config.Username != c.user || config.Password != "hunter2" || got.Identity.Subject != "system:serviceaccount:tenant-a:runner" {
				t.Errorf("user %q as %+v, %v", config.Username, got.Identity, err)
			}
		})
	}
}

// If the API server fails to return a Secret, the result is an error. Later Secrets are not tried,
// because the Secret that was not read may have the login.
func TestPullSecretThatCannotBeAskedFor(t *testing.T) {
	down := errors.New("the API server is down")
	r := registriesOf(t, []string{"gone", "good"}, interceptor.Funcs{
		Get: func(ctx context.Context, kube client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if key.Name == "gone" {
				return down
			}
			return kube.Get(ctx, key, o, opts...)
		},
	})
	if got, err := r.fromPullSecrets(t.Context(), pullSecretsCall("runner"), repositoryOf(t)); !errors.Is(err, down) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := r.fromPullSecrets(t.Context(), pullSecretsCall("nobody"), repositoryOf(t)); auth.CodeOf(err) != auth.CodeSubjectNotFound {
		t.Errorf("an account that does not exist: %v", err)
	}
}

// If the controller may not read the ServiceAccount, the error says which right is missing.
func TestAccountThatMayNotBeRead(t *testing.T) {
	r := registriesOf(t, nil, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), key.Name, errors.New("details for the administrator"))
		},
	})
	_, err := r.fromPullSecrets(t.Context(), pullSecretsCall("runner"), repositoryOf(t))
	lacking, ok := errors.AsType[*object.ForbiddenError](err)
	if !ok || *lacking != (object.ForbiddenError{Verb: "get", Resource: "serviceaccounts", Namespace: "tenant-a"}) || strings.Contains(err.Error(), "details") {
		t.Errorf("error %v", err)
	}
}

// registriesOf returns Registries with an API server, which has ServiceAccount tenant-a/runner with
// these imagePullSecrets.
func registriesOf(t *testing.T, names []string, funcs interceptor.Funcs) Registries {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, corev1.AddToScheme(scheme))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "runner"}}
	for _, name := range names {
		account.ImagePullSecrets = append(account.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pullSecrets()...).WithObjects(account).WithInterceptorFuncs(funcs).Build()
	return Registries{Access: &access.Access{Live: kube}}
}

func pullSecretsCall(account string) access.Call {
	return access.Call{
		Object:   auth.InvolvedObject{Namespace: "tenant-a"},
		Identity: spec.Identity{Source: spec.PullSecrets, Provider: spec.Generic, ServiceAccountName: account},
	}
}

func repositoryOf(t *testing.T) oci.Repository {
	t.Helper()
	repository, err := oci.ParseURL("oci://reg.example.com/team/app")
	must.Succeed(t, err)
	return repository
}
