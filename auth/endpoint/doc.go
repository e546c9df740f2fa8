// Package endpoint says which hosts belong to which cloud.
//
// Tenants write the strings that name hosts: an image repository, an STS endpoint, a role. This
// package parses such a string once, strictly. It compares the *host*, label by label, with tables
// of hosts that the cloud owns. It never matches a pattern against a whole URL, so a look-alike
// such as 123456789123.dkr.ecr.eu-west-1.amazonaws.com.example.org is not accepted:
//
//	r, err := endpoint.ParseECR("oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app")
//	// r.Partition is "aws", r.Account "123456789123", r.Region "eu-west-1"
//
// Each cloud has its tables (awsdata.go, azuredata.go, gcpdata.go) and its parsers: [ParseECR],
// [ParseSTS] and [ParseS3] for AWS, [ParseACR] and [ParseBlobEndpoint] for Azure, [ParseGAR] and
// [ParseGCS] for Google Cloud.
//
// The hosts that an administrator lists in --allowed-endpoint-hosts are an [Allowed]; its ParseSTS
// and ParseS3 accept these hosts in addition to the tables. Any name may resolve to any address, so
// a [Guard] refuses loopback, link-local, metadata, private and denied addresses when a connection
// is dialled.
//
// A region is recognized by the form of its name, because clouds open regions more often than
// programs are released. A new partition needs an entry in the table of awsdata.go; a test against
// the AWS SDK's own table fails until the entry exists.
package endpoint
