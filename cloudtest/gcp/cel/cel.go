// Package cel evaluates a small part of the Common Expression Language: the part in which attribute
// mappings and conditions of workload identity providers are mostly written. An expression that
// uses any other part is refused when it is compiled. So every expression has the result that it
// has at Google Cloud.
//
// It has string, integer and boolean literals, lists, and the variables that the caller passes. It
// has members (a.b, a["b"]), elements of lists (a[0]) and parentheses. The operators are +, ==, !=,
// in, !, && and ||; the methods of strings are startsWith, endsWith and contains.
//
// Sources: Common Expression Language, "Language Definition"; IAM, "Workload Identity Federation: attribute mappings, attribute conditions".
package cel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrEvaluation is wrapped by errors of [Expr.Eval].
var ErrEvaluation = errors.New("evaluation failed")

// Expr is a compiled expression. It is immutable.
type Expr struct{ root node }

// Compile parses an expression that may use the named variables. The error says what is not supported or where the syntax ends.
func Compile(source string, variables ...string) (Expr, error) {
	tokens, err := scan(source)
	if err != nil {
		return Expr{}, err
	}
	p := &parser{tokens: tokens, variables: variables}
	root, err := p.or()
	if err != nil {
		return Expr{}, err
	}
	if rest := p.peek(); rest.kind != end {
		return Expr{}, fmt.Errorf("%q is not expected at character %d", rest.text, rest.at+1)
	}
	return Expr{root: root}, nil
}

// Eval evaluates the expression over values as encoding/json decodes them. The error wraps [ErrEvaluation] and names no value.
func (e Expr) Eval(variables map[string]any) (any, error) {
	if e.root == nil {
		return nil, fmt.Errorf("%w: there is no expression", ErrEvaluation)
	}
	return e.root.eval(variables)
}

func failed(format string, args ...any) (any, error) {
	return nil, fmt.Errorf("%w: %s", ErrEvaluation, fmt.Sprintf(format, args...))
}

// node is a part of an expression.
type node interface {
	eval(vars map[string]any) (any, error)
}

type literal struct{ value any }

func (n literal) eval(map[string]any) (any, error) { return n.value, nil }

type variable struct{ name string }

func (n variable) eval(vars map[string]any) (any, error) {
	if v, ok := vars[n.name]; ok {
		return v, nil
	}
	return failed("%s is not set", n.name)
}

// list is [a, b, …].
type list struct{ items []node }

func (n list) eval(vars map[string]any) (any, error) {
	out := make([]any, 0, len(n.items))
	for _, item := range n.items {
		v, err := item.eval(vars)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// index is a.b, a["b"] or a[0].
type index struct{ of, by node }

func (n index) eval(vars map[string]any) (any, error) {
	of, err := n.of.eval(vars)
	if err != nil {
		return nil, err
	}
	by, err := n.by.eval(vars)
	if err != nil {
		return nil, err
	}
	switch of := of.(type) {
	case map[string]any:
		key, ok := by.(string)
		if !ok {
			return failed("a map has string keys")
		}
		v, ok := of[key]
		if !ok {
			return failed("there is no %q", key)
		}
		return v, nil
	case []any:
		i, ok := by.(float64)
		if !ok || i < 0 || i >= float64(len(of)) || i != float64(int(i)) {
			return failed("there is no such element")
		}
		return of[int(i)], nil
	}
	return failed("the value has no members")
}

// method is a.startsWith(b) and the like.
type method struct {
	of, arg node
	name    string
}

func methods() []string { return []string{"startsWith", "endsWith", "contains"} }

func (n method) eval(vars map[string]any) (any, error) {
	of, err := n.of.eval(vars)
	if err != nil {
		return nil, err
	}
	arg, err := n.arg.eval(vars)
	if err != nil {
		return nil, err
	}
	s, ok := of.(string)
	part, also := arg.(string)
	if !ok || !also {
		return failed("%s is of strings", n.name)
	}
	switch n.name {
	case "startsWith":
		return strings.HasPrefix(s, part), nil
	case "endsWith":
		return strings.HasSuffix(s, part), nil
	default:
		return strings.Contains(s, part), nil
	}
}

type not struct{ of node }

func (n not) eval(vars map[string]any) (any, error) {
	v, err := n.of.eval(vars)
	if err != nil {
		return nil, err
	}
	b, ok := v.(bool)
	if !ok {
		return failed("! is of booleans")
	}
	return !b, nil
}

// logical is && or ||. One side decides even if the other one fails, whichever comes first. Source: Language Definition, "Logical Operators".
type logical struct {
	left, right node
	decides     bool // the value that decides alone
}

func (n logical) eval(vars map[string]any) (any, error) {
	left, leftErr := n.left.eval(vars)
	if b, ok := left.(bool); leftErr == nil && ok && b == n.decides {
		return b, nil
	}
	right, rightErr := n.right.eval(vars)
	if b, ok := right.(bool); rightErr == nil && ok && b == n.decides {
		return b, nil
	}
	if err := errors.Join(leftErr, rightErr); err != nil {
		return nil, err
	}
	_, ok := left.(bool)
	_, also := right.(bool)
	if !ok || !also {
		return failed("&& and || are of booleans")
	}
	return !n.decides, nil
}

// binary is +, ==, != or in.
type binary struct {
	left, right node
	operator    string
}

func (n binary) eval(vars map[string]any) (any, error) {
	left, err := n.left.eval(vars)
	if err != nil {
		return nil, err
	}
	right, err := n.right.eval(vars)
	if err != nil {
		return nil, err
	}
	switch n.operator {
	case "==":
		return equal(left, right), nil
	case "!=":
		return !equal(left, right), nil
	case "in":
		switch right := right.(type) {
		case []any:
			return slices.ContainsFunc(right, func(v any) bool { return equal(left, v) }), nil
		case map[string]any:
			key, ok := left.(string)
			_, has := right[key]
			return ok && has, nil
		}
		return failed("in is of lists and maps")
	default: // +
		switch l := left.(type) {
		case string:
			if r, ok := right.(string); ok {
				return l + r, nil
			}
		case float64:
			if r, ok := right.(float64); ok {
				return l + r, nil
			}
		case []any:
			if r, ok := right.([]any); ok {
				return append(slices.Clone(l), r...), nil
			}
		}
		return failed("+ is of two strings, numbers or lists")
	}
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			if other, has := b[k]; !has || !equal(v, other) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}
