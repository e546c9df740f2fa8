package cloudtest

import (
	"context"
	"net/http"
	"net/url"

	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
)

// GCPAdmin is [gcp.Cloud] in another process: its changes, by the same names and with the same errors.
type GCPAdmin struct{ admin *Admin }

// AddProject is [gcp.Cloud.AddProject].
func (a GCPAdmin) AddProject(ctx context.Context, p gcp.Project) error {
	return a.admin.call(ctx, http.MethodPost, "/gcp/projects", nil, p, nil)
}

// PutBindings is [gcp.Cloud.PutBindings].
func (a GCPAdmin) PutBindings(ctx context.Context, project string, bindings []gcp.Binding) error {
	return a.admin.call(ctx, http.MethodPut, gcpPath(project, "bindings"), nil, append([]gcp.Binding{}, bindings...), nil)
}

// PutPool is [gcp.Cloud.PutPool].
func (a GCPAdmin) PutPool(ctx context.Context, project string, p gcp.Pool) error {
	return a.admin.call(ctx, http.MethodPut, gcpPath(project, "pools"), nil, p, nil)
}

// DeletePool is [gcp.Cloud.DeletePool].
func (a GCPAdmin) DeletePool(ctx context.Context, project, pool string) error {
	return a.admin.call(ctx, http.MethodDelete, gcpPath(project, "pools"), url.Values{"id": {pool}}, nil, nil)
}

// PutCluster is [gcp.Cloud.PutCluster].
func (a GCPAdmin) PutCluster(ctx context.Context, project string, c gcp.Cluster) error {
	return a.admin.call(ctx, http.MethodPut, gcpPath(project, "clusters"), nil, c, nil)
}

// DeleteCluster is [gcp.Cloud.DeleteCluster].
func (a GCPAdmin) DeleteCluster(ctx context.Context, project, location, name string) error {
	return a.admin.call(ctx, http.MethodDelete, gcpPath(project, "clusters"), url.Values{"location": {location}, "name": {name}}, nil, nil)
}

// PutServiceAccount is [gcp.Cloud.PutServiceAccount].
func (a GCPAdmin) PutServiceAccount(ctx context.Context, project string, s gcp.ServiceAccount) error {
	return a.admin.call(ctx, http.MethodPut, gcpPath(project, "service-accounts"), nil, s, nil)
}

// DeleteServiceAccount is [gcp.Cloud.DeleteServiceAccount].
func (a GCPAdmin) DeleteServiceAccount(ctx context.Context, project, email string) error {
	return a.admin.call(ctx, http.MethodDelete, gcpPath(project, "service-accounts"), url.Values{"email": {email}}, nil, nil)
}

// PutRepository is [gcp.Cloud.PutRepository].
func (a GCPAdmin) PutRepository(ctx context.Context, project string, r gcp.Repository) error {
	return a.admin.call(ctx, http.MethodPut, gcpPath(project, "repositories"), nil, r, nil)
}

// DeleteRepository is [gcp.Cloud.DeleteRepository].
func (a GCPAdmin) DeleteRepository(ctx context.Context, project, location, name string) error {
	return a.admin.call(ctx, http.MethodDelete, gcpPath(project, "repositories"), url.Values{"location": {location}, "name": {name}}, nil, nil)
}

// PutBucket is [gcp.Cloud.PutBucket].
func (a GCPAdmin) PutBucket(ctx context.Context, project string, b gcp.Bucket) error {
	return a.admin.call(ctx, http.MethodPut, gcpPath(project, "buckets"), nil, b, nil)
}

// DeleteBucket is [gcp.Cloud.DeleteBucket].
func (a GCPAdmin) DeleteBucket(ctx context.Context, project, name string) error {
	return a.admin.call(ctx, http.MethodDelete, gcpPath(project, "buckets"), url.Values{"name": {name}}, nil, nil)
}

// PutMetadata is [gcp.Cloud.PutMetadata].
func (a GCPAdmin) PutMetadata(ctx context.Context, m gcp.Metadata) error {
	return a.admin.call(ctx, http.MethodPut, "/gcp/metadata", nil, m, nil)
}

// DeleteMetadata is [gcp.Cloud.DeleteMetadata].
func (a GCPAdmin) DeleteMetadata(ctx context.Context) error {
	return a.admin.call(ctx, http.MethodDelete, "/gcp/metadata", nil, nil, nil)
}

func gcpPath(project, what string) string {
	return "/gcp/projects/" + url.PathEscape(project) + "/" + what
}

// handleGCP serves what [GCPAdmin] asks for.
func (c *Cloud) handleGCP(handle func(string, func(*http.Request) (any, error))) {
	const in = " /gcp/projects/{project}"
	handle("POST /gcp/projects", withBody(func(_ *http.Request, p gcp.Project) (any, error) { return struct{}{}, c.gcp.AddProject(p) }))
	handle("PUT"+in+"/bindings", withBody(func(r *http.Request, b []gcp.Binding) (any, error) {
		return struct{}{}, c.gcp.PutBindings(r.PathValue("project"), b)
	}))
	handle("PUT"+in+"/pools", withBody(func(r *http.Request, p gcp.Pool) (any, error) {
		return struct{}{}, c.gcp.PutPool(r.PathValue("project"), p)
	}))
	handle("DELETE"+in+"/pools", func(r *http.Request) (any, error) {
		return struct{}{}, c.gcp.DeletePool(r.PathValue("project"), r.URL.Query().Get("id"))
	})
	handle("PUT"+in+"/clusters", withBody(func(r *http.Request, x gcp.Cluster) (any, error) {
		return struct{}{}, c.gcp.PutCluster(r.PathValue("project"), x)
	}))
	handle("DELETE"+in+"/clusters", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return struct{}{}, c.gcp.DeleteCluster(r.PathValue("project"), q.Get("location"), q.Get("name"))
	})
	handle("PUT"+in+"/service-accounts", withBody(func(r *http.Request, s gcp.ServiceAccount) (any, error) {
		return struct{}{}, c.gcp.PutServiceAccount(r.PathValue("project"), s)
	}))
	handle("DELETE"+in+"/service-accounts", func(r *http.Request) (any, error) {
		return struct{}{}, c.gcp.DeleteServiceAccount(r.PathValue("project"), r.URL.Query().Get("email"))
	})
	handle("PUT"+in+"/repositories", withBody(func(r *http.Request, repo gcp.Repository) (any, error) {
		return struct{}{}, c.gcp.PutRepository(r.PathValue("project"), repo)
	}))
	handle("DELETE"+in+"/repositories", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return struct{}{}, c.gcp.DeleteRepository(r.PathValue("project"), q.Get("location"), q.Get("name"))
	})
	handle("PUT"+in+"/buckets", withBody(func(r *http.Request, b gcp.Bucket) (any, error) {
		return struct{}{}, c.gcp.PutBucket(r.PathValue("project"), b)
	}))
	handle("DELETE"+in+"/buckets", func(r *http.Request) (any, error) {
		return struct{}{}, c.gcp.DeleteBucket(r.PathValue("project"), r.URL.Query().Get("name"))
	})
	handle("PUT /gcp/metadata", withBody(func(_ *http.Request, m gcp.Metadata) (any, error) { return struct{}{}, c.gcp.PutMetadata(m) }))
	handle("DELETE /gcp/metadata", func(*http.Request) (any, error) { c.gcp.DeleteMetadata(); return struct{}{}, nil })
}
