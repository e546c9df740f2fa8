package aws

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// TestAnotherAPI checks that a table of operations is enough to add an API of AWS, in the Query and
// in the JSON protocol.
func TestAnotherAPI(t *testing.T) {
	type user struct {
		UserName string `json:"userName"`
	}
	operations := map[string]operation{
		"GetUser":    {unsigned: true, do: func(*Cloud, *apiCall) (any, *service.Refusal) { return user{UserName: "u"}, nil }},
		"DeleteUser": {do: func(*Cloud, *apiCall) (any, *service.Refusal) { panic("the caller is not proved") }},
	}
	c, err := New(Config{}, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	query := queryAPI{version: "2010-05-08", namespace: "https://iam.amazonaws.com/doc/2010-05-08/", operations: operations}
	inJSON := jsonAPI{target: "Users_V1.", protocol: json11(), operations: operations}
	services := map[string]service.Service{
		"query": func(r *service.Request) (service.Protocol, service.Handler) { return c.readQuery(r, endpoint{}, query) },
		"json":  func(r *service.Request) (service.Protocol, service.Handler) { return c.readJSON(r, endpoint{}, inJSON) },
	}
	id := regexp.MustCompile(`[0-9a-f-]{36}`)
	for _, tt := range []struct {
		service, action string
		status          int
		operation, body string
	}{
		{"query", "Action=GetUser&Version=2010-05-08", 200, "GetUser", `<GetUserResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">
  <GetUserResult>
    <UserName>u</UserName>
  </GetUserResult>
  <ResponseMetadata>
    <RequestId>…</RequestId>
  </ResponseMetadata>
</GetUserResponse>`},
		{"query", "Action=DeleteUser&Version=2010-05-08", 403, "DeleteUser", "<Code>MissingAuthenticationToken</Code>"},
		{"query", "Action=GetUser&Version=2011-06-15", 400, "GetUser", "Could not find operation GetUser for version 2011-06-15"},
		{"query", "Action=PutUser&Version=2010-05-08", 400, "", "<Code>InvalidAction</Code>"},
		{"json", "Users_V1.GetUser", 200, "GetUser", `{"userName":"u"}`},
		{"json", "Users_V1.DeleteUser", 400, "DeleteUser", `"__type":"MissingAuthenticationTokenException"`},
		{"json", "Users_V2.GetUser", 400, "", `"__type":"UnknownOperationException"`},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://iam.amazonaws.com/", strings.NewReader(tt.action))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Amz-Target", tt.action)
		server := &service.Server{Faults: &fault.Set{}, Journal: journal.New(1)}
		w := httptest.NewRecorder()
		server.Serve(w, r, services[tt.service])
		call := server.Journal.Calls(journal.Filter{})[0]
		if body := id.ReplaceAllString(w.Body.String(), "…"); w.Code != tt.status || !strings.Contains(body, tt.body) || call.Operation != tt.operation {
			t.Errorf("%s: HTTP %d %s, journal has %+v", tt.action, w.Code, body, call)
		}
	}
}
