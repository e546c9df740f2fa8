package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Context holds the values of condition keys for one request. Names are case-insensitive;
// [Context.Set] writes them in lower case. A key with no value is absent.
type Context map[string][]string

// Set sets the values of a key. Without values, it removes the key.
func (c Context) Set(key string, values ...string) {
	if len(values) == 0 {
		delete(c, strings.ToLower(key))
		return
	}
	c[strings.ToLower(key)] = values
}

// quantifier is a set operator: ForAnyValue, ForAllValues or none. Source: IAM User Guide,
// "Multivalued context keys".
type quantifier int

const (
	single quantifier = iota
	anyValue
	allValues
)

type condition struct {
	operator   string // the operator's name in the document
	quantifier quantifier
	ifExists   bool
	negated    bool
	null       bool
	match      func(pattern, value string) bool
	key        string // lower case
	values     []string
}

type operator struct {
	negated bool
	match   func(pattern, value string) bool
	check   func(pattern string) bool // reports whether a pattern is valid; nil: all are valid
}

// operators returns the condition operators that this package evaluates, by name. The operator Null
// is not among them, because it compares no values.
func operators() map[string]operator {
	equal := func(p, v string) bool { return p == v }
	instants := func(cmp func(v, p time.Time) bool) operator {
		return operator{
			check: func(p string) bool { _, ok := instant(p); return ok },
			match: func(p, v string) bool {
				pt, ok1 := instant(p)
				vt, ok2 := instant(v)
				return ok1 && ok2 && cmp(vt, pt)
			},
		}
	}
	return map[string]operator{
		"StringEquals":              {match: equal},
		"StringNotEquals":           {match: equal, negated: true},
		"StringEqualsIgnoreCase":    {match: strings.EqualFold},
		"StringNotEqualsIgnoreCase": {match: strings.EqualFold, negated: true},
		"StringLike":                {match: glob},
		"StringNotLike":             {match: glob, negated: true},
		"ArnEquals":                 {match: globARN},
		"ArnLike":                   {match: globARN},
		"ArnNotEquals":              {match: globARN, negated: true},
		"ArnNotLike":                {match: globARN, negated: true},
		"Bool":                      {match: strings.EqualFold, check: func(p string) bool { return p == "true" || p == "false" }},
		"DateEquals":                instants(time.Time.Equal),
		"DateLessThan":              instants(time.Time.Before),
		"DateLessThanEquals":        instants(func(v, p time.Time) bool { return !v.After(p) }),
		"DateGreaterThan":           instants(time.Time.After),
		"DateGreaterThanEquals":     instants(func(v, p time.Time) bool { return !v.Before(p) }),
	}
}

// instant reads a date as IAM does: RFC 3339, or seconds since 1970.
func instant(s string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, true
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return time.Unix(n, 0), err == nil
}

