package azure_test

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const (
	artifacts       = "artifacts.blob.core.windows.net"
	storageResource = "https://storage.azure.com"
	storageVersion  = "2024-11-04"
	blobChallenge   = "Bearer authorization_uri=https://login.microsoftonline.com/" + directory + "/oauth2/authorize resource_id=https://storage.azure.com"
)

// blobAnswer is the part of an answer that the tests compare.
type blobAnswer struct {
	Status int
	Code   string
	Detail string
}

func (w *world) blob(t *testing.T, client *http.Client, method, path, token string, header ...string) (blobAnswer, http.Header) {
	t.Helper()
	r := rig.NewRequest(t, method, "https://"+artifacts+path, "", "")
	r.Header.Set("X-Ms-Version", storageVersion)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Del(header[i])
		if header[i+1] != "" {
			r.Header.Set(header[i], header[i+1])
		}
	}
	res, err := client.Do(r)
	must.Succeed(t, err)
	body := rig.ReadAll(t, res)
	a := blobAnswer{Status: res.StatusCode, Code: res.Header.Get("X-Ms-Error-Code")}
	var parsed struct {
		Code   string
		Detail string `xml:"AuthenticationErrorDetail"`
	}
	if method != http.MethodHead && a.Code != "" {
		if err := xml.Unmarshal([]byte(strings.TrimPrefix(body, "\uFEFF")), &parsed); err != nil || parsed.Code != a.Code {
			t.Errorf("%s %s: body %q, code %s", method, path, body, a.Code)
		}
	}
	a.Detail = parsed.Detail
	return a, res.Header
}

func TestBlobAuthentication(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	w.store(t, artifacts, "/tenant-a/app.tar.gz", "bytes")
	good := w.entra(t, clientA, subjectA, storageResource)
	other, err := assert(t.Context(), w.Transport(), "https://login.microsoftonline.com/", otherDirectory, clientA, w.mint(t, subjectA, audience), storageScope)
	must.Succeed(t, err)
	external, err := w.issuer.Mint(oidc.Claims{
		"iss": "https://sts.windows.net/" + directory + "/", "aud": storageResource, "sub": "x", "tid": directory, "appid": clientA,
	})
	must.Succeed(t, err)
	refused := func(detail string) blobAnswer { return blobAnswer{401, "InvalidAuthenticationInfo", detail} }
	const blob = "/tenant-a/app.tar.gz"
	for _, tt := range []struct {
		name, path, token string
		header            []string
		want              blobAnswer
	}{
		{"good", blob, good, nil, blobAnswer{Status: 200}},
		{"good, audience with a slash", blob, w.entra(t, clientA, subjectA, storageResource+"/"), nil, blobAnswer{Status: 200}},
		{"good, audience is the account", blob, w.entra(t, clientA, subjectA, "https://"+artifacts), nil, blobAnswer{Status: 200}},
		{"for a registry", blob, w.entra(t, clientA, subjectA, registryResource), nil, refused("Audience validation failed. Audience did not match.")},
		{"of another tenant", blob, other.Token, nil, refused("Issuer validation failed. Issuer did not match.")},
		{"external token that says to be Entra's", blob, external, nil, refused("Signature validation failed. Signature verification failed.")},
		{"external token", blob, w.mint(t, subjectA, audience), nil, refused("Signature validation failed. Signature verification failed.")},
		{"no JWT", blob, "hello", nil, refused("Signature validation failed. Signature verification failed.")},
		{"basic", blob, "", []string{"Authorization", "Basic eDp5"}, refused("Authentication scheme Basic is not supported.")},
		{"nobody", blob, "", nil, blobAnswer{401, "NoAuthenticationInformation", ""}},
		{"nobody, without version", blob, "", []string{"X-Ms-Version", ""}, blobAnswer{409, "PublicAccessNotPermitted", ""}},
		{"without version", blob, good, []string{"X-Ms-Version", ""}, blobAnswer{403, "AuthenticationFailed", "Authentication scheme Bearer is not supported in this version."}},
		{"old version", blob, good, []string{"X-Ms-Version", "2017-07-29"}, blobAnswer{403, "AuthenticationFailed", "Authentication scheme Bearer is not supported in this version."}},
		{"first version with tokens", blob, good, []string{"X-Ms-Version", "2017-11-09"}, blobAnswer{Status: 200}},
		{"bad token, before challenges", blob, "hello", []string{"X-Ms-Version", "2017-11-09"}, blobAnswer{403, "AuthenticationFailed", "Signature validation failed. Signature verification failed."}},
		{"no version", blob, good, []string{"X-Ms-Version", "latest"}, blobAnswer{400, "InvalidHeaderValue", ""}},
		{"account key", blob, "", []string{"Authorization", "SharedKey artifacts:c2lnbmF0dXJl"}, blobAnswer{403, "KeyBasedAuthenticationNotPermitted", ""}},
		{"shared access signature", blob + "?sv=2024-11-04&sp=r&sig=x", "", nil, blobAnswer{403, "KeyBasedAuthenticationNotPermitted", ""}},
		{"shared access signature beside a token", blob + "?sv=2024-11-04&sp=r&sig=x", good, nil, blobAnswer{403, "KeyBasedAuthenticationNotPermitted", ""}},
	} {
		got, header := w.blob(t, client, http.MethodGet, tt.path, tt.token, tt.header...)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		want := ""
		if tt.want.Status == 401 {
			want = blobChallenge
		}
		if challenge := header.Get("Www-Authenticate"); challenge != want {
			t.Errorf("%s: challenge %q", tt.name, challenge)
		}
		call := w.last(t)
		if call.Service != azure.ServiceBlob || call.Code != tt.want.Code || call.Granted() != (tt.want.Code == "") || call.Operation != "ReadBlob" {
			t.Errorf("%s: journal %+v", tt.name, call)
		}
	}
}

