package aws_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const minioRole = "arn:minio:iam:::role/nOybJqMNzNmroqEKq5D0EUsRZw0"

// minio is a fake of MinIO's STS. It verifies tokens, and grants access by role policies or by the
// claim "policy". Source: MinIO, cmd/sts-handlers.go, AssumeRoleWithSSO. test/e2e checks that the
// fake answers wrong tokens as a real MinIO does.
type minio struct {
	verifier *oidc.Verifier
	claims   bool   // true if the claim "policy" of the token can replace the role minioRole
	down     string // if set, each answer is HTTP 503 with this code
	asked    []url.Values
}

func (m *minio) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fail := func(status int, code, message string) {
		type one struct{ Type, Code, Message string }
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_ = xml.NewEncoder(w).Encode(struct {
			XMLName   xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ ErrorResponse"`
			Error     one
			RequestID string `xml:"RequestId"`
		}{Error: one{Code: code, Message: message}, RequestID: strconv.FormatInt(time.Now().UnixNano(), 16)})
	}
	if err := r.ParseForm(); err != nil || r.Method != http.MethodPost || r.URL.Path != "/" {
		fail(400, "InvalidParameterValue", "not a form")
		return
	}
	m.asked = append(m.asked, r.PostForm)
	role, duration := r.PostForm.Get("RoleArn"), r.PostForm.Get("DurationSeconds")
	token, err := oidc.Read(r.PostForm.Get("WebIdentityToken"))
	if err == nil {
		err = m.verifier.Verify(r.Context(), token, time.Now())
	}
	switch {
	case m.down != "":
		fail(503, m.down, "STS IAM not initialized, please try again.")
		return
	case r.PostForm.Get("Action") != opSTS || r.PostForm.Get("Version") != "2011-06-15":
		fail(400, "InvalidParameterValue", "Unsupported action")
		return
	case role == "" && !m.claims:
		fail(400, "InvalidParameterValue", "Role arn:minio:iam:::role/dummy-internal does not exist")
		return
	case role != minioRole && !m.claims:
		fail(400, "InvalidParameterValue", "Error processing RoleArn parameter: RoleARN "+role+" is not defined.")
		return
	case err != nil:
		fail(400, "InvalidParameterValue", err.Error())
		return
	case !slices.Contains(token.Audience, r.Host):
		fail(400, "InvalidParameterValue", "STS JWT Token has `azp` claim invalid, `azp` must match configured OpenID Client ID")
		return
	case role != minioRole && token.Claims["policy"] == nil:
		fail(400, "InvalidParameterValue", "policy claim missing from the JWT token, credentials will not be generated")
		return
	}
	seconds, err := strconv.Atoi(duration)
	if err != nil || seconds < 900 {
		seconds = int(time.Until(token.Expiry).Seconds())
	}
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>
<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><AssumedRoleUser><Arn></Arn><AssumeRoleId></AssumeRoleId></AssumedRoleUser>`+
		`<Credentials><AccessKeyId>Y4RJU1RNFGK48LGO9I2S</AccessKeyId><SecretAccessKey>sYLRKS1Z7hSjluf6gEbb9066hnx315wHTiACPAjg</SecretAccessKey>`+
		`<Expiration>%s</Expiration><SessionToken>eyJhbGciOiJIUzUxMiJ9.eyJwb2xpY3kiOiJ0ZW5hbnQtYSJ9.c2lnbmF0dXJl</SessionToken></Credentials>`+
		`<SubjectFromWebIdentityToken>%s</SubjectFromWebIdentityToken></AssumeRoleWithWebIdentityResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleWithWebIdentityResponse>`,
		time.Now().Add(time.Duration(seconds)*time.Second).UTC().Format(time.RFC3339), token.Subject)
}

// storeWorld returns a world with a store on loopback. The store has TLS, and its host is in
// AllowedEndpointHosts. The returned provider reaches only this store.
func storeWorld(t *testing.T) (*world, *minio, *aws.Provider, string) {
	t.Helper()
	w := newWorld(t)
	m := &minio{verifier: &oidc.Verifier{Client: &http.Client{Transport: w.Cloud.Transport()}, Leeway: time.Minute}}
	server := httptest.NewTLSServer(m)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	rig.Must(t, err)
	allow, err := endpoint.ParseAllowed(target.Host)
	rig.Must(t, err)
	w.Base = server.Client().Transport.(*http.Transport).Clone()
	w.Base.Proxy = nil
	w.Base.DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("dialled without the guard")
	}
	return w, m, w.provider(t, aws.Config{AllowedEndpointHosts: allow}), server.URL
}

// signAs returns a function that signs a JWT with changed claims.
func (w *world) signAs(change oidc.Claims) func(auth.Account, auth.ProofRequest) (string, error) {
	return func(account auth.Account, request auth.ProofRequest) (string, error) {
		claims := oidc.Claims{"sub": rig.SubjectClaim(account), "aud": request.Audiences, "exp": time.Now().Add(request.Lifetime).Unix()}
		maps.Copy(claims, change)
		return w.Issuer.Mint(claims)
	}
}

// TestStore requests sessions from a store's STS: for roles of the store and of AWS, without a
// role, and with invalid proofs.
func TestStore(t *testing.T) {
	w, m, provider, url := storeWorld(t)
	host := strings.TrimPrefix(url, "https://")
	account := accountA(t)
	none := auth.Account{Subject: account.Subject, UID: account.UID}
	policyClaim := w.signAs(oidc.Claims{"policy": "tenant-a"})
	for _, test := range []struct {
		name    string
		claims  bool
		account auth.Account
		sign    func(auth.Account, auth.ProofRequest) (string, error)
		role    string // the role in the request to the store
		code    auth.Code
		text    string // part of the expected error
		fix     string
	}{
		{name: "role of the store", account: rig.WithAttribute(account, aws.RoleAnnotation, minioRole), sign: w.Sign, role: minioRole},
		{name: "no role, policy by claim", claims: true, account: none, sign: policyClaim, role: ""},
		{name: "role of AWS, policy by claim", claims: true, account: account, sign: policyClaim, role: roleA},
		{
			name: "no role, no claim", claims: true, account: none, sign: w.Sign, code: auth.CodeTrustRefused,
			text: "AssumeRoleWithWebIdentity without a role: InvalidParameterValue: policy claim missing from the JWT token",
			fix: "have the STS endpoint " + url + " trust the issuer " + issuerURL + " with the audience (client ID) " + host + " and map the claims of " +
				"system:serviceaccount:tenant-a:tenant-a-ecr-sa to a policy, or name a role in annotation eks.amazonaws.com/role-arn of ServiceAccount tenant-a/tenant-a-ecr-sa",
		},
		{
			name: "no role, where there must be one", account: none, sign: policyClaim, code: auth.CodeTrustRefused,
			text: "dummy-internal does not exist", fix: "or name a role in annotation",
		},
		{
			name: "another role", account: rig.WithAttribute(account, aws.RoleAnnotation, minioRole+"x"), sign: w.Sign, role: minioRole + "x", code: auth.CodeTrustRefused,
			text: "for role " + minioRole + "x: InvalidParameterValue: Error processing RoleArn parameter",
			fix:  "for role " + minioRole + "x and subject system:serviceaccount:tenant-a:tenant-a-ecr-sa",
		},
		{
			name: "wrong audience", account: rig.WithAttribute(account, aws.RoleAnnotation, minioRole), sign: w.signAs(oidc.Claims{"aud": "sts.amazonaws.com"}),
			role: minioRole, code: auth.CodeTrustRefused, text: "must match configured OpenID Client ID", fix: "with the audience (client ID) " + host,
		},
		{
			name: "another port", account: rig.WithAttribute(account, aws.RoleAnnotation, minioRole), sign: w.signAs(oidc.Claims{"aud": "127.0.0.1"}),
			role: minioRole, code: auth.CodeTrustRefused, text: "must match configured OpenID Client ID", fix: "with the audience (client ID) " + host,
		},
		{
			name: "expired", account: rig.WithAttribute(account, aws.RoleAnnotation, minioRole), sign: w.signAs(oidc.Claims{"exp": time.Now().Add(-time.Hour).Unix()}),
			role: minioRole, code: auth.CodeTrustRefused, text: "expired", fix: "trust the issuer",
		},
		{
			name: "forged", account: rig.WithAttribute(account, aws.RoleAnnotation, minioRole),
			sign: func(account auth.Account, request auth.ProofRequest) (string, error) {
				return w.Issuer.Forge(oidc.Claims{"sub": rig.SubjectClaim(account), "aud": request.Audiences})
			},
			role: minioRole, code: auth.CodeTrustRefused, text: "InvalidParameterValue", fix: "trust the issuer",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m.claims, m.asked = test.claims, nil
			subject := rig.Subject(test.account, test.sign)
			token, err := auth.GetToken(t.Context(), provider, subject, auth.WithSTSEndpoint(url))
			if len(m.asked) != 1 || m.asked[0].Get("RoleArn") != test.role || m.asked[0].Get("DurationSeconds") != "3600" {
				t.Fatalf("the store was asked %d times: %v", len(m.asked), err)
			}
			if test.code == "" {
				rig.Must(t, err)
				if life := token.GetDuration(); life < 59*time.Minute || life > time.Hour {
					t.Errorf("a session of %s", life)
				}
				return
			}
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Stage != auth.StageExchange || e.Code != test.code || !strings.Contains(e.Err.Error(), test.text) || !strings.Contains(e.Fix, test.fix) {
				t.Errorf("%v\nwant code %s, %q and %q", err, test.code, test.text, test.fix)
			}
		})
	}
}

// TestStoreFails checks that the errors of a failing store name the store and not AWS. They must be
// temporary, so that cached tokens remain.
func TestStoreFails(t *testing.T) {
	w, m, provider, url := storeWorld(t)
	m.down = "STSIAMNotInitialized"
	subject := rig.Subject(rig.WithAttribute(accountA(t), aws.RoleAnnotation, minioRole), w.Sign)
	_, err := auth.GetToken(t.Context(), provider, subject, auth.WithSTSEndpoint(url))
	e, ok := errors.AsType[*auth.Error](err)
	if !ok || e.Code != auth.CodeUnavailable || !e.Temporary() || e.Fix != "wait, and see the log of the STS endpoint "+url+" if the failure persists" {
		t.Errorf("%v", err)
	}
}

// TestStoresRolesAreNoneAtAWS checks accounts that have no role, or only the role of an
// S3-compatible store. If such an account requests a session from AWS, the provider must refuse the
// request before it asks for a proof.
func TestStoresRolesAreNoneAtAWS(t *testing.T) {
	w := newWorld(t)
	account := accountA(t)
	for name, a := range map[string]auth.Account{
		"none":     {Subject: account.Subject, UID: account.UID},
		"MinIO's":  rig.WithAttribute(account, aws.RoleAnnotation, minioRole),
		"Ceph's":   rig.WithAttribute(account, aws.RoleAnnotation, "arn:aws:iam:::role/tenant-a-ecr"),
		"anything": rig.WithAttribute(account, aws.RoleAnnotation, ""),
	} {
		proofs := 0
		subject := rig.Subject(a, func(account auth.Account, request auth.ProofRequest) (string, error) {
			proofs++
			return w.Sign(account, request)
		})
		kept := cache.New(cache.Options{MaxSize: 10})
		for _, option := range []auth.Option{auth.WithImageRepository(imageA), auth.WithSTSEndpoint("https://sts.eu-west-1.amazonaws.com"), auth.WithCache(kept, auth.InvolvedObject{})} {
			token, err := auth.GetToken(t.Context(), w.aws, subject, option)
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Stage != auth.StageIdentity || token != nil || !strings.Contains(e.Error(), "annotation eks.amazonaws.com/role-arn of ServiceAccount tenant-a/tenant-a-ecr-sa") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if proofs != 0 || w.exchanges() != 0 {
			t.Errorf("%s: %d proofs, %d exchanges", name, proofs, w.exchanges())
		}
	}
}
