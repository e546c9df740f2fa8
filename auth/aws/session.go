package aws

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// maxSessionName is the limit of RoleSessionName; its characters are [\w+=,.@-]. Source: AWS STS API reference,
// AssumeRoleWithWebIdentity.
const maxSessionName = 64

// sessionName names a subject's sessions in CloudTrail: <name>.<namespace> where that fits, otherwise as much of it as does
// and a hash. Two subjects never share one, whatever their names: a namespace has no dot, so that the last one separates; "@"
// and "=" are in no Kubernetes name, so that what follows them is always ours.
func sessionName(subject auth.Subject) string {
	name := subject.Name() + "." + subject.Namespace()
	if subject.Kind() != auth.KindServiceAccount {
		name += "@" + string(subject.Kind())
	}
	if len(name) <= maxSessionName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	// 128 bits, so that nobody finds a second name with the same hash.
	hash := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
	return name[:maxSessionName-len(hash)-1] + "=" + hash
}
