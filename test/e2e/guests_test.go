//go:build !flux

package e2e

// guests returns the user agents of programs that are not Lanyard's, and that these tests run as an
// administrator.
func guests() []string { return nil }
