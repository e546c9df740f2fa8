// Package identity gets credentials for the AWS identities of a cluster: the program's own
// identity, static keys, roles that are assumed with another identity, and ServiceAccounts with a
// role.
//
//	AWSCluster ──▶ AWSClusterRoleIdentity ──▶ AWSClusterRoleIdentity ──▶ AWSClusterStaticIdentity ──▶ Secret
//	               workload account           landing zone               the chain's root
//
// An identity belongs to an administrator, who lends it to namespaces by grants. [Identities.For]
// returns the view of one namespace: an [auth.Accounts] that checks the grants of all identities of
// a chain at each lookup. [auth.GetToken] looks the identity up on every call, also when the token
// is cached. So a withdrawn grant stops the next use, before any side effect.
//
// A chain stays live. To prove an identity, the view gets the token of the identity's source, which
// is cached like any other token, and the provider signs with it. A credential's fingerprint covers
// all fields of all identities of the chain, and the static keys. So a credential is never served
// for other values of these fields. Namespaces that may use one identity share one credential.
package identity
