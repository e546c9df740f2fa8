package gcp

import (
	"errors"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// parseScopes returns the scopes in a list, or [DefaultScope] if the list is empty.
func parseScopes(list auth.List) ([]string, error) {
	if list.IsZero() {
		return []string{DefaultScope}, nil
	}
	scopes := list.Values()
	for _, scope := range scopes {
		if !isScope(scope) {
			return nil, &auth.Error{
				Stage: auth.StageSubject, Code: auth.CodeOptionInvalid,
				Fix: "write each scope by itself, such as " + DefaultScope,
				Err: errors.New("a scope has a character that a scope cannot have"),
			}
		}
	}
	return scopes, nil
}

// isScope reports whether s is one scope: printable ASCII without space, quote and backslash.
// Source: RFC 6749 §3.3.
func isScope(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}
