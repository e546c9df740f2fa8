// Package delivery renders what lies in the Secret of a WorkloadIdentityBinding: a token and the
// files and variables from which the SDK of its target reads the token, or a credential that was
// exchanged before. It calls no API and reads no file.
//
// Text of tenants gets into a file only as a field that was parsed and checked. So no value adds a
// line or a setting to the file.
package delivery
