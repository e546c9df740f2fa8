// Package memory reduces objects before a program caches them. However much tenants write into the
// metadata of an object, the cached metadata takes a bounded amount of memory. The caches of
// package auth/kube have transforms of their own. Every other cache of a program has a function of
// this package as its transform:
//
//	cache.Options{DefaultTransform: memory.Metadata}
//	cache.ByObject{Transform: memory.Kept{Labels: true}.Remember}
//
// Some objects are too large to be cached. Of such an object, the cache has a stub without a spec.
// [Refused] returns the field that is too large.
package memory
