// Package dataplane has the stores behind the local cloud's checks: gofakes3 for S3, Azurite for
// Azure Blob Storage, fake-gcs-server for Cloud Storage. They store and list as the clouds do, and
// let everybody do everything; who may do what is the local cloud's to say, before a request comes
// here.
package dataplane
