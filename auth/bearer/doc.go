// Package bearer is the provider whose token is the proof itself: a JWT of a ServiceAccount or a
// WorkloadIdentity, for a server that trusts the JWT's issuer. Nothing is exchanged.
//
//	token, err := auth.GetToken(ctx, provider,
//		auth.WithServiceAccount("tenant-a", "puller", accounts),
//		auth.WithAudiences("registry.example.com"))
//
// The token is an [auth.JWT], which the server takes as a bearer token (RFC 6750). Some registries
// take only a user and a password. For these, the annotation [UsernameAnnotation] of the subject
// names the user, and the token is [auth.RegistryCredentials] with the JWT as password.
//
// Whoever receives such a token can use it at every server that accepts its audience. So the caller
// must refuse the audiences of token services, as package auth/spec does. The Prover refuses the
// audiences of the API server.
package bearer
