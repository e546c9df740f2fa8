package origin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// TestCommandSteps checks the next steps for the user of a command. The steps say what a command
// can do, and mention neither an object's fields nor the controller.
func TestCommandSteps(t *testing.T) {
	for _, anonymous := range []bool{false, true} {
		for _, proxy := range []string{"", "HTTPS_PROXY"} {
			s := origin.Server{Kind: origin.Registry, Host: "server.example", Caller: origin.Caller{Anonymous: anonymous, CommandLine: true, Proxy: proxy}}
			var errs []error
			for _, code := range constants(t, "error.go", "Code") {
				errs = append(errs, &origin.Error{Server: s, Code: origin.Code(code), Err: errors.New("cause")})
			}
			for _, cause := range constants(t, "../../../auth/transport/attempt/failure.go", "Cause") {
				// Only the address guard refuses addresses, and commands have no guard.
				if attempt.Cause(cause) != attempt.AddressNotAllowed {
					errs = append(errs, s.NoAnswer(t.Context(), &attempt.Failure{Cause: attempt.Cause(cause), ProxyStatus: 407}))
				}
			}
			for _, err := range errs {
				_, step, _ := strings.Cut(err.Error(), "; ")
				if step == "" || strings.Contains(step, "controller") || strings.Contains(step, "spec.") {
					t.Errorf("anonymous %t, proxy %q: %v", anonymous, proxy, err)
				}
			}
		}
	}
}
