package sigv4_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/sigv4"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
)

const (
	s3Key    = "AKIAIOSFODNN7EXAMPLE"
	s3Secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

	signedChunks      = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedWithTrailer = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	unsignedTrailer   = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

func s3SignedAt() time.Time { return time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC) }

// s3Request returns a request from S3's documentation. The headers are lines "Name: value".
func s3Request(t *testing.T, method, target, host, signature, headers, body string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.Host = host
	var signed []string
	for line := range strings.SplitSeq(headers, "\n") {
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			continue
		}
		if signed = append(signed, strings.ToLower(name)); !strings.EqualFold(name, "host") && !strings.EqualFold(name, "content-length") {
			r.Header.Set(name, value)
		}
	}
	if signature != "" {
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+s3Key+"/20130524/us-east-1/s3/aws4_request,SignedHeaders="+
			strings.Join(signed, ";")+",Signature="+signature)
	}
	return r
}

func verifyS3(r *http.Request, now time.Time) (content []byte, trailer http.Header, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil, err
	}
	s, err := sigv4.Parse(r)
	if err != nil {
		return nil, nil, err
	}
	return s.VerifyS3(r, body, s3Secret, now)
}

// chunked returns 66,560 bytes in chunks as in the examples of the S3 API Reference: 65,536 bytes,
// 1,024 bytes, and the empty last chunk.
func chunked(signatures [3]string, trailer string) string {
	mark := func(i int) string {
		if signatures[i] == "" {
			return "\r\n"
		}
		return ";chunk-signature=" + signatures[i] + "\r\n"
	}
	return "10000" + mark(0) + strings.Repeat("a", 65536) + "\r\n400" + mark(1) + strings.Repeat("a", 1024) + "\r\n0" + mark(2) + trailer + "\r\n"
}

// documentedChunks returns the example request of "Transferring Payload in Multiple Chunks".
func documentedChunks(t *testing.T) *http.Request {
	t.Helper()
	return s3Request(t, "PUT", "/examplebucket/chunkObject.txt", "s3.amazonaws.com", "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
		"Content-Encoding: aws-chunked\nContent-Length: 66824\nHost: \nX-Amz-Content-Sha256: "+signedChunks+
			"\nX-Amz-Date: 20130524T000000Z\nX-Amz-Decoded-Content-Length: 66560\nX-Amz-Storage-Class: REDUCED_REDUNDANCY",
		chunked([3]string{
			"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648", "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
			"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
		}, ""))
}

const documentedTrailer = "x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n"

// documentedTrailers returns the example request of "Signature calculations for trailing headers",
// with the given trailers.
func documentedTrailers(t *testing.T, trailer string) *http.Request {
	t.Helper()
	return s3Request(t, "PUT", "/examplebucket/chunkObject.txt", "s3.amazonaws.com", "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
		"Content-Encoding: aws-chunked\nHost: \nX-Amz-Content-Sha256: "+signedWithTrailer+"\nX-Amz-Date: 20130524T000000Z"+
			"\nX-Amz-Decoded-Content-Length: 66560\nX-Amz-Storage-Class: REDUCED_REDUNDANCY\nX-Amz-Trailer: x-amz-checksum-crc32c",
		chunked([3]string{
			"b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2", "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
			"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
		}, trailer))
}

// TestS3PublishedVectors checks that VerifyS3 accepts the signed requests that AWS publishes.
// Source: the examples in Amazon S3 API Reference, "Authenticating Requests (AWS Signature Version
// 4)".
func TestS3PublishedVectors(t *testing.T) {
	const date = "\nX-Amz-Date: 20130524T000000Z"
	const put = "Welcome to Amazon S3."
	presigned := s3Request(t, "GET", "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="+s3Key+"%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"+
		"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
		"examplebucket.s3.amazonaws.com", "", "", "")
	tests := []struct {
		name    string
		request *http.Request
		now     time.Time
		content string
		trailer string // value of the trailer with the checksum
	}{
		{
			"GET", s3Request(t, "GET", "/test.txt", "examplebucket.s3.amazonaws.com", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
				"Host: \nRange: bytes=0-9\nX-Amz-Content-Sha256: "+emptySum+date, ""), s3SignedAt(), "", "",
		},
		{
			"PUT", s3Request(t, "PUT", "/test%24file.text", "examplebucket.s3.amazonaws.com", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
				"Date: Fri, 24 May 2013 00:00:00 GMT\nHost: \nX-Amz-Content-Sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"+date+
					"\nX-Amz-Storage-Class: REDUCED_REDUNDANCY", put), s3SignedAt(), put, "",
		},
		{"presigned, at the end of its life", presigned, s3SignedAt().Add(24 * time.Hour), "", ""},
		{"chunks", documentedChunks(t), s3SignedAt(), strings.Repeat("a", 66560), ""},
		{"chunks and trailers", documentedTrailers(t, documentedTrailer), s3SignedAt(), strings.Repeat("a", 66560), "sOO8/Q=="},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			content, trailer, err := verifyS3(tt.request, tt.now)
			must.Succeed(t, err)
			if string(content) != tt.content || trailer.Get("X-Amz-Checksum-Crc32c") != tt.trailer {
				t.Errorf("%d bytes, trailers %v", len(content), trailer)
			}
		})
	}
	if _, _, err := verifyS3(presigned, s3SignedAt().Add(24*time.Hour+time.Second)); !errors.Is(err, sigv4.ErrTime) {
		t.Errorf("presigned, after its life: %v", err)
	}
}

