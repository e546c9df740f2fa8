// Package registry connects each source to the registry of its image repository, with a credential
// of the source's tenant. The credential is one of these:
//   - a password in a Secret
//   - an image pull secret of a ServiceAccount
//   - a credential from a cloud
//   - a JWT or certificate that itself proves an identity
//
// Without any of these, requests are anonymous.
package registry
