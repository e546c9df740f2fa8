//go:build unix && !linux

package local

import (
	"os"
	"syscall"
)

// flock locks a file for this process. The kernel unlocks the file when the process ends, even by a
// crash.
func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// childAttributes protect a child from an interrupt at the terminal, so that its owner can stop it
// cleanly. If the owner is killed, the kernel does not kill its children. They still end. A control
// plane ends by itself. A controller without an API server loses its lease and ends.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
