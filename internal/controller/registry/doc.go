// Package registry connects sources to the registry of their image repository. It acts for each
// source as that source's tenant. The credential is a password in a Secret, an image pull secret of
// a ServiceAccount, a credential from a cloud, or the proof of an identity itself. Without any of
// these, requests are anonymous.
package registry
