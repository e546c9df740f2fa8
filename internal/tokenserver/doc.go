// Package tokenserver is Lanyard's aggregated API server for the group token.lanyard.dev. It makes
// tokens of WorkloadIdentities and SVIDs of objects, and stores nothing. The token server accepts
// requests only from the cluster's API server. Before the API server passes a request on, it
// authenticates the caller and writes its audit log. It also asks RBAC whether the caller may
// `create` the subresource, such as workloadidentities/token or ocirepositories/svid.
package tokenserver