func TestBlobAuthorization(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	for _, path := range []string{"/tenant-a/app.tar.gz", "/tenant-a", "/tenant-a/", "/tenant-b/app.tar.gz", "/", "/tenant-a/a/b"} {
		w.store(t, artifacts, path, "bytes")
	}
	a, b, all := w.entra(t, clientA, subjectA, storageResource), w.entra(t, clientB, subjectB, storageResource), w.entra(t, pusher, subjectPusher, storageResource)
	const mismatch = "AuthorizationPermissionMismatch"
	for _, tt := range []struct {
		name, method, path, token string
		status                    int
		code                      string
	}{
		{"read own blob", "GET", "/tenant-a/app.tar.gz", a, 200, ""},
		{"head of own blob", "HEAD", "/tenant-a/app.tar.gz", a, 200, ""},
		{"list own container", "GET", "/tenant-a?restype=container&comp=list", a, 200, ""},
		{"own container's properties", "GET", "/tenant-a?restype=container", a, 200, ""},
		{"own blob with an escaped slash", "GET", "/tenant-a/a%2Fb", a, 200, ""},
		{"other tenant's blob", "GET", "/tenant-b/app.tar.gz", a, 403, mismatch},
		{"other tenant's container", "GET", "/tenant-b?restype=container&comp=list", a, 403, mismatch},
		{"look-alike of the container", "GET", "/tenant-ab/app.tar.gz", a, 403, mismatch},
		{"write with a reader's role", "PUT", "/tenant-a/app.tar.gz", a, 403, mismatch},
		{"delete with a reader's role", "DELETE", "/tenant-a/app.tar.gz", a, 403, mismatch},
		{"list the account with a container's role", "GET", "/?comp=list", a, 403, mismatch},
		{"blob in the root container", "GET", "/tenant-a", a, 403, mismatch},
		{"other tenant's blob as one of the root container", "GET", "/tenant-b%2Fapp.tar.gz", all, 400, "InvalidUri"},
		{"out of the container", "GET", "/tenant-a/../tenant-b/app.tar.gz", a, 400, "InvalidUri"},
		{"out of the container, escaped", "GET", "/tenant-a/%2e%2e/tenant-b/app.tar.gz", a, 400, "InvalidUri"},
		{"out of the container, escaped slash", "GET", "/tenant-a/x%2F..%2F..%2Ftenant-b/app.tar.gz", a, 400, "InvalidUri"},
		{"escaped container", "GET", "/tenant%2Da/app.tar.gz", a, 400, "InvalidUri"},
		{"two kinds of resource", "GET", "/tenant-a?restype=container&restype=service&comp=list", a, 400, "InvalidQueryParameterValue"},
		{"operation in capitals", "PUT", "/tenant-b?restype=container&Comp=acl", b, 400, "UnsupportedQueryParameter"},
		{"a query of two readings", "GET", "/tenant-a?restype=container;comp=list", a, 400, "InvalidQueryParameterValue"},
		{"container with a slash, without restype", "GET", "/tenant-a/", all, 400, "InvalidUri"},
		{"list own container with a slash", "GET", "/tenant-a/?restype=container&comp=list&prefix=a&include=metadata&maxresults=5", a, 200, ""},
		{"no container", "GET", "//app.tar.gz", a, 400, "InvalidUri"},
		{"batch", "POST", "/?comp=batch", all, 405, "UnsupportedHttpVerb"},
		{"delegation key", "POST", "/?restype=service&comp=userdelegationkey", all, 405, "UnsupportedHttpVerb"},
		{"access policy", "GET", "/tenant-a?restype=container&comp=acl", all, 405, "UnsupportedHttpVerb"},
		{"query in a blob", "POST", "/tenant-a/app.tar.gz?comp=query", all, 405, "UnsupportedHttpVerb"},
		{"write own blob", "PUT", "/tenant-b/new", b, 201, ""},
		{"write a block of own blob", "PUT", "/tenant-b/new?comp=block&blockid=AAAA", b, 201, ""},
		{"delete own blob", "DELETE", "/tenant-b/new", b, 202, ""},
		{"delete a version of own blob", "DELETE", "/tenant-b/new?versionid=2024-01-01T00:00:00.0000000Z", b, 405, "UnsupportedHttpVerb"},
		{"create own container", "PUT", "/tenant-b?restype=container", b, 201, ""},
		{"create another container", "PUT", "/tenant-c?restype=container", b, 403, mismatch},
		{"list the account", "GET", "/?comp=list", all, 200, ""},
		{"write anywhere", "PUT", "/tenant-c/new", all, 201, ""},
	} {
		if got, _ := w.blob(t, client, tt.method, tt.path, tt.token); got.Status != tt.status || got.Code != tt.code {
			t.Errorf("%s: %+v, want %d %s", tt.name, got, tt.status, tt.code)
		}
	}
	if got, _ := w.blob(t, client, http.MethodPut, "/tenant-b/copy", b, "X-Ms-Copy-Source", "https://"+artifacts+"/tenant-a/app.tar.gz"); got.Code != "CannotVerifyCopySource" {
		t.Errorf("copy: %+v", got)
	}
	for spelling, values := range map[string][]string{"X-Ms-Copy-Source": {"", "https://" + artifacts + "/tenant-a/app.tar.gz"}, "X_Ms_Copy_Source": {"x"}} {
		r := rig.NewRequest(t, http.MethodPut, "https://"+artifacts+"/tenant-b/copy", "", "")
		r.Header = http.Header{"Authorization": {"Bearer " + b}, "X-Ms-Version": {"2024-11-04"}, spelling: values}
		res, err := client.Do(r)
		must.Succeed(t, err)
		if body := rig.ReadAll(t, res); res.StatusCode != http.StatusForbidden || !strings.Contains(body, "CannotVerifyCopySource") {
			t.Errorf("copy by %s %q: HTTP %d %s", spelling, values, res.StatusCode, body)
		}
	}
	calls := w.Journal().Calls(journal.Filter{Service: azure.ServiceBlob, Principal: clientA + "@" + directory, Resource: artifacts + "/tenant-b/app.tar.gz"})
	if len(calls) != 1 || calls[0].Granted() || !strings.Contains(calls[0].Reason, "no role assignment") || calls[0].Audience != storageResource {
		t.Errorf("journal %+v", calls)
	}
	must.Succeed(t, w.Azure().DeleteApplication(directory, clientB))
	if got, _ := w.blob(t, client, http.MethodGet, "/tenant-b/app.tar.gz", b); got.Code != mismatch {
		t.Errorf("of a deleted application: %+v", got)
	}
	// Without role assignments, the account refuses the applications at once.
	must.Succeed(t, w.Azure().PutStorageAccount(directory, azure.StorageAccountConfig{Name: "artifacts"}))
	if got, _ := w.blob(t, client, http.MethodGet, "/tenant-a/app.tar.gz", a); got.Code != mismatch {
		t.Errorf("after its role was withdrawn: %+v", got)
	}
}

