// Package sigv4 verifies AWS Signature Version 4 on incoming requests, in the Authorization header
// and in presigned queries. It implements the documented algorithm and shares no code with any SDK.
// So it finds errors in an SDK's signer. S3 has its own rules for paths, lifetimes and contents,
// see [Signature.VerifyS3].
//
// Source: AWS General Reference / IAM User Guide, "Create a signed AWS API request" and "Elements
// of an AWS API request signature".
package sigv4

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	algorithm  = "AWS4-HMAC-SHA256"
	terminator = "aws4_request"
	timeForm   = "20060102T150405Z"

	// pastSkew and futureSkew are how far a signature's time may be before and after the local
	// time.
	pastSkew   = 15 * time.Minute
	futureSkew = 5 * time.Minute

	// maxExpires is the maximum value of X-Amz-Expires in a presigned request.
	maxExpires = 7 * 24 * time.Hour

	// serviceS3 is the service in the credential scope of requests to S3.
	serviceS3 = "s3"
)

// Kinds of refusal. [Parse] and [Signature.Verify] return an [*Error] that wraps exactly one of
// these errors.
var (
	// ErrMissing: the request is not signed.
	ErrMissing = errors.New("request is not signed")
	// ErrIncomplete: a part of the signature is missing or malformed.
	ErrIncomplete = errors.New("signature is incomplete")
	// ErrMismatch: the secret key gives a different signature for this request, or the signature
	// does not cover all required parts.
	ErrMismatch = errors.New("signature does not match")
	// ErrTime: the signature has expired, or its time is too far in the future.
	ErrTime = errors.New("signature's time is not now")
)

// Error is the refusal of a signature.
type Error struct {
	// Kind is one of ErrMissing, ErrIncomplete, ErrMismatch, ErrTime.
	Kind error
	// Message is AWS's error message for the caller. It contains no secrets.
	Message string
	// Reason is for the journal. It says more about the cause than Message.
	Reason string
}

// Error returns kind and reason.
func (e *Error) Error() string {
	if e.Reason == "" {
		return e.Kind.Error()
	}
	return e.Kind.Error() + ": " + e.Reason
}

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

const mismatchMessage = "The request signature we calculated does not match the signature you provided. " +
	"Check your AWS Secret Access Key and signing method. Consult the service documentation for details."

func mismatch(format string, args ...any) error {
	return &Error{Kind: ErrMismatch, Message: mismatchMessage, Reason: fmt.Sprintf(format, args...)}
}

func incomplete(message string) error {
	return &Error{Kind: ErrIncomplete, Message: message, Reason: message}
}

// Signature has the parts of a request's signature. They are unverified until [Signature.Verify]
// returns no error.
type Signature struct {
	// AccessKeyID, Date (YYYYMMDD), Region and Service are the parts of the signature's Credential.
	AccessKeyID, Date, Region, Service string
	// Time is the signing time, UTC.
	Time time.Time
	// SignedHeaders are the names of the headers that the signature covers, in lower case and
	// sorted.
	SignedHeaders []string
	// SecurityToken is the session token that was sent, empty if none.
	SecurityToken string
	// Presigned is set if the signature is in the query.
	Presigned bool
	// Expires is how long a presigned request is valid: the value of X-Amz-Expires. For every
	// service except S3, Expires is at most fifteen minutes. Source: aws-iam-authenticator,
	// pkg/token ("presigned STS urls are valid for 15 minutes after timestamp in x-amz-date").
	Expires time.Duration

	signature []byte
	query     string // the canonical query, without the signature
}

// Parse reads a request's signature. The error is an [*Error].
func Parse(r *http.Request) (Signature, error) {
	pairs, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return Signature{}, err
	}
	headers := r.Header.Values("Authorization")
	presigned := slices.ContainsFunc(pairs, func(p pair) bool { return p.name == "X-Amz-Algorithm" || p.name == "X-Amz-Signature" })
	switch {
	case len(headers) > 1 || (len(headers) == 1 && presigned):
		return Signature{}, incomplete("Request must carry exactly one signature.")
	case presigned:
		return parsePresigned(pairs)
	case len(headers) == 0:
		return Signature{}, &Error{Kind: ErrMissing, Message: "Request is missing Authentication Token"}
	}
	s, err := parseHeader(headers[0], r.Header)
	if err != nil {
		return Signature{}, err
	}
	s.query = canonicalQuery(pairs)
	return s, nil
}

