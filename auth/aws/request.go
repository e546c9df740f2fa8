package aws

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// SessionRequest describes the session that an identity requests. It is for subjects other than
// ServiceAccounts and WorkloadIdentities, such as a cluster-scoped identity that an administrator
// lends to namespaces. [SessionRequest.Attributes] returns the attributes for the [auth.Account].
// The account's Fingerprint must cover all of them. The fields are parameters of AssumeRole and
// AssumeRoleWithWebIdentity; their limits are those of the AWS STS API reference.
type SessionRequest struct {
	// Source decides which proof the Prover must return. If Source is empty, the proof is a JWT.
	// Otherwise the proof is the source session, in the form [auth.FormToken]. The access keys of
	// the source session sign the request for the new session. The value of Source is the name of
	// the source session in errors.
	Source string
	// RoleARN is the ARN of the role to assume. If it is empty and Source is set, the token is the
	// source session itself. AWS needs at least one of the two.
	RoleARN string
	// Name is the name of the session. A name of more than 64 characters is replaced by a hash and
	// the end of the name. Default: a name made of the subject's name.
	Name string
	// Duration is the lifetime of the session. Default [SessionDuration]. AWS limits it to an hour
	// if the source is itself a role's session.
	Duration time.Duration
	// Policy is a session policy in JSON; empty for none.
	Policy string
	// PolicyARNs are managed policies that bound the session; at most ten.
	PolicyARNs []string

	// ExternalID is the external ID; empty for none. ExternalID and the next three fields need a
	// Source.
	ExternalID string
	// SourceIdentity is the source identity; empty for none.
	SourceIdentity string
	// Tags are session tags.
	Tags map[string]string
	// TransitiveTags are the keys of tags that chained sessions inherit.
	TransitiveTags []string

	// Audiences are the audiences of the JWT. Default: sts.amazonaws.com.
	Audiences []string
	// ProofLifetime is how long the JWT is valid. Default: [auth.ProofLifetime].
	ProofLifetime time.Duration
}

// Names of attributes. Each, except source, is also the name of a field in the spec of an
// AWSClusterRoleIdentity or an AWSServiceAccountIdentity.
const (
	attributeSource         = "source"
	attributeRole           = "roleARN"
	attributeDuration       = "durationSeconds"
	attributePolicy         = "inlinePolicy"
	attributePolicyARNs     = "policyARNs"
	attributeExternalID     = "externalID"
	attributeSourceIdentity = "sourceIdentity"
	attributeTags           = "tags"
	attributeTransitiveTags = "transitiveTags"
	attributeAudiences      = "audiences"
	attributeProofLifetime  = "expirationSeconds"
)

// SessionNameAttribute is the key in [auth.Account].Attributes under which the account has the name
// of its session. If the subject is a WorkloadIdentity, the program that embeds this package may
// set this attribute. The tenant cannot set it.
const SessionNameAttribute = "sessionName"

// Attributes returns r in the form of [auth.Account].Attributes, with an attribute for each field
// that is set. Equal requests have equal attributes, and different requests have different ones.
// For this comparison, durations count in whole seconds, and a long Name counts in the form that
// replaces it.
func (r SessionRequest) Attributes() (map[string]string, error) {
	attributes := map[string]string{}
	set := func(name, value string) {
		if value != "" {
			attributes[name] = value
		}
	}
	seconds := func(name string, d time.Duration) {
		if d != 0 {
			attributes[name] = strconv.FormatInt(int64(d/time.Second), 10)
		}
	}
	set(attributeSource, r.Source)
	set(attributeRole, r.RoleARN)
	set(SessionNameAttribute, FitSessionName(r.Name))
	seconds(attributeDuration, r.Duration)
	set(attributePolicy, r.Policy)
	set(attributeExternalID, r.ExternalID)
	set(attributeSourceIdentity, r.SourceIdentity)
	seconds(attributeProofLifetime, r.ProofLifetime)
	if len(r.Tags) > 0 {
		tags := make(url.Values, len(r.Tags))
		for key, value := range r.Tags {
			tags.Set(key, value)
		}
		set(attributeTags, tags.Encode())
	}
	for name, values := range map[string][]string{
		attributePolicyARNs: r.PolicyARNs, attributeTransitiveTags: r.TransitiveTags, attributeAudiences: r.Audiences,
	} {
		list, err := auth.NewList(values...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		set(name, list.String())
	}
	return attributes, nil
}

// sessionRequestOf returns the session that the account requests. The annotations of a
// ServiceAccount and the providerConfig of a WorkloadIdentity can request roles only.
func sessionRequestOf(account auth.Account) (SessionRequest, error) {
	switch account.Subject.Kind() { //nolint:exhaustive // all other kinds have the attributes of a SessionRequest
	case auth.KindServiceAccount:
		return SessionRequest{}, nil
	case auth.KindWorkloadIdentity:
		return SessionRequest{Name: account.Attributes[SessionNameAttribute]}, nil
	}
	a := account.Attributes
	if len(a) > 0 && account.Fingerprint == "" {
		return SessionRequest{}, noFingerprint(account.Subject)
	}
	r := SessionRequest{
		Source: a[attributeSource], RoleARN: a[attributeRole], Name: a[SessionNameAttribute], Policy: a[attributePolicy],
		ExternalID: a[attributeExternalID], SourceIdentity: a[attributeSourceIdentity],
	}
	var errs [6]error
	r.Duration, errs[0] = parseSeconds(a[attributeDuration])
	r.ProofLifetime, errs[1] = parseSeconds(a[attributeProofLifetime])
	r.PolicyARNs, errs[2] = parseList(a[attributePolicyARNs])
	r.TransitiveTags, errs[3] = parseList(a[attributeTransitiveTags])
	r.Audiences, errs[4] = parseList(a[attributeAudiences])
	r.Tags, errs[5] = parseTags(a[attributeTags])
	if err := errors.Join(errs[:]...); err != nil {
		return SessionRequest{}, &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
			Fix: "have the AccountReader make the attributes with aws.SessionRequest",
			Err: fmt.Errorf("attributes of %s: %w", account.Subject, err),
		}
	}
	return r, nil
}

// noFingerprint returns the error for an account without a Fingerprint. An account needs one if its
// session depends on more than the identity.
func noFingerprint(subject auth.Subject) error {
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
		Fix: "have the AccountReader set the Fingerprint of the attributes with auth.Fingerprint",
		Err: fmt.Errorf("%s has attributes without a fingerprint, so that a cache could not tell two of its sessions apart", subject),
	}
}

func parseSeconds(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	seconds, err := strconv.ParseUint(text, 10, 17) // 17 bits are enough for the seconds of a day
	return time.Duration(seconds) * time.Second, err
}

func parseList(text string) ([]string, error) {
	list, err := auth.ParseList(text)
	return list.Values(), err
}

func parseTags(text string) (map[string]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil || len(values) == 0 {
		return nil, err
	}
	tags := make(map[string]string, len(values))
	for key := range values {
		tags[key] = values.Get(key)
	}
	return tags, nil
}
