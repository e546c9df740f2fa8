// Package wire has small functions that all clouds share. For example, they read bearer tokens and
// host names from requests, and make random IDs.
package wire

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
)

// Bearer reads the token of a request's Authorization header. It ignores the case of the scheme. It
// rejects a repeated header, and a token that is empty or has spaces. Sources: RFC 6750 §2.1; RFC
// 9110 §11.1 and §11.6.2.
func Bearer(r *http.Request) (token string, ok bool) {
	all := r.Header["Authorization"]
	if len(all) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(all[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" || strings.Contains(token, " ") {
		return "", false
	}
	return token, true
}

// Must returns the result of a call that cannot fail, because the cloud itself chose the arguments.
// An example is the encoding of an answer. If err is not nil, Must panics.
func Must[T any](result T, err error) T {
	if err != nil {
		panic("cloudtest: this cannot fail: " + err.Error())
	}
	return result
}

// Host returns the host of a Host header, in lower case and without port.
func Host(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		hostport = h
	}
	return strings.ToLower(hostport)
}

// Random returns n random bytes.
func Random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// Text returns n random characters of an alphabet.
func Text(alphabet string, n int) string {
	text := Random(n)
	for i, b := range text {
		text[i] = alphabet[int(b)%len(alphabet)]
	}
	return string(text)
}

// UUID returns a random UUID, version 4. Source: RFC 9562 §5.4.
func UUID() string {
	b := Random(16)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
