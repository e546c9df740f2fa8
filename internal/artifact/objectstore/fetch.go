package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

const (
	// Concurrency is the maximum number of objects that are fetched at the same time.
	Concurrency = 8
	// piece is how many bytes of an object are read ahead, before its turn to be written. The rest
	// of a longer object is read while the object is written.
	piece = 1 << 20
	// ahead is how many objects may wait to be written. Most of them wait without content, because
	// they are in the previous archive and need not be fetched.
	ahead = 4096
)

// item is the state of one object of the index.
type item struct {
	at      int      // position in the index
	content *pending // nil: the previous archive has the object
	err     error    // if not nil, this is the last item
}

// discard waits for the content, and closes it unread.
func (i item) discard() {
	if i.content == nil {
		return
	}
	if c, err := i.content.wait(); err == nil {
		c.close()
	}
}

// plan compares the index with the previous index, and starts to fetch the objects that differ.
// Both indexes are sorted. The channel delivers all objects in the index's order. It is closed
// early if ctx ends or an item has an error.
func plan(ctx context.Context, storage Storage, index *Index, previous *Previous) <-chan item {
	items := make(chan item, ahead)
	slots := make(chan struct{}, Concurrency)
	go func() {
		defer close(items)
		old := newCursor(index, previous)
		for at, e := range index.entries {
			it := item{at: at}
			current, err := old.has(e)
			switch {
			case err != nil:
				it.err = fmt.Errorf("%w: %w", ErrPrevious, err)
			case !current:
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				it.content = fetch(ctx, storage, e.Object, slots)
			}
			select {
			case items <- it:
			case <-ctx.Done():
				it.discard()
				return
			}
			if it.err != nil {
				return
			}
		}
	}()
	return items
}

// cursor walks through the previous index in step with the new index.
type cursor struct {
	lines *decoder // nil: no usable previous index
	at    entry
	begun bool
	ended bool
}

func newCursor(index *Index, previous *Previous) *cursor {
	if previous == nil {
		return &cursor{}
	}
	return &cursor{lines: newDecoder(previous.Index, index.header())}
}

// has reports whether the previous index has the same entry. Calls must be in ascending order of
// names.
func (c *cursor) has(e entry) (bool, error) {
	if c.lines == nil {
		return false, nil
	}
	for !c.ended && (!c.begun || c.at.name < e.name) {
		next, err := c.lines.next()
		switch {
		case errors.Is(err, io.EOF):
			c.ended = true
		case err != nil:
			return false, err
		case c.begun && next.name <= c.at.name:
			return false, errors.New("the index is not sorted")
		default:
			c.at, c.begun = next, true
		}
	}
	return !c.ended && c.at == e, nil
}

// pending is the content of an object that is being fetched.
type pending struct {
	ready chan struct{}
	content
	err error
}

// content is an object's content: its first piece in memory, and the rest as a stream.
type content struct {
	object  Object
	head    []byte
	rest    io.ReadCloser // nil if head is the whole content
	release func()        // gives the slot and the memory of the content back
}

// fetch starts to read an object. The caller must have taken a slot, by sending a value to slots.
// The slot is released when the content is closed, or when the fetch fails.
func fetch(ctx context.Context, storage Storage, o Object, slots <-chan struct{}) *pending {
	p := &pending{ready: make(chan struct{}), content: content{object: o, release: func() { <-slots }}}
	go func() {
		defer close(p.ready)
		size := headSize(o)
		if o.Size >= piece {
			size += attempt.StreamBuffer // more bytes arrive while the object waits for its turn
		}
		if p.err = reserve.Take(ctx, size); p.err != nil {
			p.release()
			return
		}
		p.release = func() {
			reserve.Free(ctx, size)
			<-slots
		}
		ended := attempt.Do(ctx, attempt.Reads, func() (broke bool) {
			broke, p.err = p.read(ctx, storage)
			return broke
		})
		if p.err == nil || ended != nil {
			p.err = context.Cause(ctx)
		}
		if p.err != nil {
			p.closeBody()
			p.release()
		}
	}()
	return p
}

// headSize returns how many bytes of an object are read ahead. It is one byte more than the listing
// said, to detect an object that is too long.
func headSize(o Object) int64 { return min(o.Size+1, piece) }

// errPanicked leaves out the panic's value, which may contain anything.
var errPanicked = errors.New("the client of the service panicked on its answer; report this as a fault of lanyard-controller")

// read opens the object and reads its first piece. It reports whether the answer broke off, so that
// the caller can try again. The HTTP client retries only until the answer begins.
func (p *pending) read(ctx context.Context, storage Storage) (broke bool, err error) {
	o := p.object
	defer func() {
		// Here a third party's client decodes answers that a tenant chose. Nothing else recovers in
		// this goroutine, so a panic would end the program.
		if recover() != nil {
			broke, err = false, fmt.Errorf("object %s: %w", archive.Quote(o.Key), errPanicked)
		}
	}()
	body, err := storage.Open(ctx, o)
	if err != nil {
		return false, fmt.Errorf("object %s: %w", archive.Quote(o.Key), err)
	}
	p.head = make([]byte, headSize(o))
	n, err := io.ReadFull(body, p.head)
	p.head = p.head[:n]
	if err == nil && o.Size >= piece {
		p.rest = body
		return false, nil
	}
	_ = body.Close()
	switch {
	case int64(n) > o.Size:
		return false, changed(o)
	case int64(n) < o.Size:
		return attempt.Explain(err).Cause != attempt.TooSlow, broken(o, err)
	default:
		return false, nil
	}
}

// wait waits until the first piece is read or the fetch has failed. The fetch's context bounds the
// wait.
func (p *pending) wait() (*content, error) {
	<-p.ready
	return &p.content, p.err
}

// copy writes the content and checks its length.
func (c *content) copy(out io.Writer) error {
	if _, err := out.Write(c.head); err != nil || c.rest == nil {
		return err
	}
	source := &reader{r: c.rest}
	missing := c.object.Size - int64(len(c.head))
	n, err := io.CopyN(out, source, missing)
	switch {
	case n < missing && source.err == nil && !errors.Is(err, io.EOF):
		return err // writing to out failed
	case n < missing:
		return broken(c.object, source.err)
	}
	if n, _ := io.ReadFull(c.rest, make([]byte, 1)); n > 0 {
		return changed(c.object)
	}
	return nil
}

// close releases the content and its slot, so that another object can be fetched.
func (c *content) close() {
	c.head = nil
	c.closeBody()
	c.release()
}

func (c *content) closeBody() {
	if c.rest != nil {
		_ = c.rest.Close()
		c.rest = nil
	}
}

// changed returns the error for an object that is longer than the listing said.
func changed(o Object) error {
	return &origin.Error{Code: origin.CodeChanged, Err: fmt.Errorf("object %s has changed since it was listed", archive.Quote(o.Key))}
}

// broken returns the error for content that ended too early. If the caller's context has ended, the
// error wraps the context's error, so that callers can explain it.
func broken(o Object, err error) error {
	early := fmt.Errorf("the content of object %s broke off", archive.Quote(o.Key))
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		early = fmt.Errorf("%w: no answer in time: %w", early, err)
	default:
		early = fmt.Errorf("%w: %w", early, attempt.Explain(err))
	}
	return &origin.Error{Code: origin.CodeUnreachable, Err: early}
}