// TestBlobTokenEnds: blob storage accepts an access token of Entra ID until five minutes after its
// expiry.
func TestBlobTokenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.client()
		defer client.CloseIdleConnections()
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		token, err := assert(t.Context(), transport, "https://login.microsoftonline.com/", directory, clientA, w.mint(t, subjectA, audience), storageScope)
		must.Succeed(t, err)
		w.store(t, artifacts, "/tenant-a/b", "x")
		var got []string
		start := time.Now()
		for _, at := range []time.Duration{0, time.Hour, 65*time.Minute - time.Second, 65 * time.Minute} {
			time.Sleep(time.Until(start.Add(at)))
			a, _ := w.blob(t, client, http.MethodGet, "/tenant-a/b", token.Token)
			got = append(got, fmt.Sprint(a.Status, " ", a.Detail))
		}
		if diff := cmp.Diff([]string{"200 ", "200 ", "200 ", "401 Lifetime validation failed. The token is expired."}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, err := w.Faults().Add(fault.Fault{Service: azure.ServiceBlob, Kind: fault.Skew, Skew: -2 * time.Hour, Count: 1}); err != nil {
			t.Fatal(err)
		}
		if a, _ := w.blob(t, client, http.MethodGet, "/tenant-a/b", token.Token); a.Detail != "Lifetime validation failed. The token is not yet valid." {
			t.Errorf("with a slow clock: %+v", a)
		}
	})
}

