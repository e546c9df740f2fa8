package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/stage"
)

// TestSecondCluster runs a second cluster in the cloud. Its authentication configuration lists the
// first cluster's issuer and a CI's issuer. The API server must accept their tokens for its own
// audience, and no other tokens.
func TestSecondCluster(t *testing.T) {
	beside(t, lane4)
	const audience = "https://second.example.com"
	issuer, err := oidc.NewIssuer("https://ci.example.com/acme", oidc.ES256)
	must(t, "make an issuer", err)
	must(t, "publish the issuer", world.Cloud().HandleIssuer(issuer))
	t.Cleanup(func() { _ = world.Cloud().Handle(issuer.Host(), nil) })
	second := startCluster(t, "second", audience, map[string]string{"ci": issuer.URL(), "first": local.Issuer})

	tn := newTenant(t, "abroad")
	mint := func(claims oidc.Claims) string {
		made, err := issuer.Mint(claims)
		must(t, "mint a token", err)
		return made
	}
	forged, err := issuer.Forge(oidc.Claims{"sub": "repo:acme/app", "aud": audience})
	must(t, "forge a token", err)
	for name, tc := range map[string]struct{ token, user string }{
		"a CI job's":               {mint(oidc.Claims{"sub": "repo:acme/app", "aud": audience}), "ci:repo:acme/app"},
		"the first cluster's":      {token(t, tn.namespace, puller, audience), "first:" + tn.subject},
		"for another audience":     {mint(oidc.Claims{"sub": "repo:acme/app", "aud": "https://first.example.com"}), ""},
		"of the first, for itself": {token(t, tn.namespace, puller), ""},
		"forged":                   {forged, ""},
		"expired":                  {mint(oidc.Claims{"sub": "repo:acme/app", "aud": audience, "exp": time.Now().Add(-time.Hour).Unix()}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			user, err := whoIs(t.Context(), second, tc.token)
			switch {
			case tc.user == "" && !apierrors.IsUnauthorized(err):
				t.Errorf("it is taken for %q: %v", user, err)
			case tc.user != "" && (err != nil || user != tc.user):
				t.Errorf("it is taken for %q, %v; want %s", user, err, tc.user)
			}
		})
	}
	t.Run("the first cluster trusts neither the CI nor tokens for the second", func(t *testing.T) {
		for _, stranger := range []string{mint(oidc.Claims{"sub": "repo:acme/app", "aud": local.Issuer}), token(t, tn.namespace, puller, audience)} {
			if user, err := whoIs(t.Context(), world, stranger); !apierrors.IsUnauthorized(err) {
				t.Errorf("a token is taken for %q: %v", user, err)
			}
		}
	})
}

// startCluster starts another cluster in the cloud. The cluster runs until the test ends. If
// issuers are given, its API server accepts their tokens for the given audience; see
// [stage.AuthenticationConfig].
func startCluster(t *testing.T, name, audience string, issuers map[string]string) *local.Cluster {
	t.Helper()
	path := ""
	if len(issuers) > 0 {
		path = filepath.Join(t.TempDir(), "authentication.yaml")
		must(t, "write the authentication configuration", os.WriteFile(path, stage.AuthenticationConfig(world.Cloud(), audience, issuers), 0o600))
	}
	return startClusterWith(t, name, path)
}

// startClusterWith starts another cluster in the cloud, which runs until the test ends. If path is
// not empty, the API server reads its AuthenticationConfiguration from this file.
func startClusterWith(t *testing.T, name, path string) *local.Cluster {
	t.Helper()
	cluster, err := local.StartCluster(t.Context(), local.ClusterOptions{
		Cloud: world.Cloud(), ControlPlane: binary("controlplane"), Name: name,
		Issuer: "https://oidc." + name + ".example.com/id", AuthenticationConfig: path,
	})
	must(t, "start another cluster", err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), stopGrace)
		defer cancel()
		if err := cluster.Stop(ctx); err != nil {
			t.Errorf("stop another cluster: %v", err)
		}
	})
	t.Cleanup(func() { // runs before the cluster is stopped
		ctx := context.WithoutCancel(t.Context())
		wantNoSecretsAt(ctx, t, cluster)
		must(t, "find no data race", wantNoRaces(cluster))
		addRights(ctx, t, cluster)
	})
	return cluster
}

// awaitTrust waits until the shared cluster's API server accepts a token, and identifies its bearer
// as this user.
func awaitTrust(t *testing.T, token, user string) {
	t.Helper()
	eventually(t, "the API server trusts the issuer", func(ctx context.Context) error {
		got, err := whoIs(ctx, world, token)
		return errors.Join(err, wantf(got == user, "the token is taken for %q, want %s", got, user))
	})
}

// whoIs returns the user name that a cluster's API server gives to a token.
func whoIs(ctx context.Context, cluster *local.Cluster, token string) (string, error) {
	config := rest.AnonymousClientConfig(cluster.Config())
	config.BearerToken = token
	bearer, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	review, err := bearer.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}
