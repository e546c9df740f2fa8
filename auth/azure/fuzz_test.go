package azure_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
)

// usable checks that a token expires at most 28 hours after the request. If there is an error
// instead, it must be one short line of printable text.
func usable(t *testing.T, body []byte, token *azure.Token, err error, asked time.Time) {
	t.Helper()
	if (token == nil) == (err == nil) {
		t.Fatalf("%v and %v", token, err)
	}
	if err != nil {
		if text := err.Error(); len(text) > 200 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q: %s", body, text)
		}
		return
	}
	if life := token.ExpiresAt.Sub(asked); token.Secret.IsZero() || life <= 0 || life > 28*time.Hour || token.ExpiresAt.Location() != time.UTC {
		t.Errorf("%q is %v, for %s", body, token, life)
	}
}

// FuzzEntraToken checks the result for any answer of Microsoft Entra. An accepted token expires
// within 28 hours. An error is one short line of printable text.
func FuzzEntraToken(f *testing.F) {
	for _, seed := range []string{
		goodToken, `{}`, `[]`, `null`, `{"token_type":"Bearer","access_token":"t"}`, `{"token_type":"bearer","access_token":"t","expires_in":9223372036854775807}`,
		`{"token_type":"Bearer","access_token":"t","expires_in":-1}`, `{"token_type":"Bearer","access_token":"t","expires_in":"3599"}`, `<html>`, "",
	} {
		f.Add([]byte(seed))
	}
	asked := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, body []byte) {
		token, err := azure.ParseToken(body, asked)
		usable(t, body, token, err, asked)
	})
}

// FuzzRegistryAnswer checks the result for any answer of a registry. An accepted token expires
// within 28 hours. An error is one short line of printable text. Claims are a separate argument in
// JSON, because a fuzzer hardly ever finds the base64 of valid JSON.
func FuzzRegistryAnswer(f *testing.F) {
	f.Add([]byte(`{"refresh_token":"opaque"}`), "")
	f.Add([]byte(`<html>`), "")
	for _, claims := range []string{
		`{"iat":1800000000,"exp":1800003600}`, `{"exp":1800003600}`, `{"iat":1}`, `{"exp":1e308,"iat":-1e308}`, `{"exp":-1e308}`, `{"exp":1e300}`, `{"exp":"x"}`, `[]`, `{"exp":null}`,
	} {
		f.Add([]byte(nil), claims)
	}
	asked := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, body []byte, claims string) {
		if claims != "" {
			body = []byte(`{"refresh_token":"` + rig.JWT(claims) + `"}`)
		}
		token, err := azure.ParseRegistryToken(body, "refresh_token", asked)
		usable(t, body, token, err, asked)
	})
}

// FuzzRefusal checks, for any refusal by Microsoft Entra, that the error has a code and a fix, and
// is one short line of printable text.
func FuzzRefusal(f *testing.F) {
	f.Add(401, []byte(`{"error":"invalid_client","error_codes":[700213],"error_description":"AADSTS700213: secret"}`))
	f.Add(400, []byte(`{"error":"<b>","error_description":"AADSTS99999999999999999999: x"}`))
	f.Add(400, []byte(`{"error":"invalid_request","error_codes":[-1]}`))
	f.Add(503, []byte(`<html>`))
	f.Add(307, []byte(``))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 100 || status > 999 || status == 200 {
			return
		}
		err := azure.Refusal(status, body)
		e, ok := err.(*auth.Error) //nolint:errorlint // it is made here
		if !ok || e.Code == "" || e.Err == nil {
			t.Fatalf("%v", err)
		}
		if text := err.Error(); len(text) > 500 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q: %s", body, text)
		}
		if e.Fix == "" {
			t.Errorf("%q: no fix: %v", body, err)
		}
	})
}
