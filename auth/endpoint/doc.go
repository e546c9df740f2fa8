// Package endpoint says which hosts belong to which cloud.
//
// Whatever names a host in an object is written by a tenant: an image repository, an STS endpoint, a role. This package
// parses such a string once, strictly, and compares its *host*, label by label, with tables of hosts that the cloud owns.
// It never matches a pattern against a whole URL, so that a look-alike such as
// 123456789123.dkr.ecr.eu-west-1.amazonaws.com.example.org has nothing to hide behind:
//
//	r, err := endpoint.ParseECR("oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app")
//	// r.Partition is "aws", r.Account "123456789123", r.Region "eu-west-1"
//
// Each cloud has its tables (awsdata.go, azuredata.go, gcpdata.go) and its parsers: [ParseECR], [ParseSTS] and [ParseS3]
// for AWS, [ParseACR] and [ParseBlobEndpoint] for Azure, [ParseGAR] and [ParseGCS] for Google Cloud.
//
// What an administrator lists in --allowed-endpoint-hosts is an [Allowed]; its ParseSTS and ParseS3 accept those hosts in
// addition to the tables. A name says nothing about the address behind it: [Guard] refuses loopback, link-local, metadata, private and
// denied addresses when the connection is dialled.
//
// A region is known by its form, not by its name, because clouds open regions more often than programs are released;
// a new partition is one line in the table of awsdata.go, and a test against the AWS SDK's own table fails until it is there.
package endpoint
