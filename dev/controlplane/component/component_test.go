package component_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/dev/controlplane/component"
)

func untilCancelled(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestStop(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk full")
	for _, tt := range []struct {
		name string
		run  func(context.Context) error
		want string // part of Stop's error; empty if Stop must return nil
	}{
		{"obeys", untilCancelled, ""},
		{"obeys late, within its grace", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(2 * time.Second)
			return nil
		}, ""},
		{"fails while stopping", func(ctx context.Context) error {
			<-ctx.Done()
			return broken
		}, "stop etcd: disk full"},
		{"does not obey", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil
		}, "still running after 3s"},
		{"had ended before", func(context.Context) error { return broken }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := component.Start(t.Context(), "etcd", 3*time.Second, tt.run)
				synctest.Wait()
				began := time.Now()
				err := c.Stop()
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("Stop took %s, more than its grace", took)
				}
				// Wait, in fake time, until a component that ignores Stop has ended.
				time.Sleep(time.Minute)
				if tt.want == "" && err != nil {
					t.Errorf("Stop() = %v, want nil", err)
				}
				if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("Stop() = %v, want %q", err, tt.want)
				}
			})
		})
	}
}

func TestFirstToEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		healthy := component.Start(t.Context(), "healthy", time.Second, untilCancelled)
		if c := component.FirstToEnd(t.Context(), []*component.Component{
			healthy,
			component.Start(t.Context(), "broken", time.Second, func(context.Context) error { return errors.New("disk full") }),
		}); c == nil || c.Failure().Error() != "broken: disk full" {
			t.Errorf("FirstToEnd() = %v, want the broken one", c)
		}
		if c := component.FirstToEnd(t.Context(), []*component.Component{
			component.Start(t.Context(), "quitter", time.Second, func(context.Context) error { return nil }),
		}); c == nil || c.Failure() == nil {
			t.Error("a component that ends without error was not reported")
		}
		time.AfterFunc(time.Hour, cancel)
		if c := component.FirstToEnd(ctx, []*component.Component{healthy}); c != nil {
			t.Errorf("FirstToEnd() = %v after ctx ended, want nil", c.Failure())
		}
	})
}

func TestWaitFor(t *testing.T) {
	t.Parallel()
	notYet := errors.New("not yet")
	never := func(context.Context) error { return notYet }

	t.Run("until the answer is nil", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			err := component.WaitFor(t.Context(), nil, func(context.Context) error {
				if asked++; asked < 5 {
					return notYet
				}
				return nil
			})
			if err != nil || asked != 5 {
				t.Errorf("WaitFor() = %v after %d answers, want nil after 5", err, asked)
			}
		})
	})
	t.Run("at most five minutes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := component.WaitFor(t.Context(), nil, never)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, notYet) {
				t.Errorf("WaitFor() = %v, want the deadline and the last answer", err)
			}
			if took := time.Since(began); took != 5*time.Minute {
				t.Errorf("gave up after %s, want 5m", took)
			}
		})
	})
	t.Run("not after a component has failed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			broken := component.Start(t.Context(), "etcd", time.Second, func(context.Context) error {
				time.Sleep(time.Second)
				return errors.New("disk full")
			})
			began := time.Now()
			err := component.WaitFor(t.Context(), []*component.Component{broken}, never)
			if err == nil || !strings.Contains(err.Error(), "etcd: disk full") {
				t.Errorf("WaitFor() = %v, want the component's error", err)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("noticed after %s", took)
			}
		})
	})
}
