package expression

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/internal/plain"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// Evaluator evaluates expressions in confined child processes.
type Evaluator struct{ pool *sandbox.Pool }

// NewEvaluator returns an evaluator whose children come from a pool. The children must have
// [Server.Serve] as [Function].
func NewEvaluator(pool *sandbox.Pool) *Evaluator { return &Evaluator{pool} }

// Request asks for the results of some tests.
type Request struct {
	// Tenant is the namespace of the object that has the expressions.
	Tenant string
	// Tests are evaluated one after the other.
	Tests []Test
	// Secret says that the variables have values that no other request of the same tenant may see.
	// Then the request gets a process of its own, and no error repeats a value.
	Secret bool
}

// Test asks which condition is true.
type Test struct {
	// Expressions are conditions: CEL expressions that are true or false. They are evaluated in order,
	// until one is true or fails.
	Expressions []string `json:"expressions"`
	// Variables are the names that the expressions can use, with their values. The values must have
	// the types of JSON, with int64 and float64 for numbers. Nil means that the expressions are only
	// parsed.
	Variables map[string]any `json:"variables"`
}

// Result is the result of a test.
type Result struct {
	// True is the index of the first expression that is true. It is -1 if no expression is true, or if
	// one fails.
	True int `json:"true"`
	// Failure says why an expression cannot be evaluated; nil if all can.
	Failure *Failure `json:"failure,omitempty"`
}

// Failure says why an expression cannot be evaluated.
type Failure struct {
	// Index is the index of the expression.
	Index int `json:"index"`
	// Invalid says that the expression is no CEL. Otherwise the expression does not fit to the
	// values of its variables.
	Invalid bool `json:"invalid"`
	// Message is what CEL says.
	Message string `json:"message"`
}

// maxMessage bounds what CEL says, in bytes.
const maxMessage = 500

// resultBytes bounds the JSON of one result. Each byte of a message can become six bytes.
const resultBytes = 6*maxMessage + 100

// Evaluate returns one result for each test. An error is one of [sandbox.Pool.Do]; its Reason says
// whether the request was too large or too slow.
func (e *Evaluator) Evaluate(ctx context.Context, request Request) (results []Result, err error) {
	content, err := json.Marshal(request.Tests)
	if err != nil {
		return nil, fmt.Errorf("encode the tests: %w", err)
	}
	sent := sandbox.Request{Tenant: request.Tenant, Function: Function, Parts: [][]byte{content}, Alone: request.Secret}
	err = e.pool.Do(ctx, sent, func(answer []byte) (err error) {
		if results, err = decode(answer, request.Tests); err != nil {
			return &sandbox.Error{
				Reason: sandbox.ReasonCrash, Err: fmt.Errorf("the evaluation gave no valid answer: %w", err),
				Fix: "report these expressions to the developers of Lanyard",
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range results {
		if failure := results[i].Failure; failure != nil && request.Secret && request.Tests[i].Variables != nil {
			failure.Message = "the evaluation fails; why is not shown, since the text may have values of Secrets"
		}
	}
	return results, nil
}

// decode reads an answer. Hostile input may have taken over the child, so decode trusts nothing.
func decode(answer []byte, tests []Test) ([]Result, error) {
	var results []Result
	if len(answer) > len(tests)*resultBytes+100 {
		return nil, errors.New("the answer is too long")
	}
	if err := json.Unmarshal(answer, &results); err != nil || len(results) != len(tests) {
		return nil, errors.New("the answer is not a list of results")
	}
	for i, test := range tests {
		r, n := results[i], len(test.Expressions)
		if r.True < -1 || r.True >= n || r.Failure != nil && (r.True != -1 || r.Failure.Index < 0 || r.Failure.Index >= n) {
			return nil, errors.New("the answer is about an expression that does not exist")
		}
		if r.Failure != nil {
			r.Failure.Message = plain.Text(clip(r.Failure.Message))
		}
	}
	return results, nil
}
