package origin_test

import (
	"net/url"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func TestSameHost(t *testing.T) {
	for _, c := range []struct {
		target, hostport string
		want             bool
	}{
		{"https://a.example/x", "a.example", true},
		{"https://a.example:443/x", "a.example", true},
		{"https://A.example/x", "a.example:443", true},
		{"http://a.example/x", "a.example:80", true},
		{"http://a.example:5000/x", "a.example:5000", true},
		{"https://[::1]/x", "[::1]:443", true},
		{"https://a.example:444/x", "a.example", false},
		{"https://a.example.evil/x", "a.example", false},
		{"https://b.example/x", "a.example", false},
		{"https://regİstry.example/x", "registry.example", false},
		{"https://reg%C4%B0stry.example/x", "registry.example", false},
	} {
		u, err := url.Parse(c.target)
		must.Succeed(t, err)
		if got := origin.SameHost(u, c.hostport); got != c.want {
			t.Errorf("%s and %s: %v", c.target, c.hostport, got)
		}
	}
}
