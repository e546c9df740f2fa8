package alibaba_test

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"flag"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/alibaba"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	account  = "1234567890123456"
	issuer   = "https://issuer.example.com"
	audience = "sts.aliyuncs.com"
	subjectA = "lanyard.dev:workloadidentity:tenant-a:dns"
	subjectB = "lanyard.dev:workloadidentity:tenant-b:dns"
	provider = "acs:ram::" + account + ":oidc-provider/Lanyard"
	roleA    = "acs:ram::" + account + ":role/tenant-a"
	roleB    = "acs:ram::" + account + ":role/tenant-b"
	others   = "6543210987654321"
)

// trust returns a trust policy that allows one subject.
func trust(subject string) json.RawMessage {
	return json.RawMessage(`{"Version":"1","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"Federated":["` + provider + `"]},
		"Condition":{"StringEquals":{"oidc:iss":"` + issuer + `","oidc:aud":["` + audience + `"],"oidc:sub":"` + subject + `"}}}]}`)
}

// world is a local cloud with two accounts. One has the roles of both tenants, and trusts the
// issuer "issuer". The other trusts no issuer. So no account trusts "rogue".
type world struct {
	*cloudtest.Cloud

	issuer, rogue *oidc.Issuer
}

func newWorld(t *testing.T) world {
	t.Helper()
	c, err := cloudtest.New(cloudtest.Config{Alibaba: alibaba.Config{Accounts: []alibaba.Account{
		{
			ID: account, OIDCProviders: []alibaba.OIDCProvider{{Name: "Lanyard", IssuerURL: issuer, ClientIDs: []string{audience, "second"}}},
			Roles: []alibaba.Role{{Name: "tenant-a", TrustPolicy: trust(subjectA)}, {Name: "Tenant-B", TrustPolicy: trust(subjectB)}},
		},
		{ID: others, Roles: []alibaba.Role{{Name: "tenant-a", TrustPolicy: trust(subjectB)}}},
	}}})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close() })
	w := world{Cloud: c}
	for to, name := range map[**oidc.Issuer]string{&w.issuer: issuer, &w.rogue: "https://rogue.example.com"} {
		made, err := oidc.NewIssuer(name, oidc.RS256)
		must.Succeed(t, err)
		must.Succeed(t, c.HandleIssuer(made))
		*to = made
	}
	return w
}

// ask sends a request to STS. Changes to the request's parameters are given in pairs, as
// alternating names and values. The value "-" removes a parameter.
func (w world) ask(t *testing.T, token string, pairs ...string) *http.Response {
	t.Helper()
	query := url.Values{"Action": {"AssumeRoleWithOIDC"}, "Version": {"2015-04-01"}, "Format": {"JSON"}}
	form := url.Values{"OIDCProviderArn": {provider}, "RoleArn": {roleA}, "OIDCToken": {token}, "RoleSessionName": {"session"}}
	for i := 0; i < len(pairs); i += 2 {
		in := form
		if query.Has(pairs[i]) {
			in = query
		}
		if in.Set(pairs[i], pairs[i+1]); pairs[i+1] == "-" {
			in.Del(pairs[i])
		}
	}
	r := rig.NewRequest(t, http.MethodPost, "https://sts.aliyuncs.com/?"+query.Encode(), "application/x-www-form-urlencoded", form.Encode())
	transport := w.Transport()
	t.Cleanup(transport.CloseIdleConnections)
	res, err := transport.RoundTrip(r)
	must.Succeed(t, err)
	return res
}

// claims returns the claims of tenant A's token. Changes to the claims are given in pairs, as
// alternating names and values.
func claims(pairs ...any) oidc.Claims {
	c := oidc.Claims{"sub": subjectA, "aud": audience}
	for i := 0; i < len(pairs); i += 2 {
		c[pairs[i].(string)] = pairs[i+1]
	}
	return c
}

