// Package remote calls the clouds' services and words what came of it.
//
// A call is bounded in time and length, follows no redirect, and is repeated once where a fault may have passed. The words of a
// [Failure] are our own: those of the other side hold IDs and times, which would make every error a new one, and whatever it
// chose to repeat of what it was sent.
package remote
