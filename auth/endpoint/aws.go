package endpoint

import "strings"

// Provider is the cloud that owns a host. Its values are the values of spec.provider.
type Provider string

// AWS is Amazon Web Services, with all of its partitions.
const AWS Provider = "aws"

// Variant distinguishes a service's hosts in one region. Its zero value is the ordinary host.
type Variant struct {
	// FIPS: the host uses FIPS 140 validated cryptography.
	FIPS bool
	// DualStack: the host has both IPv6 and IPv4 addresses.
	DualStack bool
}

// AWSPartition is a group of AWS regions with its own accounts, ARNs and DNS names. It is
// comparable.
type AWSPartition struct {
	// ID is the partition's name in ARNs, such as "aws-cn".
	ID string
	// RegionPrefixes are the beginnings of the regions' names, separated by "|". A region's name is
	// <prefix>-<word>-<number>, as in regionRegex of the AWS SDK.
	RegionPrefixes string
	// DNSSuffix is the end of the names of the partition's IPv4 endpoints.
	DNSSuffix string
	// DualStackDNSSuffix is the end of the names of the partition's dual-stack API endpoints.
	DualStackDNSSuffix string
	// RegistryDualStackSuffix is the end of the names of the partition's dual-stack ECR registries.
	RegistryDualStackSuffix string
	// GlobalRegion is the region in which the partition's global services run. The AWS SDK calls it
	// implicitGlobalRegion.
	GlobalRegion string
	// GlobalSTSHost is the host of STS without a region; empty if the partition has no such host.
	GlobalSTSHost string
	// STSIsFIPS: the ordinary IPv4 hosts of STS are the FIPS hosts. There are no sts-fips hosts.
	STSIsFIPS bool
}

// AWSPartitions returns every AWS partition; the caller owns the slice.
func AWSPartitions() []AWSPartition {
	table := awsPartitions()
	return table[:]
}

// AWSRegion is a region's name together with its partition. It is comparable; its zero value is no
// region.
type AWSRegion struct {
	// Name is the region's name in lower case, such as "eu-west-1".
	Name string
	// Partition is the region's partition, which follows from the form of the region's name.
	Partition AWSPartition
}

// ParseAWSRegion returns the region with the given name. It accepts every name that has the form of
// a partition's regions, so that future regions work too. For any other name it returns an [*Error]
// with ReasonRegion. The AWS SDK would assume the partition aws.
func ParseAWSRegion(name string) (AWSRegion, error) {
	if r, ok := awsRegion(name); ok {
		return r, nil
	}
	return AWSRegion{}, &Error{
		What: "AWS region", Reason: ReasonRegion,
		Detail: quote(name) + " has the form of no AWS partition's regions",
		Fix:    `write a region such as "eu-west-1", in lower case`,
	}
}

// awsRegion returns the region with the given name, in the partition whose regions have names of
// this form.
func awsRegion(name string) (AWSRegion, bool) {
	for _, p := range awsPartitions() {
		for prefix := range strings.SplitSeq(p.RegionPrefixes, "|") {
			rest, ok := strings.CutPrefix(name, prefix+"-")
			if !ok {
				continue
			}
			// The word after the prefix has no hyphen: us-gov-west-1 does not match the prefix us.
			word, number, ok := strings.Cut(rest, "-")
			if ok && all(word, isLowerOrDigit) && all(number, isDigit) && len(name) <= maxLabel {
				return AWSRegion{Name: name, Partition: p}, true
			}
		}
	}
	return AWSRegion{}, false
}

// hasAWSSuffix reports whether the host ends, on a label boundary, in a suffix of any partition.
func hasAWSSuffix(host string) bool {
	for _, p := range awsPartitions() {
		for _, suffix := range [...]string{p.DNSSuffix, p.DualStackDNSSuffix, p.RegistryDualStackSuffix} {
			if strings.HasSuffix(host, "."+suffix) {
				return true
			}
		}
	}
	return false
}

// isAWSAccount reports whether s is an AWS account ID: twelve digits.
func isAWSAccount(s string) bool { return len(s) == 12 && all(s, isDigit) }

// all reports whether every byte of s is in the class. For an empty s, it returns false.
func all(s string, class func(byte) bool) bool {
	for i := range len(s) {
		if !class(s[i]) {
			return false
		}
	}
	return s != ""
}

func isDigit(c byte) bool        { return '0' <= c && c <= '9' }
func isLowerOrDigit(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'z' }
func isHex(c byte) bool          { return isDigit(c) || 'a' <= c && c <= 'f' }

// isWordByte reports whether c is a letter, a digit, a hyphen or an underscore.
func isWordByte(c byte) bool {
	return isLowerOrDigit(c) || 'A' <= c && c <= 'Z' || c == '-' || c == '_'
}
