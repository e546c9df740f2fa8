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

// A flight has its own goroutine. A panic or Goexit in fetch must not end the program. It must also
// not leave the key with a flight that never lands.
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

// Refreshes come early or late, never with every use.
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
