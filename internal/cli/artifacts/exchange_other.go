//go:build !linux

package artifacts

import "errors"

// exchange has two paths change places at once. Only Linux can.
func exchange(string, string) error { return errors.ErrUnsupported }
