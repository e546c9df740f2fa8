// Package remote calls the clouds' services and describes their failures.
//
// A call is bounded in time and length, and follows no redirect. It is repeated once if
// auth/transport/attempt expects the fault to pass. A [Failure] has our own words, and repeats none
// of the service's words. IDs and times in those words differ in each answer, so that every error
// would be a new one. The service may also repeat secrets that were sent.
package remote
