// Package must has helpers that end a test whose preparation fails. Only tests and their helpers
// import this package.
package must

import "testing"

// Succeed ends the test if err is not nil. The test's output has the caller's line.
func Succeed(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
