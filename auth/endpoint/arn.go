package endpoint

import (
	"slices"
	"strconv"
	"strings"
)

const (
	whatRoleARN = "role ARN"
	fixRoleARN  = "write arn:aws:iam::<account>:role/<name>"
	// Limits of IAM, in bytes. Source: IAM API reference, CreateRole.
	maxRolePath, maxRoleName = 512, 64
)

// RoleARN is the ARN of an IAM role. It is comparable; its zero value is no role.
type RoleARN struct {
	// Partition is the ID of a known partition, such as "aws-cn".
	Partition string
	// Account is the account that owns the role, twelve digits.
	Account string
	// Path is the role's path: "/", or printable ASCII that begins and ends in "/". Source: IAM API
	// reference, CreateRole.
	Path string
	// Name is the role's name: 1 to 64 letters, digits and characters of _+=,.@-.
	Name string
}

// String returns the ARN as AWS writes it, which is the string that was parsed.
func (a RoleARN) String() string {
	return "arn:" + a.Partition + ":iam::" + a.Account + ":role" + a.Path + a.Name
}

// ParseRoleARN parses the ARN of a role, arn:<partition>:iam::<account>:role/[<path>/]<name>.
// Errors are [*Error] and name the part that is wrong.
func ParseRoleARN(s string) (RoleARN, error) {
	refuse := func(reason Reason, detail, fix string) (RoleARN, error) {
		return RoleARN{}, &Error{What: whatRoleARN, Reason: reason, Detail: detail, Fix: fix}
	}
	parts, err := splitARN(whatRoleARN, s, fixRoleARN)
	if err != nil {
		return RoleARN{}, err
	}
	partition, service, region, account, resource := parts[1], parts[2], parts[3], parts[4], parts[5]
	if service != "iam" {
		return refuse(ReasonService, "the service is "+quote(service)+", not iam", roleFixFor(service))
	}
	if region != "" {
		return refuse(ReasonRegion, "it names the region "+quote(region)+", but a role has no region",
			"leave the fourth part empty: arn:"+partition+":iam::…")
	}
	if !isAWSAccount(account) {
		return refuse(ReasonAccount, "the account "+quote(account)+" is not twelve digits",
			"write the account with its leading zeros and without hyphens")
	}
	path, ok := strings.CutPrefix(resource, "role")
	if !ok || !strings.HasPrefix(path, "/") {
		return refuse(ReasonResource, "the resource "+quote(resource)+" is not a role", "write role/<name> instead")
	}
	slash := strings.LastIndexByte(path, '/')
	path, name := path[:slash+1], path[slash+1:]
	switch {
	case len(path) > maxRolePath:
		return refuse(ReasonName, "the path is longer than "+strconv.Itoa(maxRolePath)+" characters", "copy the ARN from IAM")
	case !all(path, func(c byte) bool { return ' ' < c && c < 0x7f }):
		return refuse(ReasonName, "the path has a character other than printable ASCII", "copy the ARN from IAM")
	case name == "":
		return refuse(ReasonName, "it has no role name", "write the role's name after the last slash")
	case len(name) > maxRoleName:
		return refuse(ReasonName, "the role name is longer than "+strconv.Itoa(maxRoleName)+" characters", "copy the ARN from IAM")
	case !all(name, isRoleNameByte):
		return refuse(ReasonName, "the role name in "+quote(resource)+" has a character other than letters, digits and _+=,.@-",
			"copy the ARN from IAM, without spaces and line ends")
	}
	return RoleARN{Partition: partition, Account: account, Path: path, Name: name}, nil
}

// splitARN returns the six parts of an ARN. It refuses an ARN of an unknown partition. Its errors
// name the given kind of input.
func splitARN(what, arn, fix string) ([]string, error) {
	parts := strings.SplitN(arn, ":", 6)
	switch {
	case arn == "":
		return nil, &Error{What: what, Reason: ReasonEmpty, Detail: "it is empty", Fix: fix}
	case len(parts) != 6 || parts[0] != "arn":
		return nil, &Error{What: what, Reason: ReasonMalformed, Detail: "it is not an ARN of six parts", Fix: fix}
	case !isAWSPartition(parts[1]):
		return nil, &Error{
			What: what, Reason: ReasonPartition, Detail: "the partition " + quote(parts[1]) + " is unknown",
			Fix: "write one of " + partitionIDs(),
		}
	}
	return parts, nil
}

// roleFixFor returns the fix for an ARN of a service other than IAM. For an ARN of STS, the fix is
// to write the role's ARN, not the session's.
func roleFixFor(service string) string {
	if service == "sts" {
		return "write the ARN of the role, arn:aws:iam::<account>:role/<name>, not the ARN of a session"
	}
	return fixRoleARN
}

func isAWSPartition(id string) bool {
	return slices.ContainsFunc(AWSPartitions(), func(p AWSPartition) bool { return p.ID == id })
}

func partitionIDs() string {
	table := awsPartitions()
	ids := make([]string, len(table))
	for i, p := range table {
		ids[i] = p.ID
	}
	return strings.Join(ids, ", ")
}

func isRoleNameByte(c byte) bool {
	return isLowerOrDigit(c) || 'A' <= c && c <= 'Z' || strings.IndexByte("_+=,.@-", c) >= 0
}
