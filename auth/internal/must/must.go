// Package must ends tests whose preparation fails. Only tests and their helpers import this package.
package must

import "testing"

// Succeed ends the test if err is not nil. The test's output names the line of the caller.
func Succeed(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
