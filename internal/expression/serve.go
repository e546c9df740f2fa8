package expression

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	apijson "k8s.io/apimachinery/pkg/util/json"
)

// Function is the name of [Server.Serve] in sandbox.Functions.
const Function = "expression"

// maxCost is the maximum cost of one evaluation, in the units of cel-go. The conditions in Flux's
// documentation cost less than a hundred. Loops that reach the limit take 0.1 s of processor time.
const maxCost = 100_000

// wireTest is a Test as a child reads it.
type wireTest struct {
	Expressions []string        `json:"expressions"`
	Variables   json.RawMessage `json:"variables"`
}

// Server answers the requests of an [Evaluator] in a child. The zero value is ready for use by one
// goroutine.
type Server struct{ env *cel.Env }

// Serve answers one request. It has no deadline: the parent ends the child in time.
func (s *Server) Serve(_ context.Context, request []byte) (answer []byte) {
	var tests []wireTest
	if err := json.Unmarshal(request, &tests); err != nil {
		return nil // the parent refuses an empty answer
	}
	if s.env == nil {
		env, err := newEnv()
		if err != nil {
			return nil
		}
		s.env = env
	}
	parsed := parser{env: s.env, programs: map[string]program{}}
	results := make([]Result, 0, len(tests))
	for _, t := range tests {
		results = append(results, parsed.evaluate(t))
	}
	answer, err := json.Marshal(results)
	if err != nil {
		return nil
	}
	return answer
}

func newEnv() (*cel.Env, error) {
	return cel.NewEnv(
		cel.HomogeneousAggregateLiterals(), cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(),
		ext.Strings(), ext.Sets(), ext.Encoders(),
	)
}

// parser parses each expression of a request once.
type parser struct {
	env      *cel.Env
	programs map[string]program
}

// program is a parsed expression, or says why the expression is invalid.
type program struct {
	cel.Program

	invalid string
}

func (p *parser) parse(text string) program {
	known, ok := p.programs[text]
	if !ok {
		known = p.newProgram(text)
		p.programs[text] = known
	}
	return known
}

func (p *parser) newProgram(text string) program {
	tree, issues := p.env.Parse(text)
	if issues.Err() != nil {
		var messages []string
		for _, issue := range issues.Errors() {
			messages = append(messages, fmt.Sprintf("line %d, column %d: %s", issue.Location.Line(), issue.Location.Column()+1, issue.Message))
		}
		return program{invalid: "it is no valid CEL: " + strings.Join(messages, "; ")}
	}
	made, err := p.env.Program(tree, cel.CostLimit(maxCost))
	if err != nil {
		return program{invalid: err.Error()}
	}
	return program{Program: made}
}

// evaluate returns the result of a test.
func (p *parser) evaluate(test wireTest) Result {
	var variables map[string]any
	if err := apijson.Unmarshal(test.Variables, &variables); err != nil {
		return failed(0, false, "the variables are no JSON: "+err.Error())
	}
	for i, text := range test.Expressions {
		parsed := p.parse(text)
		if parsed.invalid != "" {
			return failed(i, true, parsed.invalid)
		}
		if variables == nil {
			continue
		}
		value, _, err := parsed.Eval(variables)
		if err != nil {
			return failed(i, false, err.Error())
		}
		switch value {
		case types.True:
			return Result{True: i}
		case types.False:
		default:
			return failed(i, false, "its value is neither true nor false, but of type "+value.Type().TypeName())
		}
	}
	return Result{True: -1}
}

func failed(index int, invalid bool, message string) Result {
	return Result{True: -1, Failure: &Failure{Index: index, Invalid: invalid, Message: clip(message)}}
}

// clip shortens a text to maxMessage bytes.
func clip(text string) string {
	if len(text) > maxMessage {
		text = text[:maxMessage]
	}
	return strings.ToValidUTF8(text, "")
}
