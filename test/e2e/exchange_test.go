package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/local"
)

// stsURL is the URL of AWS STS in the local cloud.
const stsURL = "https://sts." + local.Region + ".amazonaws.com/"

func cloudClient() *http.Client { return &http.Client{Transport: world.Cloud().Transport()} }

// verdict is a cloud's answer to a token.
type verdict struct {
	status  int
	code    string // empty if granted
	message string // explanation for people
}

func (v verdict) granted() bool { return v.status == http.StatusOK && v.code == "" }

func (v verdict) String() string {
	if v.granted() {
		return "granted"
	}
	return fmt.Sprintf("refused %d %s", v.status, v.code)
}

// assume calls AssumeRoleWithWebIdentity without an SDK. Source: AWS STS API Reference, which MinIO
// also follows.
func assume(t *testing.T, client *http.Client, endpoint, role, token string) verdict {
	t.Helper()
	v, err := askSTS(t.Context(), client, endpoint, role, token)
	must(t, "assume a role", err)
	return v
}

// askSTS is like assume, but returns errors in place of ending the test.
func askSTS(ctx context.Context, client *http.Client, endpoint, role, token string) (verdict, error) {
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
		"RoleArn": {role}, "RoleSessionName": {"matrix"}, "DurationSeconds": {"900"}, "WebIdentityToken": {token},
	}
	status, body, err := send(ctx, client, http.MethodPost, endpoint, "application/x-www-form-urlencoded", []byte(form.Encode()), "")
	if err != nil {
		return verdict{}, err
	}
	var answer struct {
		Session string `xml:"AssumeRoleWithWebIdentityResult>Credentials>SessionToken"`
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	if err := xml.Unmarshal(body, &answer); err != nil {
		return verdict{}, fmt.Errorf("read the answer: %w", err)
	}
	if (answer.Session == "") == (answer.Code == "") {
		return verdict{}, fmt.Errorf("%s answered neither with a session nor with an error, or with both: HTTP %d", endpoint, status)
	}
	return verdict{status: status, code: answer.Code, message: answer.Message}, nil
}

// entraToken exchanges a ServiceAccount token at Microsoft Entra for a token of an application. The
// new token is for container registries. Source: Microsoft Learn, "OAuth 2.0 client credentials
// flow", third case.
func entraToken(t *testing.T, application, assertion string) (string, verdict) {
	t.Helper()
	form := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {application}, "scope": {"https://containerregistry.azure.net/.default"},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {assertion},
	}
	status, body := call(t, cloudClient(), http.MethodPost, "https://login.microsoftonline.com/"+local.AzureTenant+"/oauth2/v2.0/token",
		"application/x-www-form-urlencoded", []byte(form.Encode()), "")
	var answer struct {
		Token string `json:"access_token"`
		Codes []int  `json:"error_codes"`
	}
	must(t, "read Entra's answer", json.Unmarshal(body, &answer))
	code := ""
	if len(answer.Codes) > 0 {
		code = "AADSTS" + strconv.Itoa(answer.Codes[0])
	}
	return judged(t, "Microsoft Entra", answer.Token, verdict{status: status, code: code})
}

// googleToken exchanges a ServiceAccount token at Google's Security Token Service. The new token
// represents the ServiceAccount as a principal of the cluster's pool.
func googleToken(t *testing.T, subjectToken string) (string, verdict) {
	t.Helper()
	return googleExchange(t, googleAudience, subjectToken)
}

