package contextobject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

const (
	// maxCost is the maximum CEL cost of one expression, in the unit of Kubernetes' limits for CEL.
	// maxCost is also the maximum total cost of all expressions of one request. The program checks
	// the total after each expression. So the last expression can raise the total to at most twice
	// maxCost. The largest set of claims that Lanyard ships, for a Shoot of Gardener, costs 296.
	// Loops that reach the limit take up to 10 ms of processor time.
	maxCost = 5_000
	// maxTime is the maximum time for all expressions of one request together. This second limit is
	// for expressions whose CEL cost is counted too low. The time includes waiting for a processor.
	// So in a busy program, even a cheap expression can exceed maxTime. The caller must then send
	// the request again.
	maxTime = 250 * time.Millisecond
	// maxClaims is the maximum size of all configured claims of a token as JSON, in bytes. A token
	// must fit into a header, and clouds refuse long tokens.
	maxClaims = 4096
)

// The names of CEL variables. The expressions of a kind's relation and claims can use all of them.
// The expressions in an entry of the field Via can use only objectVariable, and the variables of
// earlier entries.
const (
	objectVariable   = "object"
	identityVariable = "identity"
	clusterVariable  = "cluster"
)

// expression is a CEL expression that is compiled.
type expression struct {
	text    string
	program cel.Program
}

// variables are the names of the CEL variables for the entries of the field Via.
type variables []string

