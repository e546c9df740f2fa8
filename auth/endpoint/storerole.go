package endpoint

import "strings"

const (
	whatStoreRole = "role ARN of a store"
	fixStoreRole  = "write arn:minio:iam:::role/<id>, as the server's log or its administrator says"
	// maxStoreRole bounds the ARN of a store's role, in bytes. Source: AWS STS API reference,
	// AssumeRoleWithWebIdentity, RoleArn.
	maxStoreRole = 2048
)

// ParseStoreRoleARN checks the ARN of a role at an S3-compatible store with its own security token
// service. Such a role belongs to no account:
//
//	arn:minio:iam:<region>::role/<id>     MinIO; the region is the server's, and usually empty
//	arn:aws:iam:::role/[<path>/]<name>    Ceph
//
// Errors are [*Error] and name the part that is wrong. Sources: MinIO, internal/arn; Ceph Object
// Gateway, "STS in Ceph".
func ParseStoreRoleARN(s string) error {
	refuse := func(reason Reason, detail, fix string) error {
		return &Error{What: whatStoreRole, Reason: reason, Detail: detail, Fix: fix}
	}
	parts := strings.SplitN(s, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || len(s) > maxStoreRole {
		return refuse(ReasonMalformed, "it is not an ARN of six parts", fixStoreRole)
	}
	partition, service, region, account, resource := parts[1], parts[2], parts[3], parts[4], parts[5]
	id, ok := strings.CutPrefix(resource, "role/")
	switch {
	case partition != "minio" && partition != "aws":
		return refuse(ReasonPartition, "the partition "+quote(partition)+" is neither minio nor aws", fixStoreRole)
	case service != "iam":
		return refuse(ReasonService, "the service is "+quote(service)+", not iam", fixStoreRole)
	case region != "" && (partition == "aws" || !all(region, isStoreRegionByte)):
		return refuse(ReasonRegion, "it names the region "+quote(region), "leave the fourth part empty")
	case account != "":
		return refuse(ReasonAccount, "it names the account "+quote(account)+", but a store has no accounts", "leave the fifth part empty")
	case !ok:
		return refuse(ReasonResource, "the resource "+quote(resource)+" is not a role", "write role/<id> instead")
	case !all(id, func(c byte) bool { return c == '/' || isRoleNameByte(c) }):
		return refuse(ReasonName, "the role in "+quote(resource)+" is empty or has a character other than letters, digits and _+=,.@-/", fixStoreRole)
	}
	return nil
}

func isStoreRegionByte(c byte) bool {
	return isLowerOrDigit(c) || 'A' <= c && c <= 'Z' || c == '-' || c == '_'
}
