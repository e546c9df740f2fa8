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

// sessionName returns the name of a subject's sessions in CloudTrail: <name>.<namespace>, or its
// beginning and a hash if it is too long. Two subjects never share a name. A namespace has no dot,
// so the last dot separates. No Kubernetes name contains "@" or "=", so the text after these
// characters is always ours.
func sessionName(subject auth.Subject) string {
	name := subject.Name() + "." + subject.Namespace()
	if subject.Kind() != auth.KindServiceAccount {
		name += "@" + string(subject.Kind())
	}
	return fitSessionName(name)
}

// fitSessionName returns the name, or its beginning and a hash if it is too long.
func fitSessionName(name string) string {
	if len(name) <= maxSessionName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	// 128 bits, so that nobody finds a second name with the same hash.
	hash := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
	return name[:maxSessionName-len(hash)-1] + "=" + hash
}
