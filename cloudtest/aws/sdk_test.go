package aws_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecrpublic"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// outcome is the result of a call with the real SDK: an error code and its HTTP status, or "" and
// 0.
type outcome struct {
	Code   string
	Status int
}

func outcomeOf(err error) outcome {
	if err == nil {
		return outcome{}
	}
	var o outcome
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		o.Code = api.ErrorCode()
	}
	if res, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		o.Status = res.HTTPStatusCode()
	}
	if o == (outcome{}) {
		o.Code = err.Error()
	}
	return o
}

func stsClient(transport http.RoundTripper, creds awssdk.CredentialsProvider, opts ...func(*sts.Options)) *sts.Client {
	return sts.New(sts.Options{
		Region: region, Credentials: creds, HTTPClient: &http.Client{Transport: transport},
		Retryer: awssdk.NopRetryer{},
	}, opts...)
}

func ecrClient(transport http.RoundTripper, creds awssdk.CredentialsProvider) *ecr.Client {
	return ecr.New(ecr.Options{
		Region: region, Credentials: creds, HTTPClient: &http.Client{Transport: transport},
		Retryer: awssdk.NopRetryer{},
	})
}

func pusher() awssdk.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(pusherKey, pusherSecret, "")
}

func static(c *ststypes.Credentials) awssdk.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
}

func assume(ctx context.Context, client *sts.Client, role, token string) (*sts.AssumeRoleWithWebIdentityOutput, error) {
	return client.AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: &role, RoleSessionName: awssdk.String("test"), WebIdentityToken: &token,
	})
}

func (w *world) assume(t *testing.T, role, subject string) awssdk.CredentialsProvider {
	t.Helper()
	out, err := assume(t.Context(), stsClient(w.Transport(), nil), role, w.Mint(t, subject))
	must.Succeed(t, err)
	return static(out.Credentials)
}

