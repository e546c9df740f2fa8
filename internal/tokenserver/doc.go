// Package tokenserver is Lanyard's aggregated API server for the group token.lanyard.dev. It makes
// tokens of WorkloadIdentities, makes SVIDs of objects, and stores nothing. The token server
// accepts requests from the cluster's API server alone. Before it passes a request on, the API
// server authenticates the caller and writes its audit log. It also asks RBAC whether the caller
// may `create` the subresource, such as workloadidentities/token or ocirepositories/svid.
package tokenserver
