package world

import (
	"fmt"
	"io"
	"time"
)

// progress tells what was done and when. On a terminal a counter is one line that is written anew.
type progress struct {
	w        io.Writer
	terminal bool
	begin    time.Time
	counting bool // the terminal's line is a counter, and has no end yet
}

// step tells of a step that is done.
func (p *progress) step(format string, args ...any) {
	p.endCount()
	_, _ = fmt.Fprintf(p.w, "%s %s\n", p.elapsed(), fmt.Sprintf(format, args...)) // progress that nobody reads is no failure
}

// count tells how many rows of all are settled.
func (p *progress) count(settled, total int) {
	line := fmt.Sprintf("%s %d of %d objects are as they should be", p.elapsed(), settled, total)
	if !p.terminal {
		_, _ = fmt.Fprintln(p.w, line)
		return
	}
	_, _ = fmt.Fprint(p.w, "\r\x1b[K", line) // back to the line's begin, and clear it
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
