package aws_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
)

// TestCleanIsQuick checks that the search for a secret in a message is fast. It uses a very long
// message and a very long secret, because the server chooses the message.
func TestCleanIsQuick(t *testing.T) {
	secret, message := auth.NewSecret(strings.Repeat("0123456789abcdef", 4096)), strings.Repeat("z", 1<<20)
	started := time.Now()
	for range 3 {
		if got := aws.Clean(message, secret); len(got) == 0 || len(got) > 303 {
			t.Errorf("%d bytes", len(got))
		}
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("three messages took %s", took)
	}
}

// FuzzClean checks that an error is one short printable line without any piece of a secret, for any
// message of a service.
func FuzzClean(f *testing.F) {
	f.Add("bad token ", "eyJhbGciOiJFUzI1NiJ9.e30.c2lnbmF0dXJl", uint8(0), uint8(40), "!")
	f.Add("x\ny\x00", "short", uint8(0), uint8(5), "\u2028")
	f.Add(strings.Repeat("long ", 100), strings.Repeat("s", 30), uint8(3), uint8(12), "")
	f.Add(strings.Repeat("long ", 130), strings.Repeat("s", 30), uint8(3), uint8(12), "")
	f.Fuzz(func(t *testing.T, before, secret string, from, length uint8, after string) {
		start := min(int(from), len(secret))
		piece := secret[start:min(start+int(length), len(secret))]
		got := aws.Clean(before+piece+after, auth.NewSecret(secret))
		// Only 600 bytes of a message are read: what follows is never shown.
		if len(piece) >= 12 && len(before)+12 <= 600 && got != "" {
			t.Errorf("a message with %q of the secret is shown: %q", piece, got)
		}
		if len(got) > 303 || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is not one short printable line", got)
		}
		if strings.Contains(got, secret) && secret != "" && len(strings.TrimSpace(secret)) == len(secret) {
			t.Errorf("%q holds the secret", got)
		}
	})
}
