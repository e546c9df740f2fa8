package cloudtest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lanyard-dev/lanyard/cloudtest/change"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// The code below is all that another cloud needs: its state, a service, the texts of its refusals,
// and a table of the methods that change its state.

// noteCloud is a cloud with one service, which stores a note for each token.
type noteCloud struct {
	mu    sync.Mutex
	notes map[string]note // by token
}

type note struct {
	Text string `json:"text"`
}

const noteHost = "notes.fourth.example"

func (c *noteCloud) Service(host string) service.Service {
	if host != noteHost {
		return nil
	}
	return func(r *service.Request) (service.Protocol, service.Handler) {
		r.Call.Service = "notes"
		if r.Method != http.MethodGet || r.URL.Path != "/note" {
			return noteProtocol(), service.Refuse(http.StatusNotFound, "NoOperation", "There is no such operation.").Handle
		}
		r.Call.Operation = "ReadNote"
		return noteProtocol(), c.readNote
	}
}

func (c *noteCloud) readNote(r *service.Request) (service.Answer, *service.Refusal) {
	token, _ := wire.Bearer(r.Request)
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.notes[token]
	if !ok {
		return nil, service.Refuse(http.StatusForbidden, "NoNote", "You have no note.").Because("no note belongs to the token")
	}
	r.Call.Principal = "holder"
	return writeNote(http.StatusOK, n), nil
}

func writeNote(status int, body any) service.Answer {
	return service.Whole(status, "application/json", wire.Must(json.Marshal(body)))
}

func noteProtocol() service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, e *service.Refusal) service.Answer {
			r.Reply.Set("X-Note-Problem", e.Code)
			return writeNote(e.Status, map[string]string{"problem": e.Code, "says": e.Message})
		},
		Failure:     service.Refuse(http.StatusInternalServerError, "Broken", "We broke."),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "Away", "We are away."),
		Throttled:   service.Refuse(http.StatusTooManyRequests, "Slower", "Ask more slowly."),
		Broken:      service.Whole(http.StatusOK, "application/json", []byte(`{"text":"`)),
	}
}

