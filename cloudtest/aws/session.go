package aws

import (
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// keepExpired is how long an expired session or token is remembered, so that its user hears "expired" and not "unknown".
const keepExpired = time.Hour

// session is an assumed role. It is immutable.
type session struct {
	accessKeyID, secret, token string
	issued, expires            time.Time

	account, partition string
	roleName, roleID   string
	roleARN            string
	name               string // the session name
	policies           []policy.Document
	tags               map[string]string
	transitive         []string // tag keys that chained sessions inherit
	sourceIdentity     string
	federated          string // ARN of the OIDC provider that vouched, empty for AssumeRole
}

// arn is the session's own ARN. It has the role's name, not its path. Source: IAM User Guide, "IAM identifiers".
func (s *session) arn() string {
	return "arn:" + s.partition + ":sts::" + s.account + ":assumed-role/" + s.roleName + "/" + s.name
}

// expiring is a store whose entries are forgotten some time after they have expired. Its zero value is empty. It is not safe for concurrent use.
type expiring[K comparable, V any] struct {
	entries map[K]expiringEntry[V]
	sweepAt int // the size at which expired entries are looked for
}

type expiringEntry[V any] struct {
	value   V
	expires time.Time
}

func (e *expiring[K, V]) put(key K, value V, expires, now time.Time) {
	if e.entries == nil {
		e.entries, e.sweepAt = map[K]expiringEntry[V]{}, 1024
	}
	if len(e.entries) >= e.sweepAt {
		for k, old := range e.entries {
			if old.expires.Add(keepExpired).Before(now) {
				delete(e.entries, k)
			}
		}
		e.sweepAt = max(1024, 2*len(e.entries))
	}
	e.entries[key] = expiringEntry[V]{value, expires}
}

func (e *expiring[K, V]) get(key K) (V, bool) {
	entry, ok := e.entries[key]
	return entry.value, ok
}

type (
	sessionStore = expiring[string, *session] // by access key ID
	tokenStore   = expiring[[sha256.Size]byte, registryToken]
)

// registryToken is what ECR's GetAuthorizationToken gave out.
type registryToken struct {
	who     principal
	service string // ServiceRegistry, ServicePublicRegistry or bearerOfPublic
	region  string
	expires time.Time
}

// newID makes an AWS unique ID: a prefix for its kind and 17 random capital letters and digits. Source: IAM User Guide, "Unique identifiers".
func newID(prefix string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	raw := wire.Random(17)
	for i, b := range raw {
		raw[i] = alphabet[int(b)%len(alphabet)]
	}
	return prefix + string(raw)
}

func newSecret(bytes int) string { return base64.StdEncoding.EncodeToString(wire.Random(bytes)) }
