package endpoint

import "strings"

const (
	whatS3 = "S3 endpoint"
	fixS3  = "write s3.<region>.amazonaws.com, or its partition's suffix in place of amazonaws.com"
)

// s3GlobalHost is the host of S3 without a region. It serves us-east-1, and redirects requests for
// buckets of other regions.
const s3GlobalHost = "s3.amazonaws.com"

// S3 is an endpoint of Amazon S3, or an endpoint that an administrator listed. It is comparable;
// its zero value is no endpoint.
type S3 struct {
	// Host is the endpoint's DNS name in lower case. It can be an IP address if the field Listed is
	// true.
	Host string
	// Port is empty for 443. It can be another port only if the field Listed is true.
	Port string
	// Partition is the ID of the partition, such as "aws-cn". It is empty if the field Listed is
	// true.
	Partition string
	// Region is the endpoint's region, or us-east-1 for the global endpoint. Requests are signed
	// for this region. Region is empty if the field Listed is true.
	Region string
	// Global: the endpoint belongs to no region.
	Global bool
	// Listed: the host is not a host of AWS, but an administrator listed it (see [Allowed]).
	Listed bool
	// Variant distinguishes FIPS and dual-stack hosts.
	Variant
}

// String returns the endpoint as host[:port].
func (s S3) String() string {
	return location{host: s.Host, port: s.Port}.String()
}

// BucketHost returns the host[:port] that requests for the bucket go to. At AWS this is
// <bucket>.<endpoint> if the bucket's name is a single DNS label. AWS's certificates cover only
// such hosts. For any other bucket, and if the field Listed is true, it is the endpoint's own host.
func (s S3) BucketHost(bucket string) string {
	if s.Listed || len(bucket) > maxLabel || !all(bucket, func(c byte) bool { return isLowerOrDigit(c) || c == '-' }) {
		return s.String()
	}
	return bucket + "." + s.String()
}

// ParseS3 parses an S3 endpoint, written as host or https://host. The host must be a host of S3 in
// one of the partitions: regional, dual-stack, FIPS or global. Errors are [*Error], with ReasonHost
// if AWS does not own the host, or if the host begins with a bucket's name.
//
// Interface endpoints (AWS PrivateLink), accelerated endpoints, and endpoints of access points and
// directory buckets are refused. Source: AWS General Reference, "Amazon S3 endpoints and quotas",
// and the AWS SDK's own rules for S3.
func ParseS3(endpoint string) (S3, error) {
	var none Allowed
	return none.ParseS3(endpoint)
}

// ParseS3 is like the function [ParseS3], but also accepts a host[:port] of the list.
func (a *Allowed) ParseS3(endpoint string) (S3, error) {
	loc, err := parseHost(whatS3, endpoint)
	if err != nil {
		return S3{}, err
	}
	s, err := awsS3(loc)
	if err != nil && a.Contains(loc.authority()) {
		return S3{Host: loc.host, Port: loc.ownPort(), Listed: true}, nil
	}
	return s, err
}

// S3Host returns the host of the region's S3 endpoint in the given variant, as the AWS SDK resolves
// it.
func (r AWSRegion) S3Host(v Variant) string {
	for _, f := range s3Forms() {
		if f.Variant == v {
			return f.prefix + r.Name + "." + r.Partition.DNSSuffix
		}
	}
	return "" // never reached: each variant has a form
}

// awsS3 returns the S3 endpoint at the location, which must be a host of S3 at port 443.
func awsS3(loc location) (S3, error) {
	refuse := func(reason Reason, detail, fix string) (S3, error) {
		return S3{}, &Error{What: whatS3, Reason: reason, Detail: detail, Fix: fix}
	}
	s, ok := s3Host(loc.host)
	if !ok {
		for _, rest, more := strings.Cut(loc.host, "."); more; _, rest, more = strings.Cut(rest, ".") {
			if _, ok := s3Host(rest); ok {
				return refuse(ReasonHost, quote(loc.host)+" has a bucket's name before the endpoint",
					"write "+rest+", and the bucket's name in its own field")
			}
		}
		return refuse(ReasonHost, quote(loc.host)+" is not an endpoint of Amazon S3", fixS3)
	}
	if loc.ownPort() != "" {
		return refuse(ReasonPort, "an S3 endpoint of AWS has no port but 443", "remove the port")
	}
	return s, nil
}

// s3Host returns the S3 endpoint with this host. It returns false if the host is not a host of S3.
func s3Host(host string) (S3, bool) {
	if host == s3GlobalHost {
		return S3{Host: host, Partition: "aws", Region: "us-east-1", Global: true}, true
	}
	form, rest, ok := cutForm(host, s3Forms())
	if !ok {
		return S3{}, false
	}
	name, suffix, _ := strings.Cut(rest, ".")
	region, ok := awsRegion(name)
	if !ok || suffix != region.Partition.DNSSuffix {
		return S3{}, false
	}
	return S3{Host: host, Partition: region.Partition.ID, Region: name, Variant: form.Variant}, true
}

// s3Forms returns the parts that can stand before the region in the host of an S3 endpoint.
// Dual-stack hosts have the same suffix as ordinary hosts, unlike in other services. Source: Amazon
// S3 user guide, "Using dual-stack endpoints", and the AWS SDK's own rules for S3.
func s3Forms() []hostForm {
	return []hostForm{
		{prefix: "s3.dualstack.", Variant: Variant{DualStack: true}},
		{prefix: "s3-fips.dualstack.", Variant: Variant{FIPS: true, DualStack: true}},
		{prefix: "s3-fips.", Variant: Variant{FIPS: true}},
		{prefix: "s3."},
	}
}