// TestTokenMatrix checks STS's answers to good and bad tokens.
func TestTokenMatrix(t *testing.T) {
	w := newWorld(t)
	mint := func(claims oidc.Claims) func() (string, error) {
		return func() (string, error) { return w.Issuer.Mint(claims) }
	}
	good := oidc.Claims{"sub": subjectA, "aud": audience}
	ago := func(d time.Duration) int64 { return time.Now().Add(-d).Unix() }
	tests := []struct {
		name   string
		role   string
		token  func() (string, error)
		want   outcome
		reason string // text that the journal's reason must contain
	}{
		{"good", roleA, mint(good), outcome{}, ""},
		{"good, audience as a list", roleA, mint(oidc.Claims{"sub": subjectA, "aud": []string{audience}}), outcome{}, ""},
		{"good, within leeway of its end", roleA, mint(oidc.Claims{"sub": subjectA, "aud": audience, "exp": ago(20 * time.Second)}), outcome{}, ""},
		{"other tenant", roleA, mint(oidc.Claims{"sub": subjectB, "aud": audience}), outcome{"AccessDenied", 403}, `wants ["` + subjectA + `"], the request has ["` + subjectB + `"]`},
		{"other tenant's role", roleB, mint(good), outcome{"AccessDenied", 403}, ":sub wants"},
		{"subject with a suffix", roleA, mint(oidc.Claims{"sub": subjectA + "x", "aud": audience}), outcome{"AccessDenied", 403}, ":sub wants"},
		{"role that does not exist", roleA + "x", mint(good), outcome{"AccessDenied", 403}, "no such role"},
		{"role with another path", strings.Replace(roleA, "role/", "role/x/", 1), mint(good), outcome{"AccessDenied", 403}, "no such role"},
		{"role of an account without provider", strings.Replace(roleA, account, otherAccount, 1), mint(good), outcome{"InvalidIdentityToken", 400}, "No OpenIDConnect provider"},
		{"role of no account", strings.Replace(roleA, account, "999999999999", 1), mint(good), outcome{"InvalidIdentityToken", 400}, "No OpenIDConnect provider"},
		{"wrong audience", roleA, mint(oidc.Claims{"sub": subjectA, "aud": "https://kubernetes.default.svc"}), outcome{"InvalidIdentityToken", 400}, "the token is for"},
		{"several audiences", roleA, mint(oidc.Claims{"sub": subjectA, "aud": []string{audience, "other"}}), outcome{"InvalidIdentityToken", 400}, "the token is for"},
		{"authorized party instead of audience", roleA, mint(oidc.Claims{"sub": subjectA, "aud": audience, "azp": "other"}), outcome{"InvalidIdentityToken", 400}, "the token is for"},
		{"expired", roleA, mint(oidc.Claims{"sub": subjectA, "aud": audience, "exp": ago(time.Hour)}), outcome{"ExpiredTokenException", 400}, "token has expired"},
		{"not yet valid", roleA, mint(oidc.Claims{"sub": subjectA, "aud": audience, "nbf": ago(-time.Hour)}), outcome{"IDPRejectedClaim", 403}, "not valid yet"},
		{"issued in the future", roleA, mint(oidc.Claims{"sub": subjectA, "aud": audience, "iat": ago(-time.Hour)}), outcome{"IDPRejectedClaim", 403}, "not valid yet"},
		{"forged", roleA, func() (string, error) { return w.Issuer.Forge(good) }, outcome{"InvalidIdentityToken", 400}, "signature does not verify"},
		{"unsigned", roleA, func() (string, error) { return w.Issuer.MintUnsigned(good) }, outcome{"InvalidIdentityToken", 400}, "not an acceptable JWT"},
		{"wrong issuer", roleA, func() (string, error) { return w.Rogue.Mint(good) }, outcome{"InvalidIdentityToken", 400}, "No OpenIDConnect provider"},
		{"wrong issuer that claims to be the right one", roleA, func() (string, error) {
			return w.Rogue.Mint(oidc.Claims{"sub": subjectA, "aud": audience, "iss": issuerURL})
		}, outcome{"InvalidIdentityToken", 400}, "no such key"},
		{"without subject", roleA, mint(oidc.Claims{"aud": audience}), outcome{"InvalidIdentityToken", 400}, "required"},
		{"without expiry", roleA, mint(oidc.Claims{"sub": subjectA, "aud": audience, "exp": nil}), outcome{"InvalidIdentityToken", 400}, "exp is required"},
		{"session tags", roleA, mint(oidc.Claims{"sub": subjectA, "aud": audience, "https://aws.amazon.com/tags": map[string]any{"principal_tags": map[string]any{"team": []string{"red"}}}}), outcome{"InvalidIdentityToken", 400}, "session tags"},
		{"source identity", roleA, mint(oidc.Claims{"sub": subjectA, "aud": audience, "https://aws.amazon.com/source_identity": "bob"}), outcome{"InvalidIdentityToken", 400}, "source identity"},
		{"none", roleA, func() (string, error) { return "", nil }, outcome{"ValidationError", 400}, "'webIdentityToken' failed to satisfy constraint"},
		{"not a token", roleA, func() (string, error) { return "hello world", nil }, outcome{"InvalidIdentityToken", 400}, "not an acceptable JWT"},
	}
	for _, way := range []struct {
		name      string
		transport http.RoundTripper
	}{{"in process", w.Transport()}, {"through the proxy", rig.Proxied(t, w.Cloud)}} {
		client := stsClient(way.transport, nil)
		for _, tt := range tests {
			t.Run(way.name+"/"+tt.name, func(t *testing.T) {
				token, err := tt.token()
				must.Succeed(t, err)
				before := w.Journal().Last()
				out, err := assume(t.Context(), client, tt.role, token)
				if diff := cmp.Diff(tt.want, outcomeOf(err)); diff != "" {
					t.Errorf("outcome (-want +got):\n%s\n%v", diff, err)
				}
				calls := w.Journal().Calls(journal.Filter{Service: aws.ServiceSTS, After: before})
				if len(calls) != 1 {
					t.Fatalf("journal has %d calls, want 1", len(calls))
				}
				if calls[0].Code != tt.want.Code || !strings.Contains(calls[0].Reason, tt.reason) || calls[0].Role != tt.role {
					t.Errorf("journal says %+v, want reason %q", calls[0], tt.reason)
				}
				if token != "" && strings.Contains(calls[0].Reason, token) {
					t.Error("the journal has the token")
				}
				if err == nil && *out.SubjectFromWebIdentityToken != subjectA {
					t.Errorf("subject %q", *out.SubjectFromWebIdentityToken)
				}
			})
		}
	}
}

