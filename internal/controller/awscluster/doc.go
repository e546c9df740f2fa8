// Package awscluster is the reference consumer of the AWS identities. For each AWSCluster it
// checks:
//   - The namespace may use the AWS identity that the AWSCluster names.
//   - The identity gives credentials.
//   - The credentials belong to the right account.
//
// A controller that manages clusters adds its own work as [Options].Manage. The AWS clients for
// this work act only as the identity.
package awscluster
