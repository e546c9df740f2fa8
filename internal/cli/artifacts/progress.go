package artifacts

import (
	"fmt"
	"io"
	"time"
)

// progressPause is the least time between two lines of progress.
const progressPause = 100 * time.Millisecond

// progress shows on a terminal how much of a transfer is done. It overwrites a single line. Without
// a terminal, it shows nothing.
type progress struct {
	w     io.Writer // nil without a terminal
	what  string
	shown time.Time
}

// newProgress returns the progress of one transfer.
func (j *job) newProgress(what string) *progress {
	if !j.std.Terminal {
		return &progress{}
	}
	return &progress{w: j.std.Err, what: what}
}

// show prints the progress: how many bytes were transferred, and how many there are in total.
func (p *progress) show(done, total int64) {
	if p.w == nil || time.Since(p.shown) < progressPause && done < total {
		return
	}
	p.shown = time.Now()
	percent := int64(100)
	if total > 0 {
		percent = 100 * done / total
	}
	// The first characters go back to the start of the line, and clear the line.
	_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s %s of %s (%d %%)", p.what, bytesText(done), bytesText(total), percent)
}

// end clears the line.
func (p *progress) end() {
	if p.w != nil && !p.shown.IsZero() {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// watched is a reader that shows the progress.
type watched struct {
	io.Reader

	progress    *progress
	done, total int64
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.done += int64(n)
	w.progress.show(w.done, w.total)
	return n, err
}

// bytesText formats a number of bytes for people.
func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	}
}