func parseHeader(authorization string, h http.Header) (Signature, error) {
	rest, ok := strings.CutPrefix(authorization, algorithm+" ")
	if !ok {
		return Signature{}, incomplete("Authorization header must begin with '" + algorithm + "'.")
	}
	parts := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		_, twice := parts[name]
		if !ok || twice {
			return Signature{}, incomplete("Authorization header has a malformed or repeated parameter.")
		}
		parts[name] = value
	}
	var missing []string
	for _, name := range []string{"Credential", "Signature", "SignedHeaders"} {
		if parts[name] == "" {
			missing = append(missing, "Authorization header requires '"+name+"' parameter.")
		}
	}
	if h.Get("X-Amz-Date") == "" && h.Get("Date") == "" {
		missing = append(missing, "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.")
	}
	if len(missing) > 0 {
		return Signature{}, incomplete(strings.Join(missing, " "))
	}
	if len(h.Values("X-Amz-Date")) > 1 || len(h.Values("X-Amz-Security-Token")) > 1 {
		return Signature{}, incomplete("X-Amz-Date and X-Amz-Security-Token must stand once.")
	}
	s := Signature{SecurityToken: h.Get("X-Amz-Security-Token")}
	date := h.Get("X-Amz-Date")
	var err error
	if date == "" {
		if s.Time, err = http.ParseTime(h.Get("Date")); err != nil {
			return Signature{}, incomplete("Date must be in a form of HTTP.")
		}
		s.Time = s.Time.UTC()
	} else if s.Time, err = time.Parse(timeForm, date); err != nil {
		return Signature{}, incomplete("X-Amz-Date must be in ISO-8601 'basic format'.")
	}
	return s, s.fill(parts["Credential"], parts["SignedHeaders"], parts["Signature"])
}

func parsePresigned(pairs []pair) (Signature, error) {
	params := map[string]string{}
	unsigned := make([]pair, 0, len(pairs))
	for _, p := range pairs {
		if strings.HasPrefix(strings.ToLower(p.name), "x-amz-") {
			if _, twice := params[p.name]; twice {
				return Signature{}, incomplete("A query parameter of the signature stands twice.")
			}
			params[p.name] = p.value
		}
		if p.name != "X-Amz-Signature" {
			unsigned = append(unsigned, p)
		}
	}
	var missing []string
	for _, name := range []string{"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-Date"} {
		if params[name] == "" {
			missing = append(missing, "AWS query-string parameters must include '"+name+"'.")
		}
	}
	if len(missing) > 0 {
		return Signature{}, incomplete(strings.Join(missing, " "))
	}
	if params["X-Amz-Algorithm"] != algorithm {
		return Signature{}, incomplete("X-Amz-Algorithm must be '" + algorithm + "'.")
	}
	s := Signature{Presigned: true, SecurityToken: params["X-Amz-Security-Token"], Expires: pastSkew, query: canonicalQuery(unsigned)}
	var err error
	if s.Time, err = time.Parse(timeForm, params["X-Amz-Date"]); err != nil {
		return Signature{}, incomplete("X-Amz-Date must be in ISO-8601 'basic format'.")
	}
	if err := s.fill(params["X-Amz-Credential"], params["X-Amz-SignedHeaders"], params["X-Amz-Signature"]); err != nil {
		return Signature{}, err
	}
	e, ok := params["X-Amz-Expires"]
	switch seconds, err := strconv.Atoi(e); {
	case !ok && s.Service == serviceS3:
		return Signature{}, incomplete("AWS query-string parameters must include 'X-Amz-Expires'.")
	case !ok:
	case err != nil || seconds < 0 || time.Duration(seconds) > maxExpires/time.Second:
		return Signature{}, incomplete("X-Amz-Expires must be a number of seconds, at most 604800.")
	case s.Service == serviceS3:
		s.Expires = time.Duration(seconds) * time.Second
	default:
		s.Expires = min(s.Expires, time.Duration(seconds)*time.Second)
	}
	return s, nil
}

// fill sets the fields that a signature in the header and one in the query have in common.
func (s *Signature) fill(credential, signedHeaders, signature string) error {
	parts := strings.Split(credential, "/")
	if len(parts) != 5 || parts[4] != terminator || slices.Contains(parts, "") {
		return incomplete("Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/aws4_request.")
	}
	s.AccessKeyID, s.Date, s.Region, s.Service = parts[0], parts[1], parts[2], parts[3]
	if s.Date != s.Time.Format("20060102") {
		return incomplete("Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP.")
	}
	s.SignedHeaders = strings.Split(signedHeaders, ";")
	for i, name := range s.SignedHeaders {
		if name == "" || name != strings.ToLower(name) || (i > 0 && name <= s.SignedHeaders[i-1]) {
			return incomplete("SignedHeaders must be lower-case names in order, separated by ';'.")
		}
	}
	raw, err := hex.DecodeString(signature)
	if err != nil || len(raw) != sha256.Size || signature != strings.ToLower(signature) {
		return incomplete("Signature must be 64 lower-case hexadecimal digits.")
	}
	s.signature = raw
	return nil
}

// Verify checks that the holder of the secret key signed exactly this request and this body. The
// signature must be valid at the time now. It must cover the host and every X-Amz- header. The
// error is an [*Error].
func (s Signature) Verify(r *http.Request, body []byte, secret string, now time.Time) error {
	if err := s.checkTime(now); err != nil {
		return err
	}
	hash := sum(body)
	if claimed := r.Header.Get("X-Amz-Content-Sha256"); claimed != "" && claimed != hash {
		return mismatch("x-amz-content-sha256 is not the body's")
	}
	return s.verify(r, canonicalPath(r.URL), hash, secret)
}

