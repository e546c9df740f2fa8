// Package logtail stores the last lines of a child process's log. They become part of the error
// that says how the process ended.
package logtail

import (
	"bytes"
	"strings"
	"sync"
)

// Size is the number of bytes that a Tail stores: enough for an error and the lines before it.
const Size = 2 << 10

// Tail is a writer that stores only the last Size bytes. It is safe for concurrent use.
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

// String returns the stored text. If older text was dropped, the result begins with a whole line.
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
