// Package tokenserver is Lanyard's aggregated API server for the group token.lanyard.dev. It makes
// SVIDs of objects and tokens of WorkloadIdentities, and stores nothing. The token server accepts
// requests from the cluster's API server alone. Before it passes a request on, the API server
// authenticates the caller, asks RBAC whether the caller may `create` workloadidentities/token or
// the svid of an object, and writes its audit log.
package tokenserver
