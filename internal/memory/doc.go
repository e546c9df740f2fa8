// Package memory reduces objects before a program caches them. What tenants write into the metadata
// of an object then costs a constant. The caches of package auth/kube have transforms of their own.
// Every other cache of a program has a function of this package as its transform:
//
//	cache.Options{DefaultTransform: memory.Metadata}
//	cache.ByObject{Transform: memory.Kept{Labels: true}.Remember}
//
// Some objects are too large to be cached. Of such an object, the cache has a stub without a spec.
// [Refused] returns the field that is too large.
package memory
