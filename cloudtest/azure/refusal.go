package azure

import (
	"encoding/json"
	"net/http"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// refusal is a no as Azure words it.
type refusal struct {
	status  int
	code    string // the service's own, as it stands in the journal
	oauth   string // Entra and the metadata service: the parameter error. Source: RFC 6749 §5.2
	message string
	detail  any    // registries: the member detail; blobs: a string, AuthenticationErrorDetail
	reason  string // for the journal only; may say what Azure does not
}

func (e *refusal) because(reason string) *refusal {
	e.reason = reason
	return e
}

// note writes the refusal into the journal's call.
func (e *refusal) note(call *journal.Call) {
	call.Code, call.Reason = e.code, e.reason
	if e.reason == "" {
		call.Reason = e.message
	}
}

// protocol is how a service puts its answers.
type protocol interface {
	// refuse writes an error answer and notes it in call, under the code that the caller sees.
	refuse(w http.ResponseWriter, call *journal.Call, e *refusal)
	// faulted is the service's own answer to an injected fault: InternalFailure, Unavailable or Throttle.
	faulted(kind fault.Kind) *refusal
	// broken is the beginning of a granted answer, cut off.
	broken() (contentType, body string)
}

// writeJSON answers with JSON, whole and at once.
func writeJSON(w http.ResponseWriter, status int, body any) {
	wire.Write(w, status, "application/json; charset=utf-8", wire.Must(json.Marshal(body)))
}