// TestDiscoveryRefuses checks Entra ID's answers to GET requests: discovery, keys and unknown
// paths.
func TestDiscoveryRefuses(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	instance := func(authorize string) string {
		return "https://login.microsoftonline.com/common/discovery/instance?api-version=1.1&authorization_endpoint=" + url.QueryEscape(authorize)
	}
	for target, want := range map[string]string{
		instance("https://login.microsoftonline.us/x/oauth2/v2.0/authorize"):                   "200 ",
		instance("https://login.azure.example/x/oauth2/v2.0/authorize"):                        "400 AADSTS50049",
		instance("https://login.microsoftonline.com.attacker.example/x/oauth2/v2.0/authorize"): "400 AADSTS50049",
		instance("http://login.microsoftonline.com/x/oauth2/v2.0/authorize"):                   "400 AADSTS50049",
		instance("https://login.microsoftonline.com/"):                                         "400 AADSTS50049",
		instance("::"): "400 AADSTS50049",
		"https://login.microsoftonline.com/" + usDirectory + "/v2.0/.well-known/openid-configuration": "400 AADSTS90002",
		"https://login.microsoftonline.com/nobody.example/v2.0/.well-known/openid-configuration":      "400 AADSTS90002",
		"https://login.microsoftonline.com/no_tenant/v2.0/.well-known/openid-configuration":           "400 AADSTS900023",
		"https://login.microsoftonline.com/common/v2.0/.well-known/openid-configuration":              "400 AADSTS50059",
		"https://login.microsoftonline.com/common/discovery/v2.0/keys":                                "200 ",
		"https://login.microsoftonline.com/" + chinaDirectory + "/discovery/v2.0/keys":                "400 AADSTS90002",
		"https://login.microsoftonline.com/" + directory + "/oauth2/authorize":                        "404 AADSTS90023",
		"https://login.microsoftonline.com/" + directory + "/oauth2/v2.0/token":                       "400 AADSTS900561",
	} {
		res, err := client.Do(rig.NewRequest(t, http.MethodGet, target, "", ""))
		must.Succeed(t, err)
		_ = rig.ReadAll(t, res)
		if got := fmt.Sprint(res.StatusCode, " ", w.last(t).Code); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}
