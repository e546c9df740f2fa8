package azure_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// TestManagedIdentityCredential gets tokens with the unmodified SDK, in process and through the
// proxy. The SDK sends its requests to the metadata service's fixed address. Only identities of the
// machine may get tokens.
func TestManagedIdentityCredential(t *testing.T) {
	w := newWorld(t)
	for name, tt := range map[string]struct {
		transport *http.Transport
		resource  string // differs per transport, because the SDK caches tokens in the process
	}{"in process": {w.Transport(), "https://vault.azure.net"}, "through the proxy": {rig.Proxied(t, w.Cloud), "https://eventhubs.azure.net"}} {
		scope := tt.resource + "/.default"
		before := w.Journal().Last()
		get := func(id azidentity.ManagedIDKind, scope string) (string, error) {
			credential, err := azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{ClientOptions: once(tt.transport, ""), ID: id})
			must.Succeed(t, err)
			token, err := credential.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{scope}})
			if err != nil {
				return "", err
			}
			if left := time.Until(token.ExpiresOn); left < 23*time.Hour+58*time.Minute || left > 24*time.Hour {
				t.Errorf("%s: it lives for %s", name, left)
			}
			return claimsOf(t, token.Token)["appid"].(string), nil
		}
		if got, err := get(nil, scope); got != clientA {
			t.Errorf("%s: default identity %q, %v", name, got, err)
		}
		if got, err := get(azidentity.ClientID(clientB), scope); got != clientB {
			t.Errorf("%s: other identity %q, %v", name, got, err)
		}
		for what, id := range map[string]azidentity.ManagedIDKind{
			"an application of the tenant that is not the machine's": azidentity.ClientID(pusher),
			"a resource ID": azidentity.ResourceID("/subscriptions/x/resourceGroups/y/providers/Microsoft.ManagedIdentity/userAssignedIdentities/z"),
		} {
			_, err := get(id, scope)
			if failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); !ok || failed.RawResponse.StatusCode != 400 {
				t.Errorf("%s: %s: %v", name, what, err)
			}
			if call := w.last(t); call.Service != azure.ServiceIMDS || call.Granted() || call.Principal != "" {
				t.Errorf("%s: journal %+v", name, call)
			}
		}
		if _, err := get(nil, "https://unknown.example/.default"); err == nil || !strings.Contains(err.Error(), "AADSTS500011") {
			t.Errorf("%s: unknown resource: %v", name, err)
		}
		calls := w.Journal().Calls(journal.Filter{Service: azure.ServiceIMDS, Verdict: journal.Granted, After: before})
		if len(calls) != 2 || calls[0].Operation != "ManagedIdentityToken" || calls[0].Resource != tt.resource || calls[0].Host != azure.MetadataHost {
			t.Errorf("%s: journal %+v", name, calls)
		}
	}
}

