// Package workloadidentity writes the status of WorkloadIdentities. The status has the subject of
// the identity's tokens. It also says whether tokens can be requested and checked. They can if the
// issuer accepts the spec, and signs with a published key.
//
// The issuer does not read this status. It issues tokens even while this controller is down.
package workloadidentity
