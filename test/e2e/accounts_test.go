package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// TestAccounts tests auth/kube against the real API server:
//
//   - what auth/kube reads from the API server;
//   - which requests auth/kube refuses to send;
//   - which requests the API server refuses.
//
// The test uses auth/kube as the controller of another project would, with the permissions of
// Lanyard's controller.
func TestAccounts(t *testing.T) {
	beside(t)
	tn := newTenant(t, "accounts")
	accounts := thirdParty(t, tn.namespace)
	subject, err := auth.ServiceAccount(tn.namespace, puller)
	must(t, "name a subject", err)
	account, err := accounts.Read(t.Context(), subject)
	must(t, "read the account", err)
	if account.Attributes[roleAnnotation] != tn.role {
		t.Errorf("the account's annotations are %v; want role %s", account.Attributes, tn.role)
	}
	audience := auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{stsAudience}}

	t.Run("proof", func(t *testing.T) {
		proof, err := accounts.Prove(t.Context(), account, audience)
		must(t, "prove", err)
		jwt, err := auth.JWTOf(proof)
		must(t, "take the proof for a JWT", err)
		if got := assume(t, cloudClient(), stsURL, tn.role, jwt.Token.Reveal()); !got.granted() {
			t.Errorf("STS says of the proof: %s", got)
		}
	})
	t.Run("wrong UID", func(t *testing.T) {
		other := account
		other.UID = "00000000-0000-4000-8000-000000000000"
		_, err := accounts.Prove(t.Context(), other, audience)
		wantCode(t, err, auth.CodeSubjectReplaced)
	})
	t.Run("re-created account", func(t *testing.T) {
		replaced := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "replaced"}}
		create(t, replaced)
		subject, err := auth.ServiceAccount(tn.namespace, "replaced")
		must(t, "name a subject", err)
		before, err := accounts.Read(t.Context(), subject)
		must(t, "read the account", err)
		must(t, "delete the account", objects.Delete(t.Context(), replaced))
		_, err = accounts.Prove(t.Context(), before, audience)
		wantCode(t, err, auth.CodeSubjectNotFound)
		tn.putAccount(t, "replaced", "")
		_, err = accounts.Prove(t.Context(), before, audience)
		wantCode(t, err, auth.CodeSubjectReplaced)
	})
	// These are audiences of the API server itself. auth/kube must refuse them although no
	// option lists them.
	for _, audience := range []string{local.Issuer, "https://kubernetes.default.svc", ""} {
		t.Run("audience "+audience, func(t *testing.T) {
			_, err := accounts.Prove(t.Context(), account, auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{audience}})
			wantCode(t, err, auth.CodeAudienceRefused)
		})
	}
	t.Run("memory follows", func(t *testing.T) {
		changed := make(chan auth.Subject, 16)
		accounts.Subscribe(func(s auth.Subject) { changed <- s })
		eventually(t, "the account is known", func(ctx context.Context) error {
			_, err := accounts.Lookup(ctx, subject)
			return err
		})
		patch(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: puller}},
			func(a *corev1.ServiceAccount) { a.Annotations[roleAnnotation] = roleARN("another") })
		eventually(t, "the new annotation is known", func(ctx context.Context) error {
			known, err := accounts.Lookup(ctx, subject)
			if err != nil {
				return err
			}
			return wantf(known.Attributes[roleAnnotation] == roleARN("another"), "it is %q", known.Attributes[roleAnnotation])
		})
		eventually(t, "the change is told", func(context.Context) error {
			for {
				select {
				case s := <-changed:
					if s == subject {
						return nil
					}
				default:
					return errors.New("nothing was told")
				}
			}
		})
	})
}

// thirdParty returns auth/kube as another controller would embed it: with its own ServiceAccount in
// a namespace. The account gets the permissions that the chart grants to Lanyard's controller.
func thirdParty(t *testing.T, namespace string) *kube.Accounts {
	t.Helper()
	const name = "third-party"
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	for _, role := range []string{"lanyard-controller", "lanyard-controller-tenant"} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		}
		create(t, binding)
		t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), binding) })
	}

	admin := world.Config()
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token(t, namespace, name)
	config.UserAgent = userAgent
	c, err := cluster.New(config, func(o *cluster.Options) {
		o.Cache = cache.Options{ByObject: kube.ByObject(kube.DefaultAnnotations())}
		o.Client = client.Options{Cache: &client.CacheOptions{}}
	})
	must(t, "connect to the API server", err)
	accounts, err := kube.FromManager(t.Context(), c, kube.Options{})
	must(t, "make the accounts", err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the informers ended: %v", err)
		}
	})
	return accounts
}

// wantCode asserts that err is an auth.Error with this code and a fix, and contains no token.
func wantCode(t *testing.T, err error, code auth.Code) {
	t.Helper()
	var refused *auth.Error
	if !errors.As(err, &refused) || refused.Code != code || refused.Fix == "" {
		t.Errorf("the error is %v; want code %s and a fix", err, code)
	}
	if err != nil && strings.Contains(err.Error(), "eyJ") {
		t.Error("the error holds a token")
	}
}
