package sign

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// Clock compares the local clock with the API server's clock. Every answer of the API server has
// its time in the header Date; source: RFC 9110 §6.6.1. The zero Clock is ready to use. A Clock is
// safe for concurrent use.
type Clock struct {
	mu   sync.Mutex
	skew time.Duration
	at   instant // time of the last answer; zero if there was no answer
}

// Wrap returns a transport that notes the time of every answer. Wrap is for rest.Config.Wrap.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			return resp, err
		}
		if date, parseErr := http.ParseTime(resp.Header.Get("Date")); parseErr == nil {
			c.note(date)
		}
		return resp, nil
	})
}

// Skew returns how far the local clock is ahead of the API server's clock. The result may be too
// large by up to a second plus the time that the answer took. Skew fails if there was no answer
// within keyring.MaxViewAge.
func (c *Clock) Skew() (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == (instant{}) || !c.at.fresh(now()) {
		return 0, errors.New("no answer of the API server has told its time in the last minute")
	}
	return c.skew, nil
}

func (c *Clock) note(date time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = now()
	c.skew = c.at.wall.Sub(date)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// instant is a moment by both clocks of the machine, because one clock alone is not enough. The
// monotonic clock stands still while the machine is suspended. The wall clock may be set to another
// time.
type instant struct {
	wall time.Time
	mono time.Time // with a monotonic reading; used only to compute differences
}

func now() instant {
	t := time.Now()
	return instant{wall: t.Round(0), mono: t}
}

// fresh reports whether an observation from the instant i is still reliable, at a later instant. If
// the wall clock was set back meanwhile, the observation may seem to be from the future. Then it is
// not reliable.
func (i instant) fresh(later instant) bool {
	wall, mono := later.wall.Sub(i.wall), later.mono.Sub(i.mono)
	return wall.Abs() <= keyring.MaxViewAge && mono <= keyring.MaxViewAge
}
