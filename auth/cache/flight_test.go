package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
)

// TestFetchThatDoesNotReturn checks fetches that end with a panic or Goexit. A fetch runs in the
// flight's own goroutine, but its panic must not end the program. The flight must still land. A
// flight that never lands blocks its key.
func TestFetchThatDoesNotReturn(t *testing.T) {
	for name, broken := range map[string]func(context.Context) (auth.Fetched, error){
		"panic": func(context.Context) (auth.Fetched, error) { panic(errors.New("s3cret")) },
		"exit":  func(context.Context) (auth.Fetched, error) { runtime.Goexit(); return auth.Fetched{}, nil },
		"nil":   func(context.Context) (auth.Fetched, error) { return auth.Fetched{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				c := cache.New(cache.Options{MaxSize: 10, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				key := keyOf(t, "a", "sa")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				fetched, err := c.Fetch(ctx, key, auth.FetchOptions{}, broken)
				if e, ok := errors.AsType[*auth.Error](err); fetched.Token != nil || !ok || e.Temporary() || e.Fix == "" {
					t.Fatalf("%v, %v; want an error of the program's", fetched.Token, err)
				}
				if strings.Contains(err.Error()+log.String(), "s3cret") {
					t.Errorf("the panic's text is told: %v\n%s", err, log.String())
				}
				if (name == "exit") == strings.Contains(log.String(), "flight.go") {
					t.Errorf("a stack belongs into the log of a panic, and nowhere else:\n%s", log.String())
				}
				time.Sleep(time.Minute)
				if n := mustAsk(t, c, key, &office{life: time.Hour}); n != 1 {
					t.Errorf("token %d, want the first", n)
				}
			})
		})
	}
}

// TestOddRefreshFractions checks that no RefreshFraction, even an invalid one, makes a new token
// due for its refresh at once.
func TestOddRefreshFractions(t *testing.T) {
	for _, fraction := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e-9, 2} {
		t.Run(fmt.Sprint(fraction), func(t *testing.T) {
			for range 20 {
				synctest.Test(t, func(t *testing.T) {
					c := cache.New(cache.Options{MaxSize: 10, RefreshFraction: fraction})
					o, key := &office{life: time.Hour}, keyOf(t, "a", "sa")
					mustAsk(t, c, key, o)
					if _, ok := c.Get(key, 0, auth.InvolvedObject{}); !ok {
						t.Fatal("a new token is to be refreshed at once")
					}
				})
			}
		})
	}
}

// TestLog checks that each exchange is logged with the digest of its key, and that hits are not
// logged.
func TestLog(t *testing.T) {
	for name, size := range map[string]int{"kept": 10, "not kept": 0} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			handler := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
			c := cache.New(cache.Options{MaxSize: size, Logger: slog.New(handler)})
			good, bad := keyOf(t, "a", "good"), keyOf(t, "a", "bad")
			mustAsk(t, c, good, &office{life: time.Hour})
			if _, err := ask(t.Context(), c, bad, &office{err: refused()}, auth.FetchOptions{}); err == nil {
				t.Fatal("it is not refused")
			}
			if size > 0 {
				mustAsk(t, c, good, &office{life: time.Hour}) // a hit
			}
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(lines) != 2 || !strings.Contains(lines[0], "level=DEBUG msg=exchange key="+good.Digest()+" ") || !strings.Contains(lines[0], "outcome=success") ||
				!strings.Contains(lines[1], "level=INFO msg=exchange key="+bad.Digest()+" ") || !strings.Contains(lines[1], "outcome=TrustRefused") {
				t.Errorf("it logs\n%s", log.String())
			}
		})
	}
}
