package kubeconfig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// maxAnswer bounds one answer, in bytes. The list of all kinds of a large cluster has 2 MiB.
const maxAnswer = 8 << 20

// boundedTransport sends requests to a server that a tenant chose.
//
//   - All requests end with the context of the reconciliation. Those for the list of kinds have no
//     other context.
//   - Each answer is read at once, up to [maxAnswer]. Its memory is taken from the account of the
//     reconciliation, until the next answer from the same path.
//   - Only JSON is decoded. The size of decoded JSON can be estimated, that of other formats cannot.
//   - A failure to list the kinds becomes text. Package discovery shows only text of a failure.
//   - The server cannot tell package rest to wait. Package rest would wait for as long as the server
//     says. The caller tries again later.
type boundedTransport struct {
	ctx  context.Context //nolint:containedctx // a transport of one reconciliation
	next http.RoundTripper

	mu    sync.Mutex       // guards taken
	taken map[string]int64 // memory of the last answer, by path
}

// RoundTrip implements http.RoundTripper.
func (t *boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	defer cancel(nil)
	defer context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })()
	sent := request.Clone(ctx)
	sent.Header["Accept"] = onlyJSON(request.Header["Accept"])
	response, err := t.next.RoundTrip(sent)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := checkType(response); err != nil {
		return nil, err
	}
	body, err := t.read(response.Body, request.Method+" "+request.URL.Path)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	answer := *response
	answer.Header = response.Header.Clone()
	answer.Header.Del("Retry-After")
	if response.StatusCode >= http.StatusBadRequest && isDiscovery(sent) {
		if message := messageOf(body); message != "" {
			answer.Header.Set("Content-Type", "text/plain")
			body = []byte(message)
		}
	}
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

// checkType refuses an answer that is not JSON. A failure may also be told as text: the answers of
// gateways and of unknown paths are.
func checkType(response *http.Response) error {
	format, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	failed := response.StatusCode >= http.StatusBadRequest
	if format == "application/json" || failed && (format == "" || strings.HasPrefix(format, "text/")) {
		return nil
	}
	return fmt.Errorf("the server answers with %.80q, and not with JSON as API servers do", format)
}

// isDiscovery reports whether a request asks for the list of kinds. Source: Kubernetes documentation,
// "The Kubernetes API", aggregated discovery.
func isDiscovery(request *http.Request) bool {
	return strings.Contains(strings.Join(request.Header["Accept"], ","), "g=apidiscovery.k8s.io")
}

// messageOf returns the message of an API server's failure; empty if the body is none.
func messageOf(body []byte) string {
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" {
		return ""
	}
	return status.Message
}

var errTooLarge = errors.New("the server's answer is larger than 8 MiB")

// read reads an answer. The place names whose memory the answer replaces.
func (t *boundedTransport) read(body io.Reader, place string) (_ []byte, err error) {
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
	t.mu.Lock()
	replaced := t.taken[place]
	t.taken[place] = taken
	t.mu.Unlock()
	reserve.Free(t.ctx, replaced)
	return text.Bytes(), nil
}

// step is how many bytes of an answer are read after memory was taken for them.
const step = 16 << 10
