// Package impersonation makes clients that act as tenants' ServiceAccounts at the API server.
//
// A request of such a client carries the program's own credential and the header Impersonate-User
// with the name of the ServiceAccount. The API server checks that the program may impersonate the
// account, decides the request with the account's rights, and writes both names to its audit log.
//
// The header Impersonate-User is the only one: the API server itself adds the groups of a
// ServiceAccount. So the program needs no right but the verb impersonate for serviceaccounts, in
// the tenant's namespace. Source: Kubernetes documentation, "User impersonation".
//
// The API server also impersonates ServiceAccounts that do not exist, and RoleBindings name
// accounts that do not exist yet. So [Clients.As] reads the account first, and [Client.Verify] reads
// the account again before a step that cannot be undone.
package impersonation
