// Package gcp is the provider of Google Cloud. It exchanges the proof of a subject at the Security
// Token Service for an access token of the subject itself. If the subject names a service account,
// IAM exchanges this token for an access token of the service account.
//
//	provider, err := gcp.NewProvider(gcp.Config{})
//
//	token, err := auth.GetToken(ctx, provider,
//		auth.WithServiceAccount("tenant-a", "reader", accounts))
//
// On GKE a ServiceAccount is itself a principal of IAM, and needs only roles. When a token first
// needs the GKE cluster's name, the provider gets it from the metadata server.
//
// Annotations of a ServiceAccount can change this. [ServiceAccountAnnotation] names a service
// account to impersonate, whose policy must allow the impersonation
// (roles/iam.workloadIdentityUser). [ProviderAnnotation] names the workload identity provider that
// trusts the cluster's issuer. Outside GKE, ProviderAnnotation is required.
//
// With an image repository the token is an [auth.RegistryCredentials], otherwise a [*Token].
// [NewTokenSource] returns a token source for Google's clients. Tokens have the scope
// [DefaultScope], unless the call names others with [auth.WithScopes].
//
// Environment variables are read only for the controller's own identity.
package gcp
