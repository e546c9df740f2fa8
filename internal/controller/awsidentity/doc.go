// Package awsidentity keeps the status of the AWS identities: whether they give credentials, as
// whom, and how many objects use them. An identity that objects use is not deleted before they are
// gone.
//
// Nobody reads this status to decide anything. Objects get their credentials from package
// internal/identity, also while this controller is down.
package awsidentity
