// Package memory reduces objects before a program caches them. The cached metadata of an object
// takes a bounded amount of memory, however much metadata tenants write. The caches of package
// auth/kube have transforms of their own. Every other cache of a program has a function of this
// package as its transform:
//
//	cache.Options{DefaultTransform: memory.Metadata}
//	cache.ByObject{Transform: memory.Kept{Labels: true}.Remember}
//
// If an object is too large, the cache has a stub in its place, without a spec. For a stub,
// [Refused] returns the field that is too large.
package memory
