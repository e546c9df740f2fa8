// Package remote calls the clouds' services and describes their failures.
//
// A call is bounded in time and length, and follows no redirect. It is repeated once if
// auth/transport/attempt expects the fault to pass. A [Failure] has our own words. The service's
// words contain IDs and times, so that every error would be a new one. They may also repeat
// whatever was sent.
package remote
