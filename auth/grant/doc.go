// Package grant decides which namespaces may use an identity.
//
// Only this package interprets an allowedNamespaces block and the value of
// --controller-identity-namespaces, which has the same form. The rule fails closed:
//
//	allowedNamespaces                 admits
//	absent, null                      nobody
//	{}                                every namespace
//	{list: [a, b]}                    a and b
//	{selector: {matchLabels: …}}      the namespaces whose labels match
//	{list: […], selector: {…}}        the namespaces that either of the two admits
//	{list: []}, {list: null}          nobody: a key is present, so this is not {}
//	{selector: {}}, and the like      nobody: an empty selector matches nothing here
//
// A grant with an invalid part, such as an unknown operator, admits nobody. If the labels of a
// namespace could not be read, the selector does not admit the namespace.
//
// Encoding and decoding a grant never changes its decisions. For example, a list that loses its
// last namespace is encoded as an empty list, never as {}.
package grant
