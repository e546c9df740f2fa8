// Package remote calls the clouds' services and describes their failures.
//
// A call is bounded in time and length, and follows no redirect. It is repeated once if
// auth/transport/attempt expects the fault to pass. A [Failure] is in our own words, without the
// service's text. That text may repeat secrets that were sent. It may also contain IDs and times,
// which would make every error a new one.
package remote
