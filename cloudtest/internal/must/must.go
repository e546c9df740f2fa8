// Package must provides [Succeed], which ends a test when its setup fails. Only tests and their
// helpers import this package.
package must

import "testing"

// Succeed ends the test if err is not nil. The failure is reported at the caller's line.
func Succeed(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
