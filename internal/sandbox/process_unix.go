//go:build unix

package sandbox

import "syscall"

// pause stops the process: an idle child cannot compute. kill also ends a paused process.
func (c *child) pause() { _ = c.process.Process.Signal(syscall.SIGSTOP) }

// resume lets a paused process go on.
func (c *child) resume() { _ = c.process.Process.Signal(syscall.SIGCONT) }

// maxInherited is above the number of every file that a program's starter may have left open.
const maxInherited = 1024

// keepInheritedFiles keeps open files of this process from its children. Go does so for files that
// it opens itself, but not for files that were open when the process started.
func keepInheritedFiles() {
	for fd := 3; fd < maxInherited; fd++ {
		syscall.CloseOnExec(fd)
	}
}