func TestSessionIsWhoItSaysItIs(t *testing.T) {
	w := newWorld(t)
	creds := w.assume(t, roleA, subjectA)
	out, err := stsClient(w.Transport(), creds).GetCallerIdentity(t.Context(), nil)
	must.Succeed(t, err)
	want := "arn:aws:sts::" + account + ":assumed-role/tenant-a-ecr/test"
	if *out.Arn != want || *out.Account != account || !strings.HasPrefix(*out.UserId, "AROA") || !strings.HasSuffix(*out.UserId, ":test") {
		t.Errorf("caller is %q, %q, %q", *out.Arn, *out.Account, *out.UserId)
	}
	global := stsClient(w.Transport(), creds, func(o *sts.Options) { o.Region = "us-east-1" })
	if _, err := global.GetCallerIdentity(t.Context(), nil); err != nil {
		t.Errorf("another region: %v", err)
	}
}

func TestSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		role, token := roleA, w.Mint(t, subjectA)
		out, err := stsClient(transport, nil).AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{
			RoleArn: &role, RoleSessionName: awssdk.String("test"), WebIdentityToken: &token, DurationSeconds: awssdk.Int32(900),
		})
		must.Succeed(t, err)
		if life := time.Until(*out.Credentials.Expiration); life != 15*time.Minute {
			t.Errorf("session lives %s, want 15m", life)
		}
		me := stsClient(transport, static(out.Credentials))
		time.Sleep(15*time.Minute - time.Second)
		if _, err := me.GetCallerIdentity(t.Context(), nil); err != nil {
			t.Errorf("a second before its end: %v", err)
		}
		time.Sleep(time.Second)
		_, err = me.GetCallerIdentity(t.Context(), nil)
		if diff := cmp.Diff(outcome{"ExpiredToken", 403}, outcomeOf(err)); diff != "" {
			t.Errorf("at its end (-want +got):\n%s", diff)
		}
		_, err = ecrClient(transport, static(out.Credentials)).GetAuthorizationToken(t.Context(), nil)
		if diff := cmp.Diff(outcome{"ExpiredTokenException", 400}, outcomeOf(err)); diff != "" {
			t.Errorf("ECR at its end (-want +got):\n%s", diff)
		}
	})
}

// tamper changes a request after it was signed.
type tamper struct {
	next   http.RoundTripper
	change func(*http.Request)
}

func (t tamper) RoundTrip(r *http.Request) (*http.Response, error) {
	t.change(r)
	return t.next.RoundTrip(r)
}

