//go:build unix && !linux

package local

import (
	"os"
	"syscall"
)

// flock takes a file for this process alone; the kernel releases it when the process ends, however
// it ends.
func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// childAttributes make a child that an interrupt at the terminal does not reach, since its owner
// stops it in order. When its owner is killed, the control plane ends too, and a controller without
// an API server loses its lease and ends.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
