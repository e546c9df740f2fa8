package remote

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

const (
	// maxBody bounds an answer, in bytes. Tokens are a few kilobytes.
	maxBody = 1 << 20
	// maxRetryAfter bounds how long an answer can ask us to wait.
	maxRetryAfter = 15 * time.Minute
)

// errBrokenOff means that the connection ended in the middle of an answer. errTooLong means that
// the answer is longer than maxBody. There is no second attempt after these errors, because the
// called service has already done the operation.
var (
	errBrokenOff = errors.New("the answer broke off")
	errTooLong   = errors.New("the answer is too long")
)

// Answer is a response that was read to its end.
type Answer struct {
	// Status is the HTTP status.
	Status int
	// Header has the header fields of the answer.
	Header http.Header
	// Body is at most 1 MiB.
	Body []byte
}

// read reads the whole answer from the connection. It replaces the response's Body by a copy in
// memory.
func read(response *http.Response) (Answer, error) {
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil && attempt.Explain(err).Cause == attempt.TimedOut:
		return Answer{}, err
	case err != nil:
		return Answer{}, errBrokenOff
	case len(body) > maxBody:
		return Answer{}, errTooLong
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return Answer{response.StatusCode, response.Header, body}, nil
}

// RetryAfter returns how long the answer asks us to wait: from zero to 15 minutes.
func (a Answer) RetryAfter() time.Duration {
	return min(attempt.RetryAfter(a.Header), maxRetryAfter)
}
