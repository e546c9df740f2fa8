// Package remote calls the clouds' services and words their failures.
//
// A call is bounded in time and length, and follows no redirect. It is repeated once if
// auth/transport/attempt expects the fault to pass. A [Failure] has words of our own. The other
// side's words contain IDs and times, so that every error would be a new one, and they may repeat
// whatever was sent.
package remote
