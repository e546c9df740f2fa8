// Package identity knows the AWS identities of a cluster and gets their credentials: the program's
// own identity, static keys, roles that are assumed with another identity, and ServiceAccounts with
// a role.
//
//	AWSCluster ──▶ AWSClusterRoleIdentity ──▶ AWSClusterRoleIdentity ──▶ AWSClusterStaticIdentity ──▶ Secret
//	               workload account           landing zone               the chain's root
//
// An identity belongs to an administrator, who lends it to namespaces. [Identities.For] is the view
// of one namespace: an [auth.Accounts] that asks the grant of every identity of a chain each time
// that memory is asked for the identity. [auth.GetToken] asks memory on every call, also when the
// token is cached. So a grant that is withdrawn stops the next use, before any side effect.
//
// A chain stays live. To prove an identity, the view gets the token of the identity's source, which
// is cached like any other, and the provider signs with it. What decides a credential is in its
// fingerprint: all fields of all identities of the chain, and the static keys. A credential is
// therefore never served for other fields than those with which it was got, and namespaces that may
// use one identity share one credential.
package identity
