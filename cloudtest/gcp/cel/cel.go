// Package cel evaluates the attribute mappings and conditions of workload identity providers. They
// are written in the Common Expression Language. Google's own function extract() is missing:
// [Compile] refuses an expression that uses it.
//
// Source: IAM, "Workload Identity Federation: attribute mappings, attribute conditions".
package cel

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

// ErrEvaluation is wrapped by each error of [Expr.Eval].
var ErrEvaluation = errors.New("the expression cannot be evaluated")

// maxCost is the limit of an evaluation, in the units of cel-go. A typical expression needs a few
// hundred units.
const maxCost = 100_000

// Expr is a compiled expression. It is immutable.
type Expr struct{ program cel.Program }

// Compile parses an expression that may use the given variables. Each variable is a map.
func Compile(source string, variables ...string) (Expr, error) {
	options := []cel.EnvOption{ext.Strings(), cel.ParserRecursionLimit(100)}
	for _, name := range variables {
		options = append(options, cel.Variable(name, cel.MapType(cel.StringType, cel.DynType)))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return Expr{}, err
	}
	ast, issues := env.Compile(source)
	if err := issues.Err(); err != nil {
		return Expr{}, err
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost))
	return Expr{program}, err
}

// Eval evaluates the expression with values for its variables. The values must have the types that
// encoding/json decodes into an any. The error wraps [ErrEvaluation].
func (e Expr) Eval(variables map[string]any) (any, error) {
	if e.program == nil {
		return nil, fmt.Errorf("%w: there is none", ErrEvaluation)
	}
	value, _, err := e.program.Eval(variables)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEvaluation, err)
	}
	if value.Type() != types.ListType {
		return value.Value(), nil
	}
	list, err := value.ConvertToNative(reflect.TypeFor[[]any]())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEvaluation, err)
	}
	return list, nil
}
