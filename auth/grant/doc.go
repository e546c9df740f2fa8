// Package grant decides which namespaces may use an identity.
//
// It is the one place that interprets an allowedNamespaces block, and the value of --controller-identity-namespaces, which
// has the same form. The rule fails closed:
//
//	allowedNamespaces                 admits
//	absent, null                      nobody
//	{}                                every namespace
//	{list: [a, b]}                    a and b
//	{selector: {matchLabels: …}}      the namespaces whose labels match
//	{list: […], selector: {…}}        those of either
//	{list: []}, {list: null}          nobody: a key is present, so this is not {}
//	{selector: {}}, and the like      nobody: an empty selector matches nothing here
//
// What cannot be decided (an unknown operator, labels that could not be read) admits nobody. A decision survives
// any number of encodings: removing the last namespace of a list leaves an empty list, never {}.
package grant
