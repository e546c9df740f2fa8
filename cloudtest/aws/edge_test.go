package aws_test

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// TestRawSTS checks STS's answers to requests that no SDK would send.
func TestRawSTS(t *testing.T) {
	w := newWorld(t)
	client := w.Client()
	const endpoint = "https://sts.eu-west-1.amazonaws.com/"
	const formType = "application/x-www-form-urlencoded"
	query := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {roleA}, "RoleSessionName": {"raw"},
		"WebIdentityToken": {w.Mint(t, subjectA)},
	}.Encode()
	tests := []struct {
		name, method, target, contentType, body string
		status                                  int
		code                                    string
	}{
		{"GET", "GET", endpoint + "?" + query, "", "", 200, ""},
		{"POST", "POST", endpoint, formType, query, 200, ""},
		{"POST with a charset", "POST", endpoint, formType + "; charset=utf-8", query, 200, ""},
		{"POST with a query", "POST", endpoint + "?" + query, formType, "", 200, ""},
		{"body wins over the query", "POST", endpoint + "?" + query, formType, "Action=GetCallerIdentity&Version=2011-06-15", 403, "MissingAuthenticationToken"},
		{"JSON", "POST", endpoint, "application/json", "{}", 400, "MalformedInput"},
		{"no type", "POST", endpoint, "", query, 400, "MalformedInput"},
		{"PUT", "PUT", endpoint, formType, query, 405, "MethodNotAllowed"},
		{"a path", "POST", endpoint + "x", formType, query, 404, "UnknownOperationException"},
		{"parameter twice", "POST", endpoint, formType, query + "&RoleArn=" + roleB, 400, "MalformedQueryString"},
		{"semicolon", "POST", endpoint, formType, query + ";x=y", 400, "MalformedQueryString"},
		{"bad escape", "POST", endpoint, formType, query + "&x=%zz", 400, "MalformedQueryString"},
		{"no version", "POST", endpoint, formType, strings.Replace(query, "Version", "Ersion", 1), 400, "InvalidAction"},
		{"social provider", "POST", endpoint, formType, query + "&ProviderId=www.amazon.com", 400, "ValidationError"},
		{"duration that is none", "POST", endpoint, formType, query + "&DurationSeconds=1h", 400, "ValidationError"},
		{"eleven policies", "POST", endpoint, formType, query + elevenPolicies(), 400, "ValidationError"},
		{"two megabytes", "POST", endpoint, formType, query + "&x=" + strings.Repeat("x", 2<<20), 413, "RequestEntityTooLarge"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := w.Journal().Last()
			res, err := client.Do(rig.NewRequest(t, tt.method, tt.target, tt.contentType, tt.body))
			must.Succeed(t, err)
			body := rig.ReadAll(t, res)
			if res.StatusCode != tt.status || (tt.code != "" && !strings.Contains(body, "<Code>"+tt.code+"</Code>")) {
				t.Errorf("HTTP %d %s, want %d %s", res.StatusCode, body, tt.status, tt.code)
			}
			calls := w.Journal().Calls(journal.Filter{After: before, Service: "sts"})
			if len(calls) != 1 || calls[0].Code != tt.code || calls[0].Status != tt.status {
				t.Errorf("journal has %+v", calls)
			}
		})
	}
}

func elevenPolicies() string {
	var b strings.Builder
	for _, n := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"} {
		b.WriteString("&PolicyArns.member." + n + ".arn=arn:aws:iam::123456789123:policy/p")
	}
	return b.String()
}

func TestRegistryFaults(t *testing.T) {
	w := newWorld(t)
	client := w.Client()
	login := w.login(t, pusher())
	for kind, want := range map[fault.Kind]string{
		fault.Throttle: "429 TOOMANYREQUESTS: Rate exceeded", fault.Unavailable: "503 UNAVAILABLE: ", fault.InternalFailure: "500 UNKNOWN: ",
		fault.Malformed: `200 {"schemaVersion":2`,
	} {
		w.Faults().Clear()
		if _, err := w.Faults().Add(fault.Fault{Service: "registry", Operation: "ecr:BatchGetImage", Kind: kind}); err != nil {
			t.Fatal(err)
		}
		a := w.request(t, client, http.MethodGet, "https://"+registryHost+"/v2/tenant-a/app/manifests/1", login, "")
		if !strings.HasPrefix(statusAndMessage(a), want) {
			t.Errorf("%s: %s, want %s", kind, statusAndMessage(a), want)
		}
		if a := w.request(t, client, http.MethodGet, "https://"+registryHost+"/v2/", login, ""); a.status != http.StatusOK {
			t.Errorf("%s: another operation: HTTP %d", kind, a.status)
		}
	}
}

func statusAndMessage(a answer) string {
	return strconv.Itoa(a.status) + " " + a.message()
}

// TestManySessions checks the error for a session that has ended. Shortly after the end, it must be
// ExpiredToken. Much later, STS must not know the session any more.
func TestManySessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		client := stsClient(transport, nil)
		first, err := assume(t.Context(), client, roleA, w.Mint(t, subjectA))
		must.Succeed(t, err)
		ask := func() string {
			_, err := stsClient(transport, static(first.Credentials)).GetCallerIdentity(t.Context(), nil)
			return outcomeOf(err).Code
		}
		time.Sleep(90 * time.Minute)
		if got := ask(); got != "ExpiredToken" {
			t.Errorf("half an hour after its end: %q", got)
		}
		time.Sleep(90 * time.Minute)
		token := w.Mint(t, subjectA)
		for range 1100 {
			if _, err := assume(t.Context(), client, roleA, token); err != nil {
				t.Fatal(err)
			}
		}
		if got := ask(); got != "InvalidClientTokenId" {
			t.Errorf("two hours after its end, with a thousand newer ones: %q", got)
		}
	})
}
