// Package hub connects a spoke cluster to its hub cluster. The hub has the WorkloadIdentities of
// the spoke's bindings, and the token server that issues their tokens.
//
//	spoke: binding in namespace a ──▶ [Namespaces] ──▶ hub: WorkloadIdentity in namespace b
//
// The spoke acts at the hub as one account. The hub alone decides what this account may do. The
// flag --hub-namespace-map maps namespaces of the spoke to namespaces of the hub. Only the spoke's
// administrator sets this flag, so no object can choose a namespace of the hub.
//
// The program starts and runs even if the hub does not answer. [Hub.Get] reads from the cache, and
// [Hub.State] says how long the hub has not answered.
package hub
