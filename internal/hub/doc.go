// Package hub connects a spoke cluster to its hub cluster. The hub has the WorkloadIdentities of
// the spoke's bindings, and the token server that issues their tokens.
//
//	spoke: binding in namespace a ──▶ [Namespaces] ──▶ hub: WorkloadIdentity in namespace b
//
// The spoke acts at the hub as one account, and the hub alone decides what this account may do. By
// a flag, the spoke's administrator maps namespaces of the spoke to namespaces of the hub. No
// object can choose a namespace of the hub.
//
// The program starts and runs even if the hub does not answer: [Hub.Get] reads from the cache, and
// [Hub.State] says how long the hub has not answered.
package hub