// TestMetadata checks the metadata service's answers at the proxy's address. Clients read this
// address from the variable AZURE_POD_IDENTITY_AUTHORITY_HOST.
func TestMetadata(t *testing.T) {
	w := newWorld(t)
	_ = rig.Proxied(t, w.Cloud)
	host := ""
	for _, variable := range w.Env("ca.pem") {
		if value, ok := strings.CutPrefix(variable, "AZURE_POD_IDENTITY_AUTHORITY_HOST="); ok {
			host = value
		}
	}
	direct := &http.Transport{}
	defer direct.CloseIdleConnections()
	ask := func(method, path string, header ...string) string {
		t.Helper()
		r := rig.NewRequest(t, method, host+path, "", "")
		r.Header.Set("Metadata", "true")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := direct.RoundTrip(r)
		must.Succeed(t, err)
		var body struct {
			Error            string `json:"error"`
			ErrorDescription string `json:"error_description"`
			ClientID         string `json:"client_id"`
			TokenType        string `json:"token_type"`
			ExpiresIn        string `json:"expires_in"`
		}
		must.Succeed(t, json.Unmarshal([]byte(rig.ReadAll(t, res)), &body))
		return strings.Join(strings.Fields(fmt.Sprint(res.StatusCode, " ", body.Error, " ", body.ErrorDescription, " ", body.ClientID, " ", body.TokenType, " ", body.ExpiresIn)), " ")
	}
	const path, query = "/metadata/identity/oauth2/token", "?api-version=2018-02-01&resource=https%3A%2F%2Fstorage.azure.com%2F"
	for _, tt := range []struct {
		name, method, path string
		header             []string
		want               string
	}{
		{"good", "GET", path + query, nil, "200 " + clientA + " Bearer 86399"},
		{"good, as MSAL for Node asks", "GET", path + "/" + query, nil, "200 " + clientA + " Bearer 86399"},
		{"good, in capitals", "GET", path + query + "&client_id=" + strings.ToUpper(clientB), nil, "200 " + clientB + " Bearer 86399"},
		{"without header", "GET", path + query, []string{"Metadata", "no"}, "400 bad_request_102 Required metadata header not specified"},
		{"through a forwarding server", "GET", path + query, []string{"X-Forwarded-For", "10.0.0.1"}, "400 invalid_request Request contains the header X-Forwarded-For"},
		{"unknown identity", "GET", path + query + "&client_id=" + pusher, nil, "400 invalid_request Identity not found"},
		{"unknown object", "GET", path + query + "&object_id=" + pusher, nil, "400 invalid_request Identity not found"},
		{"two identities", "GET", path + query + "&client_id=" + clientA + "&object_id=" + clientA, nil, "400 invalid_request Identity not found"},
		{"no version", "GET", path + "?resource=x", nil, "400 invalid_request Required query variable 'api-version' is missing"},
		{"old version", "GET", path + "?api-version=2017-12-01&resource=x", nil, "400 invalid_request Invalid api-version"},
		{"no resource", "GET", path + "?api-version=2018-02-01", nil, "400 invalid_request Required query variable 'resource' is missing"},
		{"resource twice", "GET", path + query + "&resource=x", nil, "400 invalid_request the parameter resource stands there twice"},
		{"POST", "POST", path + query, nil, "405 method_not_allowed The method is not allowed."},
		{"another path", "GET", "/metadata/instance?api-version=2021-02-01", nil, "404 not_found The requested resource does not exist."},
	} {
		if got := ask(tt.method, tt.path, tt.header...); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	for _, f := range []fault.Fault{{Kind: fault.Throttle}, {Kind: fault.Unavailable}, {Kind: fault.InternalFailure}} {
		f.Service, f.Count = azure.ServiceIMDS, 1
		if _, err := w.Faults().Add(f); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask("GET", path+query) + ", " + ask("GET", path+query) + ", " + ask("GET", path+query); got !=
		"429 too_many_requests Too many requests, 503 service_unavailable The service is unavailable., 500 unknown Failed to retrieve token from the Active directory." {
		t.Errorf("faults: %s", got)
	}
	// The default identity is not found after the deletion of its application.
	must.Succeed(t, w.Azure().DeleteApplication(directory, clientA))
	if got := ask("GET", path+query); got != "400 invalid_request Identity not found" {
		t.Errorf("after its deletion: %s", got)
	}
}

// TestNoMetadata checks that a cloud without managed identities has no metadata service, neither at
// the fixed address nor at the proxy.
func TestNoMetadata(t *testing.T) {
	c, err := cloudtest.New(cloudtest.Config{})
	must.Succeed(t, err)
	defer func() { _ = c.Close() }()
	w := &world{Cloud: c}
	const path = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=x"
	proxied, direct := rig.Proxied(t, w.Cloud), &http.Transport{}
	defer direct.CloseIdleConnections()
	for name, tt := range map[string]struct {
		transport *http.Transport
		target    string
	}{
		"in process":        {w.Transport(), "http://" + azure.MetadataHost + path},
		"through the proxy": {proxied, "http://" + azure.MetadataHost + path},
		"at the proxy":      {direct, w.ProxyURL() + path},
	} {
		r := rig.NewRequest(t, http.MethodGet, tt.target, "", "")
		r.Header.Set("Metadata", "true")
		if res, err := tt.transport.RoundTrip(r); err == nil {
			if body := rig.ReadAll(t, res); res.StatusCode < 400 {
				t.Errorf("%s: HTTP %d %s", name, res.StatusCode, body)
			}
		}
	}
	for _, variable := range c.Env("ca.pem") {
		if strings.HasPrefix(variable, "AZURE_POD_IDENTITY_AUTHORITY_HOST=") {
			t.Error(variable)
		}
	}
}
