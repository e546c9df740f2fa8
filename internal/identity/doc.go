// Package identity gets credentials for the AWS identities of a cluster: the program's own
// identity, static keys, roles that are assumed with another identity, and ServiceAccounts with a
// role.
//
//	AWSCluster ──▶ AWSClusterRoleIdentity ──▶ AWSClusterRoleIdentity ──▶ AWSClusterStaticIdentity ──▶ Secret
//	               workload account           landing zone               the chain's root
//
// An identity belongs to an administrator, who lends it to namespaces by grants. [Identities.For]
// returns the view of one namespace, which is an [auth.Accounts]. At each lookup, the view checks
// the grants of all identities of a chain. [auth.GetToken] looks the identity up on every call,
// even if the token is cached. So a withdrawn grant stops the next use, before any side effect.
//
// A chain always uses the current session of its source. To prove an identity, the view gets the
// token of the identity's source, and the provider signs with this token. The source's token is
// cached like any other token.
//
// A credential's fingerprint covers these values, so the credential is never served after one of
// them has changed:
//   - the name, the UID and the session settings of each identity of the chain
//   - the static keys, or the UID of the ServiceAccount, at the chain's root
//
// Grants are not covered: when one namespace loses its grant, the credential stays cached for the
// others. Namespaces share the credential of an identity, unless an identity of the chain has
// spec.sessionPer: Namespace.
package identity
