package auth_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 63)
	for s, want := range map[string]struct{ label, subdomain bool }{
		"a":                                {true, true},
		"tenant-a":                         {true, true},
		"0-9":                              {true, true},
		long:                               {true, true},
		long + "a":                         {false, true},
		"a.b":                              {false, true},
		"a-b.c-d.0":                        {false, true},
		strings.Repeat("a.", 126) + "a":    {false, true},
		strings.Repeat("a.", 126) + "aa":   {false, false},
		strings.Repeat("a", 254):           {false, false},
		"":                                 {},
		".":                                {},
		"a.":                               {},
		".a":                               {},
		"a..b":                             {},
		"-a":                               {},
		"a-":                               {},
		"a-.b":                             {},
		"a.-b":                             {},
		"A":                                {},
		"a_b":                              {},
		"a b":                              {},
		"a/b":                              {},
		"a\n":                              {},
		"\u00e4":                           {},
		"system:serviceaccount:tenant-a:b": {},
	} {
		if auth.IsLabel(s) != want.label || auth.IsSubdomain(s) != want.subdomain {
			t.Errorf("%q: label %v, subdomain %v, want %+v", s, auth.IsLabel(s), auth.IsSubdomain(s), want)
		}
	}
}

// TestErrorsClipNames checks that errors shorten the names that they quote. Whoever chooses a name
// also chooses its length.
func TestErrorsClipNames(t *testing.T) {
	for _, names := range [][2]string{{strings.Repeat("n", 4000), strings.Repeat("a", 4000)}, {"tenant-a", strings.Repeat("a", 4000)}} {
		_, err := auth.ServiceAccount(names[0], names[1])
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("%v", err)
		}
	}
}
