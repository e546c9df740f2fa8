package aws

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// stsAPI is the API of the Security Token Service.
func stsAPI() queryAPI {
	return queryAPI{
		version: "2011-06-15", namespace: "https://sts.amazonaws.com/doc/2011-06-15/",
		operations: map[string]operation{
			"AssumeRole":                {do: (*Cloud).assumeRole},
			"AssumeRoleWithWebIdentity": {do: (*Cloud).assumeRoleWithWebIdentity, unsigned: true},
			"GetCallerIdentity":         {do: (*Cloud).callerIdentity},
		},
	}
}

// Limits of STS's parameters. Source: AWS STS API Reference.
const (
	minDuration      = 900
	maxDuration      = 43200
	defaultDuration  = 3600
	chainedDuration  = 3600
	maxSessionPolicy = 2048
)

// callerIdentity is the result of GetCallerIdentity.
type callerIdentity struct {
	Arn     string
	UserID  string `xml:"UserId"`
	Account string
}

func (*Cloud) callerIdentity(call *apiCall) (any, *service.Refusal) {
	return callerIdentity{Arn: call.who.arn(), UserID: call.who.id(), Account: call.who.account}, nil
}

// sessionRequest has the common parameters of AssumeRole and AssumeRoleWithWebIdentity.
type sessionRequest struct {
	arn      string
	role     roleARN
	name     string
	duration int
	policy   string
	arns     []string
}

// readSessionRequest reads and checks the common parameters. The caller reads the other parameters
// and then calls check.
func readSessionRequest(call *apiCall) sessionRequest {
	p := call.params
	s := sessionRequest{
		arn:      p.text("RoleArn", limits{required: true, min: 20, max: 2048}),
		name:     p.text("RoleSessionName", limits{required: true, min: 2, max: 64, pattern: sessionPattern}),
		duration: p.seconds("DurationSeconds", minDuration, maxDuration, defaultDuration),
		policy:   p.text("Policy", limits{min: 1, max: maxSessionPolicy}),
		arns:     p.list("PolicyArns", ".arn", 10),
	}
	call.Call.Role, call.Call.Session = s.arn, s.name
	return s
}

// check refuses invalid parameters. The caller must read all parameters before it calls check.
func (s *sessionRequest) check(call *apiCall) *service.Refusal {
	if refusal := call.params.refusal(); refusal != nil {
		return refusal
	}
	var ok bool
	if s.role, ok = parseRoleARN(s.arn); !ok {
		return validation("Request ARN is invalid")
	}
	if s.role.partition != call.ep.partition {
		return validation("Request ARN is invalid").
			Because("the role is of partition " + s.role.partition + ", the endpoint of " + call.ep.partition)
	}
	return nil
}

// find returns the requested role. The path in the ARN must be the role's path.
func (c *Cloud) find(a roleARN, arn string) (role, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	acc := c.account(a.account)
	r := acc.roles[a.name]
	if r == nil || acc.partition.id != a.partition || r.arn != arn {
		return role{}, false
	}
	return *r, true
}

// sessionPolicies returns the policies that limit the session, and their packed size in percent of
// STS's limit.
func (c *Cloud) sessionPolicies(s sessionRequest) ([]policy.Document, int, *service.Refusal) {
	var docs []policy.Document
	size := 0
	if s.policy != "" {
		doc, refusal := readDocument(policy.Permissions, s.role.partition, []byte(s.policy))
		if refusal != nil {
			return nil, 0, refusal
		}
		docs = append(docs, doc)
		size = packedSize(s.policy)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, arn := range s.arns {
		doc, ok := c.account(s.role.account).managed[arn]
		if !ok {
			return nil, 0, validation("PolicyArns has an ARN that is not a managed policy of account " + s.role.account)
		}
		docs = append(docs, doc)
		size += packedSize(arn)
	}
	if size > 100 {
		return nil, 0, service.Refuse(http.StatusBadRequest, "PackedPolicyTooLarge",
			fmt.Sprintf("Packed policy consumes %d%% of allotted space, please use smaller policy.", size))
	}
	return docs, size, nil
}

// packedSize returns the size of a policy or an ARN, in percent of STS's limit. The size is an
// estimate, because AWS does not document how STS packs policies.
func packedSize(s string) int { return (len(s)*100 + maxSessionPolicy - 1) / maxSessionPolicy }

// start opens a session of a role. The caller must have checked that the role may be assumed. The
// caller must also have set those fields of s that differ between AssumeRole and
// AssumeRoleWithWebIdentity.
func (c *Cloud) start(req sessionRequest, r role, s session, now time.Time) (*session, *service.Refusal) {
	if req.duration > r.maxSession {
		return nil, validation("The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	}
	var refusal *service.Refusal
	if s.policies, s.packed, refusal = c.sessionPolicies(req); refusal != nil {
		return nil, refusal
	}
	s.accessKeyID = newID("ASIA")[:20]
	s.secret = newSecretKey()
	s.token = "IQoJb3JpZ2luX2Vj" + newSecret(300)
	s.issued = now.UTC().Truncate(time.Second)
	s.expires = s.issued.Add(time.Duration(req.duration) * time.Second)
	s.account, s.partition, s.roleName, s.roleID, s.roleARN = req.role.account, req.role.partition, r.name, r.id, r.arn
	s.name = req.name
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions.Put(s.accessKeyID, &s, s.expires, now)
	return &s, nil
}

type credentialsXML struct {
	AccessKeyID     string `xml:"AccessKeyId"`
	SecretAccessKey string
	SessionToken    string
	Expiration      string
}

func (s *session) credentials() credentialsXML {
	return credentialsXML{
		AccessKeyID: s.accessKeyID, SecretAccessKey: s.secret, SessionToken: s.token,
		Expiration: s.expires.Format("2006-01-02T15:04:05Z"),
	}
}

type assumedRoleXML struct {
	AssumedRoleID string `xml:"AssumedRoleId"`
	Arn           string
}

func (s *session) assumedRole() assumedRoleXML {
	return assumedRoleXML{AssumedRoleID: s.roleID + ":" + s.name, Arn: s.arn()}
}

// federatedARN returns the ARN of an account's OIDC provider.
func federatedARN(partition, account, issuer string) string {
	return "arn:" + partition + ":iam::" + account + ":oidc-provider/" + strings.TrimPrefix(issuer, "https://")
}