func (c *noteCloud) PutNote(token string, n note) error {
	if n.Text == "" {
		return setting.Invalid("text", "write something")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes[token] = n
	return nil
}

func (c *noteCloud) DeleteNote(token, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return setting.Remove(c.notes, token, "note")
}

type noteAdmin struct {
	PutNote    func(ctx context.Context, token string, n note) error
	DeleteNote func(ctx context.Context, token, reason string) error
}

func newNoteAdmin(t *change.Table[*noteCloud]) noteAdmin {
	return noteAdmin{
		PutNote:    change.Put(t, "PUT /fourth/notes/{token}", (*noteCloud).PutNote),
		DeleteNote: change.Delete(t, "DELETE /fourth/notes/{token}?reason", (*noteCloud).DeleteNote),
	}
}

// TestFourthCloud checks that a new cloud only has to read requests, decide about them, and write
// answers. The code that all clouds share adds TLS, faults, quotas, the journal and the admin API.
func TestFourthCloud(t *testing.T) {
	ctx := t.Context()
	c, err := New(Config{})
	must.Succeed(t, err)
	defer func() { _ = c.Close() }()
	// Cloud.configure adds AWS, Azure and the other clouds in the same way.
	c.parts = append(c.parts, newPart(&noteCloud{notes: map[string]note{}}, newNoteAdmin))
	must.Succeed(t, c.Start(ctx))
	remote := &Admin{URL: c.ProxyURL()}
	admin := newNoteAdmin(&change.Table[*noteCloud]{Send: remote.change})

	transport := c.Transport()
	defer transport.CloseIdleConnections()
	get := func(path string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+noteHost+path, http.NoBody)
		must.Succeed(t, err)
		r.Header.Set("Authorization", "Bearer a")
		r.Close = true // on a reused connection, net/http would repeat the request after a fault
		res, err := transport.RoundTrip(r)
		if err != nil {
			return "no answer"
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		must.Succeed(t, err)
		return res.Status[:3] + " " + strings.TrimSpace(string(body)) + " " + res.Header.Get("Retry-After")
	}
	withFault := func(f fault.Fault) string {
		t.Helper()
		f.Service, f.Operation, f.Count = "notes", "ReadNote", 1
		_, err := remote.AddFault(ctx, f)
		must.Succeed(t, err)
		return get("/note")
	}
	got := []string{get("/note"), get("/other")}
	must.Succeed(t, admin.PutNote(ctx, "a", note{Text: "milk"}))
	got = append(got, get("/note"),
		withFault(fault.Fault{Kind: fault.Throttle, RetryAfter: 7e9}), withFault(fault.Fault{Kind: fault.Unavailable}),
		withFault(fault.Fault{Kind: fault.InternalFailure}), withFault(fault.Fault{Kind: fault.Malformed}), withFault(fault.Fault{Kind: fault.Drop}))
	must.Succeed(t, remote.SetQuotas(ctx, []fault.Quota{{Service: "notes", PerSecond: 0.001, Burst: 1}}))
	got = append(got, get("/note"), get("/note"))
	must.Succeed(t, remote.SetQuotas(ctx, nil))
	must.Succeed(t, admin.DeleteNote(ctx, "a", "read"))
	got = append(got, get("/note"))
	if diff := cmp.Diff([]string{
		`403 {"problem":"NoNote","says":"You have no note."} `, `404 {"problem":"NoOperation","says":"There is no such operation."} `,
		`200 {"text":"milk"} `, `429 {"problem":"Slower","says":"Ask more slowly."} 7`, `503 {"problem":"Away","says":"We are away."} `,
		`500 {"problem":"Broken","says":"We broke."} `, `200 {"text":" `, "no answer",
		`200 {"text":"milk"} `, `429 {"problem":"Slower","says":"Ask more slowly."} `, `403 {"problem":"NoNote","says":"You have no note."} `,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if err := admin.PutNote(ctx, "a", note{}); !hasField(err, "text") {
		t.Errorf("an empty note: %v", err)
	}
	if err := admin.DeleteNote(ctx, "a", ""); !errors.Is(err, setting.ErrNotFound) {
		t.Errorf("a note that is gone: %v", err)
	}

	const injected = "an injected fault"
	want := []journal.Call{
		{Operation: "ReadNote", Code: "NoNote", Reason: "no note belongs to the token", Status: 403},
		{Code: "NoOperation", Reason: "There is no such operation.", Status: 404},
		{Operation: "ReadNote", Principal: "holder", Status: 200},
		{Operation: "ReadNote", Code: "Slower", Reason: injected, Status: 429, Fault: "fault-1"},
		{Operation: "ReadNote", Code: "Away", Reason: injected, Status: 503, Fault: "fault-2"},
		{Operation: "ReadNote", Code: "Broken", Reason: injected, Status: 500, Fault: "fault-3"},
		{Operation: "ReadNote", Code: "Malformed", Reason: injected + " cut the answer off", Status: 200, Fault: "fault-4"},
		{Operation: "ReadNote", Code: "Dropped", Reason: injected + " closed the connection", Fault: "fault-5"},
		{Operation: "ReadNote", Principal: "holder", Status: 200},
		{Operation: "ReadNote", Code: "Slower", Reason: injected, Status: 429, Fault: "quota"},
		{Operation: "ReadNote", Code: "NoNote", Reason: "no note belongs to the token", Status: 403},
	}
	calls := c.Journal().Calls(journal.Filter{Service: "notes", Host: noteHost})
	if diff := cmp.Diff(want, calls, cmpopts.IgnoreFields(journal.Call{}, "Seq", "Time", "Host", "Service")); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
}

func hasField(err error, field string) bool {
	e, ok := errors.AsType[*setting.Error](err)
	return ok && e.Field == field
}