// TestAssumeRoleWithOIDC sends good and bad tokens and requests. It compares each answer with a
// golden file, and checks the code in the journal.
func TestAssumeRoleWithOIDC(t *testing.T) {
	files := rig.Golden{Dir: filepath.Join("testdata", "answers"), Update: *update, Mask: mask}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		mint := func(mint func(oidc.Claims) (string, error), c oidc.Claims) string {
			raw, err := mint(c)
			must.Succeed(t, err)
			return raw
		}
		good := mint(w.issuer.Mint, claims())
		at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
		const fail = "AuthenticationFail.OIDCToken."
		for _, tt := range []struct {
			name, token string
			pairs       []string
			code        string // error code in the journal; empty if the call is granted
		}{
			{name: "good", token: good},
			{name: "second audience", token: mint(w.issuer.Mint, claims("aud", []string{"second", audience}))},
			{name: "longest", token: good, pairs: []string{"DurationSeconds", "3600"}},
			{"other tenant's token", mint(w.issuer.Mint, claims("sub", subjectB)), nil, "AuthenticationFail.NoPermission"},
			{"other tenant's role", good, []string{"RoleArn", roleB}, "AuthenticationFail.NoPermission"},
			{"audience that the role does not take", mint(w.issuer.Mint, claims("aud", "second")), nil, "AuthenticationFail.NoPermission"},
			{"role of another account", good, []string{"RoleArn", "acs:ram::" + others + ":role/tenant-a"}, "AuthenticationFail.NoPermission"},
			{"no such role", good, []string{"RoleArn", roleA + "x"}, "EntityNotExist.Role"},
			{"no such provider", good, []string{"OIDCProviderArn", provider + "x"}, "AuthenticationFail.NoPermission"},
			{"provider of another account", good, []string{"OIDCProviderArn", strings.Replace(provider, account, others, 1)}, "AuthenticationFail.NoPermission"},
			{"wrong audience", mint(w.issuer.Mint, claims("aud", "sts.amazonaws.com")), nil, fail + "AudienceNotMatch"},
			{"wrong issuer", mint(w.rogue.Mint, claims()), nil, fail + "IssuerNotMatch"},
			{"forged", mint(w.issuer.Forge, claims()), nil, fail + "InvalidSignature"},
			{"unknown key", mint(w.rogue.Mint, claims("iss", issuer)), nil, fail + "InvalidSignature"},
			{"unsigned", mint(w.issuer.MintUnsigned, claims()), nil, fail + "Invalid"},
			{"expired", mint(w.issuer.Mint, claims("iat", at(-2*time.Hour), "exp", at(-time.Hour))), nil, fail + "Expired"},
			{"not yet valid", mint(w.issuer.Mint, claims("nbf", at(10*time.Minute))), nil, fail + "Invalid"},
			{"older than the limit", mint(w.issuer.Mint, claims("iat", at(-13*time.Hour), "nbf", at(-13*time.Hour), "exp", at(time.Hour))), nil, fail + "Expired"},
			{"endless", mint(w.issuer.Mint, claims("exp", nil)), nil, fail + "Invalid"},
			{"no token at all", "hello", nil, fail + "Invalid"},
			{"missing token", good, []string{"OIDCToken", "-"}, "MissingOIDCToken"},
			{"missing role", good, []string{"RoleArn", "-"}, "MissingRoleArn"},
			{"missing session", good, []string{"RoleSessionName", "-"}, "MissingRoleSessionName"},
			{"role of AWS", good, []string{"RoleArn", "arn:aws:iam::123456789123:role/a"}, "InvalidParameter.RoleArn"},
			{"provider that is a role", good, []string{"OIDCProviderArn", roleA}, "InvalidParameter.OIDCProviderArn"},
			{"session with a space", good, []string{"RoleSessionName", "a b"}, "InvalidParameter.RoleSessionName"},
			{"too long", good, []string{"DurationSeconds", "3601"}, "InvalidParameter.DurationSeconds"},
			{"too short", good, []string{"DurationSeconds", "899"}, "InvalidParameter.DurationSeconds"},
			{"session policy", good, []string{"Policy", "{}"}, "InvalidParameter.PolicyGrammar"},
			{"other version", good, []string{"Version", "2014-05-26"}, "InvalidVersion"},
			{"XML", good, []string{"Format", "XML"}, "InvalidParameter.Format"},
			{"other action", good, []string{"Action", "AssumeRole"}, "InvalidAction.NotFound"},
		} {
			res := w.ask(t, tt.token, tt.pairs...)
			files.Answer(t, strings.NewReplacer(" ", "-", "'", "").Replace(tt.name), res)
			call := w.Journal().Calls(journal.Filter{After: w.Journal().Last() - 1})[0]
			if call.Code != tt.code || call.Granted() != (tt.code == "") || call.Service != alibaba.ServiceSTS {
				t.Errorf("%s: %+v", tt.name, call)
			}
			if call.Granted() && (call.Principal != "acs:ram::"+account+":assumed-role/tenant-a/session" || call.Subject != subjectA || call.Role != roleA) {
				t.Errorf("%s: the journal says %+v", tt.name, call)
			}
		}
	})
	files.Complete(t)
}

