// Package source reconciles sources. A source is an object that names something outside the cluster (a repository, a bucket,
// an image), which its controller looks at every interval as the object's own tenant, and whose status says what was found
// there: an artifact that is kept in the artifact store, or only the result of a scan.
//
// The package is the frame, and what all kinds of source do alike; a [Kind] is what sets one of them apart. A reconciliation
// reads the object, has the kind decide what the spec comes to, and does it:
//
//	object, store ──Kind.Decide──▶ plan, or a refusal ──Kind.Fetch──▶ artifact ──▶ status
//	                                                └─ [Access]: Secrets, connection, credential
//	                                                └─ [Artifacts]: the store
//
// The store is written before the status, so that a controller killed in between leaves an artifact that nobody names,
// which the collector removes, and never a status that names an artifact which was not there. A status whose artifact is
// gone from the store, with its volume, has it fetched again before the controller is ready, for a few minutes at most.
//
// Whatever fails becomes the condition Ready with a stable reason and the next step to take. What a retry can heal is tried
// again with exponential backoff; what was found and does not do is looked for again at the interval; what only a change of
// the object, its ServiceAccount or the controller's flags can heal is Stalled and waits for that change.
//
// What an object names may be a tenant's, answer as it likes and as slowly as it likes. Its words alone make no event and few
// writes, events are counted for each object and namespace, and no namespace gets all workers.
//
// The package knows no cloud: providers come in by name.
package source
