package aws_test

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
)

func wired(tb testing.TB, handler http.HandlerFunc) *aws.Provider {
	tb.Helper()
	provider, err := aws.NewProvider(aws.Config{Region: region, Transport: rig.Wire(tb, handler), Timeout: 5 * time.Second})
	rig.Must(tb, err)
	tb.Cleanup(provider.Close)
	return provider
}

const roleA = "arn:aws:iam::123456789123:role/tenant-a-ecr"

func accountA(tb testing.TB) auth.Account {
	tb.Helper()
	subject, err := auth.ServiceAccount("tenant-a", "tenant-a-ecr-sa")
	rig.Must(tb, err)
	return auth.Account{Subject: subject, UID: "1", Attributes: map[string]string{aws.RoleAnnotation: roleA}}
}

// proofA returns a JWT of the test's issuer with an invalid signature. No test here verifies it.
func proofA() string {
	return rig.JWT(`{"iss":"` + issuerURL + `","sub":"system:serviceaccount:tenant-a:tenant-a-ecr-sa"}`)
}

func asA(tb testing.TB, more ...auth.Option) []auth.Option {
	tb.Helper()
	subject := rig.Subject(accountA(tb), rig.Proof(proofA()))
	return append([]auth.Option{subject}, more...)
}

func stsError(status int, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>%d</RequestId></ErrorResponse>`,
			code, message, time.Now().UnixNano())
	}
}

const goodSession = `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>` +
	`<AccessKeyId>ASIA0000000000000000</AccessKeyId><SecretAccessKey>secret-access-key-0123456789</SecretAccessKey><SessionToken>session-token-0123456789</SessionToken>` +
	`<Expiration>2124-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`

func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

func TestRefusalsOfSTS(t *testing.T) {
	const issuer = "oidc.eks.eu-west-1.amazonaws.com/id/LANYARD0000000000000000000000DE"
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		code    auth.Code
		text    string // part of the expected error
		fix     string
	}{
		{
			"trust", stsError(403, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity"), auth.CodeTrustRefused,
			"AWS STS in eu-west-1, AssumeRoleWithWebIdentity for role " + roleA + ": AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity",
			"let the trust policy of role " + roleA + " allow sts:AssumeRoleWithWebIdentity to arn:aws:iam::123456789123:oidc-provider/" + issuer +
				" with StringEquals " + issuer + ":sub = system:serviceaccount:tenant-a:tenant-a-ecr-sa and " + issuer + ":aud = sts.amazonaws.com",
		},
		{
			"no provider", stsError(400, "InvalidIdentityToken", "No OpenIDConnect provider found in your account for https://"+issuer), auth.CodeTrustRefused,
			"No OpenIDConnect provider found", "register " + issuer + " as an IAM OIDC identity provider of account 123456789123 with audience sts.amazonaws.com",
		},
		{
			"no keys", stsError(400, "InvalidIdentityToken", "Couldn't retrieve verification key from your identity provider"), auth.CodeUnavailable,
			"verification key", "fetch the keys of " + issuer,
		},
		{"rejected", stsError(403, "IDPRejectedClaim", "no"), auth.CodeTrustRefused, "IDPRejectedClaim: no", "sub = system:serviceaccount:tenant-a:tenant-a-ecr-sa"},
		{"issuer away", stsError(400, "IDPCommunicationError", "no"), auth.CodeUnavailable, "IDPCommunicationError", "reach " + issuer},
		{"expired", stsError(400, "ExpiredTokenException", "Token expired: current date/time 1"), auth.CodeProofInvalid, "role/tenant-a-ecr: ExpiredTokenException", "clock"},
		{"region", stsError(403, "RegionDisabledException", "no"), auth.CodeRefused, "RegionDisabledException", "activate STS in region eu-west-1 for account 123456789123"},
		{"policy", stsError(400, "MalformedPolicyDocument", "no"), auth.CodeRefused, "MalformedPolicyDocument", "tags"},
		{"packed", stsError(400, "PackedPolicyTooLarge", "no"), auth.CodeRefused, "PackedPolicyTooLarge", "tags"},
		{"validation", stsError(400, "ValidationError", "no"), auth.CodeRefused, "ValidationError: no", "sessions of 1h0m0s"},
		{"throttling", stsError(400, "Throttling", "Rate exceeded"), auth.CodeThrottled, "Throttling: Rate exceeded", "quota"},
		{"throttling as 503", stsError(503, "RequestLimitExceeded", "no"), auth.CodeThrottled, "RequestLimitExceeded", "quota"},
		{"429 of a gateway", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "slow down", http.StatusTooManyRequests) }, auth.CodeThrottled, "HTTP status 429", "quota"},
		{"failure", stsError(500, "InternalFailure", "oops"), auth.CodeUnavailable, "InternalFailure: oops", "wait"},
		{"HTML", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			_, _ = io.WriteString(w, "<html><p>oops")
		}, auth.CodeUnavailable, "HTTP status 502", "wait"},
		{"unheard of", stsError(418, "Teapot", "short and stout"), auth.CodeRefused, "Teapot: short and stout", "error code"},
		{"redirect", redirect(http.StatusTemporaryRedirect), auth.CodeResponseInvalid, "307", "answers as AWS STS"},
		{"redirect to an answer", redirect(http.StatusFound), auth.CodeResponseInvalid, "302", "answers as AWS STS"},
		{"not XML", answer("{}"), auth.CodeResponseInvalid, "no credentials", "answers as AWS STS"},
		{"half an answer", answer(goodSession[:len(goodSession)/2]), auth.CodeResponseInvalid, "not the service's", "answers as AWS STS"},
		{"empty", answer(""), auth.CodeResponseInvalid, "no credentials", "answers as AWS STS"},
		{"too much", answer(goodSession[:60] + strings.Repeat(" ", 2<<20) + goodSession[60:]), auth.CodeResponseInvalid, "the answer is too long", "answers as AWS STS"},
		{"no key", answer(cut("<AccessKeyId>", "</AccessKeyId>")), auth.CodeResponseInvalid, "no access key ID", "answers as AWS STS"},
		{"no secret", answer(cut("<SecretAccessKey>", "</SecretAccessKey>")), auth.CodeResponseInvalid, "no secret access key", "answers as AWS STS"},
		{"no session token", answer(cut("<SessionToken>", "</SessionToken>")), auth.CodeResponseInvalid, "no session token", "answers as AWS STS"},
		{"no end", answer(cut("<Expiration>", "</Expiration>")), auth.CodeResponseInvalid, "no expiration", "answers as AWS STS"},
		{"over already", answer(strings.Replace(goodSession, "2124-", "1999-", 1)), auth.CodeResponseInvalid, "already expired", "clocks"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, auth.CodeUnreachable, "the connection was closed", "reached"},
	} {
		t.Run(test.name, func(t *testing.T) {
			provider := wired(t, test.handler)
			_, err := auth.GetToken(t.Context(), provider, asA(t)...)
			e, ok := errors.AsType[*auth.Error](err)
			if !ok {
				t.Fatalf("not an *auth.Error: %v", err)
			}
			if e.Stage != auth.StageExchange || e.Code != test.code {
				t.Errorf("stage %s, code %s, want exchange, %s", e.Stage, e.Code, test.code)
			}
			if !strings.Contains(e.Err.Error(), test.text) {
				t.Errorf("cause %q, want %q in it", e.Err, test.text)
			}
			if !strings.Contains(e.Fix, test.fix) {
				t.Errorf("fix  %q\nwant %q in it", e.Fix, test.fix)
			}
			_, again := auth.GetToken(t.Context(), provider, asA(t)...)
			if again == nil || again.Error() != err.Error() {
				t.Errorf("the second time another text:\n%v\n%v", err, again)
			}
		})
	}
}

// redirect answers with a redirect to a path that would return a session.
func redirect(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			answer(goodSession)(w, r)
			return
		}
		http.Redirect(w, r, "https://sts.example.org/elsewhere", status)
	}
}

func cut(begin, end string) string {
	before, rest, _ := strings.Cut(goodSession, begin)
	_, after, _ := strings.Cut(rest, end)
	return before + after
}

func TestRetriesAreFew(t *testing.T) {
	rig.Attempts(t, func(t *testing.T, handler http.HandlerFunc) {
		t.Helper()
		_, _ = auth.GetToken(t.Context(), wired(t, handler), asA(t)...)
	},
		rig.Attempt{Name: "refused", Handler: stsError(403, "AccessDenied", "no"), Requests: 1},
		rig.Attempt{Name: "invalid token", Handler: stsError(400, "InvalidIdentityToken", "no"), Requests: 1},
		// The SDK's service client retries IDPCommunicationError, so a second request is expected.
		rig.Attempt{Name: "issuer away", Handler: stsError(400, "IDPCommunicationError", "no"), Requests: 2},
		rig.Attempt{Name: "throttled", Handler: stsError(400, "Throttling", "no"), Requests: 1},
		rig.Attempt{Name: "throttled as 503", Handler: stsError(503, "Throttling", "no"), Requests: 1},
		rig.Attempt{Name: "failing", Handler: stsError(503, "ServiceUnavailable", "no"), Requests: 2},
		rig.Attempt{Name: "failing for a while", Handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "60")
			stsError(503, "ServiceUnavailable", "no")(w, r)
		}, Requests: 1},
	)
}

func TestRetryAfter(t *testing.T) {
	rig.RetryAfter(t, func(t *testing.T, header string) error {
		t.Helper()
		provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", header)
			stsError(400, "Throttling", "no")(w, r)
		})
		_, err := auth.GetToken(t.Context(), provider, asA(t)...)
		return err
	})
}

// TestErrorsRepeatNoSecret checks that an error contains no secret, even if the service's answer
// repeats the request.
func TestErrorsRepeatNoSecret(t *testing.T) {
	for name, message := range map[string]string{
		"proof": "bad token " + proofA(),
		"piece": "bad token " + proofA()[40:60] + "...",
		"long":  strings.Repeat("x", 10000) + "\n<b>\x01",
	} {
		provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
			stsError(400, "InvalidIdentityToken", url.QueryEscape(message))(w, r)
		})
		_, err := auth.GetToken(t.Context(), provider, asA(t)...)
		text := fmt.Sprintf("%v %+v", err, errors.Unwrap(err))
		if strings.Contains(text, proofA()[40:60]) || strings.ContainsAny(text, "\n\x01") || len(text) > 3000 {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestDisconnections(t *testing.T) {
	rig.Disconnections(t, "AWS STS in "+region, func(t *testing.T, base *http.Transport) error {
		t.Helper()
		_, err := auth.GetToken(t.Context(), newProvider(t, aws.Config{Region: region, Transport: base}), asA(t)...)
		return err
	})
}

func TestSlowAnswerIsCutOff(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	provider, err := aws.NewProvider(aws.Config{Region: region, Timeout: 50 * time.Millisecond, Transport: rig.Wire(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-stop
	})})
	rig.Must(t, err)
	_, err = auth.GetToken(t.Context(), provider, asA(t)...)
	if e, ok := errors.AsType[*auth.Error](err); !ok || !e.Temporary() {
		t.Errorf("%v, want a temporary error", err)
	}
}

// TestAnswerThatBreaksOff closes the connection in the middle of an answer. This must count as no
// answer (CodeUnreachable), not as an invalid answer.
func TestAnswerThatBreaksOff(t *testing.T) {
	provider := wired(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, goodSession[:100])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	_, err := auth.GetToken(t.Context(), provider, asA(t)...)
	if auth.CodeOf(err) != auth.CodeUnreachable || !strings.Contains(err.Error(), "the answer broke off") {
		t.Errorf("%v", err)
	}
}

func ecrAnswer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Amz-Target") == "" {
			_, _ = io.WriteString(w, goodSession)
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestRefusalsOfECR(t *testing.T) {
	token := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	const public = "public.ecr.aws/lanyard/app"
	for _, test := range []struct {
		name, image string
		handler     http.HandlerFunc
		code        auth.Code
		text, fix   string
	}{
		{
			"denied", imageA, ecrAnswer(400, `{"__type":"AccessDeniedException","message":"not authorized"}`), auth.CodePermissionDenied,
			"Amazon ECR in eu-west-1, GetAuthorizationToken: AccessDeniedException: not authorized",
			"allow ecr:GetAuthorizationToken on resource * in the permission policy of role " + roleA,
		},
		{"denied, public", public, ecrAnswer(400, `{"__type":"AccessDeniedException"}`), auth.CodePermissionDenied, "Amazon ECR Public", "ecr-public:GetAuthorizationToken and sts:GetServiceBearerToken"},
		{"unknown session", imageA, ecrAnswer(400, `{"__type":"UnrecognizedClientException","message":"x"}`), auth.CodeRefused, "UnrecognizedClientException", "region eu-west-1 is enabled"},
		{"repeats the session", imageA, ecrAnswer(400, `{"__type":"Other","message":"x-amz-security-token:session-token-0123456789"}`), auth.CodeRefused, "GetAuthorizationToken: Other", "error code"},
		{"throttled", imageA, ecrAnswer(400, `{"__type":"ThrottlingException"}`), auth.CodeThrottled, "ThrottlingException", "quota"},
		{"failing", imageA, ecrAnswer(500, `{"__type":"ServerException"}`), auth.CodeUnavailable, "ServerException", "wait"},
		{"nothing", imageA, ecrAnswer(200, `{}`), auth.CodeResponseInvalid, "no authorization token", "answers as Amazon ECR in eu-west-1"},
		{"nothing, public", public, ecrAnswer(200, `{}`), auth.CodeResponseInvalid, "no authorization token", "answers as Amazon ECR Public"},
		{"not JSON", imageA, ecrAnswer(200, `<`), auth.CodeResponseInvalid, "not the service's", "answers as"},
		{"empty list", imageA, ecrAnswer(200, `{"authorizationData":[]}`), auth.CodeResponseInvalid, "no authorization token", "answers as"},
		{"empty token", imageA, ecrAnswer(200, `{"authorizationData":[{"authorizationToken":"","expiresAt":4102444800}]}`), auth.CodeResponseInvalid, "no authorization token", "answers as"},
		{"not base64", imageA, ecrAnswer(200, `{"authorizationData":[{"authorizationToken":"***","expiresAt":4102444800}]}`), auth.CodeResponseInvalid, "not base64", "answers as"},
		{"no colon", imageA, ecrAnswer(200, `{"authorizationData":[{"authorizationToken":"`+token("AWS")+`","expiresAt":4102444800}]}`), auth.CodeResponseInvalid, "<user>:<password>", "answers as"},
		{"no password", imageA, ecrAnswer(200, `{"authorizationData":[{"authorizationToken":"`+token("AWS:")+`","expiresAt":4102444800}]}`), auth.CodeResponseInvalid, "<user>:<password>", "answers as"},
		{"no end", imageA, ecrAnswer(200, `{"authorizationData":[{"authorizationToken":"`+token("AWS:p")+`"}]}`), auth.CodeResponseInvalid, "no expiration", "answers as"},
		{"no end, public", public, ecrAnswer(200, `{"authorizationData":{"authorizationToken":"`+token("AWS:p")+`"}}`), auth.CodeResponseInvalid, "no expiration", "answers as"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := auth.GetToken(t.Context(), wired(t, test.handler), asA(t, auth.WithImageRepository(test.image))...)
			e, ok := errors.AsType[*auth.Error](err)
			if !ok {
				t.Fatalf("not an *auth.Error: %v", err)
			}
			if e.Stage != auth.StageRegistry || e.Code != test.code || !strings.Contains(e.Err.Error(), test.text) || !strings.Contains(e.Fix, test.fix) {
				t.Errorf("%s, %s: %v\nwant registry, %s, %q, fix %q", e.Stage, e.Code, err, test.code, test.text, test.fix)
			}
			if strings.Contains(err.Error(), "session-token") {
				t.Errorf("the session token is told: %v", err)
			}
		})
	}
}

func TestRegistryHosts(t *testing.T) {
	for image, want := range map[string]string{
		"123456789123.dkr.ecr.eu-west-1.amazonaws.com/a":          "api.ecr.eu-west-1.amazonaws.com",
		"123456789123.dkr.ecr.us-east-1.amazonaws.com/a":          "api.ecr.us-east-1.amazonaws.com",
		"123456789123.dkr.ecr-fips.us-east-1.amazonaws.com/a":     "api.ecr-fips.us-east-1.amazonaws.com",
		"123456789123.dkr-ecr.eu-west-1.on.aws/a":                 "ecr.eu-west-1.api.aws",
		"123456789123.dkr-ecr-fips.us-east-1.on.aws/a":            "ecr-fips.us-east-1.api.aws",
		"public.ecr.aws/lanyard/app":                              "api.ecr-public.us-east-1.amazonaws.com",
		"oci":                                                     "",
		"123456789123.dkr.ecr.eu-west-1.amazonaws.com.evil.org/a": "",
		// The role is in partition aws, so registries in other partitions are refused.
		"123456789123.dkr.ecr.cn-north-1.amazonaws.com.cn/a":       "",
		"123456789123.dkr.ecr.us-gov-west-1.amazonaws.com/another": "",
	} {
		var host string
		provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Amz-Target") != "" {
				host = r.Host
				if !strings.Contains(r.Header.Get("Authorization"), "Credential=ASIA0000000000000000/") || r.Header.Get("X-Amz-Security-Token") == "" {
					t.Errorf("%s: not signed with the session", image)
				}
			}
			data := `{"authorizationToken":"QVdTOnA=","expiresAt":4102444800}`
			if !strings.HasPrefix(image, "public") {
				data = "[" + data + "]"
			}
			ecrAnswer(200, `{"authorizationData":`+data+`}`)(w, r)
		})
		token, err := auth.GetToken(t.Context(), provider, asA(t, auth.WithImageRepository(image))...)
		if (err == nil) != (want != "") || host != want {
			t.Errorf("%s: asked %q, want %q; %v", image, host, want, err)
		}
		if credentials, ok := token.(*auth.RegistryCredentials); ok && (credentials.Username != "AWS" || credentials.Password.Reveal() != "p" || credentials.ExpiresAt.Year() != 2100) {
			t.Errorf("%s: %+v", image, credentials)
		}
	}
}

// TestHostsOfARegionFailApart checks that a region's ordinary registry host works while the APIs of
// its FIPS and dual-stack hosts fail. For example, most regions have no FIPS endpoint. All objects
// that use the controller's identity have the same subject. If one of them names a host with a
// failing API, the others must still get credentials for the region's ordinary host.
func TestHostsOfARegionFailApart(t *testing.T) {
	environment(t, map[string]string{"AWS_ACCESS_KEY_ID": "AKIA0000000000000000", "AWS_SECRET_ACCESS_KEY": "static-secret"})
	provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "api.ecr.eu-west-1.amazonaws.com" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		ecrAnswer(200, `{"authorizationData":[{"authorizationToken":"QVdTOnA=","expiresAt":4102444800}]}`)(w, r)
	})
	tokens := cache.New(cache.Options{MaxSize: 10})
	ask := func(host string) error {
		_, err := auth.GetToken(t.Context(), provider, auth.WithController(), auth.WithCache(tokens, auth.InvolvedObject{}), auth.WithImageRepository(host+"/app"))
		return err
	}
	for _, host := range []string{
		"123456789123.dkr.ecr-fips.eu-west-1.amazonaws.com", "123456789123.dkr-ecr.eu-west-1.on.aws", "123456789123.dkr-ecr-fips.eu-west-1.on.aws",
	} {
		if err := ask(host); err == nil || !strings.Contains(err.Error(), "eu-west-1") {
			t.Errorf("%s: %v", host, err)
		}
		if err := ask("123456789123.dkr.ecr.eu-west-1.amazonaws.com"); err != nil {
			t.Errorf("after %s, the region's ordinary host: %v", host, err)
		}
	}
}

func TestExchangeRequest(t *testing.T) {
	// These variables must not decide where a tenant's proof goes, or who signs.
	t.Setenv("AWS_ENDPOINT_URL", "https://evil.example.org")
	t.Setenv("AWS_ENDPOINT_URL_STS", "https://evil.example.org")
	t.Setenv("AWS_REGION", "us-west-2")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIA0000000000000000")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "of-the-controller")
	t.Setenv("AWS_USE_FIPS_ENDPOINT", "true")
	t.Setenv("AWS_MAX_ATTEMPTS", "9")
	var got *http.Request
	provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
		rig.Must(t, r.ParseForm())
		got = r
		answer(goodSession)(w, r)
	})
	token, err := auth.GetToken(t.Context(), provider, asA(t)...)
	rig.Must(t, err)
	if got.Host != "sts.eu-west-1.amazonaws.com" || got.Header.Get("Authorization") != "" {
		t.Errorf("sent to %s, Authorization %q", got.Host, got.Header.Get("Authorization"))
	}
	want := url.Values{
		"Action": {opSTS}, "Version": {"2011-06-15"}, "DurationSeconds": {"3600"}, "RoleArn": {roleA},
		"RoleSessionName": {"tenant-a-ecr-sa.tenant-a"}, "WebIdentityToken": {proofA()},
	}
	if got.PostForm.Encode() != want.Encode() {
		t.Errorf("sent %v\nwant %v", got.PostForm, want)
	}
	credentials := token.(*aws.Token).Credentials()
	if credentials.AccessKeyID != "ASIA0000000000000000" || credentials.SecretAccessKey != "secret-access-key-0123456789" ||
		credentials.SessionToken != "session-token-0123456789" || !credentials.CanExpire {
		t.Error("the session is not the one that was issued")
	}
}

// TestEndOfSession checks that a session never lives longer than AWS allows, even if a clock is
// wrong.
func TestEndOfSession(t *testing.T) {
	for ahead, want := range map[time.Duration]time.Duration{
		0: time.Hour, 5 * time.Minute: time.Hour, -5 * time.Minute: 55 * time.Minute, 24 * time.Hour: time.Hour,
	} {
		ends := time.Now().Add(time.Hour + ahead).UTC().Format(time.RFC3339Nano)
		provider := wired(t, answer(strings.Replace(goodSession, "2124-01-01T00:00:00Z", ends, 1)))
		token, err := auth.GetToken(t.Context(), provider, asA(t)...)
		rig.Must(t, err)
		if d := token.GetDuration(); d > want || d < want-10*time.Second {
			t.Errorf("AWS's clock %s ahead: valid for %s, want %s", ahead, d, want)
		}
	}
}

func TestExchangePerPartition(t *testing.T) {
	for _, test := range []struct{ role, region, endpoint, host string }{
		{"aws", "eu-west-1", "", "sts.eu-west-1.amazonaws.com"},
		{"aws", "us-east-1", "", "sts.us-east-1.amazonaws.com"},
		{"aws", "ap-new-9", "", "sts.ap-new-9.amazonaws.com"},
		{"aws-cn", "cn-north-1", "", "sts.cn-north-1.amazonaws.com.cn"},
		{"aws-us-gov", "us-gov-west-1", "", "sts.us-gov-west-1.amazonaws.com"},
		{"aws-eusc", "eusc-de-east-1", "", "sts.eusc-de-east-1.amazonaws.eu"},
		{"aws-iso", "us-iso-east-1", "", "sts.us-iso-east-1.c2s.ic.gov"},
		{"aws-iso-b", "us-isob-east-1", "", "sts.us-isob-east-1.sc2s.sgov.gov"},
		{"aws-iso-e", "eu-isoe-west-1", "", "sts.eu-isoe-west-1.cloud.adc-e.uk"},
		{"aws-iso-f", "us-isof-south-1", "", "sts.us-isof-south-1.csp.hci.ic.gov"},
		// Role and region in different partitions.
		{"aws", "cn-north-1", "", ""},
		{"aws-cn", "eu-west-1", "", ""},
		{"aws-us-gov", "us-east-1", "", ""},
	} {
		var host, audience string
		provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
			host = r.Host
			answer(goodSession)(w, r)
		})
		account := rig.WithAttribute(accountA(t), aws.RoleAnnotation, "arn:"+test.role+":iam::123456789123:role/r")
		subject := rig.Subject(account, func(_ auth.Account, request auth.ProofRequest) (string, error) {
			audience = request.Audiences[0]
			return proofA(), nil
		})
		_, err := auth.GetToken(t.Context(), provider, subject, auth.WithSTSRegion(test.region))
		if host != test.host || (err == nil) != (host != "") {
			t.Errorf("%s in %s: asked %q, want %q; %v", test.role, test.region, host, test.host, err)
		}
		if test.host == "" {
			if audience != "" {
				t.Errorf("%s in %s: a proof was made for an exchange that cannot be", test.role, test.region)
			}
			if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodeIdentityInvalid || !strings.Contains(e.Fix, "AWS_REGION") {
				t.Errorf("%s in %s: %v", test.role, test.region, err)
			}
		} else if audience != "sts.amazonaws.com" {
			t.Errorf("%s in %s: audience %q", test.role, test.region, audience)
		}
	}
}

// pemOf returns a server's certificate in PEM.
func pemOf(server *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}