// mask replaces the parts of an answer that differ between runs.
func mask(s string) string {
	for pattern, with := range map[string]string{
		`"RequestId":"[0-9A-F-]{36}"`:                           `"RequestId":"…"`,
		`("AccessKeyId":"STS\.|"SecurityToken":"CAIS)[^"]+`:     "$1…",
		`("AccessKeySecret":")[^"]+`:                            "$1…",
		`("AssumedRoleId":")[0-9]{18}`:                          "$1…",
		`("(?:ExpirationTime|IssuanceTime|Expiration)":")[^"]+`: "$1…",
	} {
		s = regexp.MustCompile(pattern).ReplaceAllString(s, with)
	}
	return s
}

// TestFingerprints checks that a token is refused if the provider lists fingerprints but no
// certificate of the issuer's host has one of them.
func TestFingerprints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		token, err := w.issuer.Mint(claims())
		must.Succeed(t, err)
		block, _ := pem.Decode(w.CAPEM())
		sum := sha1.Sum(block.Bytes)
		authority, other := hex.EncodeToString(sum[:]), strings.Repeat("0", 40)
		for _, tt := range []struct {
			fingerprints []string
			code         string
		}{
			{nil, ""},
			{[]string{authority}, ""},
			{[]string{other, strings.ToUpper(authority)}, ""},
			{[]string{other}, "AuthenticationFail.OIDCToken.PublicKeyFingerprintMismatch"},
		} {
			must.Succeed(t, w.Alibaba().PutOIDCProvider(account, alibaba.OIDCProvider{
				Name: "Lanyard", IssuerURL: issuer, ClientIDs: []string{audience}, Fingerprints: tt.fingerprints,
			}))
			_ = rig.ReadAll(t, w.ask(t, token))
			calls := w.Journal().Calls(journal.Filter{Service: alibaba.ServiceSTS})
			if got := calls[len(calls)-1].Code; got != tt.code {
				t.Errorf("%q: the code is %q, want %q", tt.fingerprints, got, tt.code)
			}
		}
	})
}

// TestUnreachableIssuer: a token is refused if its issuer's documents cannot be fetched.
func TestUnreachableIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		token, err := w.issuer.Mint(claims())
		must.Succeed(t, err)
		must.Succeed(t, w.Handle("issuer.example.com", nil))
		if body := rig.ReadAll(t, w.ask(t, token)); !strings.Contains(body, "AuthenticationFail.OIDCToken.IssuerConfigurationBroken") {
			t.Error(body)
		}
	})
}

// TestChangesAreInForceAtOnce replaces the subject that the role trusts, then deletes the role,
// then the provider. STS must refuse the token right after each change.
func TestChangesAreInForceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		token, err := w.issuer.Mint(claims())
		must.Succeed(t, err)
		for _, tt := range []struct {
			change func() error
			status int
		}{
			{func() error { return nil }, 200},
			{func() error {
				return w.Alibaba().PutRole(account, alibaba.Role{Name: "tenant-a", TrustPolicy: trust(subjectB)})
			}, 401},
			{func() error { return w.Alibaba().DeleteRole(account, "Tenant-A") }, 404},
			{func() error { return w.Alibaba().DeleteOIDCProvider(account, "Lanyard") }, 401},
		} {
			must.Succeed(t, tt.change())
			res := w.ask(t, token)
			if body := rig.ReadAll(t, res); res.StatusCode != tt.status {
				t.Errorf("HTTP %d, want %d: %s", res.StatusCode, tt.status, body)
			}
		}
	})
}

// TestHosts: STS answers at its own hosts, and not at similar names.
func TestHosts(t *testing.T) {
	w := newWorld(t)
	for host, want := range map[string]bool{
		"sts.aliyuncs.com": true, "sts.cn-hangzhou.aliyuncs.com": true, "sts-vpc.ap-southeast-1.aliyuncs.com": true, "sts.me-east-1.aliyuncs.com": true,
		"aliyuncs.com": false, "sts.aliyuncs.com.evil.example": false, "sts.x.aliyuncs.com": false, "oss.cn-hangzhou.aliyuncs.com": false, "xsts.aliyuncs.com": false,
	} {
		if got := w.Alibaba().Service(host) != nil; got != want {
			t.Errorf("%s: %t", host, got)
		}
	}
}
