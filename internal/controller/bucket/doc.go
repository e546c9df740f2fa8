// Package bucket implements the kind Bucket. It fetches the objects of a bucket as one archive. The
// package is built on package source. Package internal/artifact/objectstore makes the archive, and
// fetches only the objects that changed. Each value of spec.provider has a [buckets.Service], which
// handles the differences between clouds.
package bucket
