package grant

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// Selector is a label selector. It has the meaning of Kubernetes' LabelSelector
// (k8s.io/apimachinery meta/v1), except that an empty selector matches nothing.
type Selector struct {
	// MatchLabels maps labels to values. A namespace must have each of these labels, with exactly
	// that value.
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions are further conditions, which must all be true.
	MatchExpressions []Requirement `json:"matchExpressions,omitempty"`
}

// Requirement is one condition on one label.
type Requirement struct {
	// Key is the label's name.
	Key string `json:"key"`
	// Operator compares the label with Values.
	Operator Operator `json:"operator"`
	// Values must not be empty with [In] and [NotIn], and must be empty with [Exists] and
	// [DoesNotExist].
	Values []string `json:"values,omitempty"`
}

// Operator compares a label with values.
type Operator string

// The operators of a [Requirement].
const (
	// In: the label exists and its value is in Values.
	In Operator = "In"
	// NotIn: the label does not exist, or its value is not in Values.
	NotIn Operator = "NotIn"
	// Exists: the label exists.
	Exists Operator = "Exists"
	// DoesNotExist: the label does not exist.
	DoesNotExist Operator = "DoesNotExist"
)

// Errors of a grant that is well-formed but invalid.
var (
	// ErrNamespace: a name in the list cannot be the name of a namespace.
	ErrNamespace = errors.New("not the name of a namespace; wildcards do not exist, and {} admits every namespace")
	// ErrOperator: the operator is unknown.
	ErrOperator = errors.New("unknown operator; write In, NotIn, Exists or DoesNotExist")
	// ErrValues: a requirement has values although its operator takes no values, or has no values
	// although its operator needs them.
	ErrValues = errors.New("wrong number of values; In and NotIn take at least one, Exists and DoesNotExist none")
	// ErrLabel: the key or value of a label has an invalid form. No namespace has a label with an
	// invalid key, so NotIn with such a key would match every namespace.
	ErrLabel = errors.New("not a label's key or value")
)

// empty reports whether the selector has no condition.
func (s *Selector) empty() bool {
	return len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

// validate returns an error if the selector has an invalid label, operator or number of values.
func (s *Selector) validate() error {
	for key, value := range s.MatchLabels {
		if !isLabelKey(key) || !isLabelValue(value) {
			return fmt.Errorf("matchLabels: %w: %s: %s", ErrLabel, quote(key), quote(value))
		}
	}
	for i, r := range s.MatchExpressions {
		if err := r.validate(); err != nil {
			return fmt.Errorf("matchExpressions[%d]: %w", i, err)
		}
	}
	return nil
}

func (r Requirement) validate() error {
	if !isLabelKey(r.Key) {
		return fmt.Errorf("key: %w: %s", ErrLabel, quote(r.Key))
	}
	switch r.Operator {
	case In, NotIn:
		if len(r.Values) == 0 {
			return ErrValues
		}
	case Exists, DoesNotExist:
		if len(r.Values) > 0 {
			return ErrValues
		}
	default:
		return fmt.Errorf("%w, not %s", ErrOperator, quote(string(r.Operator)))
	}
	for _, v := range r.Values {
		if !isLabelValue(v) {
			return fmt.Errorf("values: %w: %s", ErrLabel, quote(v))
		}
	}
	return nil
}

// matches reports whether the labels meet every condition of the selector. The selector must be
// valid and must have a condition.
func (s *Selector) matches(labels map[string]string) bool {
	for key, want := range s.MatchLabels {
		if got, ok := labels[key]; !ok || got != want {
			return false
		}
	}
	return !slices.ContainsFunc(s.MatchExpressions, func(r Requirement) bool { return !r.matches(labels) })
}

func (r Requirement) matches(labels map[string]string) bool {
	value, ok := labels[r.Key]
	switch r.Operator {
	case In:
		return ok && slices.Contains(r.Values, value)
	case NotIn:
		return !ok || !slices.Contains(r.Values, value)
	case Exists:
		return ok
	case DoesNotExist:
		return !ok
	default:
		return false
	}
}

// maxLabelValue bounds a label's value, in bytes. Source: Kubernetes documentation, "Labels and
// Selectors".
const maxLabelValue = 63

// isLabelValue reports whether s can be a label's value, which may be empty.
func isLabelValue(s string) bool {
	return s == "" || len(s) <= maxLabelValue && isWord(s)
}

// isLabelKey reports whether s can be a label's key: a name, optionally with a DNS subdomain and a
// slash before it.
func isLabelKey(s string) bool {
	name := s
	if prefix, rest, ok := strings.Cut(s, "/"); ok {
		name = rest
		if !auth.IsSubdomain(prefix) {
			return false
		}
	}
	return name != "" && isLabelValue(name)
}

// isWord reports whether s is a word of letters and digits, with the characters -, _ and . between
// them.
func isWord(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && (i == 0 || i == len(s)-1 || strings.IndexByte("-_.", s[i]) < 0) {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// quote returns input in a quoted and shortened form, for errors.
func quote(s string) string {
	const maxQuoted = 100
	if len(s) > maxQuoted {
		return strconv.QuoteToASCII(s[:maxQuoted]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