func TestSignatureTampering(t *testing.T) {
	w := newWorld(t)
	setBody := func(body string) func(*http.Request) {
		return func(r *http.Request) {
			r.Body = http.NoBody
			if body != "" {
				r.Body = readCloser{strings.NewReader(body)}
			}
			r.ContentLength = int64(len(body))
		}
	}
	wrong := credentials.NewStaticCredentialsProvider(pusherKey, "another-secret-another-secret", "")
	tests := []struct {
		name   string
		creds  awssdk.CredentialsProvider
		change func(*http.Request)
		want   outcome
	}{
		{"untouched", pusher(), func(*http.Request) {}, outcome{}},
		{"wrong secret", wrong, func(*http.Request) {}, outcome{"SignatureDoesNotMatch", 403}},
		{"unknown key", credentials.NewStaticCredentialsProvider("AKIANOBODYNOBODYNOBO", pusherSecret, ""), func(*http.Request) {}, outcome{"InvalidClientTokenId", 403}},
		{"user's key with a session token", credentials.NewStaticCredentialsProvider(pusherKey, pusherSecret, "token"), func(*http.Request) {}, outcome{"InvalidClientTokenId", 403}},
		{"no signature", awssdk.AnonymousCredentials{}, func(*http.Request) {}, outcome{"MissingAuthenticationToken", 403}},
		{"other body", pusher(), setBody("Action=GetCallerIdentity&Version=2011-06-15&X=1"), outcome{"SignatureDoesNotMatch", 403}},
		{"query added", pusher(), func(r *http.Request) { r.URL.RawQuery = "X=1" }, outcome{"SignatureDoesNotMatch", 403}},
		{"signed header changed", pusher(), func(r *http.Request) { r.Header.Set("Amz-Sdk-Invocation-Id", "x") }, outcome{"SignatureDoesNotMatch", 403}},
		{"unsigned X-Amz header added", pusher(), func(r *http.Request) { r.Header.Set("X-Amz-Target", "x") }, outcome{"SignatureDoesNotMatch", 403}},
		{"two signatures", pusher(), func(r *http.Request) { r.Header.Add("Authorization", "AWS4-HMAC-SHA256 x") }, outcome{"IncompleteSignature", 400}},
		{"signature cut off", pusher(), func(r *http.Request) {
			a := r.Header.Get("Authorization")
			r.Header.Set("Authorization", a[:len(a)-2])
		}, outcome{"IncompleteSignature", 400}},
		{"another region's signature", pusher(), func(r *http.Request) { r.URL.Host, r.Host = "sts.eu-west-2.amazonaws.com", "" }, outcome{"SignatureDoesNotMatch", 403}},
		{"another host of the region", pusher(), func(r *http.Request) { r.URL.Host, r.Host = "sts.eu-west-1.api.aws", "" }, outcome{"SignatureDoesNotMatch", 403}},
		{"another partition", pusher(), func(r *http.Request) { r.URL.Host, r.Host = "sts.cn-north-1.amazonaws.com.cn", "" }, outcome{"InvalidClientTokenId", 403}},
		{"another service's signature", pusher(), func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "/sts/", "/ecr/", 1))
		}, outcome{"SignatureDoesNotMatch", 403}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := stsClient(tamper{w.Transport(), tt.change}, tt.creds).GetCallerIdentity(t.Context(), nil)
			if diff := cmp.Diff(tt.want, outcomeOf(err)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

func TestSessionTokenBelongsToItsKey(t *testing.T) {
	w := newWorld(t)
	a, err := w.assume(t, roleA, subjectA).Retrieve(t.Context())
	must.Succeed(t, err)
	b, err := w.assume(t, roleB, subjectB).Retrieve(t.Context())
	must.Succeed(t, err)
	for name, token := range map[string]string{"another session's": b.SessionToken, "none": ""} {
		mixed := credentials.NewStaticCredentialsProvider(a.AccessKeyID, a.SecretAccessKey, token)
		_, err := stsClient(w.Transport(), mixed).GetCallerIdentity(t.Context(), nil)
		if diff := cmp.Diff(outcome{"InvalidClientTokenId", 403}, outcomeOf(err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestClockSkew(t *testing.T) {
	for skew, want := range map[time.Duration]outcome{
		14 * time.Minute:  {},
		16 * time.Minute:  {"SignatureDoesNotMatch", 403},
		-4 * time.Minute:  {},
		-6 * time.Minute:  {"SignatureDoesNotMatch", 403},
		-20 * time.Minute: {"SignatureDoesNotMatch", 403},
	} {
		w := newWorld(t)
		if _, err := w.Faults().Add(fault.Fault{Kind: fault.Skew, Skew: skew}); err != nil {
			t.Fatal(err)
		}
		_, err := stsClient(w.Transport(), pusher()).GetCallerIdentity(t.Context(), nil)
		if diff := cmp.Diff(want, outcomeOf(err)); diff != "" {
			t.Errorf("skew %s (-want +got):\n%s\n%v", skew, diff, err)
		}
	}
}

func TestPresignedCallerIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.Client()
		defer client.CloseIdleConnections()
		get := func(target string) int {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
			must.Succeed(t, err)
			res, err := client.Do(req)
			must.Succeed(t, err)
			// Read the answer. Otherwise its connection is closed later, maybe after the synctest
			// bubble has ended.
			_ = rig.ReadAll(t, res)
			return res.StatusCode
		}
		signed, err := sts.NewPresignClient(stsClient(w.Transport(), pusher())).PresignGetCallerIdentity(t.Context(), nil)
		must.Succeed(t, err)
		if status := get(signed.URL); status != http.StatusOK {
			t.Errorf("presigned: HTTP %d", status)
		}
		if status := get(strings.Replace(signed.URL, "Action=GetCallerIdentity", "Action=AssumeRole", 1)); status != http.StatusForbidden {
			t.Errorf("changed: HTTP %d", status)
		}
		time.Sleep(16 * time.Minute)
		if status := get(signed.URL); status != http.StatusForbidden {
			t.Errorf("sixteen minutes later: HTTP %d", status)
		}
	})
}

func TestECRAuthorizationToken(t *testing.T) {
	w := newWorld(t)
	out, err := ecrClient(w.Transport(), w.assume(t, roleA, subjectA)).GetAuthorizationToken(t.Context(), nil)
	must.Succeed(t, err)
	data := out.AuthorizationData[0]
	raw, err := base64.StdEncoding.DecodeString(*data.AuthorizationToken)
	if err != nil || !strings.HasPrefix(string(raw), "AWS:") {
		t.Errorf("token %.8q is not of user AWS: %v", raw, err)
	}
	if *data.ProxyEndpoint != "https://"+registryHost {
		t.Errorf("endpoint %q", *data.ProxyEndpoint)
	}
	if life := time.Until(*data.ExpiresAt); life < 12*time.Hour-time.Minute || life > 12*time.Hour {
		t.Errorf("token lives %s, want 12h", life)
	}
}

func TestECRNeedsPermission(t *testing.T) {
	w := newWorld(t)
	creds := w.assume(t, roleA, subjectA)
	role := rig.TenantRole("tenant-a", subjectA)
	role.Policies = nil
	must.Succeed(t, w.AWS().PutRole(account, role))
	_, err := ecrClient(w.Transport(), creds).GetAuthorizationToken(t.Context(), nil)
	if diff := cmp.Diff(outcome{"AccessDeniedException", 400}, outcomeOf(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := "User: arn:aws:sts::123456789123:assumed-role/tenant-a-ecr/test is not authorized to perform: ecr:GetAuthorizationToken on resource: * " +
		"because no identity-based policy allows the ecr:GetAuthorizationToken action"
	if !strings.Contains(err.Error(), want) {
		t.Errorf("error %q\nhas no  %q", err, want)
	}
}

func TestECRPublic(t *testing.T) {
	w := newWorld(t)
	client := func(creds awssdk.CredentialsProvider) *ecrpublic.Client {
		return ecrpublic.New(ecrpublic.Options{
			Region: "us-east-1", Credentials: creds, Retryer: awssdk.NopRetryer{},
			HTTPClient: &http.Client{Transport: w.Transport()},
		})
	}
	_, err := client(w.assume(t, roleA, subjectA)).GetAuthorizationToken(t.Context(), nil)
	if diff := cmp.Diff(outcome{"AccessDeniedException", 400}, outcomeOf(err)); diff != "" {
		t.Errorf("without permission (-want +got):\n%s", diff)
	}
	out, err := client(pusher()).GetAuthorizationToken(t.Context(), nil)
	must.Succeed(t, err)
	raw, err := base64.StdEncoding.DecodeString(*out.AuthorizationData.AuthorizationToken)
	if err != nil || !strings.HasPrefix(string(raw), "AWS:") {
		t.Errorf("token %.8q is not of user AWS: %v", raw, err)
	}
}

func TestTrustRevokedAtRunTime(t *testing.T) {
	w := newWorld(t)
	client := stsClient(w.Transport(), nil)
	creds := w.assume(t, roleA, subjectA)
	must.Succeed(t, w.AWS().PutTrustPolicy(account, "tenant-a-ecr", rig.TrustPolicy(subjectB)))
	_, err := assume(t.Context(), client, roleA, w.Mint(t, subjectA))
	if diff := cmp.Diff(outcome{"AccessDenied", 403}, outcomeOf(err)); diff != "" {
		t.Errorf("new session after revocation (-want +got):\n%s", diff)
	}
	if _, err := stsClient(w.Transport(), creds).GetCallerIdentity(t.Context(), nil); err != nil {
		t.Errorf("a live session outlives its trust at AWS: %v", err)
	}
	must.Succeed(t, w.AWS().DeleteRole(account, "tenant-a-ecr"))
	must.Succeed(t, w.AWS().PutRole(account, rig.TenantRole("tenant-a", subjectA)))
	_, err = stsClient(w.Transport(), creds).GetCallerIdentity(t.Context(), nil)
	if diff := cmp.Diff(outcome{"InvalidClientTokenId", 403}, outcomeOf(err)); diff != "" {
		t.Errorf("session of a deleted and re-created role (-want +got):\n%s", diff)
	}
}

// TestKeysOfEveryRequest checks Deny statements with condition keys that AWS sets in every request.
// Each statement must deny the request.
func TestKeysOfEveryRequest(t *testing.T) {
	w := newWorld(t)
	for _, condition := range []string{
		`"DateGreaterThan":{"aws:CurrentTime":"2020-01-01T00:00:00Z"}`,
		`"DateGreaterThan":{"aws:EpochTime":"1577836800"}`,
		`"StringEquals":{"aws:RequestedRegion":"eu-west-1"}`,
		`"Bool":{"aws:SecureTransport":"true"}`,
	} {
		deny := `{"Effect":"Deny","Principal":"*","Action":"sts:*","Condition":{` + condition + `}},{`
		document := strings.Replace(string(rig.TrustPolicy(subjectA)), "{", "\x00", 1)
		document = strings.Replace(strings.Replace(document, "{", deny, 1), "\x00", "{", 1)
		must.Succeed(t, w.AWS().PutTrustPolicy(account, "tenant-a-ecr", json.RawMessage(document)))
		_, err := assume(t.Context(), stsClient(w.Transport(), nil), roleA, w.Mint(t, subjectA))
		if diff := cmp.Diff(outcome{"AccessDenied", 403}, outcomeOf(err)); diff != "" {
			t.Errorf("AssumeRoleWithWebIdentity, %s (-want +got):\n%s", condition, diff)
		}
		_, err = stsClient(w.Transport(), pusher()).AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: awssdk.String(roleA), RoleSessionName: awssdk.String("test")})
		if last := w.Journal().Calls(journal.Filter{Operation: "AssumeRole"}); err == nil || len(last) == 0 || !strings.Contains(last[len(last)-1].Reason, "denies") {
			t.Errorf("AssumeRole, %s: %v, %+v", condition, err, last)
		}
	}
}

// TestOtherPartition checks that policies with ARNs of another partition are refused, as at AWS.
func TestOtherPartition(t *testing.T) {
	w := newWorld(t)
	foreign := json.RawMessage(strings.Replace(string(rig.TrustPolicy(subjectA)), "arn:aws:", "arn:aws-cn:", 1))
	pull := json.RawMessage(strings.Replace(string(rig.PullPolicy("a")), "arn:aws:", "arn:aws-cn:", 1))
	resource := json.RawMessage(`{"Version":"2012-10-17","Statement":{"Effect":"Deny","Principal":{"AWS":"arn:aws-cn:iam::` + otherAccount + `:root"},"Action":"ecr:*"}}`)
	for name, err := range map[string]error{
		"trustPolicy":   w.AWS().PutTrustPolicy(account, "tenant-a-ecr", foreign),
		"trustPolicy ":  w.AWS().PutRole(account, aws.Role{Name: "x", TrustPolicy: foreign}),
		`policies["p"]`: w.AWS().PutUser(account, aws.User{Name: "x", Policies: map[string]json.RawMessage{"p": pull}}),
		"policy":        w.AWS().PutRepository(account, aws.Repository{Region: region, Name: "xx", Policy: resource}),
	} {
		var refusal *setting.Error
		if !errors.As(err, &refusal) || refusal.Field != strings.TrimSpace(name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParameters(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("a", 65)
	tests := []struct {
		name, role, session string
		seconds             int32
		message             string
	}{
		{"short ARN", "tenant-a", "test", 900, "Value 'tenant-a' at 'roleArn' failed to satisfy constraint: Member must have length greater than or equal to 20"},
		{"no ARN", "this is not an ARN at all", "test", 900, "Request ARN is invalid"},
		{"user's ARN", "arn:aws:iam::" + account + ":user/pusher", "test", 900, "Request ARN is invalid"},
		{"another partition's", "arn:aws-cn:iam::" + account + ":role/tenant-a-ecr", "test", 900, "Request ARN is invalid"},
		{"account of 11 digits", "arn:aws:iam::12345678912:role/tenant-a-ecr", "test", 900, "Request ARN is invalid"},
		{"session name with a blank", roleA, "a b", 900, `Value 'a b' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\w+=,.@-]*`},
		{"session name of 65", roleA, long, 900, "Value '" + long + "' at 'roleSessionName' failed to satisfy constraint: Member must have length less than or equal to 64"},
		{"session name of 1", roleA, "a", 900, "at 'roleSessionName' failed to satisfy constraint: Member must have length greater than or equal to 2"},
		{"too short", roleA, "test", 899, "Value '899' at 'durationSeconds' failed to satisfy constraint: Member must have value greater than or equal to 900"},
		{"too long", roleA, "test", 43201, "Value '43201' at 'durationSeconds' failed to satisfy constraint: Member must have value less than or equal to 43200"},
		{"longer than the role allows", roleA, "test", 3601, "The requested DurationSeconds exceeds the MaxSessionDuration set for this role."},
		{"two at once", roleA, "a", 1, "2 validation errors detected: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			token := w.Mint(t, subjectA)
			_, err := stsClient(w.Transport(), nil).AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{
				RoleArn: &tt.role, RoleSessionName: &tt.session, DurationSeconds: &tt.seconds, WebIdentityToken: &token,
			})
			if diff := cmp.Diff(outcome{"ValidationError", 400}, outcomeOf(err)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(err.Error(), tt.message) {
				t.Errorf("error %q\nhas no  %q", err, tt.message)
			}
		})
	}
}

func TestSessionPolicyNarrows(t *testing.T) {
	w := newWorld(t)
	role, token := roleA, w.Mint(t, subjectA)
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ecr:BatchGetImage","Resource":"*"}]}`
	out, err := stsClient(w.Transport(), nil).AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: &role, RoleSessionName: awssdk.String("test"), WebIdentityToken: &token, Policy: &policy,
	})
	must.Succeed(t, err)
	//nolint:staticcheck // deprecated in the SDK; the wire still has it, and other clients read it.
	if out.PackedPolicySize == nil || *out.PackedPolicySize == 0 {
		t.Error("no packed policy size")
	}
	_, err = ecrClient(w.Transport(), static(out.Credentials)).GetAuthorizationToken(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "because no session policy allows the ecr:GetAuthorizationToken action") {
		t.Errorf("got %v", err)
	}
	policy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","NotAction":"x:y","Resource":"*"}]}`
	_, err = stsClient(w.Transport(), nil).AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: &role, RoleSessionName: awssdk.String("test"), WebIdentityToken: &token, Policy: &policy,
	})
	if diff := cmp.Diff(outcome{"MalformedPolicyDocument", 400}, outcomeOf(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
