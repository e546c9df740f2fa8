// Package registry connects the sources that name an image repository to its registry, each as its
// own tenant. The credential is a password in a Secret, an image pull secret of a ServiceAccount,
// issued by a cloud, or itself the proof of an identity. Without any of these, requests are
// anonymous.
package registry
