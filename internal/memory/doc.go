// Package memory limits the memory that each Kubernetes object takes in a program's cache. Tenants
// write these objects, and can make them very large. The functions of this package are transforms:
// the cache calls a transform for each object, and stores only the reduced object.
//
//	cache.Options{DefaultTransform: memory.Metadata}
//	cache.ByObject{Transform: memory.Kept{Labels: true}.Remember}
//
// If an object is too large, the cache stores a stub: the object without its spec. For a stub,
// [Refused] returns the field that is too large. Package auth/kube has its own transforms.
package memory
