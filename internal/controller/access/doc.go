// Package access connects reconcilers to the Secrets and servers of their objects, each object as
// its own tenant. It reads Secrets, opens connections with the tenant's proxy and certificates, and
// gets credentials.
//
//	Call ──Connect──▶ Connection ──As(Login)──▶ requests with the credential, to the host that the object names and no other
//	  └────Mint, or a Secret──▶ Login
//
// A [Login] may add a user and a password, a bearer or a client certificate. What a minted token
// adds follows from the sort of the token; a bearer token is added only if the [Service] takes it.
// So kinds need not know the sorts of tokens, and no cloud's package is needed here.
package access
