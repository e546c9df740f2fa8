package world

import (
	"fmt"
	"io"
	"time"
)

// progress prints each step that is done, with the elapsed time. On a terminal, a counter
// overwrites its own line.
type progress struct {
	w        io.Writer
	terminal bool
	begin    time.Time
	counting bool // the terminal's current line is a counter, and has no newline yet
}

// step prints a step that is done.
func (p *progress) step(format string, args ...any) {
	p.endCount()
	_, _ = fmt.Fprintf(p.w, "%s %s\n", p.elapsed(), fmt.Sprintf(format, args...)) // the command continues if progress cannot be written
}

// count prints how many of all objects are settled.
func (p *progress) count(settled, total int) {
	line := fmt.Sprintf("%s %d of %d objects are as they should be", p.elapsed(), settled, total)
	if !p.terminal {
		_, _ = fmt.Fprintln(p.w, line)
		return
	}
	_, _ = fmt.Fprint(p.w, "\r\x1b[K", line) // go back to the start of the line, and clear it
	p.counting = true
}

// endCount ends the counter's line.
func (p *progress) endCount() {
	if p.counting {
		p.counting = false
		_, _ = fmt.Fprintln(p.w)
	}
}

func (p *progress) elapsed() string { return fmt.Sprintf("[%5.1fs]", time.Since(p.begin).Seconds()) }
