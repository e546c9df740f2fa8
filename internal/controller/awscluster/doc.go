// Package awscluster is the reference consumer of the AWS identities. It checks for each AWSCluster
// that its namespace may use the identity that it names, that the identity gives credentials, and
// that they are of the right account. A controller that manages clusters hands in its own work,
// which gets clients of AWS that act as this identity only ([Options].Manage).
package awscluster
