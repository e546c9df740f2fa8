// Package access connects reconcilers to the Secrets and servers of their objects. It acts for each
// object as that object's tenant. It reads Secrets, opens connections with the tenant's proxy and
// certificates, and gets credentials.
//
//	Call ──Connect──▶ Connection ──As(Login)──▶ requests with the credential, to the host that the object names and no other
//	  └────Mint, or a Secret──▶ Login
//
// A [Login] may add a user and a password, a bearer or a client certificate to requests. What a
// minted token adds depends on the sort of the token. A bearer token is added only if the [Service]
// takes it. So kinds need not know the sorts of tokens, and package access needs no cloud's
// package.
package access
