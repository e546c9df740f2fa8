// Package policy reads and evaluates IAM policy documents:
//   - trust policies of roles
//   - permission policies of roles, users and sessions
//   - resource policies of repositories, buckets and keys
//
// Reading is strict. An unsupported element, operator or variable is an error with its path in the
// document. It is never skipped, because the policy could then allow more. Source: IAM User Guide,
// "Grammar of the IAM JSON policy language" and "IAM JSON policy elements".
package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxDocument is the maximum length of a document in bytes. IAM's own limits are lower (2,048 to
// 10,240 by kind), but they do not count white space.
const maxDocument = 64 << 10

// Kind is the kind of a policy document. It decides which elements the document may have.
type Kind int

const (
	// Trust is a role's trust policy: it has principals and no resources.
	Trust Kind = iota
	// Permissions is an identity's policy, a managed policy or a session policy: it has resources
	// and no principals.
	Permissions
	// Resource is a policy on an ECR repository: it has principals and no resources.
	Resource
	// Bucket is a policy on an S3 bucket: it has principals. Its resources are the bucket and
	// objects in the bucket.
	Bucket
	// Key is a policy on a KMS key: it has principals. Its resource is "*", which means the key.
	Key
)

// hasPrincipals and hasResources report whether a document of the kind must have principals and
// resources. If the result is false, the document must not have them.
func (k Kind) hasPrincipals() bool { return k != Permissions }
func (k Kind) hasResources() bool  { return k == Permissions || k == Bucket || k == Key }

// Error says why a document is refused.
type Error struct {
	// Path is the position of the error in the document, such as "Statement[0].Condition".
	Path string
	// Fix says what is wrong at Path, or what is allowed.
	Fix string
}

// Error returns Path and Fix.
func (e *Error) Error() string {
	if e.Path == "" {
		return "policy: " + e.Fix
	}
	return "policy: " + e.Path + ": " + e.Fix
}

func refuse(path, format string, args ...any) error {
	return &Error{Path: path, Fix: fmt.Sprintf(format, args...)}
}

// Document is a parsed policy. Its zero value has no statement and therefore allows nothing.
type Document struct {
	kind       Kind
	statements []statement
	source     string
}

type statement struct {
	sid        string
	deny       bool
	principals principals
	actions    []string // lower case
	resources  []string
	conditions []condition
}

type principals struct {
	anyone    bool
	aws       []string
	federated []string
	services  []string
}

// String returns the document as [Parse] got it.
func (d Document) String() string { return d.source }

// MarshalJSON returns the document as [Parse] got it, or null for the zero value.
func (d Document) MarshalJSON() ([]byte, error) {
	if d.source == "" {
		return []byte("null"), nil
	}
	return []byte(d.source), nil
}

// Parse reads a document of the given kind. The error is an [*Error].
func Parse(kind Kind, data []byte) (Document, error) {
	if len(data) > maxDocument {
		return Document{}, refuse("", "the document is longer than %d bytes", maxDocument)
	}
	if err := checkJSON(data); err != nil {
		return Document{}, err
	}
	top, err := object("", data, "Version", "Id", "Statement")
	if err != nil {
		return Document{}, err
	}
	var version string
	if raw, ok := top["Version"]; ok {
		if version, err = text("Version", raw); err != nil {
			return Document{}, err
		}
	}
	if version != "2012-10-17" && version != "2008-10-17" {
		return Document{}, refuse("Version", `give "2012-10-17"`)
	}
	if raw, ok := top["Id"]; ok {
		if _, err := text("Id", raw); err != nil {
			return Document{}, err
		}
	}
	raws, err := oneOrMore("Statement", top["Statement"])
	if err != nil {
		return Document{}, err
	}
	d := Document{kind: kind, source: string(bytes.TrimSpace(data))}
	sids := map[string]bool{}
	for i, raw := range raws {
		s, err := parseStatement("Statement["+strconv.Itoa(i)+"]", kind, raw)
		if err != nil {
			return Document{}, err
		}
		if s.sid != "" && sids[s.sid] {
			return Document{}, refuse("Statement["+strconv.Itoa(i)+"].Sid", "%q is used twice", s.sid)
		}
		sids[s.sid] = true
		d.statements = append(d.statements, s)
	}
	return d, nil
}

