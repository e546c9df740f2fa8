// Package component runs the parts of a program side by side. Each part runs until it is stopped. A
// part that ends by itself is reported.
package component

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// Component is a running part of a program.
type Component struct {
	name   string
	grace  time.Duration // how long Stop waits
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned
	err    error         // what run returned; valid once done is closed
}

// Start starts a component: a new goroutine calls run. After its context is cancelled, run should
// return within the grace period. Errors about the component contain its name.
func Start(ctx context.Context, name string, grace time.Duration, run func(context.Context) error) *Component {
	ctx, cancel := context.WithCancel(ctx)
	c := &Component{name: name, grace: grace, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = run(ctx)
	}()
	return c
}

// ErrStillRunning says that a component did not end within its grace period.
var ErrStillRunning = errors.New("still running")

// Stop asks the component to end, and waits for the end, but no longer than the grace period. For a
// component that ended by itself, Stop returns no error: FirstToEnd and WaitFor report such an end.
func (c *Component) Stop() error {
	select {
	case <-c.done:
		c.cancel()
		return nil
	default:
	}
	c.cancel()
	select {
	case <-c.done:
		if c.err != nil && !errors.Is(c.err, context.Canceled) {
			return fmt.Errorf("stop %s: %w", c.name, c.err)
		}
		return nil
	case <-time.After(c.grace):
		return fmt.Errorf("stop %s: %w after %s", c.name, ErrStillRunning, c.grace)
	}
}

// Failure is the error of a component that ended without being asked to. Call Failure only for the
// component that FirstToEnd returned.
func (c *Component) Failure() error {
	if c.err == nil {
		return fmt.Errorf("%s ended by itself", c.name)
	}
	return fmt.Errorf("%s: %w", c.name, c.err)
}

// FirstToEnd waits until a component ends and returns it, or nil once ctx ends.
func FirstToEnd(ctx context.Context, components []*Component) *Component {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
	for _, c := range components {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c.done)})
	}
	if i, _, _ := reflect.Select(cases); i > 0 {
		return components[i-1]
	}
	return nil
}

// WaitFor calls a function 50 times a second, until the function returns nil. It gives up when ctx
// ends, when a component ends, or after five minutes. The error then includes the function's last
// error. An API server is usually ready within seconds. One minute was not enough on a machine with
// two simultaneous runs of all tests.
func WaitFor(ctx context.Context, components []*Component, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	watch, failed := context.WithCancelCause(ctx)
	go func() {
		if c := FirstToEnd(watch, components); c != nil {
			failed(c.Failure())
		}
	}()
	defer failed(nil)

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(watch)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-watch.Done():
			return fmt.Errorf("%w (last answer: %w)", context.Cause(watch), err)
		}
	}
}
