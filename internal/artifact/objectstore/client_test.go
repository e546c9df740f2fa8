package objectstore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// asked sends one request and returns the answer's body and the number of requests that arrived,
// including retries. The handlers answer these in turn, and the last handler all the rest.
func asked(t *testing.T, ctx context.Context, answers ...http.HandlerFunc) (body string, requests int, err error) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := answers[min(requests, len(answers)-1)]
		requests++
		answer(w, r)
	}))
	defer server.Close()
	body, err = get(ctx, objectstore.NewClient(server.Client().Transport, false, origin.Caller{}), server.URL)
	return body, requests, err
}

func get(ctx context.Context, client *http.Client, address string) (body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", objectstore.Explain(ctx, objectstore.Server("the-endpoint", origin.Caller{}), err)
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return string(read), err
}

func status(code int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func TestRefusalsMeanTheSameWithEveryService(t *testing.T) {
	const secret = "the-secret-in-the-body"
	s3 := func(code string) string {
		return `<?xml version="1.0"?><Error><Code>` + code + `</Code><Message>` + secret + `</Message></Error>`
	}
	gcs := func(reason string) string {
		return `{"error":{"code":403,"message":"` + secret + `","errors":[{"reason":"` + reason + `","message":"` + secret + `"}]}}`
	}
	for name, test := range map[string]struct {
		answer   http.HandlerFunc
		content  bool
		code     origin.Code
		text     string
		requests int
	}{
		"S3: no bucket":         {status(404, s3("NoSuchBucket")), false, origin.CodeNotFound, "spec.bucketName: endpoint", 1},
		"S3: denied":            {status(403, s3("AccessDenied")), false, origin.CodeDenied, "s3:GetObject", 1},
		"S3: unknown key":       {status(403, s3("InvalidAccessKeyId")), false, origin.CodeUnauthorized, "InvalidAccessKeyId", 1},
		"S3: wrong secret":      {status(403, s3("SignatureDoesNotMatch")), false, origin.CodeUnauthorized, "credential", 1},
		"S3: expired":           {status(400, s3("ExpiredToken")), false, origin.CodeUnauthorized, "expired", 1},
		"S3: clock":             {status(403, s3("RequestTimeTooSkewed")), false, origin.CodeUnauthorized, "clock", 1},
		"S3: slow down":         {status(503, s3("SlowDown")), false, origin.CodeThrottled, "SlowDown", 3},
		"S3: other region":      {status(301, s3("PermanentRedirect"), "x-amz-bucket-region", "eu-north-1", "Location", "https://evil.example"), false, origin.CodeProtocol, "set it to eu-north-1", 1},
		"S3: region of a liar":  {status(301, s3("PermanentRedirect"), "x-amz-bucket-region", secret+" <b>"), false, origin.CodeProtocol, "spec.region to the bucket's region", 1},
		"S3: object gone":       {status(404, s3("NoSuchKey")), true, origin.CodeChanged, "changed since it was listed", 1},
		"S3: object changed":    {status(412, s3("PreconditionFailed")), true, origin.CodeChanged, "changed since it was listed", 1},
		"S3: archived":          {status(403, s3("InvalidObjectState")), true, origin.CodeDenied, "restore", 1},
		"Azure: no container":   {status(404, secret, "x-ms-error-code", "ContainerNotFound"), false, origin.CodeNotFound, "ContainerNotFound", 1},
		"Azure: no role":        {status(403, secret, "x-ms-error-code", "AuthorizationPermissionMismatch"), false, origin.CodeDenied, "Storage Blob Data Reader", 1},
		"Azure: bad token":      {status(401, secret, "x-ms-error-code", "InvalidAuthenticationInfo"), false, origin.CodeUnauthorized, "credential", 1},
		"Azure: no public":      {status(409, secret, "x-ms-error-code", "PublicAccessNotPermitted"), false, origin.CodeDenied, "grant", 1},
		"Azure: busy":           {status(503, secret, "x-ms-error-code", "ServerBusy"), false, origin.CodeThrottled, "ServerBusy", 3},
		"Azure: changed":        {status(412, secret, "x-ms-error-code", "ConditionNotMet"), true, origin.CodeChanged, "changed", 1},
		"GCS: no bucket":        {status(404, gcs("notFound")), false, origin.CodeNotFound, "create the bucket", 1},
		"GCS: object gone":      {status(404, gcs("notFound")), true, origin.CodeChanged, "changed", 1},
		"GCS: forbidden":        {status(403, gcs("forbidden")), false, origin.CodeDenied, "roles/storage.objectViewer", 1},
		"GCS: anonymous":        {status(401, gcs("required")), false, origin.CodeUnauthorized, "credential", 1},
		"GCS: throttled":        {status(429, gcs("rateLimitExceeded")), false, origin.CodeThrottled, "rateLimitExceeded", 1},
		"unknown word":          {status(403, s3(secret)), false, origin.CodeDenied, "HTTP 403 Forbidden; grant", 1},
		"HTML":                  {status(200+203, "<html>"+secret), false, origin.CodeDenied, "HTTP 403", 1},
		"nothing":               {status(401, ""), false, origin.CodeUnauthorized, "HTTP 401", 1},
		"teapot":                {status(418, secret), false, origin.CodeProtocol, "HTTP 418", 1},
		"no content":            {status(204, ""), false, origin.CodeProtocol, "HTTP 204", 1},
		"part of the content":   {status(206, secret), true, origin.CodeProtocol, "HTTP 206", 1},
		"redirect":              {status(302, "", "Location", "https://evil.example/"), false, origin.CodeProtocol, "redirects are not followed", 1},
		"500":                   {status(500, secret), false, origin.CodeServer, "HTTP 500", 3},
		"502":                   {status(502, secret), true, origin.CodeServer, "HTTP 502", 3},
		"501":                   {status(501, secret), false, origin.CodeServer, "HTTP 501", 1},
		"429":                   {status(429, secret), false, origin.CodeThrottled, "HTTP 429", 1},
		"500 with a pause":      {status(500, secret, "Retry-After", "7"), false, origin.CodeServer, "HTTP 500", 1},
		"throttled with pause":  {status(429, secret, "Retry-After", "7"), false, origin.CodeThrottled, "HTTP 429", 1},
		"page that breaks off":  {status(200, "<a>", "Content-Length", "100"), false, origin.CodeUnreachable, "no answer", 1},
		"connection that drops": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, origin.CodeUnreachable, "no answer", 3},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if test.content {
				ctx = objectstore.Content(ctx)
			}
			_, requests, err := asked(t, ctx, test.answer)
			if origin.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v, want %s with %q", err, test.code, test.text)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%v holds the answer's body", err)
			}
			if requests != test.requests {
				t.Errorf("%d requests, want %d", requests, test.requests)
			}
			e, _ := errors.AsType[*origin.Error](err)
			if want := strings.Contains(name, "pause"); want != (e.RetryAfter == 7*time.Second) {
				t.Errorf("pause %s", e.RetryAfter)
			}
		})
	}
}

