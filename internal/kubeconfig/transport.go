package kubeconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// maxAnswer bounds one answer, in bytes. The list of all kinds of a large cluster has 2 MiB.
const maxAnswer = 8 << 20

// boundedTransport sends requests to a server that a tenant chose.
//
//   - All requests end with the context of the reconciliation.
//   - Each answer is read at once, up to [maxAnswer]. Its memory is taken from the account of the
//     reconciliation. The account is charged for the largest answers, [liveAnswers] of them.
//   - Only JSON is decoded. The size of decoded JSON can be estimated, that of other formats cannot.
//   - Unknown status codes are refused, because package rest makes a metric for each code.
//   - The server cannot tell package rest to wait. Package rest would wait for as long as the server
//     says. The caller tries again later.
type boundedTransport struct {
	ctx     context.Context //nolint:containedctx // a transport of one reconciliation
	next    http.RoundTripper
	host    string // of the server
	retains bool   // see [Use]

	mu    sync.Mutex // guards taken
	taken []int64    // memory of the largest answers
}

// liveAnswers is how many answers a caller uses at once. An applier works on four objects at once,
// and has up to three answers for each.
const liveAnswers = 16

// RoundTrip implements http.RoundTripper.
func (t *boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	defer cancel(nil)
	defer context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })() //nolint:contextcheck // both contexts end the request
	sent := request.Clone(ctx)
	sent.URL.Host, sent.Host = t.host, t.host
	sent.Header["Accept"] = onlyJSON(request.Header["Accept"])
	response, err := t.next.RoundTrip(sent)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := checkHead(response); err != nil {
		return nil, err
	}
	body, err := t.read(response.Body)
	if err = causeOf(ctx, err); err != nil { // an answer that was cut off can look complete
		return nil, err
	}
	answer := *response
	answer.Header = response.Header.Clone()
	answer.Header.Del("Retry-After")
	answer.Request, answer.Body, answer.ContentLength = request, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return &answer, nil
}

// causeOf returns why the context has ended, or err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// onlyJSON removes all formats except JSON from the values of the header Accept.
func onlyJSON(accept []string) []string {
	var kept []string
	for _, value := range accept {
		formats := slices.DeleteFunc(strings.Split(value, ","), func(format string) bool {
			name, _, _ := strings.Cut(strings.TrimSpace(format), ";")
			return name != "application/json"
		})
		if len(formats) > 0 {
			kept = append(kept, strings.Join(formats, ","))
		}
	}
	if len(kept) == 0 {
		return []string{"application/json"}
	}
	return kept
}

// checkHead accepts only JSON and known status codes. A failure may also be text, as gateways send.
// A redirect is refused later.
func checkHead(response *http.Response) error {
	if http.StatusText(response.StatusCode) == "" {
		return fmt.Errorf("the server answers with %d, which is no status code of HTTP", response.StatusCode)
	}
	format, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	failed, redirects := response.StatusCode >= http.StatusBadRequest, response.StatusCode/100 == 3
	if redirects || format == "application/json" || failed && (format == "" || strings.HasPrefix(format, "text/")) {
		return nil
	}
	return fmt.Errorf("the server answers with %.80q, and not with JSON as API servers do", format)
}

var errTooLarge = errors.New("the server's answer is larger than 8 MiB")

// read reads an answer, and takes memory for it.
func (t *boundedTransport) read(body io.Reader) (_ []byte, err error) {
	var taken int64
	defer func() {
		if err != nil {
			reserve.Free(t.ctx, taken)
		}
	}()
	hold := func(cost int64) error {
		if cost <= taken {
			reserve.Free(t.ctx, taken-cost)
		} else if err := reserve.Take(t.ctx, cost-taken); err != nil {
			return err
		}
		taken = cost
		return nil
	}
	var text bytes.Buffer
	for n := int64(step); n == step; {
		if err := hold(reserve.Cost(text.Len()+step, 0)); err != nil {
			return nil, err
		}
		if n, err = io.CopyN(&text, body, step); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if text.Len() > maxAnswer {
			return nil, errTooLarge
		}
	}
	if err := hold(reserve.Cost(text.Len(), reserve.Values(text.Bytes()))); err != nil {
		return nil, err
	}
	t.keep(taken)
	return text.Bytes(), nil
}

// keep remembers the memory of an answer. Which answers are still used is not known. But if the
// largest ones are charged, no others can need more memory.
func (t *boundedTransport) keep(taken int64) {
	if t.retains {
		return // the account is closed at the end
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = append(t.taken, taken)
	if len(t.taken) > liveAnswers {
		smallest := slices.Index(t.taken, slices.Min(t.taken))
		reserve.Free(t.ctx, t.taken[smallest])
		t.taken = slices.Delete(t.taken, smallest, smallest+1)
	}
}

// step is how many bytes of an answer are read after memory was taken for them.
const step = 16 << 10
