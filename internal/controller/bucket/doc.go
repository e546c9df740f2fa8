// Package bucket implements the kind Bucket. It fetches the objects of a bucket as one archive. The
// package is built on package source. Package internal/artifact/objectstore makes the archive, and
// fetches only the objects that changed. Differences between clouds are in a
// [buckets.Service] for each value of spec.provider.
package bucket
