// Package dataplane has the stores behind the local cloud's checks: gofakes3 for S3, Azurite for
// Azure Blob Storage, fake-gcs-server for Cloud Storage. They store and list as the clouds do. They
// do not check permissions: the local cloud does so before a request reaches a store.
package dataplane