func parseStatement(path string, kind Kind, raw json.RawMessage) (statement, error) {
	allowed := []string{"Sid", "Effect", "Action", "Condition"}
	if kind.hasResources() {
		allowed = append(allowed, "Resource")
	}
	if kind.hasPrincipals() {
		allowed = append(allowed, "Principal")
	}
	fields, err := object(path, raw, allowed...)
	if err != nil {
		return statement{}, err
	}
	var s statement
	if raw, ok := fields["Sid"]; ok {
		if s.sid, err = text(path+".Sid", raw); err != nil {
			return statement{}, err
		}
	}
	effect, err := text(path+".Effect", fields["Effect"])
	switch {
	case err != nil:
		return statement{}, err
	case effect == "Deny":
		s.deny = true
	case effect != "Allow":
		return statement{}, refuse(path+".Effect", "give Allow or Deny")
	}
	if s.actions, err = parseActions(path+".Action", kind, fields["Action"]); err != nil {
		return statement{}, err
	}
	if kind.hasResources() {
		if s.resources, err = parseResources(path+".Resource", fields["Resource"]); err != nil {
			return statement{}, err
		}
	}
	if kind.hasPrincipals() {
		if s.principals, err = parsePrincipals(path+".Principal", fields["Principal"]); err != nil {
			return statement{}, err
		}
	}
	if raw, ok := fields["Condition"]; ok {
		if s.conditions, err = parseConditions(path+".Condition", raw); err != nil {
			return statement{}, err
		}
	}
	return s, nil
}

var actionForm = regexp.MustCompile(`\A[a-zA-Z0-9-]+:[a-zA-Z0-9*?]+\z`)

func parseActions(path string, kind Kind, raw json.RawMessage) ([]string, error) {
	actions, err := texts(path, raw)
	if err != nil {
		return nil, err
	}
	for i, a := range actions {
		if a == "*" && kind != Trust {
			continue
		}
		if !actionForm.MatchString(a) {
			return nil, refuse(path, "%q is not an action: write service:Operation", a)
		}
		if kind == Trust && !strings.HasPrefix(strings.ToLower(a), "sts:") {
			return nil, refuse(path, "%q: a trust policy allows actions of sts only", a)
		}
		if kind == Bucket && !strings.HasPrefix(strings.ToLower(a), "s3:") {
			return nil, refuse(path, "%q: a bucket's policy is about actions of s3 only", a)
		}
		if kind == Key && !strings.HasPrefix(strings.ToLower(a), "kms:") {
			return nil, refuse(path, "%q: a key's policy is about actions of kms only", a)
		}
		actions[i] = strings.ToLower(a)
	}
	return actions, nil
}

func parseResources(path string, raw json.RawMessage) ([]string, error) {
	resources, err := texts(path, raw)
	if err != nil {
		return nil, err
	}
	for _, r := range resources {
		if r == "*" {
			continue
		}
		parts := strings.SplitN(r, ":", 6)
		if len(parts) != 6 || parts[0] != "arn" || parts[5] == "" {
			return nil, refuse(path, `%q is not an ARN: write arn:partition:service:region:account:resource, or "*"`, r)
		}
	}
	return resources, nil
}

func parsePrincipals(path string, raw json.RawMessage) (principals, error) {
	if raw == nil {
		return principals{}, refuse(path, "is required")
	}
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte(`"`)) {
		s, err := text(path, raw)
		if err != nil || s != "*" {
			return principals{}, refuse(path, `give "*" or an object with AWS, Federated or Service`)
		}
		return principals{anyone: true}, nil
	}
	fields, err := object(path, raw, "AWS", "Federated", "Service")
	if err != nil {
		return principals{}, err
	}
	if len(fields) == 0 {
		return principals{}, refuse(path, "name at least one principal")
	}
	var p principals
	for name, to := range map[string]*[]string{"AWS": &p.aws, "Federated": &p.federated, "Service": &p.services} {
		raw, ok := fields[name]
		if !ok {
			continue
		}
		values, err := texts(path+"."+name, raw)
		if err != nil {
			return principals{}, err
		}
		for _, v := range values {
			if v == "*" && name == "AWS" {
				p.anyone = true
				continue
			}
			if strings.ContainsAny(v, "*?") {
				return principals{}, refuse(path+"."+name, "%q: wildcards are not allowed in a principal", v)
			}
			if name == "AWS" && !validAWSPrincipal(v) {
				return principals{}, refuse(path+"."+name, "%q is neither an account ID nor an ARN of iam or sts", v)
			}
			*to = append(*to, v)
		}
	}
	return p, nil
}

