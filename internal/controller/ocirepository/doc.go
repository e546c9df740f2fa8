// Package ocirepository reconciles objects of kind OCIRepository: it fetches the artifact that an object names, as the
// object's own tenant, and keeps it in the artifact store.
//
// A reconciliation reads the object, lets decide say what is to be done, and does it:
//
//	object, store ──decide──▶ plan: suspend, refuse, or fetch
//	fetch:  credential ──▶ which revision? ──▶ the one in the store: done
//	                                       └─▶ another: pull ──▶ normalise ──▶ store ──▶ status
//
// The store is written before the status, so that a controller killed in between leaves an artifact that nobody names,
// which the collector removes, and never a status that names an artifact which was not there. A status whose artifact is
// gone from the store, with its volume, has it fetched again before the controller is ready, for a few minutes at most.
//
// Whatever fails becomes the condition Ready with a stable reason and the next step to take. What a retry can heal is tried
// again with exponential backoff; what only a change of the object, its ServiceAccount or the controller's flags can heal is
// Stalled and waits for that change.
//
// The package knows no cloud: providers come in by name.
package ocirepository
