package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// health is the page with the state of Microsoft's services, for people.
const health = "status.azure.com"

// maxLifetime is the limit of expires_in. Source: Microsoft identity platform, "Configurable token
// lifetimes" (at most a day, and 28 hours where continuous access evaluation is in force).
const maxLifetime = 28 * time.Hour

// parseToken returns the token in a response (RFC 6749 §5.1). The token's lifetime counts from the
// time of the request (asked). The errors of parseToken quote nothing of the response.
func parseToken(body []byte, asked time.Time) (*Token, error) {
	var got struct {
		TokenType   string `json:"token_type"`
		AccessToken string `json:"access_token"`
		ExpiresIn   *int64 `json:"expires_in"`
	}
	switch err := json.Unmarshal(body, &got); {
	case err != nil:
		return nil, errors.New("it is not the JSON of a token answer")
	case got.AccessToken == "":
		return nil, errors.New("no access token in it")
	case !strings.EqualFold(got.TokenType, "Bearer"):
		return nil, errors.New("the token is not a bearer token")
	case got.ExpiresIn == nil:
		return nil, errors.New("no expires_in in it")
	case *got.ExpiresIn <= 0 || *got.ExpiresIn > int64(maxLifetime.Seconds()):
		return nil, errors.New("its expires_in is not the lifetime of a token")
	}
	return &Token{Secret: auth.NewSecret(got.AccessToken), ExpiresAt: asked.Add(time.Duration(*got.ExpiresIn) * time.Second).UTC()}, nil
}

// errorCode reads the AADSTS code and the OAuth error (RFC 6749 §5.2) from a response body. It
// returns false if the body is not an OAuth error.
func errorCode(body []byte) (code aadsts, oauth string, ok bool) {
	var got struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
		Codes       []int  `json:"error_codes"`
	}
	if json.Unmarshal(body, &got) != nil || got.Error == "" {
		return 0, "", false
	}
	if len(got.Codes) > 0 {
		code = aadsts(got.Codes[0])
	} else if digits, found := strings.CutPrefix(got.Description, "AADSTS"); found {
		digits, _, _ = strings.Cut(digits, ":")
		number, _ := strconv.Atoi(digits)
		code = aadsts(number)
	}
	return code, oauthError(got.Error), true
}

// oauthError returns s if it is one word, as the error codes in RFC 6749 are. For any other text it
// returns "an unknown error", so that errors never quote the text.
func oauthError(s string) string {
	if len(s) > 40 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "an unknown error"
	}
	return s
}

// entraFailure returns the failure of a token request, described by its AADSTS code. A caller that
// knows more about the request replaces the fix.
func entraFailure(a remote.Answer, where string) (remote.Failure, aadsts) {
	f := a.Refusal(where, health)
	code, oauth, ok := errorCode(a.Body)
	if !ok || a.Status == http.StatusOK {
		return f, 0
	}
	meant := code.verdict()
	f.What = oauth
	if code != 0 {
		f.What = fmt.Sprintf("AADSTS%d (%s)", code, oauth)
	}
	if meant.meaning != "" {
		f.What += ": " + meant.meaning
	}
	if f.Code == auth.CodeThrottled || f.Code == auth.CodeUnavailable {
		return f, code
	}
	f.Code = meant.code
	if oauth == "temporarily_unavailable" && f.Code != auth.CodeThrottled {
		f.Code = auth.CodeUnavailable
	}
	switch {
	case f.Code == auth.CodeThrottled:
		f.Fix = remote.WaitForQuota(where)
	case f.Code == auth.CodeUnavailable:
		f.Fix = "wait, and see " + health + " if the failure persists"
	case code != 0:
		f.Fix = fmt.Sprintf("see https://login.microsoftonline.com/error?code=%d", code)
	default:
		f.Fix = "see RFC 6749, section 5.2"
	}
	return f, code
}