// s3Signed returns a request to S3 that the SDK signed, in the form in which a server gets it. If
// payload is not empty, it is the value of X-Amz-Content-Sha256. The headers are names, each
// followed by its value.
func s3Signed(t *testing.T, payload, body string, headers ...string) *http.Request {
	t.Helper()
	out, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://bucket.s3.eu-west-1.amazonaws.com/a%20b//c/../d?x-id=PutObject", strings.NewReader(body))
	must.Succeed(t, err)
	if payload != "" {
		out.Header.Set("X-Amz-Content-Sha256", payload)
	}
	for i := 0; i < len(headers); i += 2 {
		out.Header.Set(headers[i], headers[i+1])
	}
	creds := awssdk.Credentials{AccessKeyID: s3Key, SecretAccessKey: s3Secret, SessionToken: "token"}
	err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(t.Context(), creds, out, payload, "s3", "eu-west-1", s3SignedAt())
	must.Succeed(t, err)
	in := httptest.NewRequestWithContext(t.Context(), http.MethodPut, out.URL.RequestURI(), strings.NewReader(body))
	in.Host, in.Header = out.URL.Host, out.Header
	return in
}

func TestS3Contents(t *testing.T) {
	const helloSum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	const length, names = "X-Amz-Decoded-Content-Length", "X-Amz-Trailer"
	tests := []struct {
		name, payload, body string
		headers             []string
		content, code       string
	}{
		{"hash", helloSum, "hello", nil, "hello", ""},
		{"hash of another content", emptySum, "hello", nil, "", "XAmzContentSHA256Mismatch"},
		{"content left out of the signature", "UNSIGNED-PAYLOAD", "hello", nil, "hello", ""},
		{"no hash", "", "hello", nil, "", "InvalidRequest"},
		{"hash that is none", "abc", "hello", nil, "", "InvalidArgument"},
		{"hash in upper case", strings.ToUpper(helloSum), "hello", nil, "", "InvalidArgument"},
		{"elliptic curves", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "hello", nil, "", "InvalidArgument"},
		{"chunks", unsignedTrailer, "3\r\nhel\r\n2\r\nlo\r\n0\r\nx-a:1\r\nx-b:2\r\n\r\n", []string{length, "5", names, "x-b, X-A"}, "hello", ""},
		{"chunks of nothing", unsignedTrailer, "0\r\nx-a:1\r\n\r\n", []string{length, "0", names, "x-a"}, "", ""},
		{"trailer with a line feed more", unsignedTrailer, "0\r\nx-a:1\n\r\n\r\n", []string{length, "0", names, "x-a"}, "", ""},
		{"no length", unsignedTrailer, "0\r\n\r\n", nil, "", "MissingContentLength"},
		{"negative length", unsignedTrailer, "0\r\n\r\n", []string{length, "-1"}, "", "MissingContentLength"},
		{"shorter than it says", unsignedTrailer, "5\r\nhello\r\n0\r\n\r\n", []string{length, "6"}, "", "IncompleteBody"},
		{"longer than it says", unsignedTrailer, "5\r\nhello\r\n0\r\n\r\n", []string{length, "4"}, "", "IncompleteBody"},
		{"cut in a chunk", unsignedTrailer, "5\r\nhel", []string{length, "5"}, "", "IncompleteBody"},
		{"cut after a chunk", unsignedTrailer, "5\r\nhello\r\n", []string{length, "5"}, "", "IncompleteBody"},
		{"chunk without its end", unsignedTrailer, "4\r\nhello\r\n0\r\n\r\n", []string{length, "4"}, "", "IncompleteBody"},
		{"size that is none", unsignedTrailer, "-5\r\nhello\r\n0\r\n\r\n", []string{length, "5"}, "", "IncompleteBody"},
		{"size that overflows", unsignedTrailer, "ffffffffffffffff\r\nhello\r\n0\r\n\r\n", []string{length, "5"}, "", "IncompleteBody"},
		{"signed chunks where none are", unsignedTrailer, "0;chunk-signature=00\r\n\r\n", []string{length, "0"}, "", "IncompleteBody"},
		{"unsigned chunks where signed ones are", signedChunks, "0\r\n\r\n", []string{length, "0"}, "", "IncompleteBody"},
		{"no end", unsignedTrailer, "0\r\n", []string{length, "0"}, "", "MalformedTrailerError"},
		{"something after the end", unsignedTrailer, "0\r\n\r\nx", []string{length, "0"}, "", "MalformedTrailerError"},
		{"trailer that was not announced", unsignedTrailer, "0\r\nx-a:1\r\n\r\n", []string{length, "0"}, "", "MalformedTrailerError"},
		{"trailer that does not come", unsignedTrailer, "0\r\n\r\n", []string{length, "0", names, "x-a"}, "", "MalformedTrailerError"},
		{"trailer twice", unsignedTrailer, "0\r\nx-a:1\r\nx-a:2\r\n\r\n", []string{length, "0", names, "x-a"}, "", "MalformedTrailerError"},
		{"trailer without value", unsignedTrailer, "0\r\nx-a\r\n\r\n", []string{length, "0", names, "x-a"}, "", "MalformedTrailerError"},
		{"signature of unsigned trailers", unsignedTrailer, "0\r\nx-a:1\r\nx-amz-trailer-signature:00\r\n\r\n", []string{length, "0", names, "x-a"}, "", "MalformedTrailerError"},
		{"trailers where none may be", signedChunks, chunked([3]string{"00", "00", "00"}, "x-a:1\r\n"), []string{length, "66560", names, "x-a"}, "", "SignatureDoesNotMatch"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			content, _, err := verifyS3(s3Signed(t, tt.payload, tt.body, tt.headers...), s3SignedAt())
			code := ""
			if refusal := (*sigv4.ContentError)(nil); errors.As(err, &refusal) {
				code = refusal.Code
			} else if errors.Is(err, sigv4.ErrMismatch) {
				code = "SignatureDoesNotMatch"
			} else if err != nil {
				t.Fatal(err)
			}
			if code != tt.code || string(content) != tt.content {
				t.Errorf("%q with content %q, want %q with %q", code, content, tt.code, tt.content)
			}
		})
	}
}

