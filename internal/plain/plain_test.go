package plain_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/lanyard-dev/lanyard/internal/plain"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"a text: “Grüße”, 漢字 … 🙂":    "a text: “Grüße”, 漢字 … 🙂",
		"two\r\nlines\tand a tab":    "two  lines and a tab",
		"\x1b[31mred\u009b2J":        " [31mred 2J",
		"txt.\u202eexe":              "txt. exe",
		"\u2066isolated\u2069":       " isolated ",
		"zero\u200bwidth\ufeff":      "zero width ",
		"soft\u00adhyphen\u00a0nbsp": "soft hyphen nbsp",
		"\U000e0041tag":              " tag",
		"line\u2028paragraph\u2029":  "line paragraph ",
		"no UTF-8: \xff\xfe":         "no UTF-8:   ",
	} {
		if got := plain.Text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("txt.\u202eexe\n\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := plain.Text(s)
		if strings.ContainsFunc(got, func(r rune) bool { return unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) }) || !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
		if plain.Text(got) != got || utf8.RuneCountInString(got) != utf8.RuneCountInString(s) {
			t.Errorf("%q became %q", s, got)
		}
	})
}
