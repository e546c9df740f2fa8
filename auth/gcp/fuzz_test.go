package gcp_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth/gcp"
)

// FuzzIdentity checks that the canonical text of an identity parses to the same identity. A key
// contains the identity only as this text, and an exchange parses the text again.
func FuzzIdentity(f *testing.F) {
	f.Add("", "", false)
	f.Add(emailA, "", true)
	f.Add("", "https://iam.googleapis.com/"+providerName, true)
	f.Add(emailA, providerName, true)
	f.Add("a@b/serviceAccounts/c", "x@y", false)
	f.Add("tenant-a@p.example.com.iam.gserviceaccount.com", "//iam.googleapis.com/"+providerName, true)
	f.Fuzz(func(t *testing.T, account, provider string, flux bool) {
		said, read, same, err := gcp.Identity(account, provider, flux)
		if said == "" && err != nil {
			return
		}
		if err != nil || !same || said != read {
			t.Fatalf("%q, %q: key %q leads to %q, %v", account, provider, said, read, err)
		}
		if strings.Trim(said, "abcdefghijklmnopqrstuvwxyzIPA0123456789-./@") != "" {
			t.Fatalf("%q, %q: key %q", account, provider, said)
		}
	})
}

// FuzzWhat checks that an error shows only codes, whatever text a service writes.
func FuzzWhat(f *testing.F) {
	f.Add([]byte(`{"error":"invalid_grant","error_description":"x"}`))
	f.Add([]byte(`{"error":{"code":403,"status":"PERMISSION_DENIED","details":[{"reason":"IAM_PERMISSION_DENIED"}]}}`))
	f.Add([]byte(`{"error":"ya29.token\n"}`))
	f.Add([]byte(`<html>`))
	form := regexp.MustCompile(`\A[A-Za-z_]{0,64}( \([A-Za-z_]{1,64}\))?\z`)
	f.Fuzz(func(t *testing.T, body []byte) {
		if what := gcp.What(body); !form.MatchString(what) {
			t.Fatalf("%q shows %q", body, what)
		}
	})
}

// FuzzTokens checks that every accepted token is valid in a header and has a limited lifetime.
func FuzzTokens(f *testing.F) {
	f.Add([]byte(goodToken))
	f.Add([]byte(goodAccountToken()))
	f.Add([]byte(`{"access_token":"a","token_type":"bearer","expires_in":9223372036854775807}`))
	f.Add([]byte(`{"accessToken":"a","expireTime":"9999-12-31T23:59:59Z"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		started := time.Now()
		token, err := gcp.ParseToken(body, started)
		most := 12 * time.Hour
		if err != nil {
			if token, err = gcp.ParseAccountToken(body, started); err != nil {
				return
			}
			most = time.Hour
		}
		secret := token.Secret.Reveal()
		if secret == "" || strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }) || token.ExpiresAt.After(started.Add(most)) {
			t.Fatalf("%q: taken for a token until %s", body, token.ExpiresAt)
		}
	})
}
