package aws

import (
	"encoding/base64"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// session is an assumed role. It is immutable.
type session struct {
	accessKeyID, secret, token string
	issued, expires            time.Time

	account, partition string
	roleName, roleID   string
	roleARN            string
	name               string // the session name
	policies           []policy.Document
	packed             int // size of the policies, in percent of STS's limit
	tags               map[string]string
	transitive         []string // tag keys that chained sessions inherit
	sourceIdentity     string
	federated          string // ARN of the token's OIDC provider; empty for AssumeRole
}

// arn returns the session's own ARN. It has the role's name, without the role's path. Source: IAM
// User Guide, "IAM identifiers".
func (s *session) arn() string {
	return "arn:" + s.partition + ":sts::" + s.account + ":assumed-role/" + s.roleName + "/" + s.name
}

// registryToken is a token from ECR's GetAuthorizationToken.
type registryToken struct {
	who     principal
	service string // ServiceRegistry, ServicePublicRegistry or bearerOfPublic
	region  string
	expires time.Time
}

// newID makes an AWS unique ID: a prefix for its kind and 17 random capital letters and digits.
// Source: IAM User Guide, "Unique identifiers".
func newID(prefix string) string {
	return prefix + wire.Text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 17)
}

// SessionSecretPrefix begins the secret access key of each session. Tests recognise such a key by
// the prefix. At AWS the key has no prefix.
const SessionSecretPrefix = "cloudtestKey"

// newSecretKey makes the secret access key of a session. The key has 40 characters, as at AWS.
func newSecretKey() string { return SessionSecretPrefix + newSecret(21) }

func newSecret(bytes int) string { return base64.StdEncoding.EncodeToString(wire.Random(bytes)) }