// TestS3ChunkSignatures checks that the documented uploads are refused after one part of them was
// changed.
func TestS3ChunkSignatures(t *testing.T) {
	replace := func(r *http.Request, old, with string) *http.Request {
		body, err := io.ReadAll(r.Body)
		must.Succeed(t, err)
		if !bytes.Contains(body, []byte(old)) {
			t.Fatalf("there is no %q in the body", old)
		}
		r.Body = io.NopCloser(bytes.NewReader(bytes.Replace(body, []byte(old), []byte(with), 1)))
		return r
	}
	for name, r := range map[string]*http.Request{
		"content of a chunk":        replace(documentedChunks(t), "aaaa\r\n", "aaab\r\n"),
		"signature of a chunk":      replace(documentedChunks(t), "ad80", "ad81"),
		"signature that is none":    replace(documentedChunks(t), "ad80", "xx"),
		"signature of the end":      replace(documentedChunks(t), "b6c6", "b6c7"),
		"value of a trailer":        replace(documentedTrailers(t, documentedTrailer), "sOO8", "AAAA"),
		"signature of the trailers": replace(documentedTrailers(t, documentedTrailer), "d81f", "d81e"),
		"another upload's chunk":    replace(documentedChunks(t), "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497", "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"),
		"signature of the whole upload": func() *http.Request {
			r := documentedChunks(t)
			r.Header.Set("X-Amz-Storage-Class", "STANDARD")
			return r
		}(),
	} {
		if _, _, err := verifyS3(r, s3SignedAt()); !errors.Is(err, sigv4.ErrMismatch) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	unsigned := documentedTrailers(t, strings.SplitAfter(documentedTrailer, "\r\n")[0])
	if _, _, err := verifyS3(unsigned, s3SignedAt()); err == nil {
		t.Error("trailers without their signature were accepted")
	}
}

// FuzzChunks checks that VerifyS3 returns only bytes of the body, in the body's order. If VerifyS3
// accepts a body, it must refuse the body with a CRLF appended.
func FuzzChunks(f *testing.F) {
	f.Add("3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", "5")
	f.Add("0\r\nx:y\r\n\r\n", "0")
	f.Fuzz(func(t *testing.T, body, length string) {
		if strings.TrimSpace(length) != length || strings.ContainsFunc(length, func(r rune) bool { return r < ' ' || r > '~' }) {
			return // not a valid value of a header
		}
		content, _, err := verifyS3(s3Signed(t, unsignedTrailer, body, "X-Amz-Decoded-Content-Length", length), s3SignedAt())
		if err != nil {
			return
		}
		if !strings.HasSuffix(body, "\r\n") {
			t.Errorf("%q of %q", content, body)
		}
		rest := body
		for _, b := range content {
			_, after, found := strings.Cut(rest, string([]byte{b}))
			if !found {
				t.Fatalf("%q is not in %q", content, body)
			}
			rest = after
		}
		if _, _, err := verifyS3(s3Signed(t, unsignedTrailer, body+"\r\n", "X-Amz-Decoded-Content-Length", length), s3SignedAt()); err == nil {
			t.Errorf("something was accepted after %q", body)
		}
	})
}
