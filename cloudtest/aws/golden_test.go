package aws_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// mask replaces the parts of an answer that differ between runs.
func mask(s string) string {
	for pattern, with := range map[string]string{
		`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`: "REQUEST-ID",
		`(AROA|ASIA|AIDA)[A-Z2-7]{16,17}`:                              "$1…",
		`(<SecretAccessKey>|<SessionToken>)[^<]+`:                      "$1…",
		`("authorizationToken":"|"token":")[^"]+`:                      "$1…",
		`<RequestId>[0-9A-F]{16}<`:                                     "<RequestId>REQUEST-ID<",
		`<HostId>[^<]+<`:                                               "<HostId>HOST-ID<",
	} {
		s = regexp.MustCompile(pattern).ReplaceAllString(s, with)
	}
	return s
}

// TestAnswers compares every kind of answer with golden files, byte for byte, so that every change
// of an answer is reviewed.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := s3World(t)
		client := w.Client()
		defer client.CloseIdleConnections()
		w.push(t, client, registryHost, "tenant-a/app")
		const stsHost, ecrHost = "sts.eu-west-1.amazonaws.com", "api.ecr.eu-west-1.amazonaws.com"
		form := func(pairs ...string) *http.Request {
			values := url.Values{"Version": {"2011-06-15"}}
			for i := 0; i < len(pairs); i += 2 {
				values.Set(pairs[i], pairs[i+1])
			}
			return rig.NewRequest(t, http.MethodPost, "https://"+stsHost+"/", "application/x-www-form-urlencoded", values.Encode())
		}
		web := func(role, session, token string) *http.Request {
			return form("Action", "AssumeRoleWithWebIdentity", "RoleArn", role, "RoleSessionName", session, "WebIdentityToken", token)
		}
		token := func(mint func(oidc.Claims) (string, error), change ...string) string {
			claims := oidc.Claims{"sub": subjectA, "aud": audience}
			for i := 0; i < len(change); i += 2 {
				claims[change[i]] = change[i+1]
			}
			raw, err := mint(claims)
			must.Succeed(t, err)
			return raw
		}
		old, err := w.Issuer.Mint(oidc.Claims{"sub": subjectA, "aud": audience, "exp": time.Now().Add(-time.Hour).Unix()})
		must.Succeed(t, err)
		ecr := func(target, body string) *http.Request {
			r := rig.NewRequest(t, http.MethodPost, "https://"+ecrHost+"/", "application/x-amz-json-1.1", body)
			r.Header.Set("X-Amz-Target", "AmazonEC2ContainerRegistry_V20150921."+target)
			return r
		}
		tenant, err := w.assume(t, roleA, subjectA).Retrieve(t.Context())
		must.Succeed(t, err)
		user := awssdk.Credentials{AccessKeyID: pusherKey, SecretAccessKey: pusherSecret}
		unknown := awssdk.Credentials{AccessKeyID: "AKIANOBODYNOBODYNOBO", SecretAccessKey: pusherSecret}
		forged := awssdk.Credentials{AccessKeyID: pusherKey, SecretAccessKey: "another-secret-another-secret"}
		login := w.login(t, w.assume(t, roleA, subjectA))
		pull := func(authorization, path string) *http.Request {
			r := rig.NewRequest(t, http.MethodGet, "https://"+registryHost+"/v2/"+path, "", "")
			if authorization != "" {
				r.Header.Set("Authorization", authorization)
			}
			return r
		}
		tenantS3, err := w.assume(t, roleS3, subjectA).Retrieve(t.Context())
		must.Succeed(t, err)
		object := func(creds awssdk.Credentials, target string) *http.Request {
			r := rig.NewRequest(t, http.MethodGet, "https://"+target, "", "")
			if creds.HasKeys() {
				r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
				signS3(t, r, creds)
			}
			return r
		}
		otherToken := tenantS3
		otherToken.SessionToken = tenant.SessionToken
		const s3Host = "s3.eu-west-1.amazonaws.com/"
		tests := map[string]*http.Request{
			"s3-object":                          object(tenantS3, s3Host+bucketA+"/secret"),
			"s3-no-object":                       object(tenantS3, s3Host+bucketA+"/none"),
			"s3-other-tenant":                    object(tenantS3, s3Host+bucketB+"/secret"),
			"s3-other-account":                   object(tenantS3, s3Host+bucketOther+"/secret"),
			"s3-no-bucket":                       object(tenantS3, s3Host+"none-bucket/secret"),
			"s3-other-region":                    object(tenantS3, s3Host+bucketUS+"/secret"),
			"s3-wrong-region":                    object(tenantS3, bucketUS+".s3.us-east-1.amazonaws.com/secret"),
			"s3-unsigned":                        object(awssdk.Credentials{}, s3Host+bucketA+"/secret"),
			"s3-unknown-key":                     object(unknown, s3Host+bucketA+"/secret"),
			"s3-wrong-secret":                    object(forged, s3Host+bucketA+"/secret"),
			"s3-wrong-token":                     object(otherToken, s3Host+bucketA+"/secret"),
			"s3-buckets":                         object(user, s3Host+"?max-buckets=2"),
			"s3-buckets-refused":                 object(tenantS3, s3Host),
			"s3-location":                        object(user, s3Host+bucketA+"?location="),
			"s3-unsupported":                     object(user, s3Host+bucketA+"?acl="),
			"sts-web-identity":                   web(roleA, "test", token(w.Issuer.Mint)),
			"sts-web-identity-other-tenant":      web(roleB, "test", token(w.Issuer.Mint)),
			"sts-web-identity-wrong-audience":    web(roleA, "test", token(w.Issuer.Mint, "aud", "other")),
			"sts-web-identity-wrong-issuer":      web(roleA, "test", token(w.Rogue.Mint)),
			"sts-web-identity-forged":            web(roleA, "test", token(w.Issuer.Forge)),
			"sts-web-identity-unknown-key":       web(roleA, "test", token(w.Rogue.Mint, "iss", issuerURL)),
			"sts-web-identity-expired":           web(roleA, "test", old),
			"sts-web-identity-not-a-token":       web(roleA, "test", "hello world"),
			"sts-web-identity-none":              form("Action", "AssumeRoleWithWebIdentity", "RoleArn", roleA, "RoleSessionName", "test"),
			"sts-web-identity-malformed-role":    web("arn:aws:iam::123456789123:tenant-a-ecr", "test", token(w.Issuer.Mint)),
			"sts-web-identity-malformed-session": web(roleA, "<a b>", token(w.Issuer.Mint)),
			"sts-missing-action":                 form(),
			"sts-unknown-action":                 form("Action", "GetSessionToken"),
			"sts-wrong-version":                  form("Action", "GetCallerIdentity", "Version", "2012-10-17"),
			"sts-missing-token":                  form("Action", "GetCallerIdentity"),
			"sts-unknown-key":                    sign(t, form("Action", "GetCallerIdentity"), "sts", unknown),
			"sts-wrong-secret":                   sign(t, form("Action", "GetCallerIdentity"), "sts", forged),
			"sts-wrong-service":                  sign(t, form("Action", "GetCallerIdentity"), "ecr", user),
			"sts-caller-identity":                sign(t, form("Action", "GetCallerIdentity"), "sts", user),
			"sts-caller-identity-session":        sign(t, form("Action", "GetCallerIdentity"), "sts", tenant),
			"sts-assume-role-refused":            sign(t, form("Action", "AssumeRole", "RoleArn", roleB, "RoleSessionName", "test"), "sts", tenant),
			"ecr-token":                          sign(t, ecr("GetAuthorizationToken", "{}"), "ecr", tenant),
			"ecr-missing-token":                  ecr("GetAuthorizationToken", "{}"),
			"ecr-unknown-key":                    sign(t, ecr("GetAuthorizationToken", "{}"), "ecr", unknown),
			"ecr-wrong-secret":                   sign(t, ecr("GetAuthorizationToken", "{}"), "ecr", forged),
			"ecr-unknown-operation":              sign(t, ecr("PutImage", "{}"), "ecr", user),
			"ecr-bad-registry":                   sign(t, ecr("GetAuthorizationToken", `{"registryIds":["1"]}`), "ecr", user),
			"ecr-not-json":                       sign(t, ecr("GetAuthorizationToken", `x`), "ecr", user),
			"registry-ping":                      pull(login, ""),
			"registry-no-credentials":            pull("", "tenant-a/app/manifests/1.0.0"),
			"registry-invalid-token":             pull("Basic QVdTOng=", "tenant-a/app/manifests/1.0.0"),
			"registry-other-tenant":              pull(login, "tenant-b/app/manifests/1.0.0"),
			"registry-no-repository":             pull(login, "tenant-a/none/manifests/1.0.0"),
			"registry-unsupported":               pull(login, "_catalog"),
		}
		files := rig.Golden{Dir: filepath.Join("testdata", "answers"), Update: *update, Mask: mask}
		for name, r := range tests {
			res, err := client.Do(r)
			must.Succeed(t, err)
			files.Answer(t, name, res)
		}
		files.Complete(t)
	})
}

// sign signs a request with the SDK's signer, for a service in the tests' region.
func sign(t *testing.T, r *http.Request, service string, creds awssdk.Credentials) *http.Request {
	t.Helper()
	return signIn(t, region, r, service, creds)
}

func signIn(t *testing.T, region string, r *http.Request, service string, creds awssdk.Credentials) *http.Request {
	t.Helper()
	body, err := r.GetBody()
	must.Succeed(t, err)
	h := sha256.New()
	if _, err := io.Copy(h, body); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, v4.NewSigner().SignHTTP(t.Context(), creds, r, hex.EncodeToString(h.Sum(nil)), service, region, time.Now()))
	return r
}
