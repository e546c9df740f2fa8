// Package object has the code that the reconcilers of all kinds share. A reconciler reads an
// object, lets its kind make a plan of the spec, and lets the kind carry out the plan. Then it
// reports the result in the object's status. A [Kind] has the parts that differ between kinds of
// objects.
//
//	read ──▶ finalizer ──▶ Kind.Decide ──▶ plan ──▶ Kind.Act ──▶ Kind.Report ──▶ status, event
//	                            └──▶ refusal ───────────────────────▲
//
// A failure becomes the condition Ready=False with a stable reason and the next step to take. A
// failure that a retry can heal is retried with exponential backoff. Content that is unusable is
// checked again at the interval. Other failures heal only by a change of the object, of a
// dependency or of the controller's flags. They make the object Stalled: it waits for that change.
//
// A tenant may choose the server that its objects name. That server may answer with any text, and
// as slowly as it likes. So a new text alone makes no event and few writes. Events are limited for
// each object and namespace, and so are status writes. No namespace gets all workers.
//
// Work on an object ends early if the object or one of its dependencies is changed or deleted
// meanwhile. The object is then reconciled again.
//
// The package depends on neither artifacts nor connections, so kinds that fetch nothing use it too.
// Package tenant extends it for kinds whose objects act as a tenant. Package source extends package
// tenant for kinds that fetch an artifact.
package object