// googleExchange exchanges a token at Google's Security Token Service. The audience identifies the
// cluster or provider that issued the token. Source: Security Token Service API, v1.token.
func googleExchange(t *testing.T, audience, subjectToken string) (string, verdict) {
	t.Helper()
	status, body := post(t, "https://sts.googleapis.com/v1/token", "", map[string]any{
		"grantType": "urn:ietf:params:oauth:grant-type:token-exchange", "audience": audience,
		"scope": googleScope, "requestedTokenType": "urn:ietf:params:oauth:token-type:access_token",
		"subjectTokenType": "urn:ietf:params:oauth:token-type:jwt", "subjectToken": subjectToken,
	})
	var answer struct {
		Token string `json:"access_token"`
		Code  string `json:"error"`
	}
	must(t, "read the answer of Google's STS", json.Unmarshal(body, &answer))
	return judged(t, "Google's STS", answer.Token, verdict{status: status, code: answer.Code})
}

// impersonate requests a token of a service account. Source: IAM Service Account Credentials API,
// generateAccessToken.
func impersonate(t *testing.T, account, federated string) (string, verdict) {
	t.Helper()
	status, body := post(t, "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"+account+":generateAccessToken", federated,
		map[string]any{"scope": []string{googleScope}})
	var answer struct {
		Token string `json:"accessToken"`
		Error struct {
			Code string `json:"status"`
		} `json:"error"`
	}
	must(t, "read the answer of IAM Credentials", json.Unmarshal(body, &answer))
	return judged(t, "IAM Credentials", answer.Token, verdict{status: status, code: answer.Error.Code})
}

// listBucket lists a bucket. Source: Cloud Storage, JSON API, objects.list.
func listBucket(t *testing.T, bucket, token string) verdict {
	t.Helper()
	status, body := call(t, cloudClient(), http.MethodGet, "https://storage.googleapis.com/storage/v1/b/"+bucket+"/o", "", nil, token)
	var answer struct {
		Kind  string `json:"kind"`
		Error struct {
			Errors []struct {
				Code string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	must(t, "read the answer of Cloud Storage", json.Unmarshal(body, &answer))
	v := verdict{status: status}
	if len(answer.Error.Errors) > 0 {
		v.code = answer.Error.Errors[0].Code
	}
	_, v = judged(t, "Cloud Storage", answer.Kind, v)
	return v
}

// registryLogin exchanges an application's token for a refresh token of a container registry.
// Source: Azure/acr, "AAD-OAuth.md".
func registryLogin(t *testing.T, host, token string) string {
	t.Helper()
	form := url.Values{"grant_type": {"access_token"}, "service": {host}, "access_token": {token}}
	status, body := call(t, cloudClient(), http.MethodPost, "https://"+host+"/oauth2/exchange", "application/x-www-form-urlencoded", []byte(form.Encode()), "")
	var answer struct {
		Token string `json:"refresh_token"`
	}
	must(t, "read the registry's answer", json.Unmarshal(body, &answer))
	if answer.Token == "" {
		t.Fatalf("registry %s gave no refresh token: HTTP %d", host, status)
	}
	return answer.Token
}

// judged asserts that an answer has either a token or an error.
func judged(t *testing.T, who, token string, v verdict) (string, verdict) {
	t.Helper()
	if (token != "") == (v.code != "") || v.granted() != (token != "") {
		t.Fatalf("%s answered neither with what was asked for nor with an error, or with both: HTTP %d %s", who, v.status, v.code)
	}
	return token, v
}

// post calls a JSON API of the cloud.
func post(t *testing.T, endpoint, bearer string, request map[string]any) (status int, body []byte) {
	t.Helper()
	encoded, err := json.Marshal(request)
	must(t, "write a request", err)
	return call(t, cloudClient(), http.MethodPost, endpoint, "application/json", encoded, bearer)
}

func call(t *testing.T, client *http.Client, method, endpoint, contentType string, request []byte, bearer string) (status int, body []byte) {
	t.Helper()
	status, body, err := send(t.Context(), client, method, endpoint, contentType, request, bearer)
	must(t, "call "+endpoint, err)
	return status, body
}

// send sends a request. It returns errors instead of ending the test.
func send(ctx context.Context, client *http.Client, method, endpoint, contentType string, request []byte, bearer string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, endpoint, bytes.NewReader(request))
	if err != nil {
		return 0, nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}