func parseConditions(path string, raw json.RawMessage) ([]condition, error) {
	var byOperator map[string]json.RawMessage
	if err := json.Unmarshal(raw, &byOperator); err != nil || byOperator == nil {
		return nil, refuse(path, "give an object")
	}
	known := operators()
	var out []condition
	for _, name := range slices.Sorted(maps.Keys(byOperator)) {
		opPath := path + "." + name
		template := condition{operator: name}
		bare := name
		if rest, ok := strings.CutPrefix(bare, "ForAnyValue:"); ok {
			template.quantifier, bare = anyValue, rest
		} else if rest, ok := strings.CutPrefix(bare, "ForAllValues:"); ok {
			template.quantifier, bare = allValues, rest
		}
		if rest, ok := strings.CutSuffix(bare, "IfExists"); ok {
			template.ifExists, bare = true, rest
		}
		op, ok := known[bare]
		if bare == "Null" && template.quantifier == single && !template.ifExists {
			template.null, ok = true, true
			op.check = func(p string) bool { return p == "true" || p == "false" }
		}
		if !ok {
			return nil, refuse(opPath, "this operator is not supported; known are %s, Null",
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		template.negated, template.match = op.negated, op.match
		var byKey map[string]json.RawMessage
		if err := json.Unmarshal(byOperator[name], &byKey); err != nil || len(byKey) == 0 {
			return nil, refuse(opPath, "give an object with at least one condition key")
		}
		for _, key := range slices.Sorted(maps.Keys(byKey)) {
			c := template
			c.key = strings.ToLower(key)
			if !strings.Contains(key, ":") {
				return nil, refuse(opPath, "%q is not a condition key: write prefix:name", key)
			}
			if !evaluated(c.key) {
				return nil, refuse(opPath+"."+key,
					"this condition key is not evaluated here; a document that relies on it would be another than at AWS")
			}
			var err error
			if c.values, err = conditionValues(opPath+"."+key, byKey[key]); err != nil {
				return nil, err
			}
			for _, v := range c.values {
				if op.check != nil && !op.check(v) {
					return nil, refuse(opPath+"."+key, "%q is not a value for this operator", v)
				}
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// evaluated reports whether the local cloud evaluates a condition key as AWS does. The key is in
// lower case. Parse refuses keys that are not evaluated. Keys without an AWS service's prefix
// belong to an issuer, and are all evaluated. Other keys are evaluated only if the local cloud sets
// them.
//
// A key that is never set is absent from every request. An absent key satisfies negated operators
// and IfExists, and can switch off a Deny. So a document with such a key could allow more than at
// AWS.
func evaluated(key string) bool {
	prefix, _, _ := strings.Cut(key, ":")
	switch prefix {
	case "aws", "sts", "ecr", "ecr-public", "kms", "s3", "autoscaling", "ec2",
		"elasticloadbalancing", "events", "secretsmanager", "ssm", "tag":
	default:
		return true
	}
	switch key {
	case "aws:currenttime", "aws:epochtime", "aws:federatedprovider", "aws:principalaccount", "aws:principalarn", "aws:principaltype",
		"aws:requestedregion", "aws:securetransport", "aws:sourceidentity", "aws:tagkeys", "aws:tokenissuetime",
		"aws:userid", "aws:username", "kms:keyspec", "kms:keyusage", "s3:delimiter", "s3:prefix",
		"sts:externalid", "sts:rolesessionname", "sts:sourceidentity", "sts:transitivetagkeys":
		return true
	}
	// After the prefixes below, a condition key has the name of a tag, as in aws:ResourceTag/owner.
	// Of all resources in the local cloud, only KMS keys can have tags. So only a request about a
	// KMS key sets aws:ResourceTag/….
	return strings.HasPrefix(key, "aws:principaltag/") ||
		strings.HasPrefix(key, "aws:requesttag/") || strings.HasPrefix(key, "aws:resourcetag/")
}

// conditionValues returns a condition's values as strings. As IAM does, it accepts strings,
// booleans and numbers.
func conditionValues(path string, raw json.RawMessage) ([]string, error) {
	raws, err := oneOrMore(path, raw)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(raws))
	for i, r := range raws {
		r = bytes.TrimSpace(r)
		switch {
		case len(r) > 0 && (r[0] == 't' || r[0] == 'f' || r[0] == '-' || (r[0] >= '0' && r[0] <= '9')):
			out[i] = string(r)
		default:
			if out[i], err = text(path, r); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// holds reports whether the request meets the condition. Source: IAM User Guide, "Evaluation logic
// for multiple context keys or values".
func (c condition) holds(ctx Context) bool {
	values := ctx[c.key]
	if c.null {
		return (len(values) == 0) == (c.values[0] == "true")
	}
	if len(values) == 0 {
		// An absent key satisfies only three kinds of conditions: those with IfExists, those with
		// ForAllValues, and negated ones without a quantifier.
		return c.ifExists || c.quantifier == allValues || (c.negated && c.quantifier == single)
	}
	matches := func(value string) bool {
		hit := slices.ContainsFunc(c.values, func(pattern string) bool { return c.match(pattern, value) })
		return hit != c.negated
	}
	if c.quantifier == allValues || (c.quantifier == single && c.negated) {
		return !slices.ContainsFunc(values, func(v string) bool { return !matches(v) })
	}
	return slices.ContainsFunc(values, matches)
}

// explain returns a text that says why the condition does not hold.
func (c condition) explain(ctx Context) string {
	values := ctx[c.key]
	if len(values) == 0 {
		return fmt.Sprintf("condition %s %s wants %q, the request has no such key", c.operator, c.key, c.values)
	}
	return fmt.Sprintf("condition %s %s wants %q, the request has %q", c.operator, c.key, c.values, values)
}
