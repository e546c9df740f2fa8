// Package tokenserver is Lanyard's aggregated API server for the group token.lanyard.dev. It makes
// tokens of WorkloadIdentities and SVIDs of objects, and stores nothing. The cluster's API server
// authenticates callers, asks RBAC whether they may `create` workloadidentities/token, or the svid of
// an object, writes its audit log, and only then passes a request on. The token server accepts requests from the API server alone.
package tokenserver
