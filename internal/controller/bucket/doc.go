// Package bucket is the kind of source that fetches the objects of a bucket as one archive. The frame is package source; the
// archive, and how little of it is fetched anew, is package internal/artifact/bucket. What differs between clouds comes in as a
// [Service] for each value of spec.provider.
package bucket
