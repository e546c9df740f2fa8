// Package delivery renders the content of a WorkloadIdentityBinding's Secret. The content is either
// a token, with files and variables for the target's SDK, or an exchanged credential. The package
// calls no API and reads no file.
//
// Text from tenants gets into a file only as a field that was parsed and checked. So no value adds
// a line or a setting to the file.
package delivery
