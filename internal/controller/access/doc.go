// Package access connects reconcilers to the Secrets and servers of their objects. It reads
// Secrets, and gets credentials for an object's tenant. It opens connections with the tenant's
// proxy and certificates.
//
//	Call ──Connect──▶ Connection ──As(Login)──▶ requests with the credential, to the host that the object names and no other
//	  └────Mint, or a Secret──▶ Login
//
// A [Login] may add a user and a password, a bearer token or a client certificate to requests. What
// it adds for a token from [Access.Mint] depends on the token's type. A bearer token is added only
// if the [Service] accepts it. So reconcilers need not know the types of tokens, and package access
// does not import the package of any cloud.
package access
