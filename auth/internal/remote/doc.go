// Package remote calls the clouds' services and describes their failures.
//
// A call is bounded in time and length, and follows no redirect. It is repeated once if
// auth/transport/attempt expects the fault to pass.
//
// A [Failure] is in our own words, without the service's text. The service's text may repeat
// secrets that were sent. It may also contain IDs and times, so that the same failure would have
// another text each time.
package remote
