// Package remote calls the clouds' services and words their failures.
//
// A call is bounded in time and length, follows no redirect, and is repeated once if the fault may have passed. The words of a
// [Failure] are our own: the other side's contain IDs and times, which would make every error a new one, and may repeat whatever it
// was sent.
package remote
