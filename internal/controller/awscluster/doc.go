// Package awscluster is the reference consumer of the AWS identities. For each AWSCluster it checks
// that the namespace may use the AWS identity that the AWSCluster names. It also checks that the
// identity gives credentials, and that the credentials belong to the right account. A controller
// that manages clusters adds its own work as [Options].Manage. The AWS clients for this work act
// only as the identity.
package awscluster
