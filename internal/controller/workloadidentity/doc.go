// Package workloadidentity writes the status of WorkloadIdentities. The status has the subject of
// the identity's tokens. It also says whether tokens can be requested and checked. Tokens can be
// requested if the issuer accepts the spec. Services can check the tokens if the issuer signs with
// a published key.
//
// The issuer does not read this status. It issues tokens even while this controller is down.
package workloadidentity
