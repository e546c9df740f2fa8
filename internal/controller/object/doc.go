// Package object has the code that the reconcilers of all kinds share. A [Kind] has the parts that
// differ between kinds of objects. A [Reconciler] reads an object, and the kind makes a plan from
// the object's spec. Then the kind carries out the plan, and the Reconciler reports the result in
// the object's status.
//
//	read ──▶ finalizer ──▶ Kind.Decide ──▶ plan ──▶ Kind.Act ──▶ Kind.Report ──▶ status, event
//	                            └──▶ refusal ───────────────────────▲
//
// A failure becomes the condition Ready=False with a stable reason and the next step for people.
// What follows depends on the failure:
//   - If a retry can help, the Reconciler retries with exponential backoff.
//   - If the content that the object names is unusable, the Reconciler checks it again at the
//     object's interval.
//   - Other failures heal only by a change of the object, of a dependency or of the controller's
//     flags. The object is Stalled until then.
//
// A tenant may choose the server that its objects name. That server may answer with any text, and
// as slowly as it likes. So there are limits:
//   - If only the text of a failure changes, the Reconciler makes no event and few status writes.
//   - Events and status writes are limited for each object and each namespace.
//   - No namespace gets all of several workers. A slow reconciliation frees its worker for other
//     objects, and goes on without a worker.
//
// The work on an object ends early if the object or one of its dependencies is changed or deleted
// during this work. The object is then reconciled again.
//
// The package depends on neither artifacts nor connections, so kinds that fetch nothing use it too.
// Package tenant extends it for kinds whose objects act as a tenant. Package source extends package
// tenant for kinds that fetch an artifact.
package object
