//go:build !linux

package artifacts

import "errors"

// exchange always fails: only Linux can swap two paths in one atomic step.
func exchange(string, string) error { return errors.ErrUnsupported }
