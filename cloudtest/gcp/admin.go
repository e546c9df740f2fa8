package gcp

import (
	"context"

	"github.com/lanyard-dev/lanyard/cloudtest/change"
)

// Admin changes a [Cloud] that runs in another process. Each function calls the Cloud's method of
// the same name, and fails with the same errors.
type Admin struct {
	AddProject           func(ctx context.Context, p Project) error
	PutBindings          func(ctx context.Context, project string, bindings []Binding) error
	PutPool              func(ctx context.Context, project string, p Pool) error
	DeletePool           func(ctx context.Context, project, pool string) error
	PutCluster           func(ctx context.Context, project string, c Cluster) error
	DeleteCluster        func(ctx context.Context, project, location, name string) error
	PutServiceAccount    func(ctx context.Context, project string, s ServiceAccount) error
	DeleteServiceAccount func(ctx context.Context, project, email string) error
	PutRepository        func(ctx context.Context, project string, r Repository) error
	DeleteRepository     func(ctx context.Context, project, location, name string) error
	PutBucket            func(ctx context.Context, project string, b Bucket) error
	DeleteBucket         func(ctx context.Context, project, name string) error
	PutKeyRing           func(ctx context.Context, project string, k KeyRing) error
	PutMetadata          func(ctx context.Context, m Metadata) error
	DeleteMetadata       func(ctx context.Context) error
}

// NewAdmin fills the table with the methods that change a [Cloud]. It returns the functions with
// which a client requests these changes.
func NewAdmin(t *change.Table[*Cloud]) Admin {
	const in = " /gcp/projects/{project}"
	return Admin{
		AddProject:           change.Set(t, "POST /gcp/projects", (*Cloud).AddProject),
		PutBindings:          change.Put(t, "PUT"+in+"/bindings", (*Cloud).PutBindings),
		PutPool:              change.Put(t, "PUT"+in+"/pools", (*Cloud).PutPool),
		DeletePool:           change.Delete(t, "DELETE"+in+"/pools?id", (*Cloud).DeletePool),
		PutCluster:           change.Put(t, "PUT"+in+"/clusters", (*Cloud).PutCluster),
		DeleteCluster:        change.DeleteIn(t, "DELETE"+in+"/clusters?location&name", (*Cloud).DeleteCluster),
		PutServiceAccount:    change.Put(t, "PUT"+in+"/service-accounts", (*Cloud).PutServiceAccount),
		DeleteServiceAccount: change.Delete(t, "DELETE"+in+"/service-accounts?email", (*Cloud).DeleteServiceAccount),
		PutRepository:        change.Put(t, "PUT"+in+"/repositories", (*Cloud).PutRepository),
		DeleteRepository:     change.DeleteIn(t, "DELETE"+in+"/repositories?location&name", (*Cloud).DeleteRepository),
		PutBucket:            change.Put(t, "PUT"+in+"/buckets", (*Cloud).PutBucket),
		DeleteBucket:         change.Delete(t, "DELETE"+in+"/buckets?name", (*Cloud).DeleteBucket),
		PutKeyRing:           change.Put(t, "PUT"+in+"/key-rings", (*Cloud).PutKeyRing),
		PutMetadata:          change.Set(t, "PUT /gcp/metadata", (*Cloud).PutMetadata),
		DeleteMetadata:       change.Clear(t, "DELETE /gcp/metadata", (*Cloud).DeleteMetadata),
	}
}
