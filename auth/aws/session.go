package aws

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// maxSessionName is the maximum length of a RoleSessionName, which may contain only the characters
// [\w+=,.@-]. Source: AWS STS API reference, AssumeRoleWithWebIdentity.
const maxSessionName = 64

// sessionName returns the name of a subject's sessions in CloudTrail: <name>.<namespace>, plus
// @<kind> for a subject other than a ServiceAccount. [FitSessionName] shortens a long name to
// <hash>=<end of the name>. Two subjects never share a name. A namespace has no dot, so the last
// dot separates the name from the namespace. No Kubernetes name contains "@" or "=", so only
// Lanyard adds these two.
func sessionName(subject auth.Subject) string {
	name := subject.Name() + "." + subject.Namespace()
	if subject.Kind() != auth.KindServiceAccount {
		name += "@" + string(subject.Kind())
	}
	return FitSessionName(name)
}

// FitSessionName returns a session name that AWS accepts. A name of more than 64 characters becomes
// a hash and the end of the name. The end remains, because Lanyard's names end with the tenant,
// which the cloud's audit log must show.
func FitSessionName(name string) string {
	if len(name) <= maxSessionName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	// 128 bits, so that nobody finds a second name with the same hash.
	hash := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
	return hash + "=" + name[len(name)-maxSessionName+len(hash)+1:]
}
