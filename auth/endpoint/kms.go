package endpoint

import (
	"slices"
	"strconv"
	"strings"
)

const (
	whatKMSKey = "KMS key"
	fixKMSKey  = "write arn:aws:kms:<region>:<account>:key/<ID> or arn:aws:kms:<region>:<account>:alias/<name>"
	// maxKMSAlias bounds alias/<name>, in bytes. Source: AWS KMS API reference, CreateAlias,
	// AliasName.
	maxKMSAlias = 256
	// kmsMultiRegion is the beginning of the ID of a multi-Region key. kmsMultiRegionHex is the
	// number of digits after it. Source: AWS KMS developer guide, "Multi-Region keys in AWS KMS".
	kmsMultiRegion    = "mrk-"
	kmsMultiRegionHex = 32
)

// KMSKey is the ARN of a key of AWS KMS, or of an alias. It is comparable; its zero value is no
// key.
type KMSKey struct {
	// Region is the key's region. The region's partition is also the ARN's.
	Region AWSRegion
	// Account is the account that owns the key, twelve digits.
	Account string
	// Resource is key/<ID> or alias/<name>.
	Resource string
}

// String returns the ARN as AWS writes it, which is the string that was parsed.
func (k KMSKey) String() string {
	return "arn:" + k.Region.Partition.ID + ":kms:" + k.Region.Name + ":" + k.Account + ":" + k.Resource
}

// Host returns the host of KMS in the key's region in the given variant, as the AWS SDK resolves
// it. No text of the ARN but the region's name is part of the host.
func (k KMSKey) Host(v Variant) string { return k.Region.kmsHost(v) }

// ParseKMSKey parses the ARN of a key, arn:<partition>:kms:<region>:<account>:key/<ID>. The ID is a
// UUID, or mrk-<32 hexadecimal digits> for a multi-Region key. In the ARN of an alias, alias/<name>
// stands in place of key/<ID>. Errors are [*Error] and name the part that is wrong.
//
// The region must have the form of the partition's regions, as in [ParseAWSRegion]. SOPS takes any
// text as the region. Sources: AWS KMS API reference, CreateAlias; AWS KMS developer guide, "Key
// identifiers (KeyId)".
func ParseKMSKey(arn string) (KMSKey, error) {
	refuse := func(reason Reason, detail, fix string) (KMSKey, error) {
		return KMSKey{}, &Error{What: whatKMSKey, Reason: reason, Detail: detail, Fix: fix}
	}
	parts, err := splitARN(whatKMSKey, arn, fixKMSKey)
	if err != nil {
		return KMSKey{}, err
	}
	partition, service, name, account, resource := parts[1], parts[2], parts[3], parts[4], parts[5]
	region, isRegion := awsRegion(name)
	switch {
	case service != "kms":
		return refuse(ReasonService, "the service is "+quote(service)+", not kms", fixKMSKey)
	case !isRegion:
		return refuse(ReasonRegion, "the region "+quote(name)+" has the form of no AWS partition's regions", "copy the ARN from AWS KMS")
	case region.Partition.ID != partition:
		return refuse(ReasonPartition, "the region "+name+" belongs to the partition "+region.Partition.ID+", not to "+partition,
			"write arn:"+region.Partition.ID+":kms:"+name+":…, or a region of "+partition)
	case !isAWSAccount(account):
		return refuse(ReasonAccount, "the account "+quote(account)+" is not twelve digits",
			"write the account with its leading zeros and without hyphens")
	}
	kind, id, _ := strings.Cut(resource, "/")
	switch {
	case kind == "key" && !isKMSKeyID(id):
		return refuse(ReasonName, "the ID in "+quote(resource)+" is neither a UUID nor "+kmsMultiRegion+" and "+
			strconv.Itoa(kmsMultiRegionHex)+" hexadecimal digits, in lower case", "copy the ARN from AWS KMS")
	case kind == "alias" && (len(resource) > maxKMSAlias || !all(id, func(c byte) bool { return isWordByte(c) || c == '/' })):
		return refuse(ReasonName, quote(resource)+" is not alias/ and letters, digits and characters of /_-, "+
			strconv.Itoa(maxKMSAlias)+" in all", "copy the ARN from AWS KMS")
	case kind != "key" && kind != "alias":
		return refuse(ReasonResource, "the resource "+quote(resource)+" is neither a key nor an alias", fixKMSKey)
	}
	return KMSKey{Region: region, Account: account, Resource: resource}, nil
}

func isKMSKeyID(id string) bool {
	if digits, ok := strings.CutPrefix(id, kmsMultiRegion); ok {
		return len(digits) == kmsMultiRegionHex && all(digits, isHex)
	}
	uuid, err := ParseGUID(id)
	return err == nil && uuid == id
}

// kmsHost returns the host of KMS in the region in the given variant. Source: the AWS SDK's own
// rules for KMS.
func (r AWSRegion) kmsHost(v Variant) string {
	service, suffix := "kms", r.Partition.DNSSuffix
	if v.FIPS {
		service = "kms-fips"
	}
	if v.DualStack {
		suffix = r.Partition.DualStackDNSSuffix
	}
	return service + "." + r.Name + "." + suffix
}

// isKMSHost reports whether the host is KMS's own in some region and variant.
func isKMSHost(host string) bool {
	_, rest, _ := strings.Cut(host, ".")
	name, _, _ := strings.Cut(rest, ".")
	region, ok := awsRegion(name)
	variants := []Variant{{}, {FIPS: true}, {DualStack: true}, {FIPS: true, DualStack: true}}
	return ok && slices.ContainsFunc(variants, func(v Variant) bool { return host == region.kmsHost(v) })
}
