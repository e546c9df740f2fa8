package aws

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

const stsVersion = "2011-06-15"

// STS operations of the local AWS.
const (
	opAssumeRole                = "AssumeRole"
	opAssumeRoleWithWebIdentity = "AssumeRoleWithWebIdentity"
	opGetCallerIdentity         = "GetCallerIdentity"
)

// Limits of STS's parameters. Source: AWS STS API Reference.
const (
	minDuration      = 900
	maxDuration      = 43200
	defaultDuration  = 3600
	chainedDuration  = 3600
	maxSessionPolicy = 2048
)

type metadata struct {
	RequestID string `xml:"RequestId"`
}

func (c *Cloud) serveSTS(w http.ResponseWriter, r *http.Request, ep endpoint, call *journal.Call) {
	body, refusal := readBody(w, r)
	if refusal == nil && r.URL.Path != "/" && r.URL.Path != "" {
		refusal = refused(http.StatusNotFound, "UnknownOperationException", "")
	}
	var p *params
	if refusal == nil {
		p, refusal = readParams(r, body)
	}
	if refusal == nil {
		action := p.get("Action")
		switch action {
		case opAssumeRole, opAssumeRoleWithWebIdentity, opGetCallerIdentity:
			call.Operation = action
			if p.get("Version") != stsVersion {
				refusal = noOperation(action, p.get("Version"))
			}
		case "":
			refusal = refused(http.StatusBadRequest, "MissingAction", "The request is missing an action or a required parameter.")
		default:
			refusal = noOperation(action, p.get("Version"))
		}
	}
	now, ok := c.begin(r.Context(), w, queryXML{}, call)
	if !ok {
		return
	}
	if refusal != nil {
		queryXML{}.refuse(w, call, refusal)
		return
	}
	var answer any
	id := wire.UUID()
	switch call.Operation {
	case opAssumeRoleWithWebIdentity:
		answer, refusal = c.assumeRoleWithWebIdentity(r.Context(), p, ep, call, now, id)
	default:
		var who principal
		if who, refusal = c.authenticate(r, body, ep, now); refusal != nil {
			break
		}
		call.Principal = who.arn()
		if call.Operation == opAssumeRole {
			answer, refusal = c.assumeRole(who, p, ep, call, now, id)
		} else {
			answer = callerIdentity(who, id)
		}
	}
	if refusal != nil {
		queryXML{}.refuse(w, call, refusal)
		return
	}
	writeXML(w, http.StatusOK, id, answer)
}

func noOperation(action, version string) *apiError {
	if version == "" {
		version = "NO_VERSION_SPECIFIED"
	}
	return refused(http.StatusBadRequest, "InvalidAction", "Could not find operation "+action+" for version "+version)
}

type callerIdentityResponse struct {
	XMLName xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ GetCallerIdentityResponse"`
	Result  struct {
		Arn     string
		UserID  string `xml:"UserId"`
		Account string
	} `xml:"GetCallerIdentityResult"`
	Metadata metadata `xml:"ResponseMetadata"`
}

func callerIdentity(who principal, id string) callerIdentityResponse {
	var out callerIdentityResponse
	out.Result.Arn, out.Result.UserID, out.Result.Account = who.arn(), who.id(), who.account
	out.Metadata.RequestID = id
	return out
}

// sessionRequest is what the two ways of assuming a role have in common.
type sessionRequest struct {
	arn      string
	role     roleARN
	name     string
	duration int
	policy   string
	arns     []string
}

// readSessionRequest checks what it reads; the caller goes on reading and then asks p.refusal.
func readSessionRequest(p *params, call *journal.Call) sessionRequest {
	s := sessionRequest{
		arn:      p.text("RoleArn", limits{required: true, min: 20, max: 2048}),
		name:     p.text("RoleSessionName", limits{required: true, min: 2, max: 64, pattern: sessionPattern}),
		duration: p.seconds("DurationSeconds", minDuration, maxDuration, defaultDuration),
		policy:   p.text("Policy", limits{min: 1, max: maxSessionPolicy}),
		arns:     p.list("PolicyArns", ".arn", 10),
	}
	call.Role, call.Session = s.arn, s.name
	return s
}

// check is called once all parameters are read.
func (s *sessionRequest) check(p *params, ep endpoint) *apiError {
	if refusal := p.refusal(); refusal != nil {
		return refusal
	}
	var ok bool
	if s.role, ok = parseRoleARN(s.arn); !ok {
		return validation("Request ARN is invalid")
	}
	if s.role.partition != ep.partition {
		return validation("Request ARN is invalid").because("the role is of partition " + s.role.partition + ", the endpoint of " + ep.partition)
	}
	return nil
}

// find returns the role that is asked for. A wrong path is a wrong role.
func (c *Cloud) find(a roleARN, arn string) (role, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	acc := c.accounts[a.account]
	if acc == nil || acc.partition.id != a.partition {
		return role{}, false
	}
	r := acc.roles[a.name]
	if r == nil || r.arn != arn {
		return role{}, false
	}
	return *r, true
}

// sessionPolicies reads what is to narrow the session.
func (c *Cloud) sessionPolicies(s sessionRequest) ([]policy.Document, int, *apiError) {
	var docs []policy.Document
	size := 0
	if s.policy != "" {
		doc, err := policy.Parse(policy.Permissions, []byte(s.policy))
		if err == nil {
			err = doc.CheckPartition(s.role.partition)
		}
		if err != nil {
			return nil, 0, refused(http.StatusBadRequest, "MalformedPolicyDocument", "The policy document is malformed: "+err.Error())
		}
		docs = append(docs, doc)
		size = packedSize(s.policy)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, arn := range s.arns {
		doc, ok := c.accounts[s.role.account].managed[arn]
		if !ok {
			return nil, 0, validation("PolicyArns has an ARN that is not a managed policy of account " + s.role.account)
		}
		docs = append(docs, doc)
		size += packedSize(arn)
	}
	if size > 100 {
		return nil, 0, refused(http.StatusBadRequest, "PackedPolicyTooLarge",
			fmt.Sprintf("Packed policy consumes %d%% of allotted space, please use smaller policy.", size))
	}
	return docs, size, nil
}

// packedSize estimates the share of STS's limit in percent; AWS does not say how it packs.
func packedSize(s string) int { return (len(s)*100 + maxSessionPolicy - 1) / maxSessionPolicy }

// open stores a new session of a role.
func (c *Cloud) open(s session, r role, a roleARN, duration int, now time.Time) *session {
	s.accessKeyID = newID("ASIA")[:20]
	s.secret = newSecret(30)
	s.token = "IQoJb3JpZ2luX2Vj" + newSecret(300)
	s.issued = now.UTC().Truncate(time.Second)
	s.expires = s.issued.Add(time.Duration(duration) * time.Second)
	s.account, s.partition, s.roleName, s.roleID, s.roleARN = a.account, a.partition, r.name, r.id, r.arn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions.put(s.accessKeyID, &s, s.expires, now)
	return &s
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

// federatedARN is the ARN of an account's OIDC provider.
func federatedARN(partition, account, issuer string) string {
	return "arn:" + partition + ":iam::" + account + ":oidc-provider/" + strings.TrimPrefix(issuer, "https://")
}
