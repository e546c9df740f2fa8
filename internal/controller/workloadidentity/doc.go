// Package workloadidentity keeps the status of WorkloadIdentities. It says which subject the tokens
// of an identity have, and whether tokens can be requested and checked: the spec is one that the
// issuer accepts, and a published key signs.
//
// The issuer reads nothing of this status. If this controller is down, tokens are made all the
// same.
package workloadidentity
