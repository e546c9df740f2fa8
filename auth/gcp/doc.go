// Package gcp is the provider of Google Cloud: it gives the proof of a subject to the Security Token Service for an access token of
// the subject itself, and that token to IAM for one of the service account that the subject names.
//
//	provider, err := gcp.NewProvider(gcp.Config{})
//
//	token, err := auth.GetToken(ctx, provider,
//		auth.WithServiceAccount("tenant-a", "reader", accounts))
//
// On GKE a ServiceAccount needs nothing but roles: it is itself a principal of IAM. Two annotations change that.
// [ServiceAccountAnnotation] names a service account to be, whose policy must allow it (roles/iam.workloadIdentityUser).
// [ProviderAnnotation] names the workload identity provider that trusts the cluster's issuer: anywhere but on GKE. The cluster and
// its pool are asked for at the metadata server when a token first needs them, not before.
//
// With an image repository the token is an [auth.RegistryCredentials], otherwise a [*Token]; [NewTokenSource] makes the same call
// from inside Google's clients. Tokens have the scope [DefaultScope], unless the call names others with [auth.WithScopes].
//
// No variable of the environment has a say, except on the way to the controller's own identity.
package gcp
