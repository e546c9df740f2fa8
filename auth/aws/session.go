package aws

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// maxSessionName is the limit of RoleSessionName; its characters are [\w+=,.@-]. Source: AWS STS
// API reference, AssumeRoleWithWebIdentity.
const maxSessionName = 64

// sessionName returns the name of a subject's sessions in CloudTrail: <name>.<namespace>, or a hash
// and its end if it is too long. Two subjects never share a name. A namespace has no dot, so the
// last dot separates. No Kubernetes name contains "@" or "=", so these characters are always ours.
func sessionName(subject auth.Subject) string {
	name := subject.Name() + "." + subject.Namespace()
	if subject.Kind() != auth.KindServiceAccount {
		name += "@" + string(subject.Kind())
	}
	return FitSessionName(name)
}

// FitSessionName returns the name of a session as AWS accepts it: the name itself, or a hash and its
// end if it has more than 64 characters. All names that Lanyard makes end with the tenant, whom the
// cloud's audit log must show.
func FitSessionName(name string) string {
	if len(name) <= maxSessionName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	// 128 bits, so that nobody finds a second name with the same hash.
	hash := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
	return hash + "=" + name[len(name)-maxSessionName+len(hash)+1:]
}
