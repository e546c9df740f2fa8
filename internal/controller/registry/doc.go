// Package registry is how the sources that name an image repository ask its registry, each as its own tenant: with a Secret's
// password, with the image pull secrets of a ServiceAccount, with a credential that a cloud issues, or with none.
package registry
