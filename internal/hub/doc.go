// Package hub is a spoke's connection to its hub: the cluster that has the WorkloadIdentities of
// the spoke's bindings, and the token server that proves them.
//
//	spoke: binding in namespace a ──▶ [Namespaces] ──▶ hub: WorkloadIdentity in namespace b, its token
//
// The spoke acts at the hub as one account, and the hub alone decides what this account may do. The
// namespace at the hub follows from the flags of the spoke's administrator, and from no object.
//
// If the hub does not answer, the program starts and runs all the same: [Hub.Get] answers from
// memory, and [Hub.State] says since when.
package hub
