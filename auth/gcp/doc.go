// Package gcp is the provider of Google Cloud: it exchanges the proof of a subject at the Security Token Service for an access token of
// the subject itself, and that token at IAM for one of the service account that the subject names, if it names one.
//
//	provider, err := gcp.NewProvider(gcp.Config{})
//
//	token, err := auth.GetToken(ctx, provider,
//		auth.WithServiceAccount("tenant-a", "reader", accounts))
//
// On GKE a ServiceAccount needs nothing but roles: it is itself a principal of IAM. Two annotations change that.
// [ServiceAccountAnnotation] names a service account to impersonate, whose policy must allow it (roles/iam.workloadIdentityUser).
// [ProviderAnnotation] names the workload identity provider that trusts the cluster's issuer; outside GKE it is required. The metadata
// server is asked for the GKE cluster when a token first needs it, not before.
//
// With an image repository the token is an [auth.RegistryCredentials], otherwise a [*Token]; [NewTokenSource] makes the same call
// from inside Google's clients. Tokens have the scope [DefaultScope], unless the call names others with [auth.WithScopes].
//
// Environment variables matter only for the controller's own identity.
package gcp
