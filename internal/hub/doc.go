// Package hub connects a spoke cluster to its hub cluster. The hub has the WorkloadIdentities of
// the spoke's bindings, and the token server that issues their tokens.
//
//	spoke: binding in namespace a ──▶ [Namespaces] ──▶ hub: WorkloadIdentity in namespace b, its token
//
// The spoke acts at the hub as one account, and the hub alone decides what this account may do.
// Only the flags of the spoke's administrator choose the namespace at the hub; no object does.
//
// The program starts and runs even if the hub does not answer: [Hub.Get] reads from the cache, and
// [Hub.State] says since when the hub does not answer.
package hub
