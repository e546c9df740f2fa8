package gcp

import (
	"errors"
	"net/url"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// scopes are those of the key, or the default one.
func scopes(list auth.List) ([]string, error) {
	if list.IsZero() {
		return []string{DefaultScope}, nil
	}
	parts := strings.Split(list.String(), ",")
	for i, part := range parts {
		scope, err := url.PathUnescape(part)
		if err != nil || !isScope(scope) {
			return nil, &auth.Error{
				Stage: auth.StageSubject, Code: auth.CodeOptionInvalid,
				Fix: "write each scope by itself, such as " + DefaultScope,
				Err: errors.New("a scope has a character that no scope has"),
			}
		}
		parts[i] = scope
	}
	return parts, nil
}

func checkScopes(list auth.List) error {
	_, err := scopes(list)
	return err
}

// isScope reports whether s is one scope: printable ASCII without space, quote and backslash. Source: RFC 6749 §3.3.
func isScope(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}
