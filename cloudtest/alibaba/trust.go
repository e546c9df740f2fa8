package alibaba

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// trustPolicy is a role's trust policy. Its zero value allows nothing. Unknown elements, operators
// and keys are errors. If they were skipped, the policy could allow more. Source: RAM, "Policy
// elements" and "Create a RAM role for a trusted IdP".
type trustPolicy struct {
	Version   string      `json:"Version"`
	Statement []statement `json:"Statement"`
}

type statement struct {
	Effect    string                      `json:"Effect"`
	Action    texts                       `json:"Action"`
	Principal principal                   `json:"Principal"`
	Condition map[string]map[string]texts `json:"Condition"`
}

type principal struct {
	Federated texts `json:"Federated"`
}

// texts is a list of texts. In JSON, a single text stands for a list of one text.
type texts []string

// UnmarshalJSON reads a single text or a list.
func (t *texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = texts{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t)) // unwrapped error, which names the field
}

// assumeRole is the action sts:AssumeRole in lower case. Every operation that assumes a role uses
// this action.
const assumeRole = "sts:assumerole"

func parseTrust(document []byte) (trustPolicy, error) {
	var t trustPolicy
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&t); err != nil {
		return trustPolicy{}, fmt.Errorf("not a trust policy: %w", err)
	}
	if t.Version != "1" || len(t.Statement) == 0 || decoder.More() {
		return trustPolicy{}, errors.New(`give one document with Version "1" and at least one Statement`)
	}
	for _, s := range t.Statement {
		if err := s.check(); err != nil {
			return trustPolicy{}, err
		}
	}
	return t, nil
}

func (s *statement) check() error {
	if s.Effect != "Allow" && s.Effect != "Deny" {
		return errors.New("the element Effect must be Allow or Deny")
	}
	if len(s.Action) != 1 || strings.ToLower(s.Action[0]) != assumeRole {
		return errors.New("the element Action must be sts:AssumeRole")
	}
	if len(s.Principal.Federated) == 0 {
		return errors.New("the element Principal must have Federated, the ARNs of OIDC providers")
	}
	for operator, keys := range s.Condition {
		if operator != "StringEquals" && operator != "StringLike" {
			return fmt.Errorf("the local cloud does not know the operator %q", operator)
		}
		for key, values := range keys {
			if !slices.Contains([]string{"oidc:iss", "oidc:aud", "oidc:sub"}, key) || len(values) == 0 {
				return fmt.Errorf("the local cloud does not know the condition key %q, or it has no value", key)
			}
		}
	}
	return nil
}

// allows reports whether the policy lets a token assume the role. The token has the given claims
// and is from the given OIDC provider. Deny wins over Allow.
func (t trustPolicy) allows(provider string, claims map[string][]string) bool {
	allowed := false
	for _, s := range t.Statement {
		if !slices.Contains(s.Principal.Federated, provider) || !s.holds(claims) {
			continue
		}
		if s.Effect == "Deny" {
			return false
		}
		allowed = true
	}
	return allowed
}

// holds reports whether the claims meet all conditions. A condition is met if one of its values
// matches one value of its claim.
func (s *statement) holds(claims map[string][]string) bool {
	for operator, keys := range s.Condition {
		for key, values := range keys {
			if !slices.ContainsFunc(claims[key], func(claim string) bool {
				return slices.ContainsFunc(values, func(value string) bool { return matches(operator, value, claim) })
			}) {
				return false
			}
		}
	}
	return true
}

// matches compares a condition's value with a claim. In StringLike, * matches any characters and ?
// matches one character.
func matches(operator, value, claim string) bool {
	if operator == "StringEquals" {
		return value == claim
	}
	pattern := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(value))
	return regexp.MustCompile(`\A(?s:` + pattern + `)\z`).MatchString(claim)
}
