// Package dataplane has the stores behind the local cloud's checks:
//   - gofakes3 for S3
//   - Azurite for Azure Blob Storage
//   - fake-gcs-server for Cloud Storage
//
// They store and list objects as the clouds do. They do not check permissions. The local cloud
// checks them before a request reaches a store.
package dataplane