func TestPassingFailureIsTriedAgain(t *testing.T) {
	body, requests, err := asked(t, t.Context(), status(503, ""), status(500, ""), status(200, "at last"))
	if body != "at last" || requests != 3 || err != nil {
		t.Errorf("%q after %d, %v", body, requests, err)
	}
}

func TestRetryAfterIsBounded(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "0": 0, "-5": 0, "999999999": time.Hour, "soon": 0,
		"Wed, 21 Oct 2015 07:28:00 GMT": 0, "Wed, 21 Oct 2099 07:28:00 GMT": time.Hour,
	} {
		_, _, err := asked(t, t.Context(), status(429, "", "Retry-After", header))
		if e, _ := errors.AsType[*origin.Error](err); e.RetryAfter != want {
			t.Errorf("%q: %s, want %s", header, e.RetryAfter, want)
		}
	}
}

func TestPagesAreBoundedAndContentIsNot(t *testing.T) {
	endless := func(w http.ResponseWriter, _ *http.Request) {
		page := make([]byte, 1<<20)
		for range 20 {
			if _, err := w.Write(page); err != nil {
				return
			}
		}
	}
	if body, _, err := asked(t, t.Context(), endless); origin.CodeOf(err) != origin.CodeTooLarge || body != "" {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	if body, _, err := asked(t, objectstore.Content(t.Context()), endless); err != nil || len(body) != 20<<20 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

// TestPartsOfPagesAreBounded checks that a page with too many XML tags or attributes is refused,
// even if its size is allowed.
func TestPartsOfPagesAreBounded(t *testing.T) {
	object := `<Contents>` + strings.Repeat(`<Owner><ID>x</ID></Owner>`, 10) + `</Contents>`
	for name, test := range map[string]struct {
		page    string
		refused bool
	}{
		"a thousand objects of S3":             {strings.Repeat(object, 1000), false},
		"a hundred thousand empty objects":     {`<ListBucketResult>` + strings.Repeat(`<Contents/>`, 100_000), true},
		"quotes hide no tags":                  {`<a>"` + strings.Repeat(`<Contents/>`, 100_000), true},
		"a quote before the first tag":         {`"` + strings.Repeat(`<Contents/>`, 100_001), true},
		"a hundred thousand attributes":        {`<ListBucketResult ` + strings.Repeat(`a="" `, 100_001) + `>`, true},
		"attributes in quotes of another kind": {`<a b='"' ` + strings.Repeat(`a="" `, 100_001) + `>`, true},
		"keys like those of partitions":        {strings.Repeat(`<Contents><Key>a=1/b=2/c=3/d=4/e=5</Key></Contents>`, 1000), false},
	} {
		_, _, err := asked(t, t.Context(), status(http.StatusOK, test.page))
		if refused := origin.CodeOf(err) == origin.CodeTooLarge; refused != test.refused || !refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := asked(t, objectstore.Content(t.Context()), status(http.StatusOK, test.page)); err != nil {
			t.Errorf("%s as an object's content: %v", name, err)
		}
	}
}

func TestContentIsNotDecoded(t *testing.T) {
	_, _, err := asked(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("Accept-Encoding %q", got)
		}
		w.WriteHeader(http.StatusOK)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRequestsThatMustNotLeave(t *testing.T) {
	touched := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { touched = true }))
	defer server.Close()
	if _, err := get(t.Context(), objectstore.NewClient(server.Client().Transport, false, origin.Caller{}), server.URL); origin.CodeOf(err) != origin.CodeProtocol || touched {
		t.Errorf("plain http: %v, touched %t", err, touched)
	}
	if _, err := get(t.Context(), objectstore.NewClient(server.Client().Transport, true, origin.Caller{}), server.URL); err != nil || !touched {
		t.Errorf("plain http, insecure: %v, touched %t", err, touched)
	}
	touched = false
	resp, err := objectstore.NewClient(server.Client().Transport, true, origin.Caller{}).Post(server.URL, "text/plain", strings.NewReader("x"))
	if err == nil {
		resp.Body.Close()
	}
	if origin.CodeOf(err) != origin.CodeProtocol || touched {
		t.Errorf("writing: %v, touched %t", err, touched)
	}
}

type dial func() error

func (d dial) RoundTrip(*http.Request) (*http.Response, error) { return nil, d() }

func TestConnectionsThatFail(t *testing.T) {
	refusal := errors.New("address 10.1.2.3 is refused")
	inside := &x509.Certificate{DNSNames: []string{"kubernetes.default.svc", "10.1.2.3"}}
	for name, test := range map[string]struct {
		err      error
		text     string
		requests int
	}{
		"refused":      {&net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3)}, Err: syscall.ECONNREFUSED}, "no answer: the connection was refused", 3},
		"no name":      {&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "x.example", Server: "10.1.2.3:53", IsNotFound: true}}, "the host's name does not exist", 1},
		"proxy":        {&net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, "the proxy cannot be reached", 3},
		"authority":    {&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "spec.certSecretRef", 1},
		"other name":   {&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: inside, Host: "endpoint.example"}}, "the certificate is for another host", 1},
		"no TLS":       {tls.RecordHeaderError{Msg: "10.1.2.3"}, "spec.insecure", 1},
		"control text": {&url.Error{Op: "Get", URL: "https://x/?sig=abc", Err: errors.New("bad\nthing " + strings.Repeat("x", 1000))}, "the connection failed", 1},
		"guard":        {&net.OpError{Op: "dial", Err: refusal}, "the connection failed", 1},
	} {
		requests := 0
		client := objectstore.NewClient(dial(func() error { requests++; return test.err }), false, origin.Caller{})
		_, err := get(t.Context(), client, "https://endpoint.example/")
		if origin.CodeOf(err) != origin.CodeUnreachable || !strings.Contains(err.Error(), test.text) || requests != test.requests {
			t.Errorf("%s: %v after %d", name, err, requests)
		}
		if !errors.Is(err, test.err) {
			t.Errorf("%s: the cause is lost", name)
		}
		if text := err.Error(); strings.Contains(text, "10.1.2.3") || strings.Contains(text, "kubernetes") || strings.ContainsAny(text, "\n") || len(text) > 500 || strings.Contains(text, "sig=") {
			t.Errorf("%s: %q", name, text)
		}
	}
}

func TestContextEndsTheRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 150 * time.Millisecond
		ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("enough"))
		defer cancel()
		begun := time.Now()
		client := objectstore.NewClient(dial(func() error { return io.ErrUnexpectedEOF }), false, origin.Caller{})
		_, err := get(ctx, client, "https://endpoint.example/")
		if took := time.Since(begun); took > patience || origin.CodeOf(err) != origin.CodeUnreachable || !strings.Contains(err.Error(), "enough") {
			t.Errorf("%v after %s", err, took)
		}
	})
}

func TestCredentialErrorsPassThrough(t *testing.T) {
	cause := errors.New("the role's trust policy does not name the account")
	if err := objectstore.Explain(t.Context(), objectstore.Server("host", origin.Caller{}), errors.Join(errors.New("sdk noise"), &objectstore.CredentialError{Err: cause})); err != cause { //nolint:errorlint // the very error
		t.Error(err)
	}
	if err := objectstore.Explain(t.Context(), objectstore.Server("host", origin.Caller{}), errors.New("a body with secrets")); origin.CodeOf(err) != origin.CodeProtocol || strings.Contains(err.Error(), "secrets") {
		t.Error(err)
	}
	if err := objectstore.Explain(t.Context(), objectstore.Server("host", origin.Caller{}), nil); err != nil {
		t.Error(err)
	}
}

// TestPagesShareMemory checks how long a page counts as used memory. The memory of the first page
// is free when the second page arrives. The memory of the last page is free when the first object
// is requested.
func TestPagesShareMemory(t *testing.T) {
	server := httptest.NewTLSServer(status(http.StatusOK, strings.Repeat("x", 1<<20)))
	defer server.Close()
	client := objectstore.NewClient(server.Client().Transport, false, origin.Caller{})
	memory := reserve.New(10 << 20) // enough for two pages with their decoders
	account := func(tenant string) context.Context {
		ctx, end := context.WithCancelCause(t.Context())
		ctx, closed := memory.Open(ctx, tenant, end)
		t.Cleanup(closed)
		return ctx
	}
	fetching := account("fetching")
	for range 5 {
		if _, err := get(fetching, client, server.URL); err != nil {
			t.Fatal(err)
		}
	}
	if err := reserve.Take(account("other"), 10<<20); err == nil {
		t.Error("a page takes no memory")
	}
	if _, err := get(objectstore.Content(fetching), client, server.URL); err != nil {
		t.Fatal(err)
	}
	if err := reserve.Take(account("another"), 10<<20); err != nil {
		t.Errorf("the last page still takes memory: %v", err)
	}
}
