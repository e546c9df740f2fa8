package kube

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

// FuzzClaims checks that claims.check accepts a token only with the right subject, UID and
// audience, and an expiry in the future. No error may quote the token.
func FuzzClaims(f *testing.F) {
	const subject, uid, audience = "system:serviceaccount:tenant-a:puller", "uid-1", "sts.amazonaws.com"
	now := time.Now().Unix()
	f.Add(subject, "tenant-a", "puller", uid, audience, "", now+600)
	f.Add(subject, "tenant-a", "puller", "uid-2", audience, "", now+600)
	f.Add(subject, "tenant-a", "puller", uid, audience, "https://kubernetes.default.svc", now+600)
	f.Add("system:serviceaccount:tenant-a:puller ", "tenant-a", "puller", uid, audience, "", now-1)
	account, err := auth.ServiceAccount("tenant-a", "puller")
	must.Succeed(f, err)
	f.Fuzz(func(t *testing.T, sub, namespace, name, gotUID, aud, more string, exp int64) {
		audiences := []string{aud}
		if more != "" {
			audiences = append(audiences, more)
		}
		payload, err := json.Marshal(map[string]any{
			"sub": sub, "aud": audiences, "exp": exp,
			"kubernetes.io": map[string]any{"namespace": namespace, "serviceaccount": map[string]any{"name": name, "uid": gotUID}},
		})
		must.Succeed(t, err)
		encoded := base64.RawURLEncoding.EncodeToString(payload)
		said, err := readClaims("e30." + encoded + ".c2ln")
		if err == nil {
			err = said.check(auth.Account{Subject: account, UID: uid}, []string{audience})
		}
		want := sub == subject && namespace == "tenant-a" && name == "puller" && gotUID == uid && aud == audience && more == "" && exp > now
		if passed := err == nil; passed && !want || !passed && want && exp < 1<<31 {
			t.Errorf("%s passed: %t (%v)", payload, passed, err)
		}
		if err != nil && strings.Contains(err.Error(), encoded) {
			t.Errorf("the token is in the error: %v", err)
		}
	})
}

// FuzzReadClaims decodes arbitrary text as a token. An error must not quote the text.
func FuzzReadClaims(f *testing.F) {
	for _, token := range []string{"", ".", "..", "e30.e30.", "e30.bnVsbA.", "e30.W10.", "a.b.c.d", "e30.!.", "e30.eyJleHAiOjF9.", "e30.eyJleHAiOi0xfQ."} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		said, err := readClaims(token)
		if err != nil {
			if len(token) > 20 && strings.Contains(err.Error(), token) {
				t.Errorf("the token is in the error: %v", err)
			}
			return
		}
		if year := said.expiresAt().Year(); year < 1970 || year > 2106 || strings.Count(token, ".") != 2 {
			t.Errorf("%q: expires in %d", token, year)
		}
	})
}

// FuzzIdentityClaims checks that checkIdentity accepts a token only with the right subject, UID and
// audience.
func FuzzIdentityClaims(f *testing.F) {
	const subject, uid, audience = "lanyard.dev:workloadidentity:tenant-a:puller", "uid-1", "sts.amazonaws.com"
	f.Add(subject+":"+uid, "tenant-a", "puller", uid, audience)
	f.Add(subject, "tenant-a", "puller", uid, audience)
	f.Add(subject+":uid-2", "tenant-a", "puller", uid, audience)
	f.Add(subject+":", "tenant-a", "puller", "", audience)
	f.Add("system:serviceaccount:tenant-a:puller", "tenant-a", "puller", uid, audience)
	identity, err := auth.WorkloadIdentity("tenant-a", "puller")
	must.Succeed(f, err)
	exp := time.Now().Add(10 * time.Minute).Unix()
	f.Fuzz(func(t *testing.T, sub, namespace, name, gotUID, aud string) {
		payload, err := json.Marshal(map[string]any{
			"sub": sub, "aud": []string{aud}, "exp": exp,
			"lanyard.dev": map[string]any{"workloadIdentity": map[string]any{"namespace": namespace, "name": name, "uid": gotUID}},
		})
		must.Succeed(t, err)
		said, err := readClaims("e30." + base64.RawURLEncoding.EncodeToString(payload) + ".c2ln")
		if err == nil {
			err = said.checkIdentity(auth.Account{Subject: identity, UID: uid}, auth.ProofRequest{Audiences: []string{audience}})
		}
		want := (sub == subject || sub == subject+":"+uid) && namespace == "tenant-a" && name == "puller" && gotUID == uid && aud == audience
		if passed := err == nil; passed != want {
			t.Errorf("%s passed: %t (%v)", payload, passed, err)
		}
	})
}

// FuzzKeyID checks that keyID returns the kid in a token's header, or an error. The error does not
// quote the token.
func FuzzKeyID(f *testing.F) {
	f.Add(`{"alg":"RS256","kid":"key-1","typ":"JWT"}`)
	for _, header := range []string{"", "{}", "[]", "null", `{"kid":1}`, `{"kid":""}`, `{"KID":"a"}`, `{"kid":"a","kid":"b"}`, `{"kid":"a"}x`} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		encoded := base64.RawURLEncoding.EncodeToString([]byte(header))
		kid, err := keyID(encoded + ".e30.c2ln")
		if (kid == "") != (err != nil) {
			t.Errorf("%q: kid %q, %v", header, kid, err)
		}
		if err == nil && !json.Valid([]byte(header)) {
			t.Errorf("%q is no header, but has the kid %q", header, kid)
		}
		if err != nil && len(encoded) > 20 && strings.Contains(err.Error(), encoded) {
			t.Errorf("the token is in the error: %v", err)
		}
	})
}
