package sigv4_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/sigv4"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
)

const (
	exampleKey    = "AKIDEXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
)

func signedAt() time.Time { return time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC) }

// TestPublishedVectors checks the algorithm against signatures that AWS publishes. Source: AWS
// Signature Version 4 test suite, and the example of "Signing AWS API requests" (iam ListUsers).
func TestPublishedVectors(t *testing.T) {
	tests := []struct {
		name, method, target, host, service, signedHeaders, contentType, body, signature string
	}{
		{"get-vanilla", "GET", "/", "example.amazonaws.com", "service", "host;x-amz-date", "", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		{"get-vanilla-query-order-key-case", "GET", "/?Param2=value2&Param1=value1", "example.amazonaws.com", "service", "host;x-amz-date", "", "", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		{"post-x-www-form-urlencoded", "POST", "/", "example.amazonaws.com", "service", "content-type;host;x-amz-date", "application/x-www-form-urlencoded", "Param1=value1", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
		{"iam ListUsers", "GET", "/?Action=ListUsers&Version=2010-05-08", "iam.amazonaws.com", "iam", "content-type;host;x-amz-date", "application/x-www-form-urlencoded; charset=utf-8", "", "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.target, strings.NewReader(tt.body))
			r.Host = tt.host
			r.Header.Set("X-Amz-Date", "20150830T123600Z")
			if tt.contentType != "" {
				r.Header.Set("Content-Type", tt.contentType)
			}
			r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+exampleKey+"/20150830/us-east-1/"+tt.service+
				"/aws4_request, SignedHeaders="+tt.signedHeaders+", Signature="+tt.signature)
			s, err := sigv4.Parse(r)
			must.Succeed(t, err)
			if s.AccessKeyID != exampleKey || s.Region != "us-east-1" || s.Service != tt.service || !s.Time.Equal(signedAt()) {
				t.Errorf("read %+v", s)
			}
			if err := s.Verify(r, []byte(tt.body), exampleSecret, signedAt()); err != nil {
				t.Error(err)
			}
			if err := s.Verify(r, []byte(tt.body), exampleSecret+"x", signedAt()); !errors.Is(err, sigv4.ErrMismatch) {
				t.Errorf("another secret: %v", err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	const (
		credential = "Credential=AKIDEXAMPLE/20150830/us-east-1/sts/aws4_request"
		signed     = "SignedHeaders=host;x-amz-date"
	)
	signature := "Signature=" + strings.Repeat("0", 64)
	whole := "AWS4-HMAC-SHA256 " + credential + ", " + signed + ", " + signature
	query := url.Values{
		"X-Amz-Algorithm": {"AWS4-HMAC-SHA256"}, "X-Amz-Credential": {"AKIDEXAMPLE/20150830/us-east-1/sts/aws4_request"},
		"X-Amz-Date": {"20150830T123600Z"}, "X-Amz-SignedHeaders": {"host"}, "X-Amz-Signature": {strings.Repeat("0", 64)},
	}.Encode()
	tests := []struct {
		name, authorization, date, query string
		want                             error
	}{
		{"nothing", "", "20150830T123600Z", "", sigv4.ErrMissing},
		{"whole", whole, "20150830T123600Z", "", nil},
		{"whole query", "", "", query, nil},
		{"both", whole, "20150830T123600Z", query, sigv4.ErrIncomplete},
		{"another algorithm", strings.Replace(whole, "SHA256", "SHA1", 1), "20150830T123600Z", "", sigv4.ErrIncomplete},
		{"another scheme", "Basic QVdTOg==", "20150830T123600Z", "", sigv4.ErrIncomplete},
		{"no credential", "AWS4-HMAC-SHA256 " + signed + ", " + signature, "20150830T123600Z", "", sigv4.ErrIncomplete},
		{"credential twice", whole + ", " + credential, "20150830T123600Z", "", sigv4.ErrIncomplete},
		{"short credential", strings.Replace(whole, "/us-east-1", "", 1), "20150830T123600Z", "", sigv4.ErrIncomplete},
		{"no signature", "AWS4-HMAC-SHA256 " + credential + ", " + signed, "20150830T123600Z", "", sigv4.ErrIncomplete},
		{"signature not hexadecimal", strings.Replace(whole, "00", "zz", 1), "20150830T123600Z", "", sigv4.ErrIncomplete},
		{"headers out of order", strings.Replace(whole, "host;x-amz-date", "x-amz-date;host", 1), "20150830T123600Z", "", sigv4.ErrIncomplete},
		{"header twice", strings.Replace(whole, "host;", "host;host;", 1), "20150830T123600Z", "", sigv4.ErrIncomplete},
		{"header in upper case", strings.Replace(whole, "host;", "Host;", 1), "20150830T123600Z", "", sigv4.ErrIncomplete},
		{"no date", whole, "", "", sigv4.ErrIncomplete},
		{"another form of date", whole, "2015-08-30T12:36:00Z", "", sigv4.ErrIncomplete},
		{"another day than the credential's", whole, "20150831T123600Z", "", sigv4.ErrIncomplete},
		{"query without date", "", "", strings.Replace(query, "X-Amz-Date", "X-Amz-Dat", 1), sigv4.ErrIncomplete},
		{"query with a parameter twice", "", "", query + "&X-Amz-Date=20150830T123600Z", sigv4.ErrIncomplete},
		{"query with a semicolon", "", "", query + ";a=b", sigv4.ErrIncomplete},
		{"query with a bad escape", "", "", query + "&a=%zz", sigv4.ErrIncomplete},
		{"query that lives too long", "", "", query + "&X-Amz-Expires=604801", sigv4.ErrIncomplete},
		{"query with a negative life", "", "", query + "&X-Amz-Expires=-1", sigv4.ErrIncomplete},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.URL.RawQuery = tt.query
			if tt.authorization != "" {
				r.Header.Set("Authorization", tt.authorization)
			}
			if tt.date != "" {
				r.Header.Set("X-Amz-Date", tt.date)
			}
			_, err := sigv4.Parse(r)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			var refusal *sigv4.Error
			if tt.want != nil && (!errors.As(err, &refusal) || refusal.Message == "") {
				t.Errorf("%v has no message for the caller", err)
			}
		})
	}
}

func TestTimeMessages(t *testing.T) {
	r := sdkSigned(t, t.Context(), http.MethodGet, "/", "", nil, "")
	s, err := sigv4.Parse(r)
	must.Succeed(t, err)
	for want, now := range map[string]time.Time{
		"Signature expired: 20150830T123600Z is now earlier than 20150830T123601Z (20150830T125101Z - 15 min.)":        signedAt().Add(15*time.Minute + time.Second),
		"Signature not yet current: 20150830T123600Z is still later than 20150830T123559Z (20150830T123059Z + 5 min.)": signedAt().Add(-5*time.Minute - time.Second),
	} {
		err := s.Verify(r, nil, exampleSecret, now)
		var refusal *sigv4.Error
		if !errors.As(err, &refusal) || !errors.Is(err, sigv4.ErrTime) || refusal.Message != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, now := range []time.Time{signedAt().Add(15 * time.Minute), signedAt().Add(-5 * time.Minute)} {
		if err := s.Verify(r, nil, exampleSecret, now); err != nil {
			t.Errorf("at the limit: %v", err)
		}
	}
}

// TestPresignedLife checks that a presigned request to STS is valid for at most fifteen minutes,
// even if X-Amz-Expires is higher.
func TestPresignedLife(t *testing.T) {
	for expires, want := range map[string]time.Duration{
		"": 15 * time.Minute, "&X-Amz-Expires=60": time.Minute, "&X-Amz-Expires=0": 0, "&X-Amz-Expires=604800": 15 * time.Minute,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.URL.RawQuery = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE/20150830/us-east-1/sts/aws4_request&X-Amz-Date=20150830T123600Z" +
			"&X-Amz-SignedHeaders=host&X-Amz-Signature=" + strings.Repeat("0", 64) + expires
		s, err := sigv4.Parse(r)
		if err != nil || s.Expires != want {
			t.Errorf("%q: good for %s, want %s (%v)", expires, s.Expires, want, err)
		}
	}
}

// sdkSigned returns a request that the SDK signed, in the form in which a server gets it.
func sdkSigned(t *testing.T, ctx context.Context, method, path, query string, body []byte, header string) *http.Request {
	t.Helper()
	target := (&url.URL{Scheme: "https", Host: "sts.eu-west-1.amazonaws.com", Path: path, RawQuery: query}).String()
	out, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	must.Succeed(t, err)
	out.Header.Set("X-Amz-Meta", header)
	sum := sha256.Sum256(body)
	creds := awssdk.Credentials{AccessKeyID: exampleKey, SecretAccessKey: exampleSecret, SessionToken: "token"}
	must.Succeed(t, v4.NewSigner().SignHTTP(ctx, creds, out, hex.EncodeToString(sum[:]), "sts", "eu-west-1", signedAt()))
	in := httptest.NewRequestWithContext(ctx, method, out.URL.RequestURI(), bytes.NewReader(body))
	in.Host, in.Header = out.URL.Host, out.Header
	return in
}

// FuzzVerify checks that every request that the SDK signs is accepted. After a change of the
// method, path, query, body, host or a header, the request must be refused.
func FuzzVerify(f *testing.F) {
	f.Add("a", "Action", "GetCallerIdentity", []byte("body"), "value")
	f.Add("a b/ü", "k+k", "v&v=%20;ü", []byte(nil), "two  blanks")
	f.Add("~", "", "", []byte{0}, "\t")
	f.Fuzz(func(t *testing.T, segment, key, value string, body []byte, header string) {
		for _, r := range header {
			if r < ' ' || r > '~' {
				return // HTTP does not allow this value of a header
			}
		}
		if strings.HasPrefix(strings.ToLower(key), "x-amz-") {
			return // the verifier may read the parameter as part of a presigned signature
		}
		segment = strings.NewReplacer("/", "", ".", "").Replace(segment) // the SDK does not normalise paths, AWS does
		query := ""
		if key != "" {
			query = url.Values{key: {value, "second"}}.Encode()
		}
		fresh := func() *http.Request {
			return sdkSigned(t, t.Context(), http.MethodPost, "/"+segment, query, body, header)
		}
		verify := func(r *http.Request, body []byte) error {
			s, err := sigv4.Parse(r)
			if err != nil {
				return err
			}
			return s.Verify(r, body, exampleSecret, signedAt())
		}
		if err := verify(fresh(), body); err != nil {
			t.Fatalf("as the SDK signed it: %v", err)
		}
		if verify(fresh(), append(bytes.Clone(body), 'x')) == nil {
			t.Error("another body was accepted")
		}
		for name, change := range map[string]func(*http.Request){
			"query":  func(r *http.Request) { r.URL.RawQuery = strings.TrimPrefix(r.URL.RawQuery+"&zzz=1", "&") },
			"header": func(r *http.Request) { r.Header.Set("X-Amz-Meta", header+"x") },
			"double": func(r *http.Request) { r.Header.Add("X-Amz-Meta", "x") },
			"path":   func(r *http.Request) { r.URL.Path, r.URL.RawPath = r.URL.Path+"x", "" },
			"host":   func(r *http.Request) { r.Host += "x" },
			"method": func(r *http.Request) { r.Method = http.MethodPut },
			"token":  func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "other") },
			"date":   func(r *http.Request) { r.Header.Set("X-Amz-Date", "20150830T123601Z") },
			"new":    func(r *http.Request) { r.Header.Set("X-Amz-New", "") },
		} {
			r := fresh()
			change(r)
			if verify(r, body) == nil {
				t.Errorf("another %s was accepted", name)
			}
		}
	})
}
