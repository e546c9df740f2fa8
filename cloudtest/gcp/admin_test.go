package gcp_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
)

// TestAdmin makes every change of the local Google Cloud through the admin API, as another process
// does, and checks the errors.
func TestAdmin(t *testing.T) {
	w := newWorld(t)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := &cloudtest.Admin{URL: w.ProxyURL()}
	const project, email = "other-project", "tenant-c@other-project.iam.gserviceaccount.com"
	config := worldConfig().GCP.Projects[0]
	for _, step := range []struct {
		name   string
		do     func(context.Context) error
		status int
	}{
		{"add", func(ctx context.Context) error { return a.GCP().AddProject(ctx, gcp.Project{ID: project, Number: "7"}) }, 0},
		{"add again", func(ctx context.Context) error { return a.GCP().AddProject(ctx, gcp.Project{ID: project, Number: "7"}) }, http.StatusBadRequest},
		{"pool", func(ctx context.Context) error { return a.GCP().PutPool(ctx, project, config.Pools[0]) }, 0},
		{"cluster", func(ctx context.Context) error { return a.GCP().PutCluster(ctx, project, config.Clusters[0]) }, 0},
		{"account", func(ctx context.Context) error {
			return a.GCP().PutServiceAccount(ctx, project, gcp.ServiceAccount{Email: email})
		}, 0},
		{"account of another project", func(ctx context.Context) error {
			return a.GCP().PutServiceAccount(ctx, project, gcp.ServiceAccount{Email: accountA})
		}, http.StatusBadRequest},
		{"repository", func(ctx context.Context) error {
			return a.GCP().PutRepository(ctx, project, gcp.Repository{Location: "us", Name: "apps", Bindings: bind("roles/artifactregistry.reader", "allUsers")})
		}, 0},
		{"bucket", func(ctx context.Context) error { return a.GCP().PutBucket(ctx, project, gcp.Bucket{Name: "tenant-c"}) }, 0},
		{"key ring", func(ctx context.Context) error {
			return a.GCP().PutKeyRing(ctx, project, gcp.KeyRing{Location: "global", Name: "sops", Keys: []gcp.CryptoKey{{Name: "tenant-c", Bindings: bind(roleDecrypt, "serviceAccount:"+email)}}})
		}, 0},
		{"key ring without a location", func(ctx context.Context) error {
			return a.GCP().PutKeyRing(ctx, project, gcp.KeyRing{Name: "sops"})
		}, http.StatusBadRequest},
		{"bindings", func(ctx context.Context) error {
			return a.GCP().PutBindings(ctx, project, bind("roles/storage.objectViewer", "serviceAccount:"+email))
		}, 0},
		{"no bindings", func(ctx context.Context) error { return a.GCP().PutBindings(ctx, project, nil) }, 0},
		{"unknown role", func(ctx context.Context) error {
			return a.GCP().PutBindings(ctx, project, bind("roles/owner", "serviceAccount:"+email))
		}, http.StatusBadRequest},
		{"metadata", func(ctx context.Context) error {
			return a.GCP().PutMetadata(ctx, gcp.Metadata{Project: project, ServiceAccount: email})
		}, 0},
		{"metadata of nothing", func(ctx context.Context) error { return a.GCP().PutMetadata(ctx, gcp.Metadata{Project: "none-at-all"}) }, http.StatusBadRequest},
		{"unknown project", func(ctx context.Context) error { return a.GCP().PutPool(ctx, "none-at-all", config.Pools[0]) }, http.StatusNotFound},
		{"delete pool", func(ctx context.Context) error { return a.GCP().DeletePool(ctx, project, "tenants") }, 0},
		{"delete pool again", func(ctx context.Context) error { return a.GCP().DeletePool(ctx, project, "tenants") }, http.StatusNotFound},
		{"delete cluster", func(ctx context.Context) error { return a.GCP().DeleteCluster(ctx, project, "europe-west1", "tenants") }, 0},
		{"delete account", func(ctx context.Context) error { return a.GCP().DeleteServiceAccount(ctx, project, email) }, 0},
		{"delete repository", func(ctx context.Context) error { return a.GCP().DeleteRepository(ctx, project, "us", "apps") }, 0},
		{"delete bucket", func(ctx context.Context) error { return a.GCP().DeleteBucket(ctx, project, "tenant-c") }, 0},
		{"delete another project's bucket", func(ctx context.Context) error { return a.GCP().DeleteBucket(ctx, project, "open.bucket") }, http.StatusNotFound},
	} {
		err := step.do(t.Context())
		var refused *cloudtest.AdminError
		switch {
		case step.status == 0 && err != nil:
			t.Errorf("%s: %v", step.name, err)
		case step.status != 0 && (!errors.As(err, &refused) || refused.Status != step.status):
			t.Errorf("%s: %v", step.name, err)
		}
	}
	env, err := a.Env(t.Context(), "ca.pem")
	if err != nil || !slices.Equal(env, w.Env("ca.pem")) || !slices.Contains(env, "GCE_METADATA_HOST="+w.ProxyURL()[len("http://"):]) {
		t.Errorf("%v %v", env, err)
	}
	if err := a.GCP().DeleteMetadata(t.Context()); err != nil {
		t.Error(err)
	}
	if env, err := a.Env(t.Context(), "ca.pem"); err != nil || len(env) != len(cloudtest.Env("", "")) {
		t.Errorf("%v %v", env, err)
	}
}