// admit returns an error if the next entry of the field Via cannot use the name for its variable.
func (v variables) admit(name string) error {
	if slices.Contains([]string{objectVariable, identityVariable, clusterVariable}, name) || slices.Contains(v, name) {
		return fmt.Errorf("there is a variable %s already", name)
	}
	env, err := v.env(name)
	if err != nil {
		return err
	}
	if _, issues := env.Compile(name); issues.Err() != nil || !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`).MatchString(name) {
		return fmt.Errorf("%q cannot be a variable of CEL; use letters and digits, but no reserved word of CEL", name)
	}
	return nil
}

// name compiles an expression for the name or the namespace of an object.
func (v variables) name(text string) (expression, error) {
	e, checked, err := v.compile(text)
	if err != nil {
		return expression{}, err
	}
	switch t := checked.OutputType(); {
	case t.IsExactType(cel.StringType), t.IsExactType(cel.DynType),
		t.IsExactType(cel.OptionalType(cel.StringType)), t.IsExactType(cel.OptionalType(cel.DynType)):
		return e, nil
	default:
		return expression{}, fmt.Errorf("must be a string, but is %s", t)
	}
}

// relation compiles the expression of the field Relation.
func (v variables) relation(text string) (expression, error) {
	e, checked, err := v.compile(text, identityVariable, clusterVariable)
	if err != nil {
		return expression{}, err
	}
	mentions := mentioned(checked)
	switch {
	case !checked.OutputType().IsExactType(cel.BoolType):
		return expression{}, fmt.Errorf("must be a bool, but is %s; compare, for example with == true", checked.OutputType())
	case !slices.Contains(mentions, identityVariable):
		return expression{}, errors.New("must mention identity: otherwise the object would belong to every identity")
	case !slices.ContainsFunc(append(slices.Clone(v), objectVariable), func(name string) bool { return slices.Contains(mentions, name) }):
		return expression{}, errors.New("must mention object, or an object of via: otherwise the identity could be used for every object")
	}
	return e, nil
}

// claim compiles the value of a claim.
func (v variables) claim(name, text string) (expression, error) {
	if err := checkClaim(name); err != nil {
		return expression{}, err
	}
	e, _, err := v.compile(text, identityVariable, clusterVariable)
	return e, err
}

// env returns the CEL environment of Kubernetes with more variables. Their names are
// objectVariable, the elements of v, and the elements of further.
func (v variables) env(further ...string) (*cel.Env, error) {
	options := []cel.EnvOption{cel.Variable(objectVariable, cel.DynType)}
	for _, name := range further {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	for _, name := range v {
		options = append(options, cel.Variable(name, cel.OptionalType(cel.DynType)))
	}
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	return base.NewExpressionsEnv().Extend(options...)
}

// compile compiles an expression that can use the variables of [variables.env].
func (v variables) compile(text string, further ...string) (expression, *cel.Ast, error) {
	if strings.TrimSpace(text) == "" {
		return expression{}, nil, errors.New("is required: write a CEL expression")
	}
	env, err := v.env(further...)
	if err != nil {
		return expression{}, nil, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		var messages []string
		for _, issue := range issues.Errors() {
			messages = append(messages,
				fmt.Sprintf("line %d, column %d: %s", issue.Location.Line(), issue.Location.Column()+1, issue.Message))
		}
		return expression{}, nil, errors.New("is no valid CEL: " + strings.Join(messages, "; "))
	}
	if name := findUnbounded(checked); name != "" {
		return expression{}, nil, fmt.Errorf(
			"must not use the function %s: its time grows faster than the object; use all, exists or filter", name)
	}
	program, err := env.Program(checked, cel.CostLimit(maxCost), cel.CostTracking(&library.CostEstimator{}), cel.InterruptCheckFrequency(1))
	return expression{text: text, program: program}, checked, err
}

// findUnbounded returns the name of a forbidden function that an expression uses, or an empty
// string. A function runs to its end before its cost is counted, and cannot be interrupted. Tenants
// choose the arguments of functions. So a function is forbidden if its time or memory can grow
// faster than the size of its arguments.
func findUnbounded(checked *cel.Ast) string {
	for _, call := range ast.MatchDescendants(ast.NavigateAST(checked.NativeRep()), ast.KindMatcher(ast.CallKind)) {
		switch name := call.AsCall().FunctionName(); name {
		case "distinct", "sets.contains", "sets.equivalent", "sets.intersects", "sort", "lists.range":
			return name
		case "@sortByAssociatedKeys": // the macro sortBy calls this function
			return "sortBy"
		}
	}
	return ""
}

// mentioned returns the variables and functions that an expression uses.
func mentioned(checked *cel.Ast) []string {
	var names []string
	for _, reference := range checked.NativeRep().ReferenceMap() {
		names = append(names, reference.Name)
	}
	return names
}

// evaluation has the variables for the expressions of one request, and the cost of these
// expressions so far.
type evaluation struct {
	variables map[string]any
	cost      uint64
	time      time.Duration
}

// set sets the variable for an entry of the field Via. If object is nil, the variable is an
// optional without a value.
func (e *evaluation) set(name string, object map[string]any) {
	value := types.OptionalNone
	if object != nil {
		value = types.OptionalOf(types.DefaultTypeAdapter.NativeToValue(object))
	}
	e.variables[name] = value
}

func (e *evaluation) eval(ctx context.Context, x expression) (ref.Val, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime-e.time, errTooSlow)
	defer cancel()
	start := time.Now()
	value, details, err := x.program.ContextEval(ctx, e.variables)
	e.time += time.Since(start)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", x.text, err)
	}
	if spent := details.ActualCost(); spent != nil {
		e.cost += *spent
	}
	if e.cost > maxCost {
		return nil, fmt.Errorf("expression %q: %w", x.text, errTooCostly)
	}
	if optional, ok := value.(*types.Optional); ok {
		if !optional.HasValue() {
			return types.NullValue, nil
		}
		value = optional.GetValue()
	}
	return value, nil
}

// name returns the name of an object; empty if there is none.
func (e *evaluation) name(ctx context.Context, x expression) (string, error) {
	value, err := e.eval(ctx, x)
	if err != nil {
		return "", err
	}
	switch value := value.(type) {
	case types.Null:
		return "", nil
	case types.String:
		return string(value), nil
	default:
		return "", fmt.Errorf("expression %q: must be a string, but is %s", x.text, value.Type().TypeName())
	}
}

// holds reports whether an object uses the identity: it evaluates the field Relation.
func (e *evaluation) holds(ctx context.Context, x expression) (bool, error) {
	value, err := e.eval(ctx, x)
	return value == types.True, err
}

// claims returns the values of all claims, as Go values that JSON can encode.
func (e *evaluation) claims(ctx context.Context, claims map[string]expression) (map[string]any, error) {
	made := map[string]any{}
	room := maxClaims
	for name, x := range claims {
		value, err := e.eval(ctx, x)
		if err != nil {
			return nil, fmt.Errorf("claim %s: %w", name, err)
		}
		if value == types.NullValue {
			continue
		}
		if made[name], err = plain(value, &room); err != nil {
			return nil, fmt.Errorf("claim %s: %w", name, err)
		}
	}
	if data, err := json.Marshal(made); err != nil || len(data) > maxClaims {
		return nil, errors.Join(errTooLarge, err)
	}
	return made, nil
}

// Errors for an object whose claims are too large, or whose expressions are too costly or too slow.
var (
	errTooLarge  = fmt.Errorf("the claims have more than %d bytes", maxClaims)
	errTooCostly = fmt.Errorf("the expressions for the object cost more than %d", maxCost)
	errTooSlow   = fmt.Errorf("the expressions for the object take longer than %s", maxTime)
)

// plain copies a CEL value into Go values that JSON can encode. It fails if the copy needs more
// than the remaining room, in bytes of JSON. Without this bound, a small value could make a huge
// copy: it can contain the same part many times.
func plain(value ref.Val, room *int) (any, error) {
	if *room--; *room < 0 {
		return nil, errTooLarge
	}
	switch value := value.(type) {
	case types.Null:
		return nil, nil // the value null
	case types.Bool:
		return bool(value), nil
	case types.Int:
		return int64(value), nil
	case types.Uint:
		return uint64(value), nil
	case types.Double:
		if math.IsNaN(float64(value)) || math.IsInf(float64(value), 0) {
			return nil, errors.New("JSON has no such number")
		}
		return float64(value), nil
	case types.String:
		*room -= len(value)
		return string(value), nil
	case traits.Lister:
		list := []any{}
		for each := value.Iterator(); each.HasNext() == types.True; {
			element, err := plain(each.Next(), room)
			if err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		return list, nil
	case traits.Mapper:
		return plainMap(value, room)
	default:
		return nil, fmt.Errorf("must be of a type that JSON has, but is %s", value.Type().TypeName())
	}
}

func plainMap(value traits.Mapper, room *int) (any, error) {
	object := map[string]any{}
	for each := value.Iterator(); each.HasNext() == types.True; {
		next := each.Next()
		key, ok := next.(types.String)
		if !ok {
			return nil, fmt.Errorf("the keys of a claim must be strings, but a key is %s", next.Type().TypeName())
		}
		*room -= len(key)
		element, err := plain(value.Get(key), room)
		if err != nil {
			return nil, err
		}
		object[string(key)] = element
	}
	return object, nil
}
