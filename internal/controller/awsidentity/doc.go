// Package awsidentity writes the status of the AWS identities. The status says whether an identity
// gives credentials, and for which AWS account and ARN. It also says how many objects use the
// identity. An identity is not deleted while objects use it.
//
// No program bases decisions on this status. Objects get their credentials from package
// internal/identity, even while this controller is down.
package awsidentity
