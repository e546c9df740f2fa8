package azure

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
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
	out, err := json.Marshal(body)
	if err != nil {
		panic("azure: an answer cannot fail to marshal: " + err.Error())
	}
	write(w, status, "application/json; charset=utf-8", out)
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // encoders escape what a caller sent
}

// newUUID makes a random UUID, version 4. Source: RFC 9562 §5.4.
func newUUID() string {
	b := random(16)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
