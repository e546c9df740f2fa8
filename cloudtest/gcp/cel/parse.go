package cel

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxDepth bounds how deep an expression nests, so that a configuration cannot exhaust the stack.
const maxDepth = 64

type tokenKind int

const (
	end tokenKind = iota
	name
	text
	number
	symbol
)

type token struct {
	kind tokenKind
	text string // of a string literal: its value
	at   int
}

func isLetter(c byte) bool { return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// scan splits an expression into tokens.
func scan(source string) ([]token, error) {
	var out []token
	for i := 0; i < len(source); {
		c, start := source[i], i
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
			continue
		case isLetter(c):
			for i < len(source) && (isLetter(source[i]) || isDigit(source[i])) {
				i++
			}
			if i < len(source) && (source[i] == '\'' || source[i] == '"') {
				return nil, fmt.Errorf("a prefix of a string at character %d is not supported", start+1)
			}
			out = append(out, token{name, source[start:i], start})
		case isDigit(c):
			for i < len(source) && isDigit(source[i]) {
				i++
			}
			if i < len(source) && (isLetter(source[i]) || source[i] == '.') {
				return nil, fmt.Errorf("the number at character %d is not a plain integer", start+1)
			}
			out = append(out, token{number, source[start:i], start})
		case c == '\'' || c == '"':
			length := strings.IndexByte(source[i+1:], c)
			if length < 0 {
				return nil, fmt.Errorf("the string at character %d has no end", start+1)
			}
			value := source[i+1 : i+1+length]
			if strings.ContainsAny(value, "\\\n\r") {
				return nil, fmt.Errorf("escapes and line breaks in the string at character %d are not supported", start+1)
			}
			i += length + 2
			if value == "" && i < len(source) && source[i] == c {
				return nil, fmt.Errorf("the triple quote at character %d is not supported", start+1)
			}
			out = append(out, token{text, value, start})
		default:
			s := source[i:min(i+2, len(source))]
			if !slices.Contains([]string{"==", "!=", "&&", "||"}, s) {
				s = s[:1]
				if !strings.Contains("+!.,()[]", s) {
					return nil, fmt.Errorf("%q at character %d is not supported", s, start+1)
				}
			}
			i += len(s)
			out = append(out, token{symbol, s, start})
		}
	}
	return append(out, token{end, "the end", len(source)}), nil
}

type parser struct {
	tokens    []token
	variables []string
	depth     int
}

func (p *parser) peek() token { return p.tokens[0] }

func (p *parser) take() token {
	t := p.tokens[0]
	if t.kind != end {
		p.tokens = p.tokens[1:]
	}
	return t
}

// accept takes a symbol or a word if it is next.
func (p *parser) accept(s string) bool {
	if t := p.peek(); (t.kind != symbol && t.kind != name) || t.text != s {
		return false
	}
	p.take()
	return true
}

func (p *parser) expect(s string) error {
	if p.accept(s) {
		return nil
	}
	t := p.peek()
	return fmt.Errorf("%q is expected at character %d", s, t.at+1)
}

// nest enters a level of nesting.
func (p *parser) nest() error {
	if p.depth++; p.depth > maxDepth {
		return errors.New("it nests too deep")
	}
	return nil
}

func (p *parser) or() (node, error) {
	if err := p.nest(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	return p.chain([]string{"||"}, p.and, func(left, right node, _ string) node { return logical{left, right, true} })
}

func (p *parser) and() (node, error) {
	return p.chain([]string{"&&"}, p.relation, func(left, right node, _ string) node { return logical{left, right, false} })
}

func (p *parser) relation() (node, error) {
	return p.chain([]string{"==", "!=", "in"}, p.sum, func(left, right node, op string) node { return binary{left, right, op} })
}

func (p *parser) sum() (node, error) {
	return p.chain([]string{"+"}, p.unary, func(left, right node, op string) node { return binary{left, right, op} })
}

// chain parses operands between operators of one rank, which bind to the left.
func (p *parser) chain(operators []string, operand func() (node, error), join func(left, right node, operator string) node) (node, error) {
	left, err := operand()
	for n := 0; err == nil; n++ {
		operator := p.peek().text
		if p.peek().kind == text || !slices.Contains(operators, operator) {
			return left, nil
		}
		if n == maxDepth {
			return nil, errors.New("it is too long")
		}
		p.take()
		var right node
		if right, err = operand(); err == nil {
			left = join(left, right, operator)
		}
	}
	return nil, err
}

func (p *parser) unary() (node, error) {
	if p.accept("!") {
		if err := p.nest(); err != nil {
			return nil, err
		}
		defer func() { p.depth-- }()
		of, err := p.unary()
		return not{of}, err
	}
	return p.member()
}

func (p *parser) member() (node, error) {
	of, err := p.primary()
	for n := 0; err == nil; n++ {
		if n == maxDepth {
			return nil, errors.New("it is too long")
		}
		switch {
		case p.accept("."):
			of, err = p.selector(of)
		case p.accept("["):
			var by node
			if by, err = p.or(); err == nil {
				of, err = index{of, by}, p.expect("]")
			}
		default:
			return of, nil
		}
	}
	return nil, err
}

// selector parses what follows a dot.
func (p *parser) selector(of node) (node, error) {
	t := p.take()
	if t.kind != name {
		return nil, fmt.Errorf("a name is expected at character %d", t.at+1)
	}
	if !p.accept("(") {
		return index{of, literal{t.text}}, nil
	}
	if !slices.Contains(methods(), t.text) {
		return nil, fmt.Errorf("the method %s is not supported", t.text)
	}
	arg, err := p.or()
	if err != nil {
		return nil, err
	}
	return method{of, arg, t.text}, p.expect(")")
}

func (p *parser) primary() (node, error) {
	t := p.take()
	switch {
	case t.kind == text:
		return literal{t.text}, nil
	case t.kind == number:
		n, err := strconv.ParseInt(t.text, 10, 53)
		if err != nil {
			return nil, fmt.Errorf("the number at character %d is too large", t.at+1)
		}
		return literal{float64(n)}, nil
	case t.kind == name && (t.text == "true" || t.text == "false"):
		return literal{t.text == "true"}, nil
	case t.kind == name && slices.Contains(p.variables, t.text):
		return variable{t.text}, nil
	case t.kind == name:
		return nil, fmt.Errorf("%s is not known here, only %s", t.text, strings.Join(p.variables, ", "))
	case t.kind == symbol && t.text == "(":
		inner, err := p.or()
		if err != nil {
			return nil, err
		}
		return inner, p.expect(")")
	case t.kind == symbol && t.text == "[":
		return p.list()
	}
	return nil, fmt.Errorf("%q is not expected at character %d", t.text, t.at+1)
}

func (p *parser) list() (node, error) {
	var out list
	for !p.accept("]") {
		if len(out.items) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		item, err := p.or()
		if err != nil {
			return nil, err
		}
		out.items = append(out.items, item)
	}
	return out, nil
}
