package oci

import (
	"regexp"
	"regexp/syntax"
)

// maxInstructions bounds the total size of one object's regular expressions, in instructions of the
// compiled programs. The time of matching grows with this size. A few characters may need thousands
// of instructions, such as `\pL{999}`. An ordinary expression has ten to fifty.
const maxInstructions = 2_000

// parseFilter parses a regular expression in RE2's syntax. The error is an *origin.Error with
// CodeInvalidReference.
func parseFilter(field, expression string) (*regexp.Regexp, error) {
	left := maxInstructions
	return compile(field, expression, &left)
}

// compile compiles an expression, and subtracts the number of its instructions from *left. If *left
// falls below zero, compile returns an error.
func compile(field, expression string, left *int) (*regexp.Regexp, error) {
	const fix = "give a regular expression in RE2's syntax"
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, invalidReference(field, fix, "%w", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, invalidReference(field, fix, "%w", err)
	}
	if *left -= len(program.Inst); *left < 0 {
		return nil, invalidReference(field, "repeat less, or name fewer alternatives",
			"the expressions are too large: they come to more than %d instructions", maxInstructions)
	}
	filter, err := regexp.Compile(expression)
	if err != nil {
		return nil, invalidReference(field, fix, "%w", err)
	}
	return filter, nil
}
