package aws

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// params has the parameters of a Query request, and the errors found in them.
type params struct {
	values url.Values
	errors []string
}

// readParams reads the parameters of a GET from the query, and of a POST from the body. If the body
// of a POST is empty, the parameters are in the query. Both are safe to read, because the signature
// of a signed request covers them.
func readParams(r *http.Request, body []byte) (*params, *service.Refusal) {
	raw := r.URL.RawQuery
	switch r.Method {
	case http.MethodGet:
	case http.MethodPost:
		media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || media != "application/x-www-form-urlencoded" {
			return nil, service.Refuse(http.StatusBadRequest, "MalformedInput", "Content-Type must be application/x-www-form-urlencoded")
		}
		if len(body) > 0 {
			raw = string(body)
		}
	default:
		return nil, service.Refuse(http.StatusMethodNotAllowed, "MethodNotAllowed",
			"The specified method is not allowed against this resource.")
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, service.Refuse(http.StatusBadRequest, "MalformedQueryString", "The query string contains a syntax error.")
	}
	for _, v := range values {
		if len(v) > 1 {
			return nil, service.Refuse(http.StatusBadRequest, "MalformedQueryString", "Keys may not contain more than one value")
		}
	}
	return &params{values: values}, nil
}

func (p *params) get(name string) string { return p.values.Get(name) }

// fail records, in AWS's words, that a parameter violates a constraint. The caller passes the value
// as the error shows it: in quotes, or null for a missing parameter.
func (p *params) fail(shown, member, constraint string) {
	p.errors = append(p.errors, fmt.Sprintf("Value %s at '%s' failed to satisfy constraint: Member must %s", shown, member, constraint))
}

// limits are constraints on a text parameter.
type limits struct {
	required bool
	min, max int            // in characters; max 0: no limit
	pattern  *regexp.Regexp // of the whole value
	secret   bool           // the value must not be repeated in an error
}

// Patterns of session names and external IDs. Source: AWS STS API Reference, AssumeRole.
var (
	sessionPattern    = regexp.MustCompile(`\A[\w+=,.@-]*\z`)
	externalIDPattern = regexp.MustCompile(`\A[\w+=,.@:\/-]*\z`)
)

// text reads and checks a parameter. Errors contain the parameter's name with a small first letter.
func (p *params) text(name string, l limits) string {
	member := strings.ToLower(name[:1]) + name[1:]
	if !p.values.Has(name) {
		if l.required {
			p.fail("null", member, "not be null")
		}
		return ""
	}
	value := p.get(name)
	shown := "'" + value + "'"
	if l.secret {
		shown = "'****'"
	}
	length := utf8.RuneCountInString(value)
	if l.pattern != nil && !l.pattern.MatchString(value) {
		p.fail(shown, member, "satisfy regular expression pattern: "+
			strings.TrimSuffix(strings.TrimPrefix(l.pattern.String(), `\A`), `\z`))
	}
	if length < l.min {
		p.fail(shown, member, "have length greater than or equal to "+strconv.Itoa(l.min))
	}
	if l.max > 0 && length > l.max {
		p.fail(shown, member, "have length less than or equal to "+strconv.Itoa(l.max))
	}
	return value
}

// seconds reads a number in the given range. If the parameter is missing, seconds returns the given
// default.
func (p *params) seconds(name string, lowest, highest, otherwise int) int {
	if !p.values.Has(name) {
		return otherwise
	}
	member, value := strings.ToLower(name[:1])+name[1:], p.get(name)
	shown := "'" + value + "'"
	n, err := strconv.Atoi(value)
	switch {
	case err != nil:
		p.fail(shown, member, "be a number")
	case n < lowest:
		p.fail(shown, member, "have value greater than or equal to "+strconv.Itoa(lowest))
	case n > highest:
		p.fail(shown, member, "have value less than or equal to "+strconv.Itoa(highest))
	}
	return n
}

// list reads the members of a list. For the name "Tags" and the suffix ".Key", these are the
// parameters Tags.member.1.Key, Tags.member.2.Key and so on. It records an error if there are more
// members than the limit.
func (p *params) list(name, suffix string, limit int) []string {
	var out []string
	for i := 1; ; i++ {
		key := name + ".member." + strconv.Itoa(i) + suffix
		if !p.values.Has(key) {
			return out
		}
		if i > limit {
			p.errors = append(p.errors,
				fmt.Sprintf("Value at '%s%s' failed to satisfy constraint: Member must have length less than or equal to %d",
					strings.ToLower(name[:1]), name[1:], limit))
			return out
		}
		out = append(out, p.get(key))
	}
}

// absent refuses parameters that AWS supports and the local cloud does not.
func (p *params) absent(names ...string) {
	for _, name := range names {
		if p.values.Has(name) {
			p.errors = append(p.errors, "Value at '"+name+"' failed to satisfy constraint: Member must be absent in the local cloud")
		}
	}
}

// refusal returns a ValidationError with the recorded errors, or nil.
func (p *params) refusal() *service.Refusal {
	if len(p.errors) == 0 {
		return nil
	}
	plural := "s"
	if len(p.errors) == 1 {
		plural = ""
	}
	return validation(fmt.Sprintf("%d validation error%s detected: %s", len(p.errors), plural, strings.Join(p.errors, "; ")))
}

func validation(message string) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, "ValidationError", message)
}

// roleARN is a parsed arn:<partition>:iam::<account>:role/<path><name>.
type roleARN struct{ partition, account, name string }

func parseRoleARN(s string) (roleARN, bool) {
	parts := strings.SplitN(s, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "iam" || parts[3] != "" || !policy.IsAccountID(parts[4]) {
		return roleARN{}, false
	}
	rest, ok := strings.CutPrefix(parts[5], "role/")
	if !ok {
		return roleARN{}, false
	}
	a := roleARN{partition: parts[1], account: parts[4], name: rest[strings.LastIndexByte(rest, '/')+1:]}
	_, known := partitionByID(a.partition)
	return a, known && namePattern.MatchString(a.name)
}
