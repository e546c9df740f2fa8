// Package endpoint says which hosts belong to which cloud.
//
// Tenants write the strings that name hosts: an image repository, an STS endpoint, a role. This
// package parses such a string once, strictly. It compares the host, label by label, with tables of
// hosts that the cloud owns. It never matches a pattern against a whole URL. So a look-alike such
// as 123456789123.dkr.ecr.eu-west-1.amazonaws.com.example.org is not accepted:
//
//	r, err := endpoint.ParseECR("oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app")
//	// r.Partition is "aws", r.Account "123456789123", r.Region "eu-west-1"
//
// Each cloud has its tables (awsdata.go, azuredata.go, gcpdata.go) and its parsers:
//
//   - AWS: [ParseECR], [ParseSTS], [ParseS3] and [ParseKMSKey]
//   - Azure: [ParseACR], [ParseBlobEndpoint] and [ParseVaultKey]
//   - Google Cloud: [ParseGAR], [ParseGCS] and [ParseCloudKMSKey]
//
// A file that SOPS encrypted names the keys that decrypt it. [ParseKMSKey], [ParseVaultKey] and
// [ParseCloudKMSKey] parse these names. A name can choose the region of AWS or the vault of Azure.
// It cannot choose another domain.
//
// An [Allowed] is the list of hosts that an administrator sets with --allowed-endpoint-hosts. Its
// methods ParseSTS and ParseS3 accept these hosts in addition to the tables.
//
// A tenant's host can resolve to an address inside the cluster. A [Guard] therefore checks the
// address of each connection when it is dialled. It refuses loopback, link-local and metadata
// addresses, and the ranges of --deny-cidrs, which are private ranges by default.
//
// A region is recognized by the form of its name, because clouds open regions more often than
// programs are released. A new partition needs an entry in the table of awsdata.go. A test against
// the AWS SDK's own table fails until the entry exists.
package endpoint
