package local

import (
	"os"
	"syscall"
)

// flock takes a file for this process alone; the kernel releases it when the process ends, however
// it ends.
func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// childAttributes make a child that an interrupt at the terminal does not reach: its owner stops it
// in order. The kernel kills the child when its owner is gone.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