// CheckPartition refuses a document that names a principal or a resource of another partition, as
// IAM does. No request has such a principal or resource. So a Deny statement for it would have no
// effect. The error is an [*Error].
func (d Document) CheckPartition(partition string) error {
	for i, s := range d.statements {
		path := "Statement[" + strconv.Itoa(i) + "]."
		for _, named := range []struct {
			element string
			values  []string
		}{{"Principal.AWS", s.principals.aws}, {"Principal.Federated", s.principals.federated}, {"Resource", s.resources}} {
			for _, v := range named.values {
				parts := strings.SplitN(v, ":", 3)
				if len(parts) == 3 && parts[0] == "arn" && !glob(parts[1], partition) {
					return refuse(path+named.element, "%q is of another partition: write arn:%s:…", v, partition)
				}
			}
		}
	}
	return nil
}

// CheckBucket checks, as S3 does, that each resource is the bucket with this ARN or an object in
// the bucket. The error is an [*Error].
func (d Document) CheckBucket(arn string) error {
	for i, s := range d.statements {
		for _, r := range s.resources {
			if r != arn && !strings.HasPrefix(r, arn+"/") {
				return refuse("Statement["+strconv.Itoa(i)+"].Resource", "%q is not of this bucket: write %s or %s/…", r, arn, arn)
			}
		}
	}
	return nil
}

func validAWSPrincipal(p string) bool {
	if IsAccountID(p) {
		return true
	}
	parts := strings.SplitN(p, ":", 6)
	return len(parts) == 6 && parts[0] == "arn" && (parts[2] == "iam" || parts[2] == "sts") && IsAccountID(parts[4]) && parts[5] != ""
}

// IsAccountID reports whether s is an AWS account ID: twelve digits.
func IsAccountID(s string) bool {
	return len(s) == 12 && strings.Trim(s, "0123456789") == ""
}

// checkJSON refuses data that is not a single JSON value, and objects with duplicate keys. Of two
// equal keys, encoding/json would use the last. Another reader may use the first, and would see a
// different policy.
func checkJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := checkValue(dec, ""); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return refuse("", "there is something after the end of the document")
	}
	return nil
}

func checkValue(dec *json.Decoder, path string) error {
	token, err := dec.Token()
	if err != nil {
		return refuse(path, "the document is not JSON")
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for n := 0; dec.More(); n++ {
		inner := path + "[" + strconv.Itoa(n) + "]"
		if delim == '{' {
			key, err := dec.Token()
			if err != nil {
				return refuse(path, "the document is not JSON")
			}
			name, _ := key.(string)
			if seen[name] {
				return refuse(path, "%q stands there twice", name)
			}
			seen[name] = true
			inner = strings.TrimPrefix(path+"."+name, ".")
		}
		if err := checkValue(dec, inner); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return refuse(path, "the document is not JSON")
	}
	return nil
}

// object reads a JSON object. It refuses every key that is not among the allowed keys, even if only
// the case differs.
func object(path string, raw json.RawMessage, allowed ...string) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return nil, refuse(path, "give an object")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(allowed, name) {
			return nil, refuse(path, "%q is not supported here; known are %s", name, strings.Join(allowed, ", "))
		}
	}
	return fields, nil
}

func text(path string, raw json.RawMessage) (string, error) {
	var s *string
	if len(raw) == 0 {
		return "", refuse(path, "is required")
	}
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", refuse(path, "give a string")
	}
	if strings.Contains(*s, "${") {
		return "", refuse(path, "policy variables (${…}) are not supported")
	}
	return *s, nil
}

// oneOrMore reads a list or a single value, which it returns as a list with one element. It refuses
// an empty list.
func oneOrMore(path string, raw json.RawMessage) ([]json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, refuse(path, "is required")
	}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		return []json.RawMessage{raw}, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, refuse(path, "give a list")
	}
	if len(list) == 0 {
		return nil, refuse(path, "the list is empty")
	}
	return list, nil
}

func texts(path string, raw json.RawMessage) ([]string, error) {
	raws, err := oneOrMore(path, raw)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(raws))
	for i, r := range raws {
		if out[i], err = text(path, r); err != nil {
			return nil, err
		}
		if out[i] == "" {
			return nil, refuse(path, "an entry is empty")
		}
	}
	return out, nil
}