// verify checks the signature, but not its time. The path and the payload hash must be in their
// canonical forms.
func (s Signature) verify(r *http.Request, path, payloadHash, secret string) error {
	if !slices.Contains(s.SignedHeaders, "host") {
		return mismatch("the host is not among the signed headers")
	}
	for name := range r.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-amz-") && !slices.Contains(s.SignedHeaders, lower) {
			return mismatch("header %s is not signed", lower)
		}
	}
	canonical, err := s.canonicalRequest(r, path, payloadHash)
	if err != nil {
		return err
	}
	if !hmac.Equal(s.signature, s.sign(secret, algorithm, sum([]byte(canonical)))) {
		return mismatch("another secret, or another request than was signed")
	}
	return nil
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

func (s Signature) checkTime(now time.Time) error {
	at := func(t time.Time) string { return t.UTC().Format(timeForm) }
	refuse := func(message string) error { return &Error{Kind: ErrTime, Message: message, Reason: message} }
	switch {
	case s.Time.After(now.Add(futureSkew)):
		return refuse(fmt.Sprintf("Signature not yet current: %s is still later than %s (%s + %d min.)",
			at(s.Time), at(now.Add(futureSkew)), at(now), int(futureSkew.Minutes())))
	case s.Presigned && s.Time.Add(s.Expires).Before(now):
		return refuse(fmt.Sprintf("Signature expired: %s is now earlier than %s", at(s.Time.Add(s.Expires)), at(now)))
	case !s.Presigned && s.Time.Before(now.Add(-pastSkew)):
		return refuse(fmt.Sprintf("Signature expired: %s is now earlier than %s (%s - %d min.)",
			at(s.Time), at(now.Add(-pastSkew)), at(now), int(pastSkew.Minutes())))
	}
	return nil
}

// sign derives the signing key from the secret, and signs a text of several lines: the kind, the
// time, the scope and the rest.
func (s Signature) sign(secret, kind string, rest ...string) []byte {
	mac := func(key []byte, data string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(data))
		return h.Sum(nil)
	}
	key := []byte("AWS4" + secret)
	for _, part := range []string{s.Date, s.Region, s.Service, terminator} {
		key = mac(key, part)
	}
	scope := strings.Join([]string{s.Date, s.Region, s.Service, terminator}, "/")
	return mac(key, strings.Join(append([]string{kind, s.Time.Format(timeForm), scope}, rest...), "\n"))
}

func (s Signature) canonicalRequest(r *http.Request, path, payloadHash string) (string, error) {
	var b strings.Builder
	b.WriteString(r.Method + "\n" + path + "\n" + s.query + "\n")
	for _, name := range s.SignedHeaders {
		var values []string
		switch name {
		case "host":
			values = []string{r.Host}
		case "content-length": // r.Header may lack it, but net/http sets r.ContentLength
			values = []string{strconv.FormatInt(r.ContentLength, 10)}
		default:
			values = r.Header.Values(name)
		}
		if len(values) == 0 {
			return "", mismatch("signed header %s is absent", name)
		}
		trimmed := make([]string, len(values))
		for i, v := range values {
			trimmed[i] = strings.Join(strings.Fields(v), " ")
		}
		b.WriteString(name + ":" + strings.Join(trimmed, ",") + "\n")
	}
	b.WriteString("\n" + strings.Join(s.SignedHeaders, ";") + "\n" + payloadHash)
	return b.String(), nil
}

// canonicalPath normalises the escaped path, then escapes the result again. Signatures for every
// service but S3 cover the path in this form.
func canonicalPath(u *url.URL) string {
	sent := u.EscapedPath()
	if sent == "" {
		sent = "/"
	}
	clean := path.Clean("/" + sent)
	if strings.HasSuffix(sent, "/") && clean != "/" {
		clean += "/"
	}
	return encode(clean, true)
}

type pair struct{ name, value string }

// parseQuery splits a raw query. It refuses a query that net/url would read differently. The query
// that is verified must be the query that is executed.
func parseQuery(raw string) ([]pair, error) {
	if strings.Contains(raw, ";") {
		return nil, incomplete("The query string must not contain ';'.")
	}
	var out []pair
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		n, err1 := url.QueryUnescape(name)
		v, err2 := url.QueryUnescape(value)
		if err1 != nil || err2 != nil {
			return nil, incomplete("The query string is malformed.")
		}
		out = append(out, pair{n, v})
	}
	return out, nil
}

// canonicalQuery encodes the pairs and sorts them by encoded name, then by encoded value.
func canonicalQuery(pairs []pair) string {
	encoded := make([]pair, len(pairs))
	for i, p := range pairs {
		encoded[i] = pair{encode(p.name, false), encode(p.value, false)}
	}
	slices.SortFunc(encoded, func(a, b pair) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.value, b.value))
	})
	parts := make([]string, len(encoded))
	for i, p := range encoded {
		parts[i] = p.name + "=" + p.value
	}
	return strings.Join(parts, "&")
}

// encode implements AWS's UriEncode: every byte but RFC 3986's unreserved characters becomes %XX.
func encode(s string, keepSlash bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~", c) >= 0, c == '/' && keepSlash:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}
