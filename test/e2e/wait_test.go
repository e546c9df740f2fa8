package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const (
	// patience bounds a wait for something that should happen soon.
	patience = 90 * time.Second
	// pollEvery is the pause between two checks.
	pollEvery = 200 * time.Millisecond
)

// eventually calls the function look until it returns nil. At the deadline, the test fails with
// look's last error.
func eventually(t *testing.T, what string, look func(ctx context.Context) error) {
	t.Helper()
	within(t, patience, what, look)
}

// within is like eventually, with another time limit.
func within(t *testing.T, limit time.Duration, what string, look func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	var last error
	for {
		err := look(ctx)
		if err == nil {
			return
		}
		// After the deadline, keep the former error. The deadline itself may have caused the new
		// one.
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, limit, errors.Join(last, world.Err()))
		}
	}
}

// must ends the test if err is not nil.
func must(tb testing.TB, what string, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
}

func wantf(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
