//go:build !linux

package sandbox

import "errors"

// Protect does nothing on this system.
func Protect() error { return nil }

// confine fails: only Linux can take a process's rights away.
func confine(limits) error { return errors.New("this system has no seccomp: run the program on Linux") }
