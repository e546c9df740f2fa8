package origin_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// constants returns the values of all constants of a type in a package's file.
func constants(t *testing.T, file, typ string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	must.Succeed(t, err)
	var values []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == typ {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			must.Succeed(t, err)
			values = append(values, value)
		}
		return true
	})
	if len(values) < 10 {
		t.Fatalf("%d constants of type %s in %s: the test looks in the wrong place", len(values), typ, file)
	}
	return values
}

// servers calls check once for each combination of these: the server's kind, a credential or none,
// a cloud or none, and a proxy or none.
func servers(check func(origin.Server)) {
	for _, kind := range []origin.Kind{origin.Registry, origin.Endpoint} {
		for _, anonymous := range []bool{false, true} {
			for _, provider := range []string{"", "aws"} {
				for _, proxy := range []string{"", "spec.proxySecretRef"} {
					check(origin.Server{Kind: kind, Host: "server.example", Caller: origin.Caller{Anonymous: anonymous, Provider: provider, Proxy: proxy}})
				}
			}
		}
	}
}

// checkText checks that an error has a cause, and a next step that the caller can take.
func checkText(t *testing.T, s origin.Server, err error) {
	t.Helper()
	text := err.Error()
	cause, step, _ := strings.Cut(text, "; ")
	switch {
	case !strings.HasPrefix(cause, string(s.Kind)+" server.example: "), strings.HasSuffix(cause, ": "):
		t.Errorf("%+v: no cause: %s", s, text)
	case step == "", strings.Contains(step, "; ;"), strings.HasSuffix(strings.TrimSpace(step), ";"):
		t.Errorf("%+v: no next step: %s", s, text)
	case s.Anonymous && (strings.Contains(text, "this identity") || strings.Contains(text, "the credential is")):
		t.Errorf("%+v: no credential was sent, but it says: %s", s, text)
	case !s.Anonymous && (strings.Contains(text, "no credential") || strings.Contains(text, "spec.provider")):
		t.Errorf("%+v: a credential was sent, but it says: %s", s, text)
	case s.Proxy == "" && strings.Contains(text, "spec.proxySecretRef"):
		t.Errorf("%+v: there is no proxy, but it says: %s", s, text)
	case s.Kind == origin.Endpoint && (strings.Contains(text, "repository") || strings.Contains(text, "registry")):
		t.Errorf("%+v: there is no registry, but it says: %s", s, text)
	case s.Kind == origin.Registry && strings.Contains(text, "endpoint"):
		t.Errorf("%+v: there is no endpoint, but it says: %s", s, text)
	}
}

// TestEveryCodeHasANextStep checks each code for every kind of server and caller. It reads the
// codes from the source, so it covers every new code.
func TestEveryCodeHasANextStep(t *testing.T) {
	onlyBuckets := map[origin.Code]bool{origin.CodeChanged: true}
	onlyRegistries := map[origin.Code]bool{
		origin.CodeInvalidURL: true, origin.CodeInvalidReference: true, origin.CodeTagNotFound: true, origin.CodeBlobNotFound: true,
		origin.CodeNoMatch: true, origin.CodeUnsupportedMediaType: true, origin.CodeDigestMismatch: true, origin.CodeTruncated: true,
	}
	// If no credential was sent, the steps for these codes ask for a credential. If the host
	// belongs to a cloud, the steps also mention spec.provider.
	wantsCredential := map[origin.Code]bool{
		origin.CodeUnauthorized: true, origin.CodeDenied: true, origin.CodeNotFound: true, origin.CodeThrottled: true,
	}
	// The proxy may be the cause of these codes.
	wantsProxy := map[origin.Code]bool{
		origin.CodeUnreachable: true, origin.CodeServer: true, origin.CodeProtocol: true, origin.CodeDigestMismatch: true, origin.CodeTruncated: true,
	}
	for _, name := range constants(t, "error.go", "Code") {
		code := origin.Code(name)
		servers(func(s origin.Server) {
			if s.Kind == origin.Registry && onlyBuckets[code] || s.Kind == origin.Endpoint && onlyRegistries[code] {
				return
			}
			err := &origin.Error{Server: s, Code: code, Err: errors.New("a cause")}
			checkText(t, s, err)
			text := err.Error()
			if asks := strings.Contains(text, "no credential was sent"); asks != (wantsCredential[code] && s.Anonymous) {
				t.Errorf("%s, %+v: %s", code, s, text)
			}
			wantsProvider := wantsCredential[code] || code == origin.CodeProtocol
			if named := strings.Contains(text, "set spec.provider: aws"); named != (wantsProvider && s.Anonymous && s.Provider == "aws") {
				t.Errorf("%s, %+v: %s", code, s, text)
			}
			if named := strings.Contains(text, "the proxy in spec.proxySecretRef"); named != (wantsProxy[code] && s.Proxy != "") {
				t.Errorf("%s, %+v: %s", code, s, text)
			}
		})
	}
}

// TestEveryStatusHasANextStep checks that the error for each HTTP status has a next step, even if
// the answer has no body.
func TestEveryStatusHasANextStep(t *testing.T) {
	for status := 300; status < 600; status++ {
		servers(func(s origin.Server) {
			err := s.Answered(status)
			checkText(t, s, err)
			if !strings.Contains(err.Error(), "HTTP "+strconv.Itoa(status)) {
				t.Errorf("%d, %+v: %v", status, s, err)
			}
		})
	}
}

// TestEveryLostConnectionHasANextStep checks requests that the server did not answer, for example
// because a proxy refused the connection. Whatever the cause, the error must have a next step.
func TestEveryLostConnectionHasANextStep(t *testing.T) {
	for _, status := range []int{301, 400, 401, 403, 404, 405, 407, 500, 502, 503, 504, 599} {
		servers(func(s origin.Server) {
			err := s.NoAnswer(t.Context(), &attempt.ProxyError{Status: status})
			checkText(t, s, err)
			if !strings.Contains(err.Error(), "the proxy answered HTTP "+strconv.Itoa(status)) {
				t.Errorf("%+v: %v", s, err)
			}
		})
	}
	servers(func(s origin.Server) {
		err := s.NoAnswer(t.Context(), errors.New("something else"))
		checkText(t, s, err)
		if by := strings.Contains(err.Error(), "the proxy in spec.proxySecretRef can reach"); by != (s.Proxy != "") {
			t.Errorf("%+v: %v", s, err)
		}
	})
}
