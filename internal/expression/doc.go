// Package expression evaluates CEL expressions that tenants write: conditions of objects.
//
// Tenants choose the expressions and the objects. A short expression can need much memory: the
// function replace can multiply the sizes of its arguments. The cost of a function of CEL is counted
// only after the function has ended. So an [Evaluator] sends each expression to a child of package
// sandbox, which the kernel limits. Besides, each evaluation has a limit of CEL's own cost.
//
// The language is that of Flux: CEL with the libraries strings, sets and encoders, with optional
// types, and with comparisons between types of numbers. Expressions are parsed, but their types are
// not checked before the evaluation, since the fields of an object are not known.
package expression
