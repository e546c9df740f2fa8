package wire_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

func TestBearer(t *testing.T) {
	for name, tt := range map[string]struct {
		headers []string
		token   string
	}{
		"as everybody writes it": {[]string{"Bearer a.b-c_d~e+f/="}, "a.b-c_d~e+f/="},
		"in small letters":       {[]string{"bearer x"}, "x"},
		"in capitals":            {[]string{"BEARER x"}, "x"},
		"none":                   {nil, ""},
		"empty":                  {[]string{""}, ""},
		"no token":               {[]string{"Bearer"}, ""},
		"an empty token":         {[]string{"Bearer "}, ""},
		"two spaces":             {[]string{"Bearer  x"}, ""},
		"two tokens":             {[]string{"Bearer x y"}, ""},
		"twice the same":         {[]string{"Bearer x", "Bearer x"}, ""},
		"after an empty one":     {[]string{"", "Bearer x"}, ""},
		"another scheme":         {[]string{"Basic x"}, ""},
		"another word":           {[]string{"Bearers x"}, ""},
	} {
		r := &http.Request{Header: http.Header{"Authorization": tt.headers}}
		if token, ok := wire.Bearer(r); token != tt.token || ok != (tt.token != "") {
			t.Errorf("%s: %q %t", name, token, ok)
		}
	}
}

func TestHost(t *testing.T) {
	for header, want := range map[string]string{"STS.amazonaws.com:443": "sts.amazonaws.com", "gcr.io": "gcr.io", "[::1]:80": "::1", "": ""} {
		if got := wire.Host(header); got != want {
			t.Errorf("%q: %q", header, got)
		}
	}
}

func TestUUID(t *testing.T) {
	version4 := regexp.MustCompile(`\A[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\z`)
	seen := map[string]bool{}
	for range 100 {
		id := wire.UUID()
		if !version4.MatchString(id) || seen[id] {
			t.Errorf("%s", id)
		}
		seen[id] = true
	}
}
