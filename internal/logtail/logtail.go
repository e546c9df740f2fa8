// Package logtail keeps the end of a child process's log, for the error when the process ends.
package logtail

import (
	"bytes"
	"strings"
	"sync"
)

// Size is how many bytes are kept: a final error and some lines before it.
const Size = 2 << 10

// Tail keeps the end of what is written to it. It is safe for concurrent use.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - Size; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// String returns the tail, from a line's beginning on where it was cut.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.text
	if len(text) == Size {
		if _, rest, ok := bytes.Cut(text, []byte("\n")); ok {
			text = rest
		}
	}
	return strings.TrimSpace(string(text))
}
